//! `zpool wait`: waits for the end of background activities in a pool.

use std::time::{Duration, Instant};

use format::scan::{ScanFunc, ScanState};
use pool::props::number::nice;
use server::Figures;

use super::Call;
use super::repeat::Repeat;
use super::view::{Body, PoolView};
use super::zpool_attach::wait_widened;
use crate::args::{Parsed, flag, value};
use crate::client;
use crate::command::{Command, Run, Typed};
use crate::messages::Failure;
use crate::open::{self, Intent};
use crate::out::Console;
use crate::suggest;

/// `zpool wait`.
pub static COMMAND: Command = Command {
    name: "wait",
    about: "waits for work in the background",
    syntax: &["wait [-Hp] [-T d|u] [-t ACTIVITY[,…]] POOL [INTERVAL]"],
    examples: &["zpool wait tank", "zpool wait -t scrub,resilver tank"],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        value("T", "a time stamp before each report: u seconds, d date"),
        value("t", "only for these, parted by commas: free, scrub, resilver, …"),
    ],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool wait`.
struct Options {
    scripted: bool,
    exact: bool,
    stamp: Option<String>,
    activities: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        exact: args.has("p"),
        stamp: args.text("T"),
        activities: args.text("t"),
    }
}

/// How often the state of a pool that a server holds is looked at.
const GLANCE: Duration = Duration::from_millis(250);
/// The activities that a user can wait for, in the order of the columns.
const ACTIVITIES: [&str; 9] =
    ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];
/// The activity of raidz vdevs that get a device.
const EXPANSION: &str = "raidz_expand";
/// The least width of a column, with the two blanks before it.
const WIDTH_MIN: usize = 8;

/// Runs `zpool wait`.
///
/// # Errors
/// The arguments are wrong, or a pool is missing.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let mut operands = call.args.operands.clone();
    let repeat = Repeat::take(&mut operands, call.options.stamp.as_deref())?;
    let wanted: Vec<&str> =
        call.options.activities.as_deref().map_or(ACTIVITIES.to_vec(), |list| list.split(',').collect());
    if let Some(word) = wanted.iter().find(|word| !ACTIVITIES.contains(word)) {
        let line = format!("invalid activity '{word}'");
        return Err(Failure::usage(suggest::with_nearest(line, word, ACTIVITIES.into_iter())));
    }
    let name = match operands.as_slice() {
        [] => return Err(Failure::usage("missing 'pool' argument")),
        [name] if repeat.count().is_none() => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    // A pool that is not there is said to be so; one that cannot be opened has nothing to wait for.
    let PoolView { body, mut figures, .. } = PoolView::new(open::find(name, call.around)?);
    match body {
        Body::Open(session) => {
            let goes_on = session.pool().unreflowed().is_ok_and(|left| left > 0);
            session.finish()?;
            // Without a server only this command moves the sectors of a raidz vdev.
            if figures.is_none() && goes_on && call.options.activities.as_deref() == Some(EXPANSION) {
                return end_expansion(name, call);
            }
        }
        Body::Closed { why, .. } => return Err(why.into()),
    }
    let mut shown = Rows { call, wanted, repeat, last: None };
    loop {
        // Without a server nothing runs between two commands.
        let failed = |error| Failure::refused(format!("cannot wait for {name}: {error}"));
        let left = figures.as_ref().map_or(Ok([0; ACTIVITIES.len()]), remaining).map_err(failed)?;
        shown.tell(&left, console)?;
        let goes_on =
            ACTIVITIES.iter().zip(left).any(|(word, bytes)| bytes > 0 && shown.wanted.contains(word));
        if !goes_on {
            return Ok(());
        }
        std::thread::sleep(shown.pause());
        figures = match client::server_of(name, call.around)? {
            Some(client) => Some(client.figures().map_err(|error| client::broken(name, &error))?),
            None => None,
        };
    }
}

/// Moves the remaining sectors of a raidz vdev.
fn end_expansion(name: &str, call: &Typed<Options>) -> Result<(), Failure> {
    let failed = |error| Failure::refused(format!("cannot wait for {name}: {error}"));
    let session = open::open_pool(name, call.around, Intent::Write)?;
    wait_widened(&session, true).map_err(failed)?;
    session.finish()
}

/// Remaining bytes of each of [`ACTIVITIES`]; at least one for an activity that is under way.
fn remaining(figures: &Figures) -> Result<[u64; ACTIVITIES.len()], format::Corrupt> {
    let mut left = [0; ACTIVITIES.len()];
    (left[0], left[1]) = (figures.discarding, figures.freeing);
    left[4] = figures.unmoved;
    left[8] = figures.unreflowed;
    [left[2], left[7]] = figures.untreated;
    if let Some(status) = figures.scan()? {
        let scan = status.scan;
        let rest = scan.to_examine.saturating_sub(scan.examined).max(1);
        match scan.func {
            _ if scan.state != ScanState::Scanning || scan.is_paused() => {}
            ScanFunc::Resilver => left[5] = rest,
            ScanFunc::Scrub => left[6] = rest,
            _ => {}
        }
    }
    for (_, rebuild) in figures.rebuilds()?.iter().filter(|(_, rebuild)| rebuild.is_active()) {
        left[5] += rebuild.to_scan.saturating_sub(rebuild.scanned).max(1);
    }
    if figures.replaces {
        left[3] = left[5].max(1);
    }
    Ok(left)
}

/// The table of an interval: a column for each activity that is waited for.
struct Rows<'a> {
    call: &'a Typed<'a, Options>,
    wanted: Vec<&'a str>,
    repeat: Repeat,
    last: Option<Instant>,
}

impl Rows<'_> {
    /// Shows a row if one is due.
    fn tell(&mut self, left: &[u64], console: &mut Console) -> Result<(), Failure> {
        let Some(interval) = self.repeat.interval() else { return Ok(()) };
        if self.last.is_some_and(|last| last.elapsed() < interval) {
            return Ok(());
        }
        let (scripted, exact) = (self.call.options.scripted, self.call.options.exact);
        let first = self.last.replace(Instant::now()).is_none();
        self.repeat.stamp(console)?;
        let columns = ACTIVITIES.iter().zip(left).filter(|(word, _)| self.wanted.contains(word));
        let (mut headings, mut cells) = (Vec::new(), Vec::new());
        for (word, bytes) in columns {
            let (heading, width) = (word.to_uppercase(), WIDTH_MIN.max(word.len() + 2));
            let text = if exact { bytes.to_string() } else { nice(*bytes) };
            cells.push(if scripted { text } else { format!("{text:>width$}") });
            headings.push(format!("{heading:>width$}"));
        }
        if first && !scripted {
            console.line(&headings.concat())?;
        }
        console.line(&cells.join(if scripted { "\t" } else { "" }))?;
        console.flush()
    }

    /// How long nothing is to be done.
    fn pause(&self) -> Duration {
        let due =
            |interval: Duration| interval.saturating_sub(self.last.map_or(Duration::ZERO, |l| l.elapsed()));
        self.repeat.interval().map_or(GLANCE, |interval| due(interval).min(GLANCE))
    }
}
