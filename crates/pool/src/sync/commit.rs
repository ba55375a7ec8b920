//! The moment when a written txg becomes the state of the pool: flush → uberblock → flush, and the labels.

use std::collections::BTreeMap;

use format::blkptr::BlockPtr;
use format::config::VERSION_FEATURES;
use format::uberblock::{Mmp, Uberblock};
use format::{Guid, Txg};
use storage::{Leaf, TopVdev};

use super::SyncState;
use crate::Result;
use crate::labels::{self, Half};
use crate::state::Inner;

/// Makes `root` the state of the pool. Everything that it reaches is durable.
pub(super) fn commit(inner: &Inner, state: &mut SyncState, txg: Txg, root: BlockPtr) -> Result<()> {
    let storage = &inner.storage;
    let uberblock = Uberblock {
        version: state.config.version,
        txg,
        guid_sum: state.config.tree.guid_sum(),
        timestamp: inner.host.clock.now().0,
        root,
        software_version: VERSION_FEATURES,
        mmp: Some(Mmp { delay_ns: 0, config: 0 }),
        checkpoint_txg: Txg(0),
        raidz_reflow: 0,
    };
    let config_dirty = std::mem::take(&mut state.config_dirty);
    let mut halves: BTreeMap<u64, Half> = BTreeMap::new();
    if config_dirty {
        for leaf in storage.vdevs().tops().iter().flat_map(TopVdev::written) {
            halves.insert(leaf.guid, Half::to_write_first(&*leaf.disk, state.uberblock.txg));
        }
    }
    let written = state.config_on_disk();
    let write_half = |leaf: &Leaf, half: Option<Half>| match half {
        Some(half) => labels::write_config(&leaf.disk, &written, Guid(leaf.guid), half),
        None => Ok(()),
    };
    storage.on_written_leaves(|_, leaf| write_half(leaf, halves.get(&leaf.guid).copied()))?;
    if config_dirty {
        storage.flush()?;
    }
    storage.on_written_leaves(|top, leaf| labels::write_uberblock(&leaf.disk, &uberblock, top.ashift))?;
    // Now, and only now, txg is the state of the pool.
    storage.flush()?;
    storage.set_unsynced(txg.next());
    storage.on_written_leaves(|_, leaf| write_half(leaf, halves.get(&leaf.guid).map(|half| half.other())))?;
    if config_dirty {
        inner.storage.flush()?;
    }
    drop(written);
    state.uberblock = uberblock;
    if config_dirty {
        inner.happened("config_sync", &[]);
    }
    inner.note_device_errors();
    Ok(())
}
