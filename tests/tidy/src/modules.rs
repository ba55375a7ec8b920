//! Which module of a crate uses which, and where those arrows form a circle.
//!
//! An arrow is any path in code that is not for tests (`use`, expressions, macros) and begins with `crate::`, `super::` or
//! `self::`. A name that a module re-exports counts as the module that defines it. Arrows between a module and the
//! modules inside it are not looked at: a circle is one among modules of the same parent.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Ident, Item, UseTree};

use crate::Finding;
use crate::source::{Crate, SourceFile, is_for_tests};

type Path = Vec<String>;

/// The arrows between the modules of one crate.
pub struct Graph {
    /// From and to (module paths within the crate), with the path in the code that makes the arrow.
    pub arrows: BTreeMap<(Path, Path), String>,
}

impl Graph {
    /// Reads the arrows of `krate`.
    pub fn of(krate: &Crate) -> Graph {
        let for_tests = test_modules(krate);
        let is_for_tests = |module: &Path| for_tests.iter().any(|tests| module.starts_with(tests));
        let is_code = |file: &&SourceFile| file.module.as_ref().is_some_and(|module| !is_for_tests(module));
        let sources: Vec<&SourceFile> = krate.files.iter().filter(is_code).collect();
        let modules: BTreeSet<Path> = sources.iter().filter_map(|file| file.module.clone()).collect();
        let mut known = Known { modules, exports: BTreeMap::new() };
        for file in &sources {
            let here = file.module.clone().unwrap_or_default();
            for item in &file.syntax.items {
                // `::name` means another crate, even if a module has the same name.
                if let Item::Use(item) = item
                    && item.leading_colon.is_none()
                {
                    re_exports(&item.tree, &here, Vec::new(), &mut known);
                }
            }
        }
        let mut arrows = BTreeMap::new();
        for file in &sources {
            let here = file.module.clone().unwrap_or_default();
            for target in targets(file, &here) {
                let to = known.resolve(&target);
                if to != here {
                    arrows.entry((here.clone(), to)).or_insert_with(|| target.join("::"));
                }
            }
        }
        Graph { arrows }
    }

    /// Arrows between the direct children of `parent`: child to child, with one example (user, path).
    pub fn among(&self, parent: &[String]) -> BTreeMap<(String, String), (String, String)> {
        let mut among = BTreeMap::new();
        for ((from, to), path) in &self.arrows {
            if let (Some(a), Some(b)) = (child(parent, from), child(parent, to))
                && a != b
            {
                among.entry((a, b)).or_insert_with(|| (from.join("::"), path.clone()));
            }
        }
        among
    }

    /// Every module that has children in the graph, the crate's root first.
    pub fn parents(&self) -> BTreeSet<Path> {
        let mut parents = BTreeSet::new();
        for (from, to) in self.arrows.keys() {
            for module in [from, to] {
                parents.extend((0..module.len()).map(|depth| module[..depth].to_vec()));
            }
        }
        parents
    }
}

/// Modules that lie in files of their own and are compiled only for tests.
fn test_modules(krate: &Crate) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for file in &krate.files {
        let Some(here) = &file.module else { continue };
        for item in &file.syntax.items {
            if let Item::Mod(item) = item
                && item.content.is_none()
                && is_for_tests(&item.attrs)
            {
                found.insert([here.as_slice(), &[item.ident.to_string()]].concat());
            }
        }
    }
    found
}

/// Every circle in `krate`: its members, and the arrows that form it.
pub fn circles(krate: &Crate) -> Vec<Finding> {
    let graph = Graph::of(krate);
    let mut findings = Vec::new();
    for parent in graph.parents() {
        let among = graph.among(&parent);
        for circle in components(&among) {
            let inside = |(a, b): &(String, String)| circle.contains(a) && circle.contains(b);
            let arrows: Vec<String> = among
                .iter()
                .filter(|(arrow, _)| inside(arrow))
                .map(|((a, b), (user, path))| format!("    {a} -> {b}   ({user} uses {path})"))
                .collect();
            let place: Vec<&str> =
                std::iter::once(krate.name.as_str()).chain(parent.iter().map(String::as_str)).collect();
            let members: Vec<&str> = circle.iter().map(String::as_str).collect();
            let at = format!("{}: {}", place.join("::"), members.join(", "));
            let message = format!(
                "the modules {at} use each other in a circle, so none can be understood or moved alone; \
                 move what both sides need into a module below them:\n{}",
                arrows.join("\n")
            );
            findings.push(Finding { at, value: circle.len(), message });
        }
    }
    findings
}

