//! Manual pages, in the language of man(7).

use crate::wrap;

use super::{Argument, Choice, Sub, Tool, values};

/// Columns of a line that man(1) does not wrap: 80 without the margins.
const COLUMNS: usize = 71;

/// Exit statuses that all commands share.
const STATUSES: [(&str, &str); 3] =
    [("0", "All was done."), ("1", "At least one part failed."), ("2", "The command line is wrong.")];

/// The environment variables that scripts and users set.
const ENVIRONMENT: [(&str, &str); 6] = [
    ("CENOTE_SERVER", "off: no pool is held by a server; each command opens and exports its pool"),
    ("CENOTE_RUN_DIR", "where the sockets of servers are"),
    ("CENOTE_STATE_DIR", "folder that holds the list of imported pools"),
    (
        "CENOTE_VISITORS_DIR",
        "where root's servers have the sockets that other users may reach; empty: nowhere",
    ),
    ("NO_COLOR", "help without colours"),
    ("POSIXLY_CORRECT", "options end at the first operand"),
];

/// Text without requests: all its characters are escaped where needed.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (n, line) in text.split('\n').enumerate() {
        if n > 0 {
            out.push('\n');
        }
        if line.starts_with(['.', '\'']) {
            out.push_str("\\&");
        }
        for c in line.chars() {
            match c {
                '\\' => out.push_str("\\e"),
                '-' => out.push_str("\\-"),
                '…' => out.push_str("..."),
                c if c.is_ascii() => out.push(c),
                c => out.push_str(&format!("\\[u{:04X}]", u32::from(c))),
            }
        }
    }
    out
}

/// Text with an empty line between its paragraphs, which man(7) marks by a request.
fn paragraphs(text: &str) -> String {
    text.split("\n\n").map(plain).collect::<Vec<_>>().join("\n.PP\n")
}

fn head(name: &str, section: u8, summary: &str) -> String {
    let (title, version) = (plain(&name.to_uppercase()), env!("CARGO_PKG_VERSION"));
    let name = plain(name);
    format!(
        ".TH {title} {section} \"\" \"cenote {version}\" \"cenote\"\n.SH NAME\n{name} \\- {}\n",
        plain(summary)
    )
}

/// A list of terms and their meanings.
fn terms<'a>(rows: impl Iterator<Item = (String, &'a str)>) -> String {
    rows.map(|(term, about)| format!(".TP\n{term}\n{}\n", plain(about))).collect()
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", plain(text))
}

fn spelled(choice: &Choice) -> String {
    let short = choice.short.iter().map(|letter| bold(&format!("-{letter}")));
    let long = choice.long.iter().map(|word| bold(&format!("--{word}")));
    let all = short.chain(long).collect::<Vec<_>>().join(", ");
    match &choice.argument {
        None => all,
        Some(Argument::Property) => format!("{all} \\fIPROPERTY\\fR"),
        Some(Argument::Named(name)) => format!("{all} \\fI{}\\fR", plain(name)),
    }
}

fn options(choices: &[Choice]) -> String {
    if choices.is_empty() {
        return String::new();
    }
    let rows = choices.iter().map(|choice| (spelled(choice), choice.about.as_str()));
    format!(".SH OPTIONS\n{}", terms(rows))
}

fn ending(tool: &Tool, seen: &str) -> String {
    let statuses = terms(STATUSES.iter().map(|(status, about)| (bold(status), *about)));
    format!(".SH EXIT STATUS\n{statuses}.SH SEE ALSO\n{}\n", see(tool, seen))
}

fn see(tool: &Tool, seen: &str) -> String {
    let all = [("cenote", 1), ("zfs", 8), ("zpool", 8)];
    let others = all.iter().filter(|(name, _)| *name != seen);
    let mut pages: Vec<String> = others.map(|(name, section)| format!("{}({section})", bold(name))).collect();
    if seen == tool.name {
        let subs = tool
            .commands
            .iter()
            .map(|sub| format!("{}({})", bold(&format!("{}-{}", tool.name, sub.names[0])), tool.section));
        pages.extend(subs);
    }
    pages.join(",\n")
}

/// All pages of a program, by file name.
pub fn pages(tool: &Tool) -> Vec<(String, String)> {
    let mut pages = vec![(format!("man{0}/{1}.{0}", tool.section, tool.name), overview(tool))];
    for sub in &tool.commands {
        // `cenote zfs` is zfs(8).
        if tool.name == "cenote" && ["zfs", "zpool"].contains(&sub.names[0].as_str()) {
            continue;
        }
        let (section, name) = (tool.section, &sub.names[0]);
        pages.push((format!("man{section}/{}-{name}.{section}", tool.name), page(tool, sub)));
    }
    pages
}

