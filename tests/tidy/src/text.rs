//! Words in comments and messages, markers, and attributes that silence the compiler.

use std::sync::LazyLock;

use regex::Regex;

use crate::Finding;
use crate::source::SourceFile;

/// Patterns that must not be in the source, each with the reason.
static PATTERNS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let marker = ["TO", "DO|FIX", "ME|XX", "X|HA", "CK"].concat();
    [
        (
            format!(r"\b({marker})\b"),
            "a marker of unfinished work: finish it, or return `Unsupported` and write an issue",
        ),
        (r"\b[SR]\d+-\d\d\b".to_owned(), "a private id that a reader cannot look up: name the thing itself"),
        (
            r"(?m)^\s*//[/!]?.*\b(takes a seat|who waits here|the house|the roof|brothers?)\b".to_owned(),
            "a metaphor for a part of the program: use the field's word (STYLE.md, Plain words)",
        ),
    ]
    .into_iter()
    .map(|(pattern, reason)| (Regex::new(&pattern).expect("a pattern of this file"), reason))
    .collect()
});

/// `allow` and `expect` of lints.
static SILENCED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"#!?\[(?:allow|expect)\(([^\]]*)\)\]").expect("a pattern of this file"));

/// Lines that hold a word or marker that does not belong into source text.
pub fn words(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for (pattern, reason) in PATTERNS.iter() {
        for hit in pattern.find_iter(&file.text) {
            let at = format!("{}:{}", file.path, line_of(&file.text, hit.start()));
            let message = format!("{at}: “{}” is {reason}", hit.as_str().trim());
            found.push(Finding { at, value: 0, message });
        }
    }
    found
}

/// Attributes that silence a lint without saying why.
pub fn silenced_lints(file: &SourceFile) -> Vec<Finding> {
    SILENCED
        .captures_iter(&file.text)
        .filter(|hit| !hit[1].contains("reason"))
        .filter_map(|hit| hit.get(0))
        .map(|hit| {
            let at = format!("{}:{}", file.path, line_of(&file.text, hit.start()));
            let message = format!(
                "{at}: {} needs `reason = \"…\"`: a silenced lint is a claim that must be checkable",
                hit.as_str()
            );
            Finding { at, value: 0, message }
        })
        .collect()
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}