struct Known {
    modules: BTreeSet<Path>,
    exports: BTreeMap<(Path, String), Path>,
}

impl Known {
    /// The module that defines what `target` names: follows re-exports, then takes the longest known module.
    fn resolve(&self, target: &[String]) -> Path {
        let mut module = Path::new();
        let mut rest: Vec<String> = target.to_vec();
        // Each step takes one name off `rest`, or follows a re-export; 16 re-exports in a row do not occur.
        for _ in 0..64 {
            let Some(name) = rest.first().cloned() else { break };
            let mut inner = module.clone();
            inner.push(name.clone());
            if self.modules.contains(&inner) {
                module = inner;
                rest.remove(0);
            } else if let Some(to) = self.exports.get(&(module.clone(), name)) {
                rest.splice(..1, to.iter().cloned());
                module.clear();
            } else {
                break;
            }
        }
        module
    }
}

fn child(parent: &[String], module: &[String]) -> Option<String> {
    module.strip_prefix(parent).and_then(|rest| rest.first()).cloned()
}

/// Notes what a `use` makes visible under another module: `(module, name)` to the full path.
fn re_exports(tree: &UseTree, here: &Path, prefix: Path, known: &mut Known) {
    match tree {
        UseTree::Path(path) => {
            let mut prefix = prefix;
            prefix.push(path.ident.to_string());
            re_exports(&path.tree, here, prefix, known);
        }
        UseTree::Group(group) => {
            for inner in &group.items {
                re_exports(inner, here, prefix.clone(), known);
            }
        }
        UseTree::Name(name) => note(here, prefix, (&name.ident, &name.ident), known),
        UseTree::Rename(name) => note(here, prefix, (&name.ident, &name.rename), known),
        UseTree::Glob(_) => {}
    }
}

/// Notes one name of a `use`: what it is called where it is defined, and how `here` shows it.
fn note(here: &Path, prefix: Path, (name, shown): (&Ident, &Ident), known: &mut Known) {
    let mut full = prefix;
    full.push(name.to_string());
    let absolute = match full.first().map(String::as_str) {
        Some("crate" | "self" | "super") => from_keyword(here, &full),
        Some(first) => {
            // `pub use child::Name` in the parent of `child`.
            let mut inner = here.clone();
            inner.push(first.to_owned());
            known.modules.contains(&inner).then(|| here.iter().chain(&full).cloned().collect())
        }
        None => None,
    };
    if let Some(absolute) = absolute {
        known.exports.insert((here.clone(), shown.to_string()), absolute);
    }
}

