//! The running command, until it is written to the history.
//!
//! Invariant: a command is written to the history at most once, with its first change.

use std::sync::{Mutex, MutexGuard};

/// The running command.
#[derive(Debug, Default)]
pub(crate) struct Command(Mutex<Option<String>>);

impl Command {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().expect("the command lock guards a plain store")
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
