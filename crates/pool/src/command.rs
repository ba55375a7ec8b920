//! The running command, until it is written to the history.
//!
//! Invariant: a command is written to the history at most once, with its first change.

use storage::rank::{MutexHeld, RankedMutex};

/// The running command.
#[derive(Debug, Default)]
pub(crate) struct Command(RankedMutex<Option<String>>);

impl Command {
    fn lock(&self) -> MutexHeld<'_, Option<String>> {
        self.0.lock()
    }

    /// Sets the running command.
    pub(crate) fn set(&self, command: &str) {
        *self.lock() = Some(command.to_owned());
    }

    /// Takes the command, to write it to the history or to drop it.
    pub(crate) fn take(&self) -> Option<String> {
        self.lock().take()
    }
}
