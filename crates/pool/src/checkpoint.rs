//! The checkpoint of a pool: an earlier state of the whole pool that an import can return to.
//!
//! From:   the administrator (`zpool checkpoint`, `zpool import --rewind-to-checkpoint`); the MOS, which keeps the uberblock of the state.
//! To:     the sync thread, which keeps what the state reaches (`sync/checkpoint.rs`); the devices, when the pool returns to it.
//! Source: docs/format/12-auxiliary-vdevs.md §6; 05-space-maps.md §8.

use std::collections::BTreeMap;

use dmu::zap;
use format::config::{PoolConfig, VdevConfig};
use format::features;
use format::uberblock::{SIZE_V1, Uberblock};
use format::zap::Value;
use format::{ObjectId, Txg};
use storage::Storage;

use crate::features::Features;
use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result, labels, space_maps};

/// The key of the kept uberblock in the object directory.
pub(crate) const KEY: &str = "com.delphix:zpool_checkpoint";
/// Key in the ZAP of a top-level vdev: the list of space that was freed since the checkpoint, and is kept for it.
pub(crate) const MAP: &str = "com.delphix:pool_checkpoint_sm";

/// The checkpoint of a pool, for `zpool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// When the state was written, in seconds since 1970; `None` where it is being discarded.
    pub created: Option<u64>,
    /// Bytes that only it keeps.
    pub bytes: u64,
}

/// How far a checkpoint is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There is none.
    #[default]
    None,
    /// The last synced state is kept from the next txg on.
    Wanted,
    /// The checkpoint keeps the state of this txg.
    Exists { txg: Txg, created: u64 },
    /// The space that it kept is being freed.
    Discarding,
}

/// The state of the checkpoint in the sync thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keeping {
    pub(crate) stage: Stage,
    /// The list of what was freed and is kept, with its bytes, by top-level vdev.
    pub(crate) maps: BTreeMap<u32, (ObjectId, u64)>,
}

impl Keeping {
    /// Reads the checkpoint of a pool that is being imported.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub(crate) fn read(mos: &Mos, config: &PoolConfig, features: Option<&Features>) -> Result<Keeping> {
        let stage = match kept(mos)? {
            Some(kept) => Stage::Exists { txg: kept.checkpoint_txg, created: kept.timestamp },
            None if features.is_some_and(|all| all.is_active(&features::ZPOOL_CHECKPOINT)) => {
                Stage::Discarding
            }
            None => Stage::None,
        };
        let mut maps = BTreeMap::new();
        for (id, map) in maps_of(mos, config)? {
            let bytes = space_maps::header(&mos.objset, map)?.alloc.min(0).unsigned_abs();
            maps.insert(id, (map, bytes));
        }
        Ok(Keeping { stage, maps })
    }

    /// Blocks born up to this txg stay allocated when they are freed.
    pub(crate) fn until(&self) -> Option<Txg> {
        match self.stage {
            Stage::Exists { txg, .. } => Some(txg),
            Stage::None | Stage::Wanted | Stage::Discarding => None,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.maps.values().map(|(_, bytes)| bytes).sum()
    }

    /// The facts about the checkpoint that users see.
    pub(crate) fn shown(&self) -> Option<Checkpoint> {
        let created = match self.stage {
            Stage::None | Stage::Wanted => return None,
            Stage::Exists { created, .. } => Some(created),
            Stage::Discarding => None,
        };
        Some(Checkpoint { created, bytes: self.bytes() })
    }

    /// Refuses changes of devices that a return to the checkpoint could not undo.
    pub(crate) fn check_none(&self) -> Result<()> {
        match self.stage {
            Stage::None => Ok(()),
            Stage::Wanted | Stage::Exists { .. } => Err(Error::CheckpointExists),
            Stage::Discarding => Err(Error::DiscardingCheckpoint),
        }
    }
}

/// The lists of space that was freed and is kept, by top-level vdev.
///
/// # Errors
/// The MOS cannot be read.
pub fn maps_of(mos: &Mos, config: &PoolConfig) -> Result<Vec<(u32, ObjectId)>> {
    let mut found = Vec::new();
    for top in &config.tree.children {
        let Some(own) = top.zap_top.filter(|id| id.0 != 0) else { continue };
        if let Some(map) = zap::lookup_u64(&*mos.object(own)?, MAP.as_bytes())? {
            found.push((top.id as u32, ObjectId(map)));
        }
    }
    Ok(found)
}

/// The uberblock that the checkpoint keeps; `None` if there is none.
pub(crate) fn kept(mos: &Mos) -> Result<Option<Uberblock>> {
    let Some(value) = zap::lookup(&*mos.object(DIRECTORY)?, KEY.as_bytes())? else { return Ok(None) };
    let mut kept = Uberblock::from_words(&value.to_u64s()).map_err(Error::corrupt(DIRECTORY))?;
    kept.checkpoint_txg = kept.txg;
    Ok(Some(kept))
}

/// Why no checkpoint can be kept on these vdevs, if so.
pub(crate) fn lacks_place(config: &PoolConfig) -> bool {
    let lacks = |top: &VdevConfig| {
        top.top.as_ref().is_some_and(|top| top.metaslab_shift > 0) && top.zap_top.is_none_or(|id| id.0 == 0)
    };
    config.tree.children.iter().any(lacks)
}

/// Makes the state that a checkpoint keeps the newest one on all devices. `newest` is the newest state before. From now on,
/// blocks that were written after the checkpoint may be overwritten.
///
/// # Errors
/// A device refuses.
pub(crate) fn write_rewound(storage: &Storage, rewound: &Uberblock) -> Result<()> {
    storage.on_written_leaves(|top, leaf| labels::write_uberblock(&leaf.disk, rewound, top.ashift))?;
    Ok(storage.flush()?)
}

/// The uberblock that makes the state of `kept` the newest one of a pool whose newest was `newest`.
pub(crate) fn rewound(kept: &Uberblock, newest: &Uberblock, now: u64) -> Uberblock {
    let mmp = Some(newest.mmp.unwrap_or_default());
    Uberblock { txg: newest.txg.next(), timestamp: now, checkpoint_txg: kept.txg, mmp, ..kept.clone() }
}

/// The words of an uberblock as the MOS stores them. Their number depends on the version of OpenZFS that wrote them.
pub(crate) fn words(kept: &Uberblock, expands: bool) -> Value {
    let raw = kept.encode();
    let size = if expands { raw.len() } else { SIZE_V1 };
    let words = raw[..size].chunks_exact(8).map(|word| format::ByteOrder::Little.u64(word, 0));
    Value::from_u64s(&words.collect::<Vec<_>>())
}
