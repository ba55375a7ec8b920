//! `cenote advise`: what to set for this data, without writing it anywhere.
//!
//! From:   the command line: paths, places in pools, `-`, or a file of published tables.
//! To:     `bench::advise`, whose records become a table, picks and commands here.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bench::advise::{Question, Subject, TABLE_CORES, TableReport, advise, from_tables};
use bench::{Error, Event, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Advise;
use super::pools::{Pools, refused};
use super::stop::Stop;
use crate::Surroundings;
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::Console;
use crate::place::{Place, PoolPath};

/// Bytes read from standard input at a time, and how many such pieces wait.
const STREAM_STEP: usize = 1 << 20;
const STREAM_READY: usize = 4;
/// How long a stream may be silent before Ctrl-C and the time are looked at.
const STREAM_WAIT: Duration = Duration::from_millis(100);

/// Carries out the command. Gives the exit status.
///
/// # Errors
/// There is nothing to give advice on.
pub fn run(args: &Advise, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    if let Some(path) = &args.from_table {
        return from_table(args, path, console).map(|()| 0);
    }
    let question = question(args);
    let places = args.paths.iter().filter_map(|place| match place {
        Place::InPool(place) => Some((place, Intent::Read)),
        Place::Local(_) => None,
    });
    let pools = Pools::open(places, around)?;
    let stop =
        Stop::on_signals().map_err(|error| Failure::refused(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut stdin = args.paths.contains(&Place::Local("-".into())).then(|| Stdin::new(stop.clone()));
    let answered = {
        let mut subjects = Vec::new();
        let mut waiting = stdin.as_mut();
        for place in &args.paths {
            subjects.push(match place {
                Place::Local(path) if path == Path::new("-") => match waiting.take() {
                    Some(stdin) => Subject::Stream(stdin),
                    None => return Err(Failure::refused("cannot read standard input twice")),
                },
                Place::Local(path) => Subject::Path(path.clone()),
                Place::InPool(place) => dataset(place, &pools)?,
            });
        }
        if subjects.is_empty() {
            subjects.push(Subject::Sample);
        }
        let screen = Screen::new(stop.clone());
        let answered = advise(&question, subjects, &screen);
        screen.bar.finish_and_clear();
        answered
    };
    pools.finish()?;
    match answered {
        Ok(advice) if args.json => write!(console.out(), "{}", advice.to_json())?,
        Ok(advice) => {
            for line in advice.lines() {
                console.line(&line)?;
            }
        }
        Err(Error::Interrupted) => {
            console.remark("cenote advise: interrupted");
            return Ok(stop.status());
        }
        Err(error) => return Err(Failure::refused(error.to_string())),
    }
    Ok(0)
}

fn question(args: &Advise) -> Question {
    let usual = Question::usual();
    let rate = |mb: Option<f64>| mb.map(|mb| mb * 1e6);
    let mut target = usual.target;
    target.cores = args.cores.unwrap_or(target.cores);
    target.busy_cores = args.busy_cores.min(f64::from(target.cores));
    target.disk_write = rate(args.disk_write);
    target.disk_read = rate(args.disk_read);
    target.network = rate(args.network);
    target.dirty_max = args.dirty_max;
    let dataset = match &args.paths[..] {
        [Place::InPool(place)] => place.dataset.clone(),
        _ => usual.dataset,
    };
    Question {
        compressions: if args.compression.is_empty() { usual.compressions } else { args.compression.clone() },
        recordsizes: if args.recordsize.is_empty() { usual.recordsizes } else { args.recordsize.clone() },
        ashift: args.ashift,
        layout: args.layout,
        target,
        goal: args.goal.into(),
        seconds: args.time,
        seed: args.seed,
        dedup: args.dedup,
        unpack: args.unpack,
        folder: args.dir.clone(),
        dataset,
        bytes_max: None,
    }
}

fn dataset<'a>(place: &PoolPath, pools: &Pools) -> Result<Subject<'a>, Failure> {
    let fs = pools.filesystem(place, Intent::Read)?;
    let id = fs.resolve(&place.path, true).map_err(|error| refused("read", place, error))?;
    Ok(Subject::Dataset { fs, id, name: place.to_string() })
}

fn from_table(args: &Advise, path: &Path, console: &mut Console) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::refused(format!("cannot read '{}': {error}", path.display())))?;
    let tables = from_tables(&text, args.cores.unwrap_or(TABLE_CORES), args.busy_cores)
        .map_err(|error| Failure::refused(format!("'{}': {error}", path.display())))?;
    let report = TableReport::new(tables);
    if args.json {
        return Ok(write!(console.out(), "{}", report.to_json())?);
    }
    for line in report.lines() {
        console.line(&line)?;
    }
    Ok(())
}

/// What goes on, on a terminal.
struct Screen {
    bar: ProgressBar,
    stop: Stop,
}

impl Screen {
    fn new(stop: Stop) -> Screen {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        if let Ok(style) = ProgressStyle::with_template("{msg} {binary_bytes}") {
            bar.set_style(style);
        }
        bar.set_message("looking at names and sizes:");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Screen { bar, stop }
    }
}

impl Watch for Screen {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Loading { bytes, total } => {
                if total > 0 {
                    self.bar.set_message("encoding samples:");
                }
                self.bar.set_position(bytes);
            }
            Event::Note(note) => self.bar.suspend(|| {
                // Nobody can be told that standard error is closed.
                let _ = writeln!(io::stderr(), "{note}");
            }),
            _ => {}
        }
    }

    fn stopped(&self) -> bool {
        self.stop.asked()
    }
}

