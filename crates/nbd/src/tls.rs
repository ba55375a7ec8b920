//! Encrypted connections, for clients that ask for them with `STARTTLS`.
//!
//! From:   the folder of certificates that the owner of the export names, and a connection whose client wants to encrypt.
//! To:     a pair of plain sockets: the rest of this crate uses one end as it uses any connection, and a thread carries what
//!         passes between the other end and the client, encrypted.
//!
//! The folder has the names that QEMU, nbdkit and libnbd use: `server-cert.pem`, `server-key.pem` and `ca-cert.pem`. A client
//! has to show a certificate that is signed by that authority, because NBD itself has no passwords.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use front::clients::Stream as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::stream::{NEGOTIATING, SENDING, Stream};

/// The certificate of the authority that signs the clients' certificates.
const AUTHORITY: &str = "ca-cert.pem";
/// The certificate of the server, with those that lead to the authority.
const CERTIFICATE: &str = "server-cert.pem";
/// The private key of the server.
const KEY: &str = "server-key.pem";
/// The contents of the files, as errors name them.
const PRIVATE_KEY: &str = "private key";
const CERTIFICATES: &str = "certificate";
/// Bytes of a file of the folder.
const FILE_MAX: u64 = 1 << 20;
/// How long the last bytes may take when the connection ends.
const ENDING: Duration = Duration::from_secs(5);
/// Bytes that are encrypted at once.
const PIECE: usize = 64 << 10;

