//! A guide in Markdown as text for a terminal.
//!
//! From:   the guides of docs/guide: paragraphs, lists, tables, fenced code, headings, pictures.
//! To:     lines. Paragraphs and list items are wrapped; code is set in; tables stay; pictures and marks are left out.

use crate::wrap;

/// How far code is set in.
const CODE: &str = "    ";

/// The lines of a guide for a terminal of `width` columns.
pub(super) fn lines(guide: &str, width: usize) -> Vec<String> {
    let mut page = Page { lines: Vec::new(), open: None, width };
    let mut is_code = false;
    for line in guide.lines() {
        if line.trim_start().starts_with("```") {
            page.close();
            is_code = !is_code;
        } else if is_code {
            page.lines.push(format!("{CODE}{line}").trim_end().to_owned());
        } else {
            page.add(line);
        }
    }
    page.close();
    page.lines
}

/// The text that was laid out so far.
struct Page {
    lines: Vec<String>,
    /// The paragraph that continues on the next line.
    open: Option<Paragraph>,
    width: usize,
}

struct Paragraph {
    /// The beginning of the first line: blanks, and the mark of a list item.
    first: String,
    text: String,
}

impl Page {
    /// Adds a line outside of code.
    fn add(&mut self, line: &str) {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        let mark = list_mark(text);
        // Neither a picture nor the empty line behind it is shown.
        if text.is_empty() {
            self.close();
            if self.lines.last().is_some_and(|line| !line.is_empty()) {
                self.lines.push(String::new());
            }
        } else if let Some(heading) = text.strip_prefix('#') {
            self.close();
            let heading = heading.trim_start_matches('#').trim_start().to_uppercase();
            self.lines.extend(wrap::lines(&heading, self.width, ("", "")));
        } else if text.starts_with('|') {
            self.close();
            self.lines.push(line.to_owned());
        } else if text.starts_with("![") {
            self.close();
        } else if !mark.is_empty() {
            self.close();
            let text = text[mark.len()..].to_owned();
            self.open = Some(Paragraph { first: format!("{indent}{mark}"), text });
        } else if let Some(open) = &mut self.open {
            open.text.push(' ');
            open.text.push_str(text);
        } else {
            self.open = Some(Paragraph { first: indent.to_owned(), text: text.to_owned() });
        }
    }

    /// Ends the open paragraph: lays it out.
    fn close(&mut self) {
        if let Some(Paragraph { first, text }) = self.open.take() {
            let next = " ".repeat(first.chars().count());
            self.lines.extend(wrap::lines(&text.replace("**", ""), self.width, (&first, &next)));
        }
    }
}

/// The mark of a list item with its blank (`- `, `12. `); empty if the line is none.
fn list_mark(text: &str) -> &str {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let len = match digits {
        0 if text.starts_with("- ") => 2,
        1.. if text[digits..].starts_with(". ") => digits + 2,
        _ => 0,
    };
    &text[..len]
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = "\
# A guide of one page

A paragraph with **two
strong words** that goes on.

- An item that is longer
  than a line.
2. **Two.** A number.

   ![a picture](x.svg)

   Text of the item.

```sh
a command  --with-a-long-option   # stays as it is
```

| a table | stays |
";

    #[test]
    fn paragraphs_and_items_are_wrapped_and_code_and_tables_stay() {
        let text = lines(GUIDE, 30).join("\n");
        assert_eq!(
            text,
            "A GUIDE OF ONE PAGE\n\n\
             A paragraph with two strong\nwords that goes on.\n\n\
             - An item that is longer than\n  a line.\n\
             2. Two. A number.\n\n   Text of the item.\n\n    \
             a command  --with-a-long-option   # stays as it is\n\n\
             | a table | stays |"
        );
    }

    #[test]
    fn no_width_breaks_a_guide() {
        let words =
            |width| lines(GUIDE, width).join(" ").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in [24, 25, 79, 200] {
            assert_eq!(words(width), words(80), "{width}");
        }
        let longest = lines(GUIDE, 24).iter().filter(|line| !line.starts_with(CODE)).map(String::len).max();
        assert!(longest <= Some(24), "{longest:?}");
        assert_eq!(lines("", 80), Vec::<String>::new());
    }
}
