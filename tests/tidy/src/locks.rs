//! Locks: each has a rank, and ARCHITECTURE.md lists the ranks in their order.

use std::path::Path;

use syn::visit::{self, Visit};

use crate::Finding;
use crate::source::{Crate, SourceFile, is_for_tests};

/// Where the order is.
const ORDER: &str = "crates/storage/src/rank.rs";
/// Where locks get their rank.
const MADE: &str = "crates/storage/src/rank/locks.rs";

/// Locks without a rank in the sources of a crate. Tests may use them.
pub fn bare_locks(krate: &Crate) -> Vec<Finding> {
    let sources = krate.files.iter().filter(|file| file.module.is_some() && file.path != MADE);
    sources.flat_map(bare_locks_in).collect()
}

fn bare_locks_in(file: &SourceFile) -> Vec<Finding> {
    let mut visitor = Bare(Vec::new());
    visitor.visit_file(&file.syntax);
    let finding = |name: &String| Finding {
        at: file.path.clone(),
        value: 0,
        message: format!(
            "{}: a bare {name}: use `storage::rank::Ranked{name}` (`zpl::rank` above `zpl`), so that debug builds find a lock that is taken out of order",
            file.path
        ),
    };
    visitor.0.iter().map(finding).collect()
}

struct Bare(Vec<String>);

impl Bare {
    fn note(&mut self, name: &syn::Ident) {
        if name == "Mutex" || name == "RwLock" {
            self.0.push(name.to_string());
        }
    }
}

impl<'ast> Visit<'ast> for Bare {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_use_name(&mut self, name: &'ast syn::UseName) {
        self.note(&name.ident);
    }

    fn visit_use_rename(&mut self, name: &'ast syn::UseRename) {
        self.note(&name.ident);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A name that was imported is found where it was imported.
        if path.segments.len() > 1 {
            path.segments.iter().for_each(|segment| self.note(&segment.ident));
        }
        visit::visit_path(self, path);
    }
}

/// Ranks that the section "Lock order" of ARCHITECTURE.md does not list, lists in another order, or lists without need.
///
/// # Panics
/// When ARCHITECTURE.md cannot be read.
pub fn order_on_the_map(root: &Path, crates: &[Crate]) -> Vec<Finding> {
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map is there");
    let files = crates.iter().flat_map(|krate| &krate.files);
    let ranks = files.filter(|file| file.path == ORDER).flat_map(ranks).collect::<Vec<_>>();
    let listed = listed(&text);
    let at = |index: usize, list: &[String]| list.get(index).cloned().unwrap_or("no more".to_owned());
    let differ = (0..ranks.len().max(listed.len())).find(|&index| ranks.get(index) != listed.get(index));
    let found = differ.map(|index| Finding {
        at: "ARCHITECTURE.md".into(),
        value: 0,
        message: format!(
            "ARCHITECTURE.md: the lock order lists {} where {ORDER} has {}: a reader trusts the list",
            at(index, &listed),
            at(index, &ranks)
        ),
    });
    found.into_iter().collect()
}

/// The ranks in their order.
fn ranks(file: &SourceFile) -> Vec<String> {
    let item = file.syntax.items.iter().find_map(|item| match item {
        syn::Item::Enum(item) if item.ident == "Rank" => Some(item),
        _ => None,
    });
    item.iter().flat_map(|item| item.variants.iter().map(|variant| variant.ident.to_string())).collect()
}

/// The first names in the cells of the table in the section "Lock order".
fn listed(text: &str) -> Vec<String> {
    let section = text.split("\n## ").find(|section| section.starts_with("Lock order"));
    let rows = section.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| row.split('`').next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(krate: &str, path: &str, text: &str) -> Crate {
        let file = SourceFile {
            path: path.into(),
            krate: krate.into(),
            module: Some(vec!["a".into()]),
            text: text.into(),
            syntax: syn::parse_file(text).expect("Rust"),
        };
        Crate { name: krate.into(), manifest: "Cargo.toml".into(), files: vec![file] }
    }

    #[test]
    fn a_lock_without_a_rank_is_found_however_it_is_named() {
        let found = |krate: &str, text: &str| bare_locks(&made(krate, "a.rs", text)).len();
        assert_eq!(found("nfs", "use std::sync::{Arc, Mutex, RwLock as Lock};"), 2);
        assert_eq!(found("nfs", "struct A { a: std::sync::Mutex<u8> }"), 1);
        assert_eq!(found("nfs", "fn f() { let a = std::sync::RwLock::new(1); }"), 1);
        assert_eq!(found("nfs", "use zpl::rank::RankedMutex; struct A { a: RankedMutex<u8> }"), 0);
        assert_eq!(found("nfs", "#[cfg(test)] mod tests { use std::sync::Mutex; }"), 0);
        assert_eq!(found("codec", "use std::sync::Mutex;"), 1);
        assert_eq!(bare_locks(&made("storage", MADE, "use std::sync::Mutex;")).len(), 0);
    }

    #[test]
    fn the_table_of_the_map_has_each_rank_in_its_place() {
        let ranks = [made("storage", ORDER, "enum Rank { Nodes, Zap, Leaf }")];
        let folder = std::env::temp_dir().join(format!("cenote-tidy-locks-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let said = |rows: &str| {
            let text =
                format!("# Map\n| `A` |\n\n## Lock order\n\n| rank |\n|---|\n{rows}\n## More\n| `B` |\n");
            std::fs::write(folder.join("ARCHITECTURE.md"), text).expect("a temporary file");
            order_on_the_map(&folder, &ranks).into_iter().map(|found| found.message).collect::<String>()
        };
        assert_eq!(said("| `Nodes` | `a.rs` |\n| `Zap` | |\n| `Leaf` | |\n"), "");
        assert!(said("| `Zap` |\n| `Nodes` |\n| `Leaf` |\n").contains("lists Zap where"));
        assert!(said("| `Nodes` |\n| `Zap` |\n").contains("lists no more where"));
        assert!(said("| `Nodes` |\n| `Zap` |\n| `Leaf` |\n| `Old` |\n").contains("has no more"));
        std::fs::remove_dir_all(&folder).expect("it was made above");
    }
}
