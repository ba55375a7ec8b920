//! Which commands of a transcript may run: those that touch nothing outside the scratch folder.
//!
//! The recordings were made as root in a machine of their own. Here only known harmless programs run, and every
//! absolute path they are given lies in the scratch folder. Paths that `zfs` and `zpool` are given are names to
//! them as long as nothing is mounted.

/// Programs and shell words that transcripts may use besides `zfs` and `zpool`.
const PROGRAMS: [&str; 37] = [
    "awk", "bash", "cat", "cd", "cmp", "cp", "cut", "dd", "do", "done", "echo", "exit", "false", "for",
    "grep", "head", "ls", "mkdir", "mv", "printf", "rm", "sed", "seq", "sh", "sleep", "sort", "stat", "tail",
    "test", "then", "touch", "tr", "true", "truncate", "wc", "xargs", "yes",
];
/// Devices that may be read or written by anybody.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Why a command must not run here; `None` if it may.
pub fn refusal(command: &str) -> Option<String> {
    for part in simple_commands(command) {
        let words = words(&part);
        let mut words = words.iter().map(String::as_str).skip_while(|w| is_assignment(w) || *w == "do");
        let program = words.next().unwrap_or("true");
        let ours = matches!(program, "zfs" | "zpool" | "cenote");
        if !ours && !PROGRAMS.contains(&program) {
            return Some(format!("runs '{program}'"));
        }
        let mut redirected = false;
        let words: Vec<&str> = words.collect();
        for (at, &word) in words.iter().enumerate() {
            // Into a mountpoint the runner copies by `cenote cp`.
            if program == "cp" && at + 1 == words.len() && is_mountpoint(word) {
                continue;
            }
            let path =
                word.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['>', '<', '&']);
            redirected |= path.len() < word.len();
            // What `dd if=` and the like name.
            let path = path.split_once('=').map_or(path, |(_, value)| value);
            if (!ours || redirected) && is_outside(path) {
                return Some(match path.split('/').nth(1) {
                    Some("sys" | "proc" | "dev" | "etc" | "tmp" | "usr") => format!("touches {path}"),
                    _ => "needs a mount (issue 3)".to_owned(),
                });
            }
            // `.` and `..` may leave the folder the command starts in.
            if !ours && path.split('/').any(|part| part == "..") {
                return Some(format!("touches {path}"));
            }
            redirected = matches!(word, ">" | "<" | ">>" | "2>" | "1>");
        }
    }
    None
}

fn is_outside(path: &str) -> bool {
    let inside = ["/v", "/run"]
        .iter()
        .any(|root| path == *root || path.strip_prefix(root).is_some_and(|p| p.starts_with('/')));
    path.starts_with('/') && !inside && !DEVICES.contains(&path)
}

/// Whether a path could lie below the mountpoint of a dataset: none of the system's own folders.
fn is_mountpoint(path: &str) -> bool {
    const SYSTEM: [&str; 14] = [
        "bin", "boot", "dev", "etc", "home", "lib", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var",
    ];
    let first = path.strip_prefix('/').and_then(|rest| rest.split('/').next());
    first.is_some_and(|first| !first.is_empty() && !SYSTEM.contains(&first)) && !path.contains("..")
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

/// The simple commands of a line: parted at `;`, `|`, `&`, brackets and command substitutions outside single
/// quotes.
fn simple_commands(line: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => {
                part.push(c);
                part.extend(chars.next());
            }
            ('\'' | '"', None) => {
                quote = Some(c);
                part.push(c);
            }
            (c, Some(q)) if c == q => {
                quote = None;
                part.push(c);
            }
            ('$', None | Some('"')) if chars.peek() == Some(&'(') => {
                // What a substitution runs is judged as a command of its own, what it prints is unknown: its
                // callers only use it for names.
                chars.next();
                let (mut inner, mut depth) = (String::new(), 1);
                for c in chars.by_ref() {
                    depth += i32::from(c == '(') - i32::from(c == ')');
                    if depth == 0 {
                        break;
                    }
                    inner.push(c);
                }
                parts.extend(simple_commands(&inner));
                part.push('x');
            }
            ('`', _) => parts.push("backquotes".to_owned()),
            // `2>&1` and `>&2` part nothing.
            ('&', None) if part.ends_with('>') => part.push(c),
            (';' | '|' | '&' | '(' | ')' | '\n', None) => parts.push(std::mem::take(&mut part)),
            (c, _) => part.push(c),
        }
    }
    parts.push(part);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The words of a simple command without their quotes.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(chars.next()),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, Some(q)) if c == q => quote = None,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The parts of a set-up line that may run, where the line is a plain sequence; `None` where it is not and the
/// whole line must be left out. The second value says what was left out.
pub fn allowed_parts(line: &str) -> (Vec<String>, Option<String>) {
    let Some(reason) = refusal(line) else { return (vec![line.to_owned()], None) };
    let plain = !["for ", "while ", "if ", "(", "{", "|", "&"].iter().any(|shell| line.contains(shell));
    let parts = if plain { line.split(';').map(str::trim).map(str::to_owned).collect() } else { Vec::new() };
    (parts.into_iter().filter(|part| refusal(part).is_none()).collect(), Some(reason))
}
