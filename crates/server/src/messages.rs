//! The messages between clients and a pool's server.
//!
//! One message is its length in bytes (four, little-endian) and that much JSON; file descriptors travel with it.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Counters, Figures, Silence};

/// Protocol version. It is increased with each incompatible change of a message.
pub const PROTOCOL: u32 = 6;

/// A request of a client.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// The first message of every connection.
    Hello {
        /// [`PROTOCOL`] of the client.
        protocol: u32,
    },
    /// Carry out a command line. Standard input, output and error travel along.
    Run(Job),
    /// Leave a state on the disks until the connection ends.
    Lease {
        /// How new it is.
        fresh: Fresh,
    },
    /// How the server is.
    Status,
    /// Which devices of the pool do not answer at this moment.
    Devices,
    /// Facts about the pool that only the server knows.
    Figures,
    /// Counters of the requests to the pool's devices since the import.
    Counters,
    /// Events since the import.
    Events {
        /// Drop all events; the reply is only their number.
        clear: bool,
    },
    /// End the server.
    Stop(Stop),
}

/// How recent a leased state must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fresh {
    /// The last synced state. Nothing is written for it, and there is no wait.
    Last,
    /// The changes of finished commands, and what else is synced without waiting for a long txg.
    Soon,
    /// All that the pool was handed.
    Synced,
    /// All data that programs wrote: the kernel first writes back the dirty pages of mounted files.
    Files,
}

/// A command line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// `cenote`, `zfs` or `zpool`.
    pub program: String,
    /// The words of the command line behind the name of the program.
    pub words: Vec<OsString>,
    /// The whole command line as typed, if this job is the part for one of several pools.
    pub whole: Option<String>,
    /// The client's working directory, for relative paths.
    pub folder: OsString,
    /// The client's mask for new files.
    pub umask: u32,
    /// `POSIXLY_CORRECT` was set: options end at the first operand.
    pub posix: bool,
}

/// The way in which a server is to end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Mark the pool as destroyed instead of exported.
    pub destroy: bool,
    /// Detach mounts even if they are in use.
    pub force: bool,
    /// The command line for the pool's history.
    pub command: Option<String>,
}

/// An answer of the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To a hello: who answers.
    Hello {
        /// [`PROTOCOL`] of the server.
        protocol: u32,
        /// Version of the program.
        build: String,
        /// The pool's guid.
        guid: u64,
        /// The server's process.
        pid: u32,
    },
    /// The command line ended with this status.
    Done {
        /// Exit status.
        status: u8,
    },
    /// The state that stays readable.
    Lease {
        /// Its uberblock as it is on disk.
        uberblock: Vec<u8>,
    },
    /// How the server is.
    Status(Status),
    /// Devices that do not answer.
    Devices(Vec<Silence>),
    /// Figures of the pool that only the server knows.
    Figures(Box<Figures>),
    /// The counts of requests to the pool's devices.
    Counters(Counters),
    /// The events of the pool, oldest first, each a packed list of names and values. The list is empty after the events
    /// were cleared.
    Events {
        /// The events.
        events: Vec<Vec<u8>>,
        /// How many were dropped before these, or how many were cleared.
        gone: u64,
    },
    /// The pool was exported.
    Stopped,
    /// The request is refused.
    Refused(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// A mount is in use.
    #[error("'{}' is in use", .0.display())]
    Busy(PathBuf),
    /// A file system was unmounted, but the pool does not accept its data.
    #[error(
        "the pool takes nothing of what was written to '{}'; try again when it does ('zpool status' says more)",
        .0.display()
    )]
    Stuck(PathBuf),
    /// Commands are being carried out.
    #[error("a command is being carried out")]
    Working,
    /// The server is about to end.
    #[error("pool export in progress")]
    Stopping,
    /// Too many connections, or an invalid message.
    #[error("{0}")]
    Other(String),
}

/// How a server is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The pool.
    pub pool: String,
    /// The server's process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime: u64,
    /// The mounted file systems, each with its mount point.
    pub mounts: Vec<(String, PathBuf)>,
    /// Those of them that are mounted with `noxattr`, which the kernel does not show.
    #[serde(default)]
    pub without_xattrs: Vec<String>,
    /// The mounts among them that are shown within other mounts, so that the kernel does not know them; with each,
    /// whether it is read-only.
    #[serde(default)]
    pub within: Vec<(PathBuf, bool)>,
    /// The directories of the encryption roots whose keys are loaded.
    #[serde(default)]
    pub keys: Vec<u64>,
    /// Commands being carried out.
    pub commands: usize,
    /// States that other processes read.
    pub leases: usize,
}

/// The report of a starting server to the process that started it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// The server's process.
    pub pid: u32,
    /// File systems that should be mounted and are not, with the reason.
    pub failed: Vec<(String, String)>,
    /// File systems mounted elsewhere than their property says.
    pub moved: Vec<Moved>,
    /// Further remarks for the user.
    pub notes: Vec<String>,
}

/// A file system that is mounted elsewhere than its property says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Moved {
    /// Which.
    pub dataset: String,
    /// Where the property says.
    pub wanted: PathBuf,
    /// Where it is.
    pub point: PathBuf,
    /// Why.
    pub why: Elsewhere,
}

/// Why a file system is mounted elsewhere than its property says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Elsewhere {
    /// The folder belongs to another user.
    NotYours,
    /// The folder is in the user's own mount, where they cannot mount. It is shown as a symbolic link.
    Linked,
    /// As [`Elsewhere::Linked`], but a link found no room there.
    Within,
}
