//! The repository's Rust files, read and parsed once.

use std::fs;
use std::path::{Path, PathBuf};

/// One Rust file.
pub struct SourceFile {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Directory name of its crate below `crates/`, or the crate's path elsewhere (`fuzz`, `tests/tidy`).
    pub krate: String,
    /// Module path within the crate (`["send", "writer"]`), empty for the crate's root. `None` outside `src/`.
    pub module: Option<Vec<String>>,
    /// The file as it stands.
    pub text: String,
    /// The file parsed.
    pub syntax: syn::File,
}

/// A crate of the repository: its place and its files.
pub struct Crate {
    /// As in [`SourceFile::krate`].
    pub name: String,
    /// Path of its `Cargo.toml`.
    pub manifest: PathBuf,
    /// All its Rust files in order of their paths.
    pub files: Vec<SourceFile>,
}

/// The repository's root, found from this crate's own place. cargo tells where that is when it runs the program: a program that
/// was built in another copy of the repository would judge that copy.
pub fn root() -> PathBuf {
    let built_in = || env!("CARGO_MANIFEST_DIR").into();
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(built_in)).join("../..")
}

/// Reads and parses every crate of the repository. Crates under `vendor/` are other people's and are left out.
///
/// # Panics
/// When a file cannot be read or parsed: the compiler has read all of them before this runs.
pub fn crates(root: &Path) -> Vec<Crate> {
    let mut names: Vec<String> =
        folder(&root.join("crates")).into_iter().map(|name| format!("crates/{name}")).collect();
    names.extend(["fuzz".to_owned(), "tests/tidy".to_owned()]);
    names.iter().map(|place| read_crate(root, place)).collect()
}

fn read_crate(root: &Path, place: &str) -> Crate {
    let name = place.strip_prefix("crates/").unwrap_or(place).to_owned();
    let mut paths = Vec::new();
    rust_files(&root.join(place), &mut paths);
    let files = paths
        .into_iter()
        .map(|path| {
            let text =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let inside = path.strip_prefix(root.join(place)).expect("the walk began there");
            let module = module_of(inside);
            let path = format!("{place}/{}", inside.display());
            SourceFile { path, krate: name.clone(), module, text, syntax }
        })
        .collect();
    Crate { name, manifest: root.join(place).join("Cargo.toml"), files }
}

fn module_of(inside: &Path) -> Option<Vec<String>> {
    let mut parts: Vec<String> =
        inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if parts.first().map(String::as_str) != Some("src") {
        return None;
    }
    parts.remove(0);
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    if parts.len() == 1 && ["lib", "main"].contains(&parts[0].as_str()) {
        parts.clear();
    }
    Some(parts)
}

fn folder(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn rust_files(path: &Path, found: &mut Vec<PathBuf>) {
    for name in folder(path) {
        let inner = path.join(&name);
        if inner.is_dir() && !["target", "corpus", "artifacts"].contains(&name.as_str()) {
            rust_files(&inner, found);
        } else if name.ends_with(".rs") {
            found.push(inner);
        }
    }
}

/// Whether an item is compiled only for tests.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}
