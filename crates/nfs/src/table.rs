//! The exports of one port.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use zpl::rank::RankedRwLock;

use crate::caller::Asker;
use crate::export::{Entered, Export};
use crate::handle::Handle;
use crate::node::{Here, Spot};
use crate::repeats::Repeats;
use crate::rules::Grant;
use crate::status::{Answer, Status};

/// Maximal threads beyond the first one of each connection. Each takes at most 2 MiB for a message and its answer.
const MORE_THREADS_MAX: usize = 64;

/// The exports of one port, by the guids of their datasets.
#[derive(Default)]
pub(crate) struct Table {
    exports: RankedRwLock<HashMap<u64, Arc<Export>>>,
    pub(crate) repeats: Repeats,
    broken: AtomicBool,
    /// Threads beyond the first one of each connection.
    more_threads: Arc<AtomicUsize>,
}

/// The right to one more thread for a connection.
pub(crate) struct Permit(Arc<AtomicUsize>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Table {
    pub(crate) fn add(&self, export: Arc<Export>) {
        self.exports.write_after_panics().insert(export.guid(), export);
    }

    pub(crate) fn remove(&self, guid: u64) -> Option<Arc<Export>> {
        self.exports.write_after_panics().remove(&guid)
    }

    pub(crate) fn find(&self, guid: u64) -> Option<Arc<Export>> {
        self.exports.read_after_panics().get(&guid).cloned()
    }

    /// A permit for one more thread, if there are not too many.
    pub(crate) fn permit(&self) -> Option<Permit> {
        let taken = self.more_threads.fetch_add(1, Ordering::AcqRel);
        let permit = Permit(self.more_threads.clone());
        (taken < MORE_THREADS_MAX).then_some(permit)
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
        let exports = self.exports.read_after_panics();
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
        Table::spot(asker, handle, grant, export.enter()?)
    }

    /// The node of the second handle of a call. It must be in the export of the first one. A second [`Export::enter`] could
    /// wait for a command that waits for the end of this call.
    pub(crate) fn beside(&self, asker: &Asker, first: &Spot, handle: &[u8]) -> Answer<Spot> {
        let handle = Handle::decode(handle)?;
        let export = self.find(handle.dataset).ok_or(Status::STALE)?;
        let entered = &first.here.entered;
        if entered.export().guid() != export.guid() {
            return Err(Status::XDEV.into());
        }
        let grant = Table::grant(&export, asker)?;
        Table::spot(asker, handle, grant, entered.again())
    }

    fn spot(asker: &Asker, handle: Handle, grant: Grant, entered: Entered) -> Answer<Spot> {
        let rules = entered.export().rules();
        let here = Here::of(entered, handle.snapshot)?;
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
