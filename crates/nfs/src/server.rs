//! The traits of a front end, implemented for NFS.

use std::net::SocketAddr;
use std::sync::Arc;

use front::{FileExport, FilePort, FileServer, HeldOff, SharedFiles, StartError};

use crate::export::Export;
use crate::listener::{PORT, Serving};
use crate::rules::Rules;

/// Serves file systems over NFS.
#[derive(Clone, Copy, Debug)]
pub struct Nfs;

fn rules(text: &str) -> Result<Rules, String> {
    Rules::parse(text).map_err(|error| error.to_string())
}

impl FileServer for Nfs {
    fn port(&self) -> u16 {
        PORT
    }

    fn listen(&self, at: SocketAddr) -> Result<Box<dyn FilePort>, StartError> {
        Ok(Box::new(Serving::start(at)?))
    }
}

impl FilePort for Serving {
    fn address(&self) -> SocketAddr {
        Serving::address(self)
    }

    fn clients(&self) -> usize {
        Serving::clients(self)
    }

    fn share(&self, export: FileExport) -> Result<Arc<dyn SharedFiles>, String> {
        let FileExport { guid, name, rules: text, open, changed } = export;
        let export = Arc::new(Export::new(guid, &name, rules(&text)?, open, changed));
        self.add(export.clone());
        Ok(export)
    }

    fn unshare(&self, guid: u64) {
        self.remove(guid);
    }
}

impl SharedFiles for Export {
    fn path(&self) -> String {
        Export::path(self)
    }

    fn tell(&self, name: &str, mountpoint: Option<String>, text: &str) -> Result<(), String> {
        Export::tell(self, name, mountpoint, rules(text)?);
        Ok(())
    }

    fn rename(&self, name: &str) {
        Export::rename(self, name);
    }

    fn hold_off(self: Arc<Self>) -> Box<dyn HeldOff> {
        Box::new(Export::hold_off(&self))
    }
}
