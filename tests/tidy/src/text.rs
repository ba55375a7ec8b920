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
            comment(r"takes a seat|who waits here|the house|the roof|brothers?|living pool"),
            "a metaphor for a part of the program: use the field's word (STYLE.md, Plain words)",
        ),
        (
            comment(r"whoever|nobody's|(?:for|by|of|to|from|with|slows) who [a-z]+"),
            "a subject without a name: name the caller, thread, program or user (STYLE.md, Plain words)",
        ),
        (
            r"(?m)//[/!]? (?:.*[.:;] )?(?:Who|That somebody) [a-z].*".to_owned(),
            "a clause as a subject: begin with the noun that acts (STYLE.md, Plain words)",
        ),
        (
            comment(r"(?:is|are) no more(?:[.,:;]|$)|and like|but for the|let(?:s|ting)? go of|go(?:es)? by(?: the)?"),
            "a phrase that has to be read twice: say it plainly (STYLE.md, Plain words)",
        ),
    ]
    .into_iter()
    .map(|(pattern, reason)| (Regex::new(&pattern).expect("a pattern of this file"), reason))
    .collect()
});

/// One of these words in a comment, also behind code. The backquoted parts of comments count, too.
fn comment(words: &str) -> String {
    format!(r"(?mi)//[/!]? .*\b(?:{words})(?:\W|$)")
}

/// The sources that have a thread-local: reused memory, or the request that a thread serves.
const THREAD_LOCALS: [&str; 11] = [
    "crates/codec/src/gzip.rs",
    "crates/codec/src/simd/igzip.rs",
    "crates/codec/src/zstd.rs",
    "crates/fuse/src/interrupts.rs",
    "crates/fuse/src/messages.rs",
    "crates/storage/src/host/direct.rs",
    "crates/storage/src/host/ring.rs",
    "crates/storage/src/interrupt.rs",
    "crates/storage/src/rank.rs",
    "crates/storage/src/read.rs",
    "crates/storage/src/write.rs",
];

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

/// A thread-local that docs/decisions/0034 does not list, or one that it lists and that is gone.
pub fn thread_locals(file: &SourceFile) -> Option<Finding> {
    let at = file.path.clone();
    let is_listed = THREAD_LOCALS.contains(&at.as_str());
    let message = match (file.text.contains(concat!("thread_local", "!")), is_listed) {
        (true, false) if file.module.is_some() => format!(
            "{at}: a thread-local is an argument that no signature shows: pass it, or say in docs/decisions/0034 why it may be one"
        ),
        (false, true) => format!(
            "{at}: has no thread-local any more: remove it from the list, and from docs/decisions/0034"
        ),
        _ => return None,
    };
    Some(Finding { at, value: 0, message })
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        let syntax = syn::parse_file("").expect("Rust");
        words(&SourceFile {
            path: "a.rs".into(),
            krate: "made".into(),
            module: None,
            text: text.into(),
            syntax,
        })
        .len()
    }

    #[test]
    fn the_forms_that_style_md_replaces_are_found_in_comments_and_docstrings() {
        for (subject, rest) in [("Wh", "o waits for it has it."), ("Th", "at somebody wants it safe.")] {
            assert_eq!(found(&format!("/// It ends. {subject}{rest}\nfn f() {{}}\n")), 1, "{subject}{rest}");
        }
        let riddles = [
            "It is nobody_s.",
            "Held by who_ever asks.",
            "One for wh_o looks at it.",
            "The snapshot is no_ more.",
        ];
        for riddle in riddles {
            let riddle = riddle.replace("body_s", "body's").replace("_", "");
            assert_eq!(found(&format!("f(); // {riddle}\n")), 1, "{riddle}");
        }
        assert_eq!(found("/// A caller who waits. There are no more than two.\nlet a = \"who waits\";\n"), 0);
    }
}
