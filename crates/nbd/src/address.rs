//! Where an export is listened for.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The port of NBD.
const PORT: u16 = 10809;

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
#[error("'{0}' is no address and port, as in '127.0.0.1:10809' or '[::1]:10809'")]
pub struct AddressError(String);

impl Address {
    /// Reads an address of TCP: `IP:PORT`, `PORT` on loopback, or `IP` with the port of NBD.
    ///
    /// # Errors
    /// The text is none of these. Names of hosts are none: what they stand for may change.
    pub fn tcp(text: &str) -> Result<Address, AddressError> {
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let of_port = || text.parse().ok().map(local);
        let of_ip = || text.parse().ok().map(|ip| SocketAddr::new(ip, PORT));
        let found = text.parse().ok().or_else(of_port).or_else(of_ip);
        found.map(Address::Tcp).ok_or_else(|| AddressError(text.to_owned()))
    }

    /// Whether only programs of this machine reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Address::Unix(_) => true,
            Address::Tcp(address) => address.ip().is_loopback(),
        }
    }

    /// The URI that clients are given, of an export of this name.
    #[must_use]
    pub fn uri(&self, name: &str) -> String {
        match self {
            Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", path.display()),
            Address::Tcp(address) => format!("nbd://{address}/{name}"),
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
        let shown = |text: &str| Address::tcp(text).map(|address| (address.to_string(), address.is_local()));
        assert_eq!(shown("9000"), Ok(("127.0.0.1:9000".into(), true)));
        assert_eq!(shown("::1"), Ok(("[::1]:10809".into(), true)));
        assert_eq!(shown("0.0.0.0:1"), Ok(("0.0.0.0:1".into(), false)));
        for bad in ["", "localhost:1", "1.2.3.4:99999", ":1", "70000"] {
            assert!(Address::tcp(bad).is_err(), "{bad}");
        }
        assert_eq!(Address::Unix("/run/x".into()).uri("tank/v"), "nbd+unix:///tank/v?socket=/run/x");
    }
}
