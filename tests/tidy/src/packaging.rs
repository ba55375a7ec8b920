//! What would keep a crate from being packaged: `cargo install cenote` builds each crate from its own folder alone.

use std::sync::LazyLock;

use regex::Regex;

use crate::Finding;
use crate::dependencies::manifest;
use crate::source::{Crate, SourceFile};

/// The path in `include_str!("…")` or `include_bytes!("…")`, also where it is the first word of a `concat!`.
static INCLUDED: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"include_(?:str|bytes)!\((?:concat!\()?"([^"]+)""#).expect("a pattern of this file")
});

/// Files from outside the crate that the program itself includes. A link inside the crate (`crates/cli/guide`) is followed
/// when it is packaged. Tests may read from everywhere, because they are not packaged.
pub fn included_from_outside(krate: &Crate) -> Vec<Finding> {
    let packaged =
        krate.files.iter().filter(|file| file.module.is_some() && !file.path.ends_with("tests.rs"));
    packaged.flat_map(outside).collect()
}

fn outside(file: &SourceFile) -> Vec<Finding> {
    let depth = file.path.matches('/').count() - 2;
    let program = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    INCLUDED
        .captures_iter(program)
        .filter(|hit| hit[1].matches("../").count() > depth)
        .map(|hit| {
            let at = format!("{}: {}", file.path, &hit[1]);
            let message = format!("{at}: outside of the crate, so the packaged crate does not build");
            Finding { at, value: 0, message }
        })
        .collect()
}

/// Dependencies of tests on crates of this repository that name a version. Such a version has to be published first, and
/// these dependencies form circles. Without a version, a package leaves them out.
pub fn tests_need_a_release(krate: &Crate) -> Vec<Finding> {
    let manifest = manifest(krate);
    let Some(table) = manifest.get("dev-dependencies").and_then(toml::Value::as_table) else {
        return Vec::new();
    };
    table
        .iter()
        .filter(|(name, value)| {
            let ours = crate::source::root().join("crates").join(name).is_dir();
            ours && (value.get("workspace").is_some() || value.get("version").is_some())
        })
        .map(|(name, _)| {
            let at = format!("{}: {name}", krate.name);
            let message = format!(
                "{at}: write {{ path = \"../{name}\", … }} in [dev-dependencies]: with a version, the crates that \
                 are packaged need each other in a circle"
            );
            Finding { at, value: 0, message }
        })
        .collect()
}
