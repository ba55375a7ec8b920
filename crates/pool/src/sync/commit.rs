//! The moment when a written txg becomes the state of the pool: flush → uberblock → flush, and the labels.

use format::blkptr::BlockPtr;
use format::config::VERSION_FEATURES;
use format::uberblock::{Mmp, Uberblock};
use format::{Guid, Txg};
use storage::{Leaf, TopVdev};

use super::SyncState;
use crate::Result;
use crate::labels::{self, Half};
use crate::pool::Inner;

/// Makes `root` the state of the pool.
pub(super) fn commit(inner: &Inner, state: &mut SyncState, txg: Txg, root: BlockPtr) -> Result<()> {
    let (vdevs, suspension) = (inner.storage.vdevs(), inner.suspension());
    // Every block is durable before anything points at it.
    inner.storage.flush()?;
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
    let mut halves: Vec<(&Leaf, Half)> = Vec::new();
    if config_dirty {
        for leaf in vdevs.tops().iter().flat_map(TopVdev::leaves) {
            halves.push((leaf, Half::to_write_first(&*leaf.disk, state.uberblock.txg)));
        }
    }
    let written = state.config_on_disk();
    for (leaf, half) in &halves {
        suspension.attempt(|| labels::write_config(&leaf.disk, &written, Guid(leaf.guid), *half))?;
    }
    if config_dirty {
        inner.storage.flush()?;
    }
    for top in vdevs.tops() {
        for leaf in top.leaves() {
            suspension.attempt(|| labels::write_uberblock(&leaf.disk, &uberblock, top.ashift))?;
        }
    }
    // Now, and only now, txg is the state of the pool.
    inner.storage.flush()?;
    for (leaf, half) in &halves {
        suspension.attempt(|| labels::write_config(&leaf.disk, &written, Guid(leaf.guid), half.other()))?;
    }
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
