//! The rules of this repository's own source text, checked as an ordinary test.
//!
//! STYLE.md says why each rule exists. `tests/rules.rs` fails when a rule is broken, and `exceptions.toml` lists the places
//! that still break one, each with a reason. An exception that is no longer needed fails the test, so the list only shrinks.

#![forbid(unsafe_code)]

pub mod dependencies;
pub mod exceptions;
pub mod locks;
pub mod modules;
pub mod packaging;
pub mod size;
pub mod source;
pub mod text;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where: a path from the repository's root, `PATH::function`, or `CRATE: module, module, …`. Exceptions name it so.
    pub at: String,
    /// The measured number (lines, parameters), or 0 where the rule measures nothing.
    pub value: usize,
    /// The whole finding in words, with the rule's reason.
    pub message: String,
}

/// Every rule by name, with what breaks it in `crates`.
pub fn rules(crates: &[source::Crate]) -> Vec<(&'static str, Vec<Finding>)> {
    let files = || crates.iter().flat_map(|krate| &krate.files);
    vec![
        ("circle", crates.iter().flat_map(modules::circles).collect()),
        ("long_file", files().filter_map(size::long_file).collect()),
        ("long_function", files().flat_map(size::long_functions).collect()),
        ("parameters", files().flat_map(size::many_parameters).collect()),
        ("words", files().flat_map(text::words).collect()),
        ("thread_local", files().filter_map(text::thread_locals).collect()),
        ("silenced_lint", files().flat_map(text::silenced_lints).collect()),
        ("included_from_outside", crates.iter().flat_map(packaging::included_from_outside).collect()),
        ("tests_need_a_release", crates.iter().flat_map(packaging::tests_need_a_release).collect()),
        ("bare_lock", crates.iter().flat_map(locks::bare_locks).collect()),
        ("lock_order", locks::order_on_the_map(&source::root(), crates)),
        ("unused_dependency", crates.iter().flat_map(dependencies::unused).collect()),
    ]
}
