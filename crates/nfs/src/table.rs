//! The exports of one port.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::caller::Asker;
use crate::export::Export;
use crate::handle::Handle;
use crate::node::{Here, Spot};
use crate::repeats::Repeats;
use crate::rules::Grant;
use crate::status::{Answer, Status};

/// The exports of one port, by the guids of their datasets.
#[derive(Default)]
pub(crate) struct Table {
    exports: RwLock<HashMap<u64, Arc<Export>>>,
    pub(crate) repeats: Repeats,
    broken: AtomicBool,
}

impl Table {
    pub(crate) fn add(&self, export: Arc<Export>) {
        self.exports.write().unwrap_or_else(PoisonError::into_inner).insert(export.guid(), export);
    }

    pub(crate) fn remove(&self, guid: u64) -> Option<Arc<Export>> {
        self.exports.write().unwrap_or_else(PoisonError::into_inner).remove(&guid)
    }

    pub(crate) fn find(&self, guid: u64) -> Option<Arc<Export>> {
        self.exports.read().unwrap_or_else(PoisonError::into_inner).get(&guid).cloned()
    }

    /// A call panicked: an invariant is broken, and no more calls are carried out.
    pub(crate) fn note_broken(&self) {
        tracing::error!("an invariant is broken: this port serves no more NFS calls");
        self.broken.store(true, Ordering::Release);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// All exports, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Export>> {
        let exports = self.exports.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = exports.values().cloned().collect();
        drop(exports);
        all.sort_by_key(|export| export.name());
        all
    }

    /// Whether any export is for this client.
    pub(crate) fn welcomes(&self, client: SocketAddr) -> bool {
        self.all().iter().any(|export| export.rules().grant(client.ip(), client.port()).is_some())
    }

    /// The rights of a client on an export.
    pub(crate) fn grant(export: &Export, asker: &Asker) -> Result<Grant, Status> {
        let rules = export.rules();
        rules.grant(asker.client.ip(), asker.client.port()).ok_or(Status::ACCES)
    }

    /// The node of a handle, for the user who asks.
    pub(crate) fn at(&self, asker: &Asker, handle: &[u8]) -> Answer<Spot> {
        let handle = Handle::decode(handle)?;
        let export = self.find(handle.dataset).ok_or(Status::STALE)?;
        let grant = Table::grant(&export, asker)?;
        let rules = export.rules();
        let here = Here::of(export.enter()?, handle.snapshot)?;
        let node = here.node(handle.named)?;
        let (by, is_async) = (asker.caller(&rules), rules.is_async);
        Ok(Spot { here, node, by, is_read_only: grant.read_only, is_async })
    }

    /// The same, of the root of an export, for MOUNT.
    pub(crate) fn root(&self, asker: &Asker, export: &Arc<Export>) -> Answer<Spot> {
        let here = Here::of(export.enter()?, None)?;
        let root = here.object(here.session.root())?;
        let handle = here.handle(&root);
        drop(here);
        self.at(asker, &handle.encode())
    }
}