fn overview(tool: &Tool) -> String {
    let mut text = head(tool.name, tool.section, tool.summary);
    text += &format!(
        ".SH SYNOPSIS\n{} \\fICOMMAND\\fR [\\fIOPTIONS\\fR] [\\fIOPERANDS\\fR]\n.SH COMMANDS\n",
        bold(tool.name)
    );
    let names = |sub: &Sub| sub.names.iter().map(|name| bold(name)).collect::<Vec<_>>().join(", ");
    text += &terms(tool.commands.iter().map(|sub| (names(sub), sub.summary.as_str())));
    text += &options(&tool.choices);
    if !tool.properties.is_empty() {
        text += ".SH PROPERTIES\n";
        for property in tool.properties {
            let alias = property.alias.map(|alias| format!(", {}", bold(alias))).unwrap_or_default();
            let words = match values(property).is_empty() {
                true => property.summary.to_owned(),
                false => values(property).join(" | "),
            };
            let row = (format!("{}{alias}", bold(property.name)), words.as_str());
            text += &terms(std::iter::once(row));
        }
    }
    text += &format!(
        ".SH EXAMPLES\n.nf\n{}\n.fi\n",
        tool.examples.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
    );
    text += ".SH ENVIRONMENT\n";
    text += &terms(ENVIRONMENT.iter().map(|(name, about)| (bold(name), *about)));
    text + &ending(tool, tool.name)
}

fn page(tool: &Tool, sub: &Sub) -> String {
    let name = format!("{}-{}", tool.name, sub.names[0]);
    let mut text = head(&name, tool.section, &sub.summary);
    text += ".SH SYNOPSIS\n.nf\n";
    for line in &sub.syntax {
        let line = format!("{} {}", tool.name, line.replace('…', "..."));
        for (n, line) in wrap::syntax(&line, COLUMNS, ("", "    ")).into_iter().enumerate() {
            text += &match line.strip_prefix(tool.name).filter(|_| n == 0) {
                Some(rest) => format!("{}{}\n", bold(tool.name), plain(rest)),
                None => format!("{}\n", plain(&line)),
            };
        }
    }
    text += ".fi\n";
    if let [_, alias] = sub.names.as_slice() {
        text += &format!(".PP\nAlso called {} {}.\n", bold(tool.name), bold(alias));
    }
    text += &options(&sub.choices);
    let (notes, examples) = sub.notes.split_once("Examples:\n").unwrap_or((&sub.notes, ""));
    if !notes.trim().is_empty() {
        text += &format!(".SH NOTES\n{}\n", paragraphs(notes.trim()));
    }
    if !examples.is_empty() {
        let lines: Vec<String> = examples.lines().map(|line| plain(line.trim_start())).collect();
        text += &format!(".SH EXAMPLES\n.nf\n{}\n.fi\n", lines.join("\n"));
    }
    text + &ending(tool, &name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Program;
    use crate::own::generate::{cenote, compatible};

    #[test]
    fn no_text_is_taken_for_a_request() {
        assert_eq!(plain(".x -a…\\\n'b"), "\\&.x \\-a...\\e\n\\&'b");
    }

    #[test]
    fn every_subcommand_has_a_page_with_its_syntax() {
        for tool in [cenote(), compatible(Program::Zfs), compatible(Program::Zpool)] {
            let pages = pages(&tool);
            for (name, text) in &pages {
                assert!(text.starts_with(".TH ") && text.is_ascii(), "{name}");
                let synopsis =
                    text.split(".SH ").find(|part| part.starts_with("SYNOPSIS")).unwrap_or_default();
                let columns = |line: &str| {
                    line.replace("\\fB", "").replace("\\fR", "").replace("\\fI", "").replace("\\-", "-").len()
                };
                assert_eq!(synopsis.lines().find(|line| columns(line) > COLUMNS), None, "{name}");
                for part in [".SH NAME\n", ".SH SYNOPSIS\n", ".SH EXIT STATUS\n", ".SH SEE ALSO\n"] {
                    assert!(text.contains(part), "{name}: {part}");
                }
            }
            let own = if tool.name == "cenote" { 2 } else { 0 };
            assert_eq!(pages.len(), 1 + tool.commands.len() - own);
        }
        let zfs = compatible(Program::Zfs);
        let all = pages(&zfs);
        let (_, snapshot) = all.iter().find(|(name, _)| name == "man8/zfs-snapshot.8").expect("there");
        assert!(snapshot.contains("\\fBzfs\\fR snapshot [\\-r] [\\-o USERPROPERTY=VALUE]..."), "{snapshot}");
        assert!(snapshot.contains(".SH EXAMPLES\n.nf\nzfs snapshot tank/home@monday\n"), "{snapshot}");
        assert!(snapshot.contains("Also called \\fBzfs\\fR \\fBsnap\\fR."));
        assert!(all[0].1.contains("\\fBcompression\\fR, \\fBcompress\\fR\non | off"), "{}", all[0].1);
    }
}
