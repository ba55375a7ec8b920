//! Properties that are stored for OpenZFS but have no effect in this build, and the warning about them.
//!
//! A test compares the table with the sources of the engine: a property is named there, or it is in this table.

use crate::out::Console;

/// A property without effect here.
struct NoEffect {
    name: &'static str,
    /// Values for which nothing has to be done, so that nothing is missing.
    harmless: &'static [&'static str],
    /// The effect that is missing.
    missing: &'static str,
}

const fn kept(name: &'static str, harmless: &'static [&'static str], missing: &'static str) -> NoEffect {
    NoEffect { name, harmless, missing }
}

const LABELS: &str = "mounts have no SELinux labels";

static NO_EFFECT: &[NoEffect] = &[
    kept("aclinherit", &["restricted"], "NFSv4 ACLs are not enforced"),
    kept("aclmode", &["discard"], "NFSv4 ACLs are not enforced"),
    kept("context", &["none"], LABELS),
    kept("defcontext", &["none"], LABELS),
    kept("direct", &["standard"], "O_DIRECT is honoured as the program asks for it"),
    kept("fscontext", &["none"], LABELS),
    kept("longname", &["off"], "new names stay below 256 bytes"),
    kept("mlslabel", &["none"], "labels are not enforced"),
    kept("nbmand", &["off"], "locks stay advisory"),
    kept("prefetch", &["all"], "reading ahead stays on"),
    kept("rootcontext", &["none"], LABELS),
    kept("volthreading", &["on"], "volumes are always served by several threads"),
    kept("vscan", &["off"], "files are not scanned"),
    kept("zoned", &["off"], "datasets are not delegated to namespaces"),
    kept("zoned_uid", &["none", "0"], "datasets are not delegated to namespaces"),
];

/// Warns, on standard error, of each assignment that has no effect here.
pub(super) fn warn<'a>(console: &mut Console, assignments: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, text) in assignments {
        let entry = NO_EFFECT.iter().find(|entry| entry.name == name);
        if let Some(entry) = entry.filter(|entry| !entry.harmless.contains(&text)) {
            console.note(&format!(
                "warning: '{name}={text}' is kept for OpenZFS but has no effect here: {}",
                entry.missing
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pool::props::{Access, dataset::VISIBLE};

    use super::*;

    /// The sources that act on properties; the property tables, parsers and tests are left out.
    fn engine() -> String {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let folders = ["dsl/src", "pool/src/zil", "pool/src/sync", "zpl/src", "fuse/src", "server/src"];
        let mut waiting: Vec<_> = folders.iter().map(|folder| crates.join(folder)).collect();
        waiting.extend(["pool/src/dataset.rs", "cli/src/compat/mounting.rs"].map(|file| crates.join(file)));
        // The tables of properties and of features name every one of them.
        let tables = ["dsl/src/props", "dsl/src/features.rs"].map(|table| crates.join(table));
        assert!(waiting.iter().chain(&tables).all(|path| path.exists()), "the sources are elsewhere");
        let mut text = String::new();
        while let Some(path) = waiting.pop() {
            if tables.contains(&path) {
                continue;
            }
            if path.is_dir() {
                waiting.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|end| end == "rs") {
                text += &std::fs::read_to_string(path).unwrap();
            }
        }
        text
    }

    #[test]
    fn every_property_has_either_an_effect_or_a_warning() {
        let engine = engine();
        let settable = VISIBLE.iter().filter(|property| property.access != Access::ReadOnly);
        let (mut silent, mut both) = (Vec::new(), Vec::new());
        for property in settable {
            let named = engine.contains(&format!("\"{}\"", property.name));
            match (named, NO_EFFECT.iter().any(|entry| entry.name == property.name)) {
                (false, false) => silent.push(property.name),
                (true, true) => both.push(property.name),
                _ => {}
            }
        }
        assert_eq!((silent, both), (Vec::new(), Vec::new()));
        for entry in NO_EFFECT {
            assert!(VISIBLE.iter().any(|property| property.name == entry.name), "{}", entry.name);
        }
    }

    #[test]
    fn the_default_of_a_property_without_effect_needs_no_warning() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        {
            let mut console = Console::new(&mut out, &mut err);
            let texts = ["dedup=off", "vscan=off", "compression=lz4", "vscan=on"];
            for text in texts {
                warn(&mut console, text.split_once('='));
            }
        }
        let said = String::from_utf8(err).unwrap();
        assert_eq!(
            said,
            "warning: 'vscan=on' is kept for OpenZFS but has no effect here: files are not scanned\n"
        );
    }
}