/// Why connections cannot be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file of the folder cannot be read.
    #[error("cannot read '{}': {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the folder does not have the content that its name says.
    #[error("'{}' holds no {wanted}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The content that it should have.
        wanted: &'static str,
    },
    /// The private key is no secret.
    #[error("other users may read the key '{}': 'chmod 600' it", .0.display())]
    Exposed(PathBuf),
    /// The certificates and the key do not fit together.
    #[error("the certificates in '{}' cannot be used: {reason}", .folder.display())]
    Unfit {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The keys that an export encrypts with, and the clients that it lets in.
#[derive(Clone)]
pub struct Tls {
    folder: PathBuf,
    config: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the certificates and the key in `folder`.
    ///
    /// # Errors
    /// A file is missing, is damaged, or may be read by users who should not.
    pub fn load(folder: &Path) -> Result<Tls, TlsError> {
        let path = folder.join(KEY);
        let (raw, mode) = read(&path, PRIVATE_KEY)?;
        if mode & 0o077 != 0 {
            return Err(TlsError::Exposed(path));
        }
        let key = PrivateKeyDer::from_pem_slice(&raw)
            .map_err(|_| TlsError::Content { path, wanted: PRIVATE_KEY })?;
        let chain = certificates(folder.join(CERTIFICATE))?;
        let unfit = |reason: String| TlsError::Unfit { folder: folder.to_path_buf(), reason };
        let mut authorities = RootCertStore::empty();
        for authority in certificates(folder.join(AUTHORITY))? {
            authorities.add(authority).map_err(|error| unfit(error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
            .build()
            .map_err(|error| unfit(error.to_string()))?;
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(chain, key))
            .map_err(|error| unfit(error.to_string()))?;
        Ok(Tls { folder: folder.to_path_buf(), config: Arc::new(config) })
    }

    /// The folder that the certificates came from.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Encrypts the connection `socket` from here on, once the client has been told so.
    pub(crate) fn begin(&self, socket: &Stream) -> io::Result<Encrypted> {
        let mut session = ServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
        // The relay writes one piece at a time.
        session.set_buffer_limit(None);
        let socket = socket.another()?;
        socket.set_nonblocking()?;
        let (plain, inner) = UnixStream::pair()?;
        inner.set_nonblocking(true)?;
        let relay = Relay::new(session, socket, inner);
        let thread = std::thread::Builder::new().name("cenote-nbd-tls".into());
        let thread = thread.spawn(move || relay.run())?;
        Ok(Encrypted { plain: Stream::Unix(plain), thread: Some(thread) })
    }
}

/// Reads the bytes and the mode of a file of the folder. A file that is not regular, or is too long, is not even
/// opened, because the name of the folder may come from a property of a pool.
fn read(path: &Path, wanted: &'static str) -> Result<(Vec<u8>, u32), TlsError> {
    let refused = |source| TlsError::Read { path: path.to_path_buf(), source };
    let found = std::fs::metadata(path).map_err(refused)?;
    if !found.is_file() || found.len() > FILE_MAX {
        return Err(TlsError::Content { path: path.to_path_buf(), wanted });
    }
    Ok((std::fs::read(path).map_err(refused)?, found.mode()))
}

/// All certificates of a file; at least one.
fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (raw, _) = read(&path, CERTIFICATES)?;
    match CertificateDer::pem_slice_iter(&raw).collect::<Result<Vec<_>, _>>() {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::Content { path, wanted: CERTIFICATES }),
    }
}

/// The plain end of an encrypted connection.
pub(crate) struct Encrypted {
    plain: Stream,
    thread: Option<JoinHandle<()>>,
}

impl Encrypted {
    /// The socket to use in place of the client's.
    pub(crate) fn plain(&self) -> &Stream {
        &self.plain
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        self.plain.shut_down();
        if let Some(thread) = self.thread.take() {
            // A relay that panicked has closed its sockets, too.
            let _ = thread.join();
        }
    }
}

/// Carries bytes between a client and the plain end of its connection.
struct Relay {
    session: ServerConnection,
    socket: Stream,
    inner: UnixStream,
    /// Bytes that the client sent and the plain end has not taken.
    decrypted: Vec<u8>,
    taken: usize,
    /// The last bytes that the plain end sent.
    piece: Vec<u8>,
    /// The plain end sends no more.
    is_ending: bool,
    /// When the client has to have moved on.
    until: Option<Instant>,
}

impl Relay {
    fn new(session: ServerConnection, socket: Stream, inner: UnixStream) -> Relay {
        let until = Some(Instant::now() + NEGOTIATING);
        let (decrypted, piece) = (Vec::new(), vec![0; PIECE]);
        Relay { session, socket, inner, decrypted, taken: 0, piece, is_ending: false, until }
    }

    fn run(mut self) {
        if let Err(error) = self.carry() {
            tracing::warn!(%error, "an encrypted NBD connection is cut off");
        }
        self.socket.shut_down();
    }

    /// Returns when either side has ended.
    fn carry(&mut self) -> io::Result<()> {
        loop {
            let (socket, inner) = self.wait()?;
            if socket.contains(PollFlags::OUT) {
                self.send()?;
            }
            if inner.contains(PollFlags::OUT) && !self.hand_over()? {
                return Ok(());
            }
            if socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) && !self.receive()? {
                return Ok(());
            }
            if inner.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.encrypt()?;
            }
            if self.is_ending && !self.session.wants_write() {
                return Ok(());
            }
        }
    }

    /// Waits until one of the sockets can be used, and returns for what. Bytes of one side are read only when there is
    /// room for them, after the earlier ones went to the other side.
    fn wait(&mut self) -> io::Result<(PollFlags, PollFlags)> {
        let (mut of_socket, mut of_inner) = (PollFlags::empty(), PollFlags::empty());
        of_socket.set(PollFlags::OUT, self.session.wants_write());
        of_socket.set(PollFlags::IN, self.decrypted.is_empty() && !self.is_ending);
        of_inner.set(PollFlags::OUT, !self.decrypted.is_empty());
        let has_room = !self.session.wants_write() && !self.session.is_handshaking();
        of_inner.set(PollFlags::IN, has_room && !self.is_ending);
        // A socket that is waited for in vain would report its end again and again.
        let mut fds = Vec::with_capacity(2);
        let both: [(BorrowedFd<'_>, PollFlags); 2] =
            [(self.socket.as_fd(), of_socket), (self.inner.as_fd(), of_inner)];
        let waited: Vec<usize> = (0..2).filter(|&side| !both[side].1.is_empty()).collect();
        fds.extend(waited.iter().map(|&side| PollFd::from_borrowed_fd(both[side].0, both[side].1)));
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too long")),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut found = [PollFlags::empty(); 2];
        for (&side, fd) in waited.iter().zip(&fds) {
            found[side] = fd.revents();
        }
        Ok((found[0], found[1]))
    }

    /// Sends encrypted bytes.
    fn send(&mut self) -> io::Result<()> {
        match self.session.write_tls(&mut &self.socket) {
            Ok(_) => {
                self.set_patience();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets how long the client may take for its next bytes.
    fn set_patience(&mut self) {
        if self.is_ending || self.session.is_handshaking() {
            return;
        }
        self.until = self.session.wants_write().then(|| Instant::now() + SENDING);
    }

    /// Takes bytes from the client and decrypts them; false when it sends no more.
    fn receive(&mut self) -> io::Result<bool> {
        match self.session.read_tls(&mut &self.socket) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) => return Err(error),
        }
        let state = match self.session.process_new_packets() {
            Ok(state) => state,
            Err(error) => {
                // Reports the reason to the client, if it still reads.
                let _ = self.session.write_tls(&mut &self.socket);
                return Err(io::Error::other(error));
            }
        };
        self.decrypted.resize(state.plaintext_bytes_to_read(), 0);
        self.session.reader().read_exact(&mut self.decrypted)?;
        self.set_patience();
        Ok(!state.peer_has_closed() || !self.decrypted.is_empty())
    }

    /// Hands decrypted bytes to the plain end; false when that end is closed.
    fn hand_over(&mut self) -> io::Result<bool> {
        match (&self.inner).write(&self.decrypted[self.taken..]) {
            Ok(0) => return Ok(false),
            Ok(count) => self.taken += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Ok(false),
        }
        if self.taken == self.decrypted.len() {
            self.decrypted.clear();
            self.taken = 0;
        }
        Ok(true)
    }

    /// Encrypts the bytes from the plain end.
    fn encrypt(&mut self) -> io::Result<()> {
        match (&self.inner).read(&mut self.piece) {
            Ok(0) => {
                self.is_ending = true;
                self.session.send_close_notify();
                self.until = Some(Instant::now() + ENDING);
            }
            Ok(count) => {
                self.session.writer().write_all(&self.piece[..count])?;
                self.set_patience();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