/// Standard input, read by a thread, so that a silent one does not outlast Ctrl-C.
struct Stdin {
    pieces: Receiver<io::Result<Vec<u8>>>,
    present: Vec<u8>,
    at: usize,
    stop: Stop,
    ended: bool,
    /// Tells the thread that nobody listens any more.
    over: Arc<AtomicBool>,
}

impl Stdin {
    fn new(stop: Stop) -> Stdin {
        let (sender, pieces) = sync_channel(STREAM_READY);
        let over = Arc::new(AtomicBool::new(false));
        // It is not waited for: it may sit in a read that never ends.
        let heard = over.clone();
        std::thread::spawn(move || read_stdin(&sender, &heard));
        Stdin { pieces, present: Vec::new(), at: 0, stop, ended: false, over }
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.over.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

fn read_stdin(sender: &SyncSender<io::Result<Vec<u8>>>, over: &AtomicBool) {
    let mut stdin = io::stdin().lock();
    while !over.load(std::sync::atomic::Ordering::Relaxed) {
        let mut piece = vec![0; STREAM_STEP];
        let read = match stdin.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let ended = !matches!(read, Ok(1..));
        let sent = sender.send(read.map(|len| {
            piece.truncate(len);
            piece
        }));
        if ended || sent.is_err() {
            return;
        }
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.present.len() {
            if self.ended || self.stop.asked() {
                return Ok(0);
            }
            match self.pieces.recv_timeout(STREAM_WAIT) {
                Ok(piece) => {
                    (self.present, self.at) = (piece?, 0);
                    self.ended = self.present.is_empty();
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        let len = buf.len().min(self.present.len() - self.at);
        buf[..len].copy_from_slice(&self.present[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::{Cenote, Command};
    use bench::advise::Advice;
    use clap::Parser;

    fn call(line: &str) -> (Result<u8, Failure>, String) {
        let words = std::iter::once("cenote").chain(line.split_whitespace());
        let Command::Advise(args) = Cenote::try_parse_from(words).expect("a good line").command else {
            panic!("advise")
        };
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, io::sink());
        let ended = run(&args, &Surroundings::default(), &mut console);
        console.flush().expect("written");
        drop(console);
        (ended, String::from_utf8(out).expect("text"))
    }

    fn refusal(line: &str) -> String {
        match call(line).0 {
            Err(Failure::Refused(lines)) => lines.join("\n"),
            other => panic!("{other:?}"),
        }
    }

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        let line = |n: u32| format!("{n} the same line again and again {}\n", n * 7919 % 1000);
        std::fs::write(dir.path().join("a.txt"), (0..40_000).map(line).collect::<String>()).expect("written");
        dir
    }

    #[test]
    fn the_answer_is_a_table_picks_and_commands() {
        let dir = data();
        let (ended, out) = call(&format!(
            "advise --disk-write 200 --disk-read 200 --network 100 --dirty-max 1G --time 5 {}",
            dir.path().display()
        ));
        assert_eq!(ended, Ok(0));
        for part in [
            "compression",
            "zstd-3",
            "network",
            "balanced: ",
            "archive: ",
            "zfs create -o compression=",
            "dedup: ",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn json_stands_alone_and_is_the_contract() {
        let dir = data();
        let line = format!(
            "advise --json --compression off,lz4 --recordsize 128K --disk-write 200 --disk-read 200 --layout raidz1:5 {}",
            dir.path().display()
        );
        let (ended, out) = call(&line);
        assert_eq!(ended, Ok(0));
        let advice: Advice = serde_json::from_str(&out).expect("the contract");
        assert!(advice.rows.len() == 2 && advice.sample.complete && advice.schema == 1);
        assert_eq!(advice.to_json(), out);
    }

    #[test]
    fn a_slow_disk_is_given_more_compression_than_a_fast_one() {
        let dir = data();
        let pick = |disk: &str| {
            let line = format!(
                "advise --json --compression off,gzip-9 --cores 4 --disk-write {disk} --disk-read {disk} {}",
                dir.path().display()
            );
            serde_json::from_str::<Advice>(&call(&line).1).expect("the contract").picks[0].compression.clone()
        };
        assert_ne!(pick("5"), pick("200000"), "S1-02");
    }

    #[test]
    fn what_cannot_be_answered_is_one_clear_line() {
        let dir = data();
        let at = dir.path().display();
        assert!(refusal(&format!("advise {at}/none")).starts_with("cannot read '"));
        assert!(refusal(&format!("advise --compression gzip-10 {at}")).contains("compression=gzip-10"));
        assert!(refusal(&format!("advise --recordsize 100K {at}")).contains("recordsize=100K"));
        assert!(refusal("advise /dev/null").starts_with("cannot give advice on '/dev/null'"));
        std::fs::create_dir(dir.path().join("empty")).expect("made");
        assert!(refusal(&format!("advise {at}/empty")).starts_with("nothing to measure: '"));
        assert!(refusal(&format!("advise --unpack {at}/a.txt")).contains("no tar"));
        assert!(refusal(&format!("advise --from-table {at}/a.txt")).contains("cannot use the table"));
        assert!(refusal("advise nopool/fs:/").contains("nopool"));
        for bad in [
            "advise --layout raid5 x",
            "advise --cores 0 x",
            "advise --time 0 x",
            "advise --disk-write -1 x",
            "advise --ashift 3 x",
        ] {
            assert!(
                Cenote::try_parse_from(std::iter::once("cenote").chain(bad.split_whitespace())).is_err(),
                "{bad}"
            );
        }
    }
}
