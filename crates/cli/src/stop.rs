//! Signals. Ctrl-C: the first asks a command to stop in good order, the second kills it. A terminal that is closed asks as
//! well, however often it says so: the kernel and the shell both do.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::messages::Failure;

/// Exit status of a command that a signal stopped, as shells report a death by it: 130 for Ctrl-C.
const fn status_of(signal: i32) -> u8 {
    128 + signal as u8
}

/// Exit status of a command that was stopped as if by Ctrl-C.
pub const INTERRUPTED: u8 = status_of(SIGINT);

/// Whether the command was asked to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Which signal asked.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on, and for SIGHUP, unless it was ignored until now: `nohup` has it ignored.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && is_ignored(signal) {
                continue;
            }
            if signal != SIGHUP {
                // In this order: the first signal finds the flag down, the second finds it up.
                flag::register_conditional_shutdown(signal, status_of(signal).into(), stop.asked.clone())?;
            }
            flag::register_usize(signal, stop.signal.clone(), signal as usize)?;
            flag::register(signal, stop.asked.clone())?;
        }
        Ok(stop)
    }

    /// A stop that another part of the program requests, as Ctrl-C does.
    #[must_use]
    pub fn raised_by(flag: Arc<AtomicBool>) -> Stop {
        Stop { asked: flag, signal: Arc::new(AtomicUsize::new(SIGINT as usize)) }
    }

    /// Whether it is time to stop.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// The terminal is gone, so the output may have no reader.
    #[must_use]
    pub fn hung_up(&self) -> bool {
        self.asked() && self.signal.load(Ordering::Acquire) == SIGHUP as usize
    }

    /// Exit status of a command that was asked to stop.
    #[must_use]
    pub fn status(&self) -> u8 {
        status_of(self.signal.load(Ordering::Acquire) as i32)
    }
}

/// The error of a command when the system refused handlers for signals.
pub fn no_signals(error: io::Error) -> Failure {
    Failure::refused(format!("cannot listen for signals: {error}"))
}

/// Whether this process ignores a signal, as far as the system shows it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Makes writing beyond the limit of file sizes (`ulimit -f`) an error like any other, not a sudden death.
pub fn take_size_limit_as_error() {
    // If the system refuses even this, a process over its limit gets the default treatment.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
