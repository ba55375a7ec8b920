//! Dependencies that no file of their crate names.

use std::fs;

use crate::Finding;
use crate::source::{Crate, SourceFile, root};

/// Dependencies in `krate`'s manifest that none of its files names.
///
/// # Panics
/// When the manifest cannot be read or parsed: cargo has read it before this runs.
pub fn unused(krate: &Crate) -> Vec<Finding> {
    let manifest = manifest(krate);
    let mut found = Vec::new();
    for (section, in_tests) in
        [("dependencies", false), ("dev-dependencies", true), ("build-dependencies", true)]
    {
        let Some(table) = manifest.get(section).and_then(toml::Value::as_table) else { continue };
        for name in table.keys() {
            let ident = name.replace('-', "_");
            let files = || krate.files.iter().filter(|file| in_tests || !file.path.contains("/tests/"));
            let named = files().any(|file| names(&file.text, &ident))
                || files().flat_map(borrowed).any(|text| names(&text, &ident));
            if !named {
                let at = format!("{}: {name}", krate.name);
                let message = format!(
                    "{at}: in [{section}], but no file names it: it costs build time and hides the true arrows"
                );
                found.push(Finding { at, value: 0, message });
            }
        }
    }
    found
}

/// The modules that a file takes from another crate's tests.
fn borrowed(file: &SourceFile) -> Vec<String> {
    let folder = root().join(&file.path);
    let folder = folder.parent().unwrap_or(&folder);
    let names = file.text.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next());
    names.filter_map(|name| fs::read_to_string(folder.join(name)).ok()).collect()
}

/// The crate's `Cargo.toml`.
///
/// # Panics
/// When it cannot be read or parsed.
pub(crate) fn manifest(krate: &Crate) -> toml::Table {
    let text = fs::read_to_string(&krate.manifest)
        .unwrap_or_else(|error| panic!("{}: {error}", krate.manifest.display()));
    text.parse().unwrap_or_else(|error| panic!("{}: {error}", krate.manifest.display()))
}

fn names(text: &str, ident: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(ident)
        .any(|(at, _)| !text[..at].ends_with(is_word) && !text[at + ident.len()..].starts_with(is_word))
}
