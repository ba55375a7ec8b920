//! A front end that serves volumes to clients on sockets.

use std::path::PathBuf;
use std::sync::Arc;

use zpl::Volume;

use crate::address::{Address, StartError};

/// Opens a volume, for one client at a time. The text of an error is for the log and for the client.
pub type Opener = Arc<dyn Fn(&str) -> Result<Volume, String> + Send + Sync>;

/// A volume, or a snapshot of one, that clients may use.
pub struct VolumeExport {
    /// The dataset.
    pub name: String,
    /// Clients may not write, even if the volume is writable.
    pub read_only: bool,
    /// How it is opened.
    pub open: Opener,
    /// The folder of the certificates that connections are encrypted with; `None`: they are not.
    pub certificates: Option<PathBuf>,
}

/// Serves volumes.
pub trait VolumeServer: Send + Sync {
    /// The port of the protocol, for an address that names none.
    fn port(&self) -> u16;

    /// Listens for clients of `export`. A Unix socket is its owner's alone.
    ///
    /// # Errors
    /// Why not.
    fn serve(&self, export: VolumeExport, at: &Address) -> Result<Box<dyn ServedVolume>, StartError>;
}

/// A volume that clients can connect to, until it is dropped. Dropping it takes no more clients, cuts off those that are
/// connected, and waits until the requests under way are done.
pub trait ServedVolume: Send {
    /// Where clients connect.
    fn address(&self) -> &Address;

    /// The address that clients connect to.
    fn uri(&self) -> String;

    /// Whether clients may not write, even if the volume is writable.
    fn is_read_only(&self) -> bool;

    /// Clients that are connected.
    fn clients(&self) -> usize;

    /// The dataset has another name now.
    fn rename(&self, name: &str);
}
