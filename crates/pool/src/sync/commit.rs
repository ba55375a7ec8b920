//! The moment when a written txg becomes the state of the pool: flush → uberblock → flush, and the labels.

use std::collections::BTreeMap;

use format::blkptr::BlockPtr;
use format::config::{PoolConfig, VERSION_FEATURES};
use format::uberblock::Uberblock;
use format::{Guid, Txg};
use storage::{Leaf, Storage, TopVdev};

use super::SyncState;
use crate::Result;
use crate::labels::{self, Half};
use crate::state::Inner;

/// One half of the labels is written before the uberblock and the other half after it. Both get the configuration of the
/// uberblock's txg. Otherwise an import after a power cut between the two writes would take the wrong half for the newer
/// one.
fn check_config(is_written: bool, config: Txg, txg: Txg) {
    assert!(!is_written || config == txg, "labels of txg {config} around the uberblock of txg {txg}");
}

/// Writes the configuration into the half of the labels that `half` says of each leaf; when all are durable, reads them
/// back.
fn write_half(storage: &Storage, config: &PoolConfig, half: impl Fn(&Leaf) -> Option<Half>) -> Result<()> {
    storage.on_written_leaves(|_, leaf| match half(leaf) {
        Some(half) => labels::write_config(&leaf.disk, config, Guid(leaf.guid), half),
        None => Ok(()),
    })?;
    storage.flush()?;
    storage.on_written_leaves(|_, leaf| match half(leaf) {
        Some(half) => labels::prove_config(&leaf.disk, config, Guid(leaf.guid), half),
        None => Ok(()),
    })?;
    Ok(())
}

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
        mmp: Some(inner.multihost.of_txg()),
        checkpoint_txg: Txg(0),
        raidz_reflow: state.reflow.as_ref().map_or(0, |it| it.word.encode()),
    };
    let config_dirty = std::mem::take(&mut state.config_dirty);
    let mut halves: BTreeMap<u64, Half> = BTreeMap::new();
    if config_dirty {
        let written = storage.vdevs().tops().iter().flat_map(TopVdev::written);
        for leaf in written.filter(|leaf| leaf.distributed().is_none()) {
            halves.insert(leaf.guid, Half::to_write_first(&*leaf.disk, state.uberblock.txg));
        }
    }
    let written = state.config_on_disk();
    check_config(config_dirty, written.txg, txg);
    let first = |leaf: &Leaf| halves.get(&leaf.guid).copied();
    let second = |leaf: &Leaf| first(leaf).map(Half::other);
    if config_dirty {
        write_half(storage, &written, first)?;
    }
    storage.on_written_leaves(|top, leaf| labels::write_uberblock(&leaf.disk, &uberblock, top.ashift))?;
    // Now, and only now, txg is the state of the pool.
    storage.flush()?;
    storage.set_unsynced(txg.next());
    if config_dirty {
        write_half(storage, &written, second)?;
    }
    drop(written);
    inner.multihost.synced(&uberblock);
    state.uberblock = uberblock;
    if config_dirty {
        inner.happened("config_sync", &[]);
    }
    inner.note_device_errors();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_stay_as_they_are_may_be_of_an_earlier_txg() {
        check_config(false, Txg(4), Txg(9));
        check_config(true, Txg(9), Txg(9));
    }

    #[test]
    #[should_panic(expected = "labels of txg 4 around the uberblock of txg 9")]
    fn labels_of_another_txg_are_not_written_around_an_uberblock() {
        check_config(true, Txg(4), Txg(9));
    }
}
