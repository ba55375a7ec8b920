//! Surroundings of a command: those of its own process, or those of a client if a pool's server runs it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use server::Live;
use zpl::rank::MutexHeld;

use crate::messages::Failure;
use crate::stop::{Stop, no_signals};

/// The surroundings of a command.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Folders and images given with `-d` before the subcommand: pools found there are used without being
    /// imported.
    pub search: Vec<PathBuf>,
    /// `POSIXLY_CORRECT` is set: options end at the first operand.
    pub posix: bool,
    /// Set when a pool's server carries the command out for a client.
    pub served: Option<Served>,
    /// This process answers one question of another user. It sees only pools that are shared with all users, and only their
    /// last synced state.
    pub visited: bool,
}

/// Surroundings of a command in a pool's server.
#[derive(Clone, Debug)]
pub struct Served {
    /// The pool that is held here.
    pub live: Arc<Live>,
    /// Where the client is.
    pub(crate) folder: PathBuf,
    /// The client's mask for new files.
    pub(crate) umask: u32,
    /// Raised when the client goes away.
    pub(crate) stop: Stop,
    /// The client's standard input.
    pub(crate) input: Arc<File>,
    /// The client's standard error.
    pub(crate) err: Arc<File>,
    /// The command line as it was typed, where only a part of it is carried out here.
    pub(crate) whole: Option<String>,
}

impl Served {
    /// Takes the lock for changes of datasets and properties.
    ///
    /// # Errors
    /// The other command waits for a suspended pool, or the client went away.
    pub fn turn(&self) -> Result<MutexHeld<'_, ()>, Failure> {
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

    /// Signal for the command to stop: Ctrl-C, or the end of its client.
    ///
    /// # Errors
    /// The system refuses to tell of signals.
    pub fn stop(&self) -> Result<Stop, Failure> {
        match &self.served {
            Some(served) => Ok(served.stop.clone()),
            None => Stop::on_signals().map_err(no_signals),
        }
    }

    /// The umask of the command's user.
    pub fn umask(&self) -> u32 {
        self.served.as_ref().map_or_else(umask, |served| served.umask)
    }

    /// Standard input of a client; `None`: that of this process.
    pub fn input(&self) -> Option<Arc<File>> {
        self.served.as_ref().map(|served| served.input.clone())
    }

    /// Standard error of a client; `None`: that of this process.
    pub fn err(&self) -> Option<Arc<File>> {
        self.served.as_ref().map(|served| served.err.clone())
    }

    /// A local path, relative to the working directory of the command's user.
    pub fn path(&self, path: &Path) -> PathBuf {
        match &self.served {
            Some(served) => served.folder.join(path),
            None => path.to_path_buf(),
        }
    }
}

/// The file creation mask of this process.
fn umask() -> u32 {
    // It can only be asked for by setting it; nothing is created meanwhile.
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    mask.as_raw_mode()
}
