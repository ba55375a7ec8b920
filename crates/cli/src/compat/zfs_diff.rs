//! `zfs diff`.

use std::io::Write;

use format::znode;
use pool::props::dataset::parse as property;
use pool::props::{DatasetKind, Value as PropertyValue, names};
use serde_json::{Value, json};
use stream::Sender;
use zpl::Filesystem;
use zpl::diff::{Change, Difference, diff};

use super::Call;
use super::keyed::by_server;
use super::select::dataset_failure;
use crate::args::{Parsed, flag};
use crate::command::{Beside, Command, Run, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, open_for};
use crate::out::{Console, octal};

/// `zfs diff`.
pub static COMMAND: Command = Command {
    name: "diff",
    about: "shows what changed between snapshots",
    syntax: &["diff [-FHth|-j] SNAPSHOT [SNAPSHOT|FILESYSTEM]"],
    examples: &["zfs diff tank/home@monday", "zfs diff -FHt tank/home@monday tank/home@friday"],
    options: &[
        flag("F", "with the type of each file"),
        flag("H", "tabs between fields"),
        flag("t", "with the time of each change"),
        flag("h", "names with special characters as they are"),
        flag("j|json", "prints a JSON object for each change"),
    ],
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs diff`.
struct Options {
    classify: bool,
    scripted: bool,
    times: bool,
    plain_names: bool,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        classify: args.has("F"),
        scripted: args.has("H"),
        times: args.has("t"),
        plain_names: args.has("h"),
        json: args.has("j"),
    }
}

const CANNOT: &str = "Unable to obtain diffs";
const NOT_EARLIER: &str = "Not an earlier snapshot from the same fs";

/// How differences are printed.
#[derive(Clone, Debug)]
struct Style {
    classify: bool,
    scripted: bool,
    times: bool,
    plain_names: bool,
    /// The text before every path.
    root: Vec<u8>,
}

/// Runs `zfs diff`.
///
/// # Errors
/// The arguments are wrong, or the two states cannot be compared.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let (from, to) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("must provide at least one snapshot name")),
        [from] => (from.as_str(), None),
        [from, to] => (from.as_str(), Some(to.as_str())),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let badly = |name: &str, why: &str| Failure::refused(format!("Badly formed snapshot name {name}: {why}"));
    let Some((fs, _)) = from.split_once('@') else {
        names::check(from).map_err(|error| Action::Open(from).failed(error))?;
        return Err(badly(from, "missing '@' delimiter in snapshot name"));
    };
    names::check(from).map_err(|error| badly(from, &error.to_string()))?;
    let to = match to {
        None => fs.to_owned(),
        Some(leaf) if leaf.starts_with('@') => format!("{fs}{leaf}"),
        Some(name) => name.to_owned(),
    };
    names::check(&to).map_err(|error| badly(&to, &error.to_string()))?;
    let session = open_for(fs, call.around, Intent::Files).map_err(|error| error.dataset(fs))?;
    if by_server(&session, call, &args.operands, fs, false)? {
        return session.finish();
    }
    let compared = compare(&session, call, console, from, &to);
    session.finish().and(compared)
}

fn compare(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    from: &str,
    to: &str,
) -> Result<(), Failure> {
    let pool = session.pool();
    let cannot = |why: &dyn std::fmt::Display| Failure::refused(format!("{CANNOT}: {why}"));
    let fs = from.split('@').next().unwrap_or(from);
    let info = pool.dataset(fs).map_err(|error| dataset_failure(fs, &error))?;
    if info.kind != DatasetKind::Filesystem {
        return Err(Action::Open(fs).failed(reason::WRONG_KIND));
    }
    let known = |name: &str| match pool.dataset(name) {
        Err(pool::Error::NoDataset(_)) => Err(cannot(&"No such file or directory")),
        found => found.map_err(|error| cannot(&error)),
    };
    let source = known(from)?;
    let target = known(to)?;
    let source = Sender::new(pool).send_source(&source.name).map_err(|error| cannot(&error))?;
    let open = |name: &str| -> Result<Filesystem, Failure> {
        let dataset = pool.open(name).map_err(|error| cannot(&error))?;
        Filesystem::open(dataset).map_err(|error| cannot(&error))
    };
    let (old, new) = (open(from)?, open(to)?);
    let to_fs = target.name.split('@').next().unwrap_or(to);
    let touched = Sender::new(pool).touched(&source, new.dataset()).map_err(|error| match &error {
        // A later snapshot of the same file system, or a dataset of another lineage.
        pool::Error::NotEarlier(_) if to_fs == fs => {
            Failure::refused(format!("{CANNOT}: ")).hint(format!("   {NOT_EARLIER}"))
        }
        pool::Error::NotEarlier(_) => Failure::refused(format!("{NOT_EARLIER}: {}", reason::INVALID_NAME)),
        error => cannot(error),
    })?;
    let _args = &call.args;
    let style = Style {
        classify: call.options.classify,
        scripted: call.options.scripted,
        times: call.options.times,
        plain_names: call.options.plain_names,
        root: mountpoint(session, to_fs).map_err(|error| cannot(&error))?.into_bytes(),
    };
    let ended = diff(&old, &new, touched, |difference| {
        let mut line = match call.options.json {
            true => style.object(&difference).to_string().into_bytes(),
            false => style.line(&difference),
        };
        line.push(b'\n');
        console.out().write_all(&line).map_err(|error| Ended::Told(error.into()))
    });
    match ended {
        Ok(()) => Ok(()),
        Err(Ended::Told(failure)) => Err(failure),
        Err(Ended::Read(error)) => {
            console.flush()?;
            Err(cannot(&error))
        }
    }
}

/// Why a comparison ended early.
enum Ended {
    /// The output is closed.
    Told(Failure),
    Read(zpl::Error),
}

impl From<zpl::Error> for Ended {
    fn from(error: zpl::Error) -> Ended {
        Ended::Read(error)
    }
}

/// Where a file system is mounted, or belongs; empty if nowhere.
fn mountpoint(session: &Session, fs: &str) -> pool::Result<String> {
    if let Some(point) = session.mount_point(fs) {
        return Ok(point.display().to_string());
    }
    let pool = session.pool();
    let property = property("mountpoint").expect("the table has it");
    Ok(match pool.property(&pool.dataset(fs)?, property)? {
        Some((PropertyValue::Text(path), _)) if path.starts_with('/') => {
            path.trim_end_matches('/').to_owned()
        }
        _ => String::new(),
    })
}

impl Style {
    fn line(&self, difference: &Difference) -> Vec<u8> {
        let mut line = Vec::new();
        if self.times {
            let time = &difference.ctime;
            line.extend(format!("{:10}.{:09}\t", time.secs, time.nanos).bytes());
        }
        let letter = match &difference.change {
            Change::Modified { .. } => b'M',
            Change::Added(_) => b'+',
            Change::Removed(_) => b'-',
            Change::Renamed { .. } => b'R',
        };
        line.extend([letter, b'\t']);
        if self.classify {
            line.extend([kind_letter(difference.mode), b'\t']);
        }
        match &difference.change {
            Change::Added(path) | Change::Removed(path) => self.path(&mut line, path),
            Change::Modified { path, links } => {
                self.path(&mut line, path);
                if *links != 0 {
                    line.extend(format!("\t({links:+})").bytes());
                }
            }
            Change::Renamed { from, to } => {
                self.path(&mut line, from);
                line.extend_from_slice(if self.scripted { b"\t" } else { b" -> " });
                self.path(&mut line, to);
            }
        }
        line
    }

    /// The same for programs.
    fn object(&self, difference: &Difference) -> Value {
        let place = |path: &[u8]| Value::from(String::from_utf8_lossy(&[&self.root, path].concat()));
        let (change, path) = match &difference.change {
            Change::Modified { path, .. } => ("modified", path),
            Change::Added(path) => ("added", path),
            Change::Removed(path) => ("removed", path),
            Change::Renamed { from, .. } => ("renamed", from),
        };
        let time = &difference.ctime;
        let mut object = json!({
            "change": change,
            "type": char::from(kind_letter(difference.mode)).to_string(),
            "path": place(path),
            "ctime": time.secs,
            "ctime_nanoseconds": time.nanos,
        });
        match &difference.change {
            Change::Renamed { to, .. } => object["new_path"] = place(to),
            Change::Modified { links, .. } if *links != 0 => object["links"] = (*links).into(),
            _ => {}
        }
        object
    }

    /// A path with the mountpoint before it; bytes that could be mistaken are written as octal numbers.
    fn path(&self, line: &mut Vec<u8>, path: &[u8]) {
        for &byte in self.root.iter().chain(path) {
            if self.plain_names || byte.is_ascii_graphic() && byte != b'\\' {
                line.push(byte);
            } else {
                line.extend(octal(byte).bytes());
            }
        }
    }
}

/// The letter of a kind of file.
fn kind_letter(mode: u64) -> u8 {
    match mode & znode::S_IFMT {
        znode::S_IFREG => b'F',
        znode::S_IFDIR => b'/',
        znode::S_IFBLK => b'B',
        znode::S_IFCHR => b'C',
        znode::S_IFLNK => b'@',
        znode::S_IFIFO => b'|',
        znode::S_IFSOCK => b'=',
        _ => b'?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zpl::Time;

    fn style() -> Style {
        Style {
            classify: false,
            scripted: false,
            times: false,
            plain_names: false,
            root: b"/tank/a".to_vec(),
        }
    }

    fn line(style: &Style, change: Change) -> String {
        let ctime = Time { secs: 1_795_237_913, nanos: 24_684 };
        let mode = znode::S_IFREG | 0o644;
        String::from_utf8(style.line(&Difference { change, mode, ctime })).expect("ASCII")
    }

    #[test]
    fn lines_are_those_of_openzfs() {
        let renamed = || Change::Renamed { from: b"/d1".to_vec(), to: b"/d2".to_vec() };
        assert_eq!(line(&style(), renamed()), "R\t/tank/a/d1 -> /tank/a/d2");
        let all = Style { classify: true, scripted: true, times: true, ..style() };
        assert_eq!(line(&all, renamed()), "1795237913.000024684\tR\tF\t/tank/a/d1\t/tank/a/d2");
        let mode = znode::S_IFREG | 0o644;
        let difference = Difference { change: renamed(), mode, ctime: Time { secs: 5, nanos: 7 } };
        assert_eq!(
            style().object(&difference).to_string(),
            r#"{"change":"renamed","type":"F","path":"/tank/a/d1","ctime":5,"ctime_nanoseconds":7,"new_path":"/tank/a/d2"}"#
        );
        let odd = || Change::Added("/na me\\\u{e4}".as_bytes().to_vec());
        assert_eq!(line(&style(), odd()), "+\t/tank/a/na\\0040me\\0134\\0303\\0244");
        assert_eq!(line(&Style { plain_names: true, ..style() }, odd()), "+\t/tank/a/na me\\\u{e4}");
        let links = |links| Change::Modified { path: b"/f".to_vec(), links };
        assert_eq!(line(&style(), links(2)), "M\t/tank/a/f\t(+2)");
        assert_eq!(line(&style(), links(0)), "M\t/tank/a/f");
    }
}