/// `crate::a::b`, `super::b` or `self::b`, seen from `here`, as a path from the crate's root.
fn from_keyword(here: &Path, path: &[String]) -> Option<Path> {
    let mut base = here.clone();
    let mut rest = path;
    match path.first().map(String::as_str)? {
        "crate" => {
            base.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        _ => {}
    }
    while rest.first().is_some_and(|part| part == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// Every path from the crate's root that code of `file` names, tests left out.
fn targets(file: &SourceFile, here: &Path) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for item in &file.syntax.items {
        collect(item, here, &mut found);
    }
    found
}

fn collect(item: &Item, here: &Path, found: &mut BTreeSet<Path>) {
    let attributes: &[syn::Attribute] = match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        _ => &[],
    };
    if is_for_tests(attributes) {
        return;
    }
    // A re-export does not count as a use.
    if matches!(item, Item::Use(item) if !matches!(item.vis, syn::Visibility::Inherited)) {
        return;
    }
    scan(item.to_token_stream(), here, found);
}

fn scan(tokens: TokenStream, here: &Path, found: &mut BTreeSet<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut i = 0;
    while i < tokens.len() {
        match &tokens[i] {
            TokenTree::Ident(ident) if ["crate", "super", "self"].iter().any(|word| ident == word) => {
                let first = ident.to_string();
                i += 1;
                if is_separator(&tokens, i) {
                    i = path(&tokens, i, vec![first], here, found);
                }
            }
            TokenTree::Group(group) => {
                scan(group.stream(), here, found);
                i += 1;
            }
            _ => i += 1,
        }
    }
}

fn is_separator(tokens: &[TokenTree], i: usize) -> bool {
    let colon = |i: usize| matches!(tokens.get(i), Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
    colon(i) && colon(i + 1)
}

/// Follows `:: name :: name` or `:: { … }` from `i`, and gives the place behind it.
fn path(
    tokens: &[TokenTree],
    mut i: usize,
    mut so_far: Path,
    here: &Path,
    found: &mut BTreeSet<Path>,
) -> usize {
    while is_separator(tokens, i) {
        match tokens.get(i + 2) {
            Some(TokenTree::Ident(ident)) => {
                so_far.push(ident.to_string());
                i += 3;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let is_comma =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
                for part in inner.split(is_comma) {
                    if let Some(TokenTree::Ident(ident)) = part.first() {
                        let mut branch = so_far.clone();
                        branch.push(ident.to_string());
                        path(part, 1, branch, here, found);
                    }
                }
                return i + 3;
            }
            // At a glob, or at a type's arguments, the path of the module ends.
            _ => break,
        }
    }
    found.extend(from_keyword(here, &so_far));
    i.max(1)
}

/// Strongly connected components with more than one member (Tarjan's algorithm), each sorted.
fn components<T>(arrows: &BTreeMap<(String, String), T>) -> Vec<BTreeSet<String>> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in arrows.keys() {
        next.entry(from).or_default().push(to);
        next.entry(to).or_default();
    }
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut todo = vec![from.to_owned()];
        while let Some(at) = todo.pop() {
            for to in next.get(at.as_str()).into_iter().flatten() {
                if seen.insert((*to).to_owned()) {
                    todo.push((*to).to_owned());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = next.keys().map(|name| (*name, reach(name))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for (name, to) in &reached {
        if circles.iter().any(|circle| circle.contains(*name)) || !to.contains(*name) {
            continue;
        }
        circles.push(to.iter().filter(|other| reached[other.as_str()].contains(*name)).cloned().collect());
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn krate(files: &[(&[&str], &str)]) -> Crate {
        let files = files
            .iter()
            .map(|(module, text)| SourceFile {
                path: module.join("/"),
                krate: "made".into(),
                module: Some(module.iter().map(|part| (*part).to_owned()).collect()),
                text: (*text).to_owned(),
                syntax: syn::parse_file(text).expect("Rust"),
            })
            .collect();
        Crate { name: "made".into(), manifest: "Cargo.toml".into(), files }
    }

    #[test]
    fn two_modules_that_use_each_other_are_a_circle() {
        let made = krate(&[
            (&[], "mod a; mod b;"),
            (&["a"], "use crate::b::B;"),
            (&["b"], "fn f() -> super::a::A { todo() }"),
        ]);
        let found = circles(&made);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at, "made: a, b");
    }

    #[test]
    fn a_name_re_exported_by_the_root_counts_as_the_module_that_defines_it() {
        let made = krate(&[
            (&[], "mod a; mod b; pub use a::A;"),
            (&["a"], "use crate::{b::{self, B}};"),
            (&["b"], "fn f() { g!(crate::A::new()) }"),
        ]);
        assert_eq!(circles(&made).len(), 1);
    }

    #[test]
    fn modules_inside_a_module_and_tests_make_no_circle() {
        let made = krate(&[
            (&[], "mod a; mod b;"),
            (&["a"], "mod c; use c::C; #[cfg(test)] mod tests { use crate::b::B; }"),
            (&["a", "c"], "use super::A;"),
            (&["b"], "use crate::a::A;"),
        ]);
        assert_eq!(circles(&made), []);
    }

    #[test]
    fn a_file_that_is_compiled_only_for_tests_makes_no_arrows() {
        let made = krate(&[
            (&[], "mod a; mod b;"),
            (&["a"], "#[cfg(test)] mod checks;"),
            (&["a", "checks"], "use crate::b::B;"),
            (&["b"], "use crate::a::A;"),
        ]);
        assert_eq!(circles(&made), []);
    }

    #[test]
    fn modules_of_one_parent_below_the_root_are_looked_at_too() {
        let made = krate(&[
            (&[], "mod a;"),
            (&["a"], "mod c; mod d;"),
            (&["a", "c"], "use super::d::D;"),
            (&["a", "d"], "use crate::a::c::C;"),
        ]);
        assert_eq!(circles(&made)[0].at, "made::a: c, d");
    }
}
