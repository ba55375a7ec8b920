//! Messages of `zfs send`: progress and errors.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pool::props::number::{nice, nice_bytes};
use stream::{SendSource, Sent};

use super::zfs_send_options::Options;
use crate::command::Typed;
use crate::dates::{self, Form};
use crate::messages::Failure;
use crate::open::Session;
use crate::out::Console;

/// Interval of the progress rows of `-v`.
const TELLING: Duration = Duration::from_secs(1);

/// Refuses to write a stream to a terminal.
pub(super) fn check_terminal(call: &Typed<Options>, console: &Console) -> Result<(), Failure> {
    if call.options.dry_run || !console.is_terminal() {
        return Ok(());
    }
    let lines = ["Error: Stream can not be written to a terminal.", "You must redirect standard output."];
    Err(Failure::Refused(lines.map(str::to_owned).to_vec()))
}

/// The head of a mounted file system changes while it is sent, and so is not.
pub(super) fn check_not_mounted(session: &Session, name: &str) -> Result<(), Failure> {
    if name.contains('@') || session.mount_point(name).is_none() {
        return Ok(());
    }
    let why = "target is busy; if a filesystem, it must not be mounted";
    Err(Failure::refused(format!("warning: cannot send '{name}': {why}")))
}

/// Whether the command prints what it sends.
pub(super) fn is_told(call: &Typed<Options>) -> bool {
    call.options.verbose || call.options.parsable || call.options.proctitle
}

/// The stream and its estimated size.
pub(super) fn step(from: Option<&SendSource>, to: &str, bytes: u64, parsable: bool) -> String {
    match (from, parsable) {
        (None, false) => format!("full send of {to} estimated size is {}", nice(bytes)),
        (None, true) => format!("full\t{to}\t{bytes}"),
        (Some(from), false) => {
            format!("send from {} to {to} estimated size is {}", short(&from.name, to), nice(bytes))
        }
        (Some(from), true) => format!("incremental\t{}\t{to}\t{bytes}", from.name),
    }
}

pub(super) fn total(bytes: u64, parsable: bool) -> String {
    if parsable { format!("size\t{bytes}") } else { format!("total estimated size is {}", nice(bytes)) }
}

/// The source without the file system that the snapshot has too.
fn short<'a>(from: &'a str, to: &str) -> &'a str {
    let fs = to.split('@').next().unwrap_or(to);
    from.strip_prefix(fs).filter(|rest| rest.starts_with(['@', '#'])).unwrap_or(from)
}

/// `-v`: the progress of each stream, once per second.
pub(super) struct Ticker {
    is_wanted: bool,
    parsable: bool,
    /// The snapshot that is on its way, and when its last row was due.
    now: Option<(String, Instant)>,
}

impl Ticker {
    pub(super) fn of(call: &Typed<Options>) -> Ticker {
        Ticker { is_wanted: call.options.verbose, parsable: call.options.parsable, now: None }
    }

    pub(super) fn hear(&mut self, sent: Sent<'_>, err: &mut dyn Write) {
        if !self.is_wanted {
            return;
        }
        // A closed standard error cannot be reported.
        let _ = match &mut self.now {
            Some((snapshot, last)) if snapshot == sent.snapshot => match last.elapsed() >= TELLING {
                true => {
                    *last = Instant::now();
                    writeln!(err, "{}", row(sent, self.parsable))
                }
                false => Ok(()),
            },
            _ => {
                self.now = Some((sent.snapshot.to_owned(), Instant::now()));
                match self.parsable {
                    true => Ok(()),
                    false => writeln!(err, "TIME        SENT   SNAPSHOT {}", sent.snapshot),
                }
            }
        };
    }
}

pub(super) fn sending(snapshot: &str, error: &pool::Error) -> Failure {
    match error {
        pool::Error::Output(source) if source.kind() == std::io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        pool::Error::NoSnapshotBelow { .. } => Failure::refused(error.to_string()),
        pool::Error::NotRaw { .. } => Failure::Refused(vec![
            error.to_string(),
            format!("warning: cannot send '{snapshot}': backup failed"),
        ]),
        pool::Error::Key(pool::KeyError::NotLoaded(_)) => {
            Failure::refused(format!("warning: cannot send '{snapshot}': dataset key must be loaded"))
        }
        pool::Error::NotEarlier(_) => Failure::refused(format!("warning: {error}")),
        error => Failure::refused(format!("warning: cannot send '{snapshot}': {error}")),
    }
}

/// A row of `-v`.
fn row(sent: Sent<'_>, parsable: bool) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = dates::show(now.as_secs(), Form::Clock);
    let Sent { snapshot, bytes } = sent;
    match parsable {
        true => format!("{time}\t{bytes}\t{snapshot}"),
        false => format!("{time}   {:>5}   {snapshot}", nice_bytes(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_rows_are_printed_once_a_second_below_the_name_of_their_snapshot() {
        let mut ticker = Ticker { is_wanted: true, parsable: false, now: None };
        let mut err = Vec::new();
        let sent = |bytes| Sent { snapshot: "tank/fs@a", bytes };
        ticker.hear(sent(100), &mut err);
        ticker.hear(sent(200), &mut err);
        assert_eq!(String::from_utf8_lossy(&err), "TIME        SENT   SNAPSHOT tank/fs@a\n");
        if let Some((_, last)) = &mut ticker.now {
            *last -= TELLING;
        }
        ticker.hear(sent(2_000_000), &mut err);
        let text = String::from_utf8_lossy(&err).into_owned();
        let row = text.lines().nth(1).expect("a row");
        assert!(row.ends_with("   1.91M   tank/fs@a") && row.len() == 8 + 20, "{row}");
        ticker.hear(Sent { snapshot: "tank/fs@b", bytes: 1 }, &mut err);
        assert!(String::from_utf8_lossy(&err).ends_with("SNAPSHOT tank/fs@b\n"));
    }

    #[test]
    fn rows_for_programs_have_tabs_and_no_heading() {
        let mut ticker = Ticker { is_wanted: true, parsable: true, now: None };
        let mut err = Vec::new();
        ticker.hear(Sent { snapshot: "t@a", bytes: 1 }, &mut err);
        assert!(err.is_empty());
        let row = row(Sent { snapshot: "t@a", bytes: 2_000_000 }, true);
        assert!(row.ends_with("\t2000000\tt@a") && row.as_bytes()[2] == b':', "{row}");
    }
}
