//! The export of a volume.

use front::Opener;
use zpl::Volume;
use zpl::rank::RankedMutex;

use crate::tls::Tls;

/// A volume, or a snapshot of one, that clients may use.
pub struct Export {
    /// Its name, by which clients ask for it. A client that asks for no name gets it, too.
    name: RankedMutex<String>,
    read_only: bool,
    open: Opener,
    tls: Option<Tls>,
}

impl Export {
    /// An export of the dataset `name`.
    #[must_use]
    pub fn new(name: &str, read_only: bool, open: Opener) -> Export {
        Export { name: RankedMutex::leaf(name.to_owned()), read_only, open, tls: None }
    }

    /// The same export, for encrypting clients only.
    #[must_use]
    pub fn encrypted(self, tls: Option<Tls>) -> Export {
        Export { tls, ..self }
    }

    /// The keys that encrypt its connections.
    #[must_use]
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Its name now.
    #[must_use]
    pub fn name(&self) -> String {
        self.name.lock_after_panics().clone()
    }

    /// The dataset has another name now.
    pub(crate) fn rename(&self, name: &str) {
        name.clone_into(&mut self.name.lock_after_panics());
    }

    /// Whether clients may not write, even if the volume is writable.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether a client's `name` matches.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name().as_bytes()
    }

    pub(crate) fn open(&self) -> Result<Volume, String> {
        (self.open)(&self.name())
    }
}
