//! Text for people, wrapped at blanks.
//!
//! From:   a paragraph, and how many columns a line may have.
//! To:     its lines. A word that is longer than a line stays whole, so that commands and paths can be copied.

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

/// The most columns of a line of text: longer ones are hard to read.
pub const USUAL: usize = 80;

/// The fewest columns that text is wrapped to.
pub const NARROW: usize = 24;

/// The lines of a paragraph of at most `width` columns. The first one begins with `first`, the others with `next`.
pub fn lines(text: &str, width: usize, (first, next): (&str, &str)) -> Vec<String> {
    let options = Options::new(width)
        .initial_indent(first)
        .subsequent_indent(next)
        .break_words(false)
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// The lines of a syntax line, as [`lines`]; an option stays with its argument.
pub fn syntax(text: &str, width: usize, indents: (&str, &str)) -> Vec<String> {
    let wrapped = lines(&bracketed(text), width, indents);
    wrapped.into_iter().map(|line| line.replace(NO_BREAK, " ")).collect()
}

/// The columns from one tab stop to the next.
const TAB: usize = 8;

/// The lines of a text. Those that have more than `width` columns, if there is a width, are wrapped; their later lines are set
/// in by two more blanks.
pub fn fitting(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    text.split('\n').flat_map(|line| fitting_line(line, width)).collect()
}

fn fitting_line(line: &str, width: usize) -> Vec<String> {
    let start = line.len() - line.trim_start_matches(['\t', ' ']).len();
    let (indent, words) = line.split_at(start);
    let tabs = indent.matches('\t').count();
    // A tab counts as one column below.
    let width = width.saturating_sub(tabs * (TAB - 1)).max(NARROW);
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let next = format!("{indent}  ");
    if tabs == 0 {
        return lines(words, width, (indent, &next));
    }
    // The line of a usage text: an option stays with its argument.
    // The function that wraps the words counts no column for a tab.
    syntax(words, width - tabs, (indent, &next))
}

/// A blank at which no line ends.
const NO_BREAK: char = '\u{a0}';

/// A text in which no line ends inside of brackets.
fn bracketed(words: &str) -> String {
    let mut depth = 0_usize;
    let kept = words.chars().map(|letter| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ' ' if depth > 0 => return NO_BREAK,
            _ => {}
        }
        letter
    });
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_are_too_long_are_wrapped_and_keep_their_indent() {
        let text = "short\n\tlist [-r] [-o PROPERTY[,PROPERTY]…] [-t TYPE] [DATASET]…\n\n  zfs set x";
        assert_eq!(fitting(text, None), [text]);
        let lines = fitting(text, Some(48));
        assert_eq!(
            lines,
            ["short", "\tlist [-r] [-o PROPERTY[,PROPERTY]…]", "\t  [-t TYPE] [DATASET]…", "", "  zfs set x"]
        );
        let path = format!("cannot open '/{}'", "x".repeat(90));
        assert_eq!(fitting(&path, Some(80)).len(), 2, "a long path is a line of its own, and is not cut");
    }

    #[test]
    fn wrapping_keeps_words_whole_and_indents_later_lines() {
        let text = "copy it with --dry-run, and look at /dev/disk/by-id/a-very-long-name then";
        assert_eq!(
            lines(text, 24, ("- ", "  ")),
            ["- copy it with", "  --dry-run, and look at", "  /dev/disk/by-id/a-very-long-name", "  then"]
        );
        assert_eq!(lines("é".repeat(8).as_str(), 8, ("", "")).len(), 1, "columns are counted, and not bytes");
    }
}
