//! A listening socket and its connected clients.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::clients::{self, Clients, Service};
use front::{Address, StartError, UNIX_PATH_MAX};

use crate::connection;
use crate::export::Export;
use crate::stream::Stream;

/// Clients of one export at a time: QEMU and nbdcopy use four to sixteen connections each.
const CLIENTS_MAX: usize = 32;

enum Listener {
    /// With the path of the socket, which is removed at the end.
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            let _ = fs::remove_file(path);
        }
    }
}

struct Clientele(Arc<Export>);

impl Service for Clientele {
    type Listener = Listener;
    type Stream = Stream;
    type Client = ();
    const THREADS: [&'static str; 2] = ["cenote-nbd-wait", "cenote-nbd-client"];

    fn name(&self) -> String {
        format!("NBD export {}", self.0.name())
    }

    fn accept(&self, listener: &Listener) -> io::Result<(Stream, ())> {
        let stream = match listener {
            Listener::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                clients::prepare(&stream)?;
                Stream::Tcp(stream)
            }
        };
        Ok((stream, ()))
    }

    fn make_room(&self, (): &(), others: &mut Clients<Clientele>) -> bool {
        others.count() < CLIENTS_MAX
    }

    fn serve(&self, stream: Stream, _: &Arc<()>) {
        connection::serve(&stream, &self.0);
    }
}

/// An export that clients can connect to, until it is stopped or dropped.
pub struct Serving {
    clients: clients::Serving<Clientele>,
    address: Address,
}

impl Serving {
    /// Listens for clients of `export`. A Unix socket is its owner's alone.
    ///
    /// # Errors
    /// Why not.
    pub fn start(export: Export, address: &Address) -> Result<Serving, StartError> {
        let refused = |source: io::Error| StartError::system(address, source);
        let (listener, local) = match address {
            Address::Unix(path) => (Listener::Unix(listen(path)?, path.clone()), address.clone()),
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(refused)?;
                // Port 0 is a free one.
                let local = listener.local_addr().map_err(refused)?;
                (Listener::Tcp(listener), Address::Tcp(local))
            }
        };
        let clients = clients::Serving::start(Clientele(Arc::new(export)), listener).map_err(refused)?;
        Ok(Serving { clients, address: local })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The exported volume.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.clients.service().0
    }

    /// The dataset has another name now.
    pub fn rename(&self, name: &str) {
        self.export().rename(name);
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.clients()
    }

    /// Accepts no more clients, closes the connections, and waits for the running requests.
    pub fn stop(mut self) {
        self.clients.end();
    }
}

/// Listens at `path`, and replaces the socket of a dead program.
fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let address = || Address::Unix(path.to_path_buf());
    let system = |source| StartError::System { address: address(), source };
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(StartError::PathTooLong(path.to_path_buf()));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(StartError::NoSocket(path.to_path_buf())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(StartError::InUse(address())),
        Ok(_) => fs::remove_file(path).map_err(system)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system(error)),
    }
    // Its mode is narrowed before the name is known: no other user connects in between.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("~");
    let fresh = PathBuf::from(fresh);
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(system)?;
    let placed = fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&fresh, path));
    placed.map_err(system)?;
    Ok(listener)
}
