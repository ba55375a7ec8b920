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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_later_lines_are_set_in() {
        let text = "copy it with --dry-run, and look at /dev/disk/by-id/a-very-long-name then";
        assert_eq!(
            lines(text, 24, ("- ", "  ")),
            ["- copy it with", "  --dry-run, and look at", "  /dev/disk/by-id/a-very-long-name", "  then"]
        );
        assert_eq!(lines("é".repeat(8).as_str(), 8, ("", "")).len(), 1, "columns are counted, and not bytes");
    }
}
