//! Pools that another machine may hold: `import` asks here before it writes.
//!
//! From:   the uberblocks on the devices, the property `multihost` in the MOS.
//! To:     the heartbeats of the open pool.
//! Source: docs/format/11-redundancy.md §12.

use std::sync::Arc;

use dmu::zap;
use storage::host::{Access, Disk};

use crate::Result;
use crate::discover::Found;
use crate::mos::Mos;
use crate::multihost::PROPERTY;
use crate::multihost::importer::{self, Watched};
use crate::opened::open_disk;
use crate::options::Options;
use crate::pool::{Inner, Pool};

impl Pool {
    /// Waits until it is sure that no other machine holds a pool that [`crate::discover`] found. Reads only.
    ///
    /// # Errors
    /// [`crate::Error::ActiveElsewhere`], [`crate::Error::NoHostId`]; a device cannot be opened.
    pub fn watch(found: &Found, options: &Options) -> Result<()> {
        let open = |path| open_disk(path, Access::Peek).map(|disk| Arc::new(disk) as Arc<dyn Disk>);
        let disks = found.devices.values().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        importer::watch(&disks, options).map(drop)
    }
}

/// Begins the heartbeats of a pool that wants them, if it can be written. Another machine that takes the pool at this moment
/// is noticed first.
pub(crate) fn begin_multihost(inner: &Inner, watched: Option<Watched>, options: &Options) -> Result<()> {
    if inner.terms.read_only().is_some() {
        return Ok(());
    }
    let since = match watched {
        Some(watched) => {
            let tree = inner.info().config.tree.clone();
            watched.claim(&inner.storage, &tree, options)?
        }
        None => inner.host.clock.monotonic(),
    };
    if is_multihost(&inner.mos)? {
        inner.multihost.begin(since);
    }
    Ok(())
}

/// Whether the pool property is on.
pub(crate) fn is_multihost(mos: &Mos) -> Result<bool> {
    let Some(id) = mos.directory_object("pool_props")? else { return Ok(false) };
    Ok(zap::lookup_u64(&*mos.object(id)?, PROPERTY.as_bytes())? == Some(1))
}
