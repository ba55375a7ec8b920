//! Errors between a pool, its server and its clients.

use std::io;
use std::path::PathBuf;

use crate::messages::Refusal;

/// Why a client got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The socket cannot be used.
    #[error("'{}': {source}", .path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Another process listens there.
    #[error("'{}' is a socket of user {user}: nothing was sent to it", .path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Uid of the listener.
        user: u32,
    },
    /// The server runs, but the file of its socket is gone.
    #[error(
        "the server of the pool (process {pid}) cannot be reached: its socket '{}' is gone; 'kill {pid}' ends it in \
         good order",
        .path.display()
    )]
    Unreachable {
        /// The server's process.
        pid: u32,
        /// Where its socket was.
        path: PathBuf,
    },
    /// The server ended, or its answer is invalid.
    #[error("the server of the pool does not answer: {0}")]
    Broken(#[from] io::Error),
    /// The server refuses.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// Another release started the server.
    #[error(
        "the server of the pool (process {pid}) was started by cenote {build}, which speaks another protocol"
    )]
    OtherBuild {
        /// Its release.
        build: String,
        /// The server's process.
        pid: u32,
    },
    /// The server could not be started.
    #[error("the server of the pool did not start: {0}")]
    Start(String),
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The pool cannot be opened.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// Another server has the name; its process id, if known.
    #[error("another pool of this name is being served{}", .0.map(|pid| format!(" by process {pid}")).unwrap_or_default())]
    Taken(Option<u32>),
    /// The system refuses.
    #[error("'{}': {source}", .path.display())]
    System {
        /// The path that the call was about.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

/// The pool is being exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool export in progress")]
pub struct Closed;
