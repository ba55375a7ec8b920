//! `zfs` as a child process, for commands that are made of several of its commands.
//!
//! From:   words of `zfs`. The child finds the same pools: it gets the places of `-d`, and asks the pools' servers itself.
//! To:     what it prints, or a running child with a pipe.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::around::Surroundings;
use crate::messages::{Failure, io_words};

/// How `zfs` is started.
#[derive(Debug)]
pub(super) struct Zfs {
    program: PathBuf,
    before: Vec<OsString>,
}

impl Zfs {
    /// # Errors
    /// The system does not say where this program is.
    pub(super) fn new(around: &Surroundings) -> Result<Zfs, Failure> {
        let program = std::env::current_exe()
            .map_err(|error| Failure::refused(format!("cannot find this program: {}", io_words(&error))))?;
        let places = around.search.iter();
        let before = places.flat_map(|place| ["-d".into(), place.clone().into_os_string()]).collect();
        Ok(Zfs { program, before })
    }

    /// A child that is not started yet.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.before).arg("zfs").args(words);
        command
    }

    /// Runs the child and returns its output.
    ///
    /// # Errors
    /// It failed; these are its messages.
    pub(super) fn read(&self, words: &[&str]) -> Result<String, Failure> {
        let done = self.command(words).stdin(Stdio::null()).output().map_err(not_started)?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => Err(said(&done.stderr)),
        }
    }
}

/// The failure of a child that cannot be started.
pub(super) fn not_started(error: std::io::Error) -> Failure {
    Failure::refused(format!("cannot start zfs: {}", io_words(&error)))
}

/// The failure that a child reported.
pub(super) fn said(err: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(err);
    let lines: Vec<String> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if lines.is_empty() { Failure::Ended(1) } else { Failure::Refused(lines) }
}
