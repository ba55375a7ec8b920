//! Expected lines: text with `{{kind:recorded}}` patterns, and how they match what was printed.

use regex::Regex;
use std::sync::LazyLock;

/// An expected line: one of the forms for a whole line, or a line with patterns in it.
#[derive(Debug)]
pub enum Expected {
    /// `{{usage}}`: `usage:` in any case, and whatever follows.
    Usage,
    /// `{{more}}`: any further lines.
    More,
    Line(Line),
}

/// One line of text with its patterns.
#[derive(Debug)]
pub struct Line {
    pub text: String,
    /// `1>~` compares with runs of blanks collapsed.
    collapsed: bool,
}

/// The patterns of a line.
static MARKS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{\{(\w+):(.*?)\}\}").expect("a regular expression of our own"));

/// What each kind of pattern matches.
fn kind(name: &str) -> Option<&'static str> {
    Some(match name {
        "size" => r"(?:\d+(?:\.\d+)?(?:[BKMGTPE]|iB)?)",
        "num" => r"(?:-?\d+(?:\.\d+)?(?:ns|us|ms|s|[BKMGTPE])?)",
        "ratio" => r"(?:\d+\.\d\dx?)",
        "pct" => r"(?:\d+(?:\.\d+)?%?)",
        "date" => {
            r"(?:\w{3} +\w{3} +\d+ +\d+:\d\d(?::\d\d)?(?: (?:AM|PM))?(?: \w+)? \d{4}|\w{3} +\d+ \d{4} [\d:.]+)"
        }
        "ts" => r"(?:\d{4}-\d\d-\d\d\.\d\d:\d\d:\d\d)",
        "dur" => r"(?:(?:\d+ days )?\d\d:\d\d:\d\d)",
        "guid" => r"(?:\d{15,20})",
        "hex" => r"(?:(?:0x)?[0-9a-f]+(?:/[0-9a-f]+)*)",
        "token" => r"(?:[0-9]-[0-9a-f]+-[0-9a-f]+(?:-[0-9a-f]*)?)",
        "any" => r"(?:.*)",
        _ => return None,
    })
}

impl Expected {
    /// Reads an expected line.
    ///
    /// # Errors
    /// An unknown kind of pattern.
    pub fn new(text: &str, collapsed: bool) -> Result<Expected, String> {
        match text {
            "{{usage}}" => return Ok(Expected::Usage),
            "{{more}}" => return Ok(Expected::More),
            _ => {}
        }
        if let Some(mark) = MARKS.captures_iter(text).find(|mark| kind(&mark[1]).is_none()) {
            return Err(format!("unknown pattern '{}'", &mark[1]));
        }
        let text = if collapsed { text.trim() } else { text };
        Ok(Expected::Line(Line { text: text.to_owned(), collapsed }))
    }
}

/// A literal in which runs of `least` or more blanks match any run of blanks.
fn free_blanks(literal: &str, least: usize) -> String {
    let mut regex = String::new();
    let mut rest = literal;
    while let Some(start) = rest.find(' ') {
        let run = rest[start..].bytes().take_while(|b| *b == b' ').count();
        regex += &regex::escape(&rest[..start]);
        regex += if run >= least { " +" } else { " " };
        rest = &rest[start + run..];
    }
    regex + &regex::escape(rest)
}

impl Line {
    /// Whether a printed line is this one. Runs of blanks may differ where a pattern of the line has another width, and
    /// in all lines when `widths_vary`.
    fn matches(&self, printed: &str, widths_vary: bool) -> bool {
        if self.collapsed {
            return self.regex(1).is_match(printed.trim());
        }
        let is_free = widths_vary || MARKS.is_match(&self.text);
        self.text == printed || is_free && self.regex(2).is_match(printed)
    }

    /// Whether the command line has this word in the place of a guid. Guids are random, so their numbers of digits
    /// differ, and with them the width of the column.
    fn hides_a_guid(&self) -> bool {
        self.text.split_whitespace().any(|word| word == "GUID")
    }

    /// The line as a regular expression in which runs of `least` or more blanks match any run.
    fn regex(&self, least: usize) -> Regex {
        let (mut regex, mut end) = ("^".to_owned(), 0);
        for mark in MARKS.captures_iter(&self.text) {
            let whole = mark.get(0).expect("the whole of a match");
            regex += &free_blanks(&self.text[end..whole.start()], least);
            regex += kind(&mark[1]).expect("kinds were checked when the line was read");
            end = whole.end();
        }
        regex += &free_blanks(&self.text[end..], least);
        Regex::new(&(regex + "$")).expect("escaped text and our own patterns")
    }
}

/// Compares the printed lines with the expected ones. In `any_order` the lines are compared as a set.
///
/// # Errors
/// The first difference.
pub fn compare(expected: &[Expected], printed: &str, any_order: bool) -> Result<(), String> {
    let lines: Vec<&str> = printed.lines().collect();
    let widths_vary = expected.iter().any(|line| matches!(line, Expected::Line(line) if line.hides_a_guid()));
    match in_order(expected, &lines, widths_vary) {
        Err(difference) if any_order => as_set(expected, &lines, widths_vary).map_err(|()| difference),
        result => result,
    }
}

fn in_order(expected: &[Expected], lines: &[&str], widths_vary: bool) -> Result<(), String> {
    for (i, want) in expected.iter().enumerate() {
        let got = lines.get(i).copied();
        match (want, got) {
            (Expected::More, _) => return Ok(()),
            (Expected::Usage, Some(line)) if line.to_lowercase().starts_with("usage:") => return Ok(()),
            (Expected::Usage, got) => return Err(format!("expected a usage text, found {got:?}")),
            (Expected::Line(line), Some(got)) if line.matches(got, widths_vary) => {}
            (Expected::Line(line), got) => {
                return Err(format!("expected {:?}\n           found    {got:?}", line.text));
            }
        }
    }
    match lines.get(expected.len()) {
        Some(line) => Err(format!("unexpected line {line:?}")),
        None => Ok(()),
    }
}

fn as_set(expected: &[Expected], lines: &[&str], widths_vary: bool) -> Result<(), ()> {
    let mut left = lines.to_vec();
    for want in expected {
        let Expected::Line(line) = want else { return Err(()) };
        let at = left.iter().position(|got| line.matches(got, widths_vary)).ok_or(())?;
        left.remove(at);
    }
    if left.is_empty() { Ok(()) } else { Err(()) }
}
