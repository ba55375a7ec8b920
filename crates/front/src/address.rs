//! Where an export is listened for.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Maximal bytes of the path of a Unix socket. One byte is kept for the suffix of a new socket.
pub const UNIX_PATH_MAX: usize = 106;

/// A place that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, which only its owner may use.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
}

/// Text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no address and port, as in '127.0.0.1:{port}' or '[::1]:{port}'")]
pub struct AddressError {
    text: String,
    /// That of the protocol.
    port: u16,
}

/// Why an export cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The path is too long for the kernel.
    #[error("the path of a socket has at most {UNIX_PATH_MAX} bytes: '{}'", .0.display())]
    PathTooLong(PathBuf),
    /// The path is no socket.
    #[error("'{}' exists and is no socket", .0.display())]
    NoSocket(PathBuf),
    /// Another program listens there.
    #[error("another program listens on '{0}'")]
    InUse(Address),
    /// The certificates to encrypt with cannot be used.
    #[error("{0}")]
    Certificates(String),
    /// The system refuses.
    #[error("cannot listen on '{address}': {source}")]
    System {
        /// Where.
        address: Address,
        /// Why.
        source: io::Error,
    },
}

impl StartError {
    /// Why `address` cannot be listened on.
    #[must_use]
    pub fn system(address: &Address, source: io::Error) -> StartError {
        match source.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse(address.clone()),
            _ => StartError::System { address: address.clone(), source },
        }
    }
}

impl Address {
    /// Reads an address of TCP: `IP:PORT`, `PORT` on loopback, or `IP` with the `port` of the protocol.
    ///
    /// # Errors
    /// The text is none of these. Host names are refused, because their addresses may change.
    pub fn tcp(text: &str, port: u16) -> Result<Address, AddressError> {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let of_port = || text.parse().ok().map(local);
        let of_ip = || text.parse().ok().map(|ip| SocketAddr::new(ip, port));
        let found = text.parse().ok().or_else(of_port).or_else(of_ip);
        found.map(Address::Tcp).ok_or_else(|| AddressError { text: text.to_owned(), port })
    }

    /// Whether only programs of this machine reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(address) => address.ip().is_loopback(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_loopback_unless_told_otherwise() {
        let shown =
            |text: &str| Address::tcp(text, 10809).map(|address| (address.to_string(), address.is_local()));
        assert_eq!(shown("9000"), Ok(("127.0.0.1:9000".into(), true)));
        assert_eq!(shown("::1"), Ok(("[::1]:10809".into(), true)));
        assert_eq!(shown("0.0.0.0:1"), Ok(("0.0.0.0:1".into(), false)));
        for bad in ["", "localhost:1", "1.2.3.4:99999", ":1", "70000"] {
            assert!(Address::tcp(bad, 1).is_err(), "{bad}");
        }
    }
}
