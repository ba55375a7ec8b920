//! Signals. Ctrl-C: the first asks a command to stop in good order, the second kills it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::messages::Failure;

/// Exit status of a command that a signal stopped, as shells report a death by it: 130 for Ctrl-C.
const fn status_of(signal: i32) -> u8 {
    128 + signal as u8
}

/// Whether the command was asked to stop. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// Which signal asked.
    signal: Arc<AtomicUsize>,
}

impl Stop {
    /// Listens for SIGINT and SIGTERM from now on.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn on_signals() -> io::Result<Stop> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds the flag down, the second finds it up.
            flag::register_conditional_shutdown(signal, status_of(signal).into(), stop.asked.clone())?;
            flag::register_usize(signal, stop.signal.clone(), signal as usize)?;
            flag::register(signal, stop.asked.clone())?;
        }
        Ok(stop)
    }

    /// Raised by somebody else, as if by Ctrl-C.
    #[must_use]
    pub fn raised_by(flag: Arc<AtomicBool>) -> Stop {
        Stop { asked: flag, signal: Arc::new(AtomicUsize::new(SIGINT as usize)) }
    }

    /// Whether it is time to stop.
    #[must_use]
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Exit status of a command that was asked to stop.
    #[must_use]
    pub fn status(&self) -> u8 {
        status_of(self.signal.load(Ordering::Acquire) as i32)
    }
}

/// What a command says that the system refused handlers for signals.
pub fn no_signals(error: io::Error) -> Failure {
    Failure::refused(format!("cannot listen for signals: {error}"))
}

/// Makes writing beyond the limit of file sizes (`ulimit -f`) an error like any other, not a sudden death.
pub fn take_size_limit_as_error() {
    // Where the system refuses even this, what it does to a process over its limit is its own affair.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
}
