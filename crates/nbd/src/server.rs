//! The traits of the crate `front`.

use front::{Address, ServedVolume, StartError, VolumeExport, VolumeServer};

use crate::export::Export;
use crate::listener::Serving;
use crate::tls::Tls;

/// The port of NBD.
pub const PORT: u16 = 10809;

/// Serves volumes as network block devices.
#[derive(Clone, Copy, Debug)]
pub struct Nbd;

impl VolumeServer for Nbd {
    fn port(&self) -> u16 {
        PORT
    }

    fn serve(&self, export: VolumeExport, at: &Address) -> Result<Box<dyn ServedVolume>, StartError> {
        let VolumeExport { name, read_only, open, certificates } = export;
        let tls = certificates.as_deref().map(Tls::load).transpose();
        let tls = tls.map_err(|error| StartError::Certificates(error.to_string()))?;
        Ok(Box::new(Serving::start(Export::new(&name, read_only, open).encrypted(tls), at)?))
    }
}

impl ServedVolume for Serving {
    fn address(&self) -> &Address {
        Serving::address(self)
    }

    fn uri(&self) -> String {
        uri(Serving::address(self), &self.export().name(), self.export().tls().is_some())
    }

    fn is_read_only(&self) -> bool {
        self.export().is_read_only()
    }

    fn clients(&self) -> usize {
        Serving::clients(self)
    }

    fn rename(&self, name: &str) {
        Serving::rename(self, name);
    }
}

/// The URI that clients are given, of an export of this name.
fn uri(address: &Address, name: &str, is_encrypted: bool) -> String {
    let scheme = if is_encrypted { "nbds" } else { "nbd" };
    match address {
        Address::Unix(path) => format!("{scheme}+unix:///{name}?socket={}", path.display()),
        Address::Tcp(address) => format!("{scheme}://{address}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_the_export_and_where_it_is() {
        assert_eq!(uri(&Address::Unix("/run/x".into()), "tank/v", false), "nbd+unix:///tank/v?socket=/run/x");
        let tcp = Address::tcp("9000", PORT).unwrap();
        assert_eq!(uri(&tcp, "tank/v", false), "nbd://127.0.0.1:9000/tank/v");
        assert_eq!(uri(&tcp, "tank/v", true), "nbds://127.0.0.1:9000/tank/v");
    }
}
