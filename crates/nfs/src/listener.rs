//! A port, its clients, and the exports that they may use.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use front::clients::{self, Clients, Service};
use front::{Address, StartError};

use crate::activity::Activity;
use crate::connection::{self, Connection};
use crate::export::Export;
use crate::table::Table;

/// The port of NFS.
pub const PORT: u16 = 2049;
/// Connections of all clients together. Each takes a thread, and at most 2 MiB for a message and its answer.
const CLIENTS_MAX: usize = 64;
/// Connections from one address other than loopback.
const CLIENTS_OF_ONE_MAX: usize = 32;
/// Connections of clients that no export is for. They are served so that they get an error.
const UNWELCOME_MAX: usize = 8;
/// When there are too many connections, one that is idle for at least this long makes room for a new one.
const YIELDS_AFTER: Duration = Duration::from_secs(5);

struct Connected {
    address: SocketAddr,
    is_welcome: bool,
    activity: Arc<Activity>,
}

struct Clientele(Arc<Table>);

impl Service for Clientele {
    type Listener = TcpListener;
    type Stream = TcpStream;
    type Client = Connected;
    const THREADS: [&'static str; 2] = ["cenote-nfs-wait", "cenote-nfs"];
    const LOOK: Option<Duration> = Some(Duration::from_secs(15));

    fn name(&self) -> String {
        "NFS".into()
    }

    fn accept(&self, listener: &TcpListener) -> io::Result<(TcpStream, Connected)> {
        let (stream, address) = listener.accept()?;
        clients::prepare(&stream)?;
        let is_welcome = self.0.welcomes(address);
        Ok((stream, Connected { address, is_welcome, activity: Arc::new(Activity::new()) }))
    }

    /// If there are too many clients, the one that is idle for the longest time is cut off: it connects again when it needs
    /// to.
    fn make_room(&self, client: &Connected, others: &mut Clients<Clientele>) -> bool {
        let address = client.address.ip();
        let of_one = others.all().filter(|(_, other)| other.address.ip() == address).count();
        let unwelcome = others.all().filter(|(_, other)| !other.is_welcome).count();
        if !address.is_loopback() && of_one >= CLIENTS_OF_ONE_MAX
            || !client.is_welcome && unwelcome >= UNWELCOME_MAX
        {
            return false;
        }
        if others.count() < CLIENTS_MAX {
            return true;
        }
        let idle = others.all().filter_map(|(id, other)| Some((id, other.activity.idle()?)));
        let Some((id, _)) = idle.filter(|(_, idle)| *idle >= YIELDS_AFTER).max_by_key(|(_, idle)| *idle)
        else {
            return false;
        };
        others.cut_off(id);
        true
    }

    fn serve(&self, stream: TcpStream, client: &Arc<Connected>) {
        Connection::new(stream, client.address, self.0.clone(), client.activity.clone()).serve();
    }

    /// Closes file systems that no client uses.
    fn look_after(&self) {
        self.0.all().iter().for_each(|export| export.close_if_idle());
    }
}

/// A port that clients can connect to, until this value is dropped.
pub struct Serving {
    clients: clients::Serving<Clientele>,
    address: SocketAddr,
}

impl Serving {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Why not.
    pub fn start(address: SocketAddr) -> Result<Serving, StartError> {
        let refused = |source: io::Error| StartError::system(&Address::Tcp(address), source);
        let listener = TcpListener::bind(address).map_err(refused)?;
        // Port 0 is a free one.
        let local = listener.local_addr().map_err(refused)?;
        let clients = clients::Serving::start(Clientele(Arc::default()), listener).map_err(refused)?;
        Ok(Serving { clients, address: local })
    }

    fn table(&self) -> &Arc<Table> {
        &self.clients.service().0
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clients may use `export`.
    pub fn add(&self, export: Arc<Export>) {
        self.table().add(export);
    }

    /// Ends the export of this dataset. Waits for the calls under way.
    pub fn remove(&self, guid: u64) {
        if let Some(export) = self.table().remove(guid) {
            drop(export.hold_off());
        }
    }

    /// The exports.
    #[must_use]
    pub fn exports(&self) -> Vec<Arc<Export>> {
        self.table().all()
    }

    /// The replies to all messages in `sent`, as if `client` had sent these bytes on a connection. For tests.
    #[must_use]
    pub fn answers(&self, client: SocketAddr, sent: &[u8]) -> Vec<u8> {
        connection::answers(self.table(), client, sent)
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.clients()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.clients.end();
        for export in self.table().all() {
            self.remove(export.guid());
        }
    }
}
