//! A front end that serves file systems to clients over the network.

use std::net::SocketAddr;
use std::sync::Arc;

use zpl::Filesystem;
use zpl::session::Notice;

use crate::address::StartError;

/// Opens a file system by the name of its dataset. The text of an error is for the log.
pub type FileOpener = Arc<dyn Fn(&str) -> Result<Filesystem, String> + Send + Sync>;
/// A function that the front end calls after each change by a client, with the name of the dataset: other caches may hold the
/// old state.
pub type ChangeListener = Arc<dyn Fn(&str, &[Notice<'_>]) + Send + Sync>;

/// A file system that clients may use.
pub struct FileExport {
    /// The guid of the dataset, which handles of clients name.
    pub guid: u64,
    /// The name of the dataset.
    pub name: String,
    /// The clients that may use it, and the users that they count as: the property `sharenfs`.
    pub rules: String,
    /// Opens it.
    pub open: FileOpener,
    /// Is called after changes.
    pub changed: ChangeListener,
}

/// Serves file systems.
pub trait FileServer: Send + Sync {
    /// The port of the protocol.
    fn port(&self) -> u16;

    /// Listens for clients.
    ///
    /// # Errors
    /// Why not.
    fn listen(&self, at: SocketAddr) -> Result<Box<dyn FilePort>, StartError>;
}

/// A port that clients connect to, until it is dropped. Dropping it disconnects the clients, and waits until the requests under
/// way are done.
pub trait FilePort: Send + Sync {
    /// Where clients connect.
    fn address(&self) -> SocketAddr;

    /// Clients that are connected.
    fn clients(&self) -> usize;

    /// Clients may use a file system.
    ///
    /// # Errors
    /// The rules ask for something that is not supported.
    fn share(&self, export: FileExport) -> Result<Arc<dyn SharedFiles>, String>;

    /// Ends the use of a file system by clients. Waits until the requests under way are done.
    fn unshare(&self, guid: u64);
}

/// While this value exists, the clients of a file system wait.
pub trait HeldOff: Send {}

/// A file system that clients may use.
pub trait SharedFiles: Send + Sync {
    /// The path that clients mount.
    fn path(&self) -> String;

    /// Sets the name of the dataset, its mountpoint and its rules.
    ///
    /// # Errors
    /// The rules ask for something that is not supported. Nothing is changed.
    fn tell(&self, name: &str, mountpoint: Option<String>, rules: &str) -> Result<(), String>;

    /// Sets the name of the dataset.
    fn rename(&self, name: &str);

    /// Closes the file system, and makes clients wait until the value is dropped.
    fn hold_off(self: Arc<Self>) -> Box<dyn HeldOff>;
}
