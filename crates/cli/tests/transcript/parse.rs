//! The text of a transcript as steps.

use super::pattern::Expected;

/// A transcript taken apart.
#[derive(Debug)]
pub struct Transcript {
    pub title: String,
    pub steps: Vec<Step>,
}

#[derive(Debug)]
pub enum Step {
    /// `% command`, and the exit status it must have.
    Setup {
        line: usize,
        command: String,
        status: i32,
    },
    /// `@data path kind size`, the size in bytes.
    Data {
        line: usize,
        path: String,
        kind: String,
        size: u64,
    },
    /// `@check a >= b > c`: the first dataset, then each further one and whether the two before and at it may
    /// be equal.
    Check {
        line: usize,
        first: String,
        rest: Vec<(bool, String)>,
    },
    /// `@sync`
    Sync,
    Case(Case),
}

/// `$ command` and what it must do.
#[derive(Debug)]
pub struct Case {
    pub line: usize,
    pub command: String,
    pub out: Vec<Expected>,
    pub err: Vec<Expected>,
    pub status: i32,
}

/// Takes a transcript apart.
///
/// # Errors
/// The line and what is wrong with it.
pub fn parse(text: &str) -> Result<Transcript, String> {
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    match lines.next() {
        Some((_, "#! cenote-transcript 1")) => {}
        _ => return Err("1: not a transcript".to_owned()),
    }
    let (mut title, mut cases) = (String::new(), None);
    for (number, line) in lines.by_ref() {
        if line == "---" {
            break;
        }
        match line.split_once(": ") {
            Some(("title", value)) => title = value.to_owned(),
            Some(("cases", value)) => {
                cases = Some(value.parse::<usize>().map_err(|e| format!("{number}: {e}"))?);
            }
            Some(("source" | "seed" | "note", _)) => {}
            _ => return Err(format!("{number}: unknown header line")),
        }
    }
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in lines {
        let at = |problem: String| format!("{number}: {problem}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line == "@sync" {
            steps.push(Step::Sync);
            continue;
        }
        let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (mark, steps.last_mut()) {
            ("$", _) => steps.push(Step::Case(Case {
                line: number,
                command: rest.to_owned(),
                out: Vec::new(),
                err: Vec::new(),
                status: 0,
            })),
            ("%", _) => steps.push(Step::Setup { line: number, command: rest.to_owned(), status: 0 }),
            ("@data", _) => steps.push(data(number, rest).map_err(at)?),
            ("@check", _) => steps.push(check(number, rest).map_err(at)?),
            ("=", Some(Step::Case(Case { status, .. }) | Step::Setup { status, .. })) => {
                *status = rest.parse().map_err(|e| at(format!("{e}")))?;
            }
            ("1>" | "1>~", Some(Step::Case(case))) => {
                case.out.push(Expected::new(rest, mark == "1>~").map_err(at)?)
            }
            ("2>" | "2>~", Some(Step::Case(case))) => {
                case.err.push(Expected::new(rest, mark == "2>~").map_err(at)?)
            }
            _ => return Err(at(format!("bad line '{line}'"))),
        }
    }
    let found = steps.iter().filter(|s| matches!(s, Step::Case(_))).count();
    match cases {
        Some(cases) if cases != found => Err(format!("{found} cases where {cases} are announced")),
        _ => Ok(Transcript { title, steps }),
    }
}

fn data(line: usize, rest: &str) -> Result<Step, String> {
    let [path, kind, size] = rest.split(' ').collect::<Vec<_>>()[..] else {
        return Err("@data PATH KIND SIZE".to_owned());
    };
    let size = pool::props::size::parse_size(size).map_err(|e| e.to_string())?;
    Ok(Step::Data { line, path: path.to_owned(), kind: kind.to_owned(), size })
}

fn check(line: usize, rest: &str) -> Result<Step, String> {
    let mut words = rest.strip_prefix("ratio ").unwrap_or(rest).split(' ');
    let first = words.next().unwrap_or_default().to_owned();
    let mut rest = Vec::new();
    while let Some(sign) = words.next() {
        let name = words.next().ok_or("a dataset is missing")?.to_owned();
        match sign {
            ">=" => rest.push((true, name)),
            ">" => rest.push((false, name)),
            other => return Err(format!("unknown sign '{other}'")),
        }
    }
    Ok(Step::Check { line, first, rest })
}
