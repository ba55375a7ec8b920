//! `zfs redact`.

use pool::Pool;
use stream::Sender;

use super::Call;
use super::changing::{is_missing, session};
use crate::command::{Beside, Command, Run, Targets};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, pool_of};
use crate::out::Console;

/// `zfs redact`.
pub static COMMAND: Command = Command {
    name: "redact",
    about: "makes a bookmark of the blocks of a snapshot that its clones changed, for streams that leave them out",
    syntax: &["redact SNAPSHOT BOOKMARK SNAPSHOT…"],
    examples: &["zfs redact tank/data@monday public tank/clean@checked"],
    targets: Targets::First,
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

/// Exit statuses of OpenZFS: numbers of its errors.
const ENOENT: u8 = 2;
const ESRCH: u8 = 3;
const E2BIG: u8 = 7;
const EEXIST: u8 = 17;
const EXDEV: u8 = 18;
const EINVAL: u8 = 22;
const ENOSPC: u8 = 28;
const ENAMETOOLONG: u8 = 36;
const EALREADY: u8 = 114;

/// Runs `zfs redact`.
///
/// # Errors
/// The arguments are wrong, or the bookmark cannot be made.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let (snapshot, mark, by) = match call.args.operands.as_slice() {
        [snapshot, mark, by @ ..] if !by.is_empty() => (snapshot.as_str(), mark.as_str(), by),
        _ => return Err(Failure::usage("too few arguments")),
    };
    let say = |console: &mut Console, line: &str, status| {
        console.remark(line);
        Err(Failure::Ended(status))
    };
    if mark.contains('#') {
        return say(console, "redaction bookmark name must not contain '#'", EINVAL);
    }
    if by.iter().any(|name| pool_of(name) != pool_of(snapshot)) {
        let line = "potentially invalid redaction snapshot; full dataset names required";
        return say(console, line, EXDEV);
    }
    let session = session(call, snapshot, Intent::Write).map_err(|error| error.dataset(snapshot))?;
    let fs = snapshot.split('@').next().unwrap_or(snapshot);
    if let Some(failure) = session.refusal(Action::Create(&format!("{fs}#{mark}"))) {
        return session.finish().and(Err(failure));
    }
    let done = redact(session.pool(), (snapshot, mark, by), console);
    session.finish().and(done)
}

fn redact(
    pool: &Pool,
    (snapshot, mark, by): (&str, &str, &[String]),
    console: &mut Console,
) -> Result<(), Failure> {
    for name in std::iter::once(snapshot).chain(by.iter().map(String::as_str)) {
        if pool.dataset(name).as_ref().is_err_and(is_missing) {
            let missing = Action::Open(name).failed(reason::DATASET_MISSING);
            console.complain(missing.hint(format!("provided snapshot {name} does not exist")))?;
            return Err(Failure::Ended(ENOENT));
        }
    }
    let Err(error) = Sender::new(pool).redact(snapshot, mark, by) else { return Ok(()) };
    let (line, status) = match &error {
        pool::Error::Exists(_) => {
            (format!("specified redaction bookmark ({mark}) provided already exists"), EEXIST)
        }
        pool::Error::NameTooLong(_) => {
            ("provided bookmark name cannot be used, final name would be too long".to_owned(), ENAMETOOLONG)
        }
        // OpenZFS says no more of a bad name.
        pool::Error::InvalidName { .. } => (pool::Error::NotDescendant.to_string(), EINVAL),
        pool::Error::NotDescendant => (error.to_string(), EINVAL),
        pool::Error::RedactedAgain => (error.to_string(), EALREADY),
        pool::Error::OtherRedaction => (error.to_string(), ESRCH),
        pool::Error::TooManyRedactions => (error.to_string(), E2BIG),
        error if error.is_no_space() => (reason::OUT_OF_SPACE.to_owned(), ENOSPC),
        error => return Err(Failure::refused(format!("cannot redact '{snapshot}': {error}"))),
    };
    console.remark(&line);
    Err(Failure::Ended(status))
}
