//! Carrying out command lines for clients, inside the process that holds the pool.
//!
//! From:   `server`, which hands over a client's words with its standard input, output and error.
//! To:     the same code that runs on a pool which nobody holds.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};

use server::messages::Job;
use server::visitors::Question;
use server::{Live, Stdio};

use crate::messages::Failure;
use crate::out::Console;
use crate::own::stop::{Stop, no_signals};
use crate::usage::Program;
use crate::{Surroundings, mount_helper, own, visit};

/// What a command finds around it in a pool's server instead of what a process has.
#[derive(Clone, Debug)]
pub struct Served {
    /// The pool that is held here.
    pub live: Arc<Live>,
    /// Where the client is.
    folder: PathBuf,
    /// The client's mask for new files.
    umask: u32,
    /// Raised when the client goes away.
    stop: Stop,
    /// The client's standard input.
    input: Arc<File>,
    /// The client's standard error.
    err: Arc<File>,
    /// The command line as it was typed, where only a part of it is carried out here.
    whole: Option<String>,
}

/// Carries out command lines with this crate.
#[derive(Debug)]
pub struct Roof;

impl server::Commands for Roof {
    fn run(&self, job: &Job, live: &Arc<Live>, stdio: Stdio, stop: &Arc<AtomicBool>) -> u8 {
        let Stdio { input, out, err } = stdio;
        let err = Arc::new(err);
        let served = Served {
            live: live.clone(),
            folder: PathBuf::from(&job.folder),
            umask: job.umask,
            stop: Stop::raised_by(stop.clone()),
            input: Arc::new(input),
            err: err.clone(),
            whole: job.whole.clone(),
        };
        let around = Surroundings { posix: job.posix, served: Some(served), ..Surroundings::default() };
        let (terminal, watched) = (out.is_terminal(), err.is_terminal());
        let console = Console::new(out, Shared(err)).on_terminal(terminal).watched(watched);
        let program = match job.program.as_str() {
            "zfs" => Program::Zfs,
            "zpool" => Program::Zpool,
            name if mount_helper::NAMES.contains(&name) => {
                let _turn = match around.served.as_ref().map(Served::turn).transpose() {
                    Ok(turn) => turn,
                    Err(failure) => return console.finish(Err(failure), String::new),
                };
                return mount_helper::served(job, live, console);
            }
            _ => return own::served(&job.words, around, console),
        };
        // Datasets and properties are changed by one command at a time; who only looks waits for nobody.
        // Who is long about it takes the turn when it is needed: a scrub to begin, a receive to begin and to end. Files are
        // changed beside each other.
        let first = job.words.first().and_then(|word| word.to_str());
        let waits = match program {
            _ if first.is_some_and(|first| crate::forward::reads_only(program, first)) => true,
            Program::Zpool => matches!(first, Some("iostat" | "scrub" | "clear")),
            _ => matches!(first, Some("receive" | "recv" | "rewrite" | "project")),
        };
        let turn = if waits { None } else { around.served.as_ref().map(Served::turn) };
        let _turn = match turn.transpose() {
            Ok(turn) => turn,
            Err(failure) => return console.finish(Err(failure), String::new),
        };
        crate::compatible_on(program, job.words.iter().cloned(), &around, console)
    }

    fn looks_on(&self, job: &Job) -> bool {
        let first = job.words.first().and_then(|word| word.to_str());
        job.program == Program::Zpool.name() && first == Some("iostat")
    }

    fn judge(&self, question: &Question) -> Result<(), String> {
        visit::judge_question(question)
    }
}

/// A file written to by several.
struct Shared(Arc<File>);

impl Write for Shared {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self.0).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self.0).flush()
    }
}

impl Served {
    /// Waits until no other command changes datasets or properties, and keeps others waiting.
    ///
    /// # Errors
    /// The other command waits for a suspended pool, or the client went away.
    pub fn turn(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        let live = &self.live;
        live.turn_unless(|| live.is_suspended() || self.stops()).ok_or_else(|| {
            let pool = live.name();
            if !live.is_suspended() {
                return Failure::refused(format!("cannot open '{pool}': told to stop"));
            }
            Failure::refused(format!("cannot open '{pool}': {}", pool::Error::Suspended))
                .hint(format!("another command waits for it; 'zpool status {pool}' says more"))
        })
    }

    /// Whether the client went away, or the server is to end.
    pub fn stops(&self) -> bool {
        self.stop.asked()
    }

    /// The command line as it was typed, where only a part of it, about one of several pools, is carried out here.
    pub fn whole(&self) -> Option<&str> {
        self.whole.as_deref()
    }

    /// Where the client is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Surroundings {
    /// The pool that is held by this process.
    pub fn live(&self) -> Option<&Arc<Live>> {
        self.served.as_ref().map(|served| &served.live)
    }

    /// What asks the command to stop: Ctrl-C, or that its client goes away.
    ///
    /// # Errors
    /// The system refuses to tell of signals.
    pub fn stop(&self) -> Result<Stop, Failure> {
        match &self.served {
            Some(served) => Ok(served.stop.clone()),
            None => Stop::on_signals().map_err(no_signals),
        }
    }

    /// The mask for new files of whoever typed the command.
    pub fn umask(&self) -> u32 {
        self.served.as_ref().map_or_else(own::umask, |served| served.umask)
    }

    /// Standard input of a client; `None`: that of this process.
    pub fn input(&self) -> Option<Arc<File>> {
        self.served.as_ref().map(|served| served.input.clone())
    }

    /// Standard error of a client; `None`: that of this process.
    pub fn err(&self) -> Option<Arc<File>> {
        self.served.as_ref().map(|served| served.err.clone())
    }

    /// A local path as whoever typed the command meant it.
    pub fn path(&self, path: &Path) -> PathBuf {
        match &self.served {
            Some(served) => served.folder.join(path),
            None => path.to_path_buf(),
        }
    }
}
