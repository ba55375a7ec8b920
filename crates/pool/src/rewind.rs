//! Going back to an earlier state of a pool whose newest one cannot be read.
//!
//! From:   the rings of uberblocks on its devices: one root per txg, as far as they reach back.
//! To:     [`crate::Options::state`], with which an import starts from the one that was found.
//! Source: docs/format/01-labels-uberblock.md §5.1, 05-space-maps.md §3 (frees wait two txgs for the sake of this).
//!
//! A freed block may be overwritten two txgs later, or earlier after a new import. So the last state but one is complete
//! unless a device lost data. For older states, every block must be read to prove that they are complete. This module writes
//! nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dsl::walk::{self, Item, Root, Walk};
use format::uberblock::Uberblock;
use format::{ObjectId, Txg};
use storage::host::{Access, Disk};

use crate::discover::Found;
use crate::found_state::FoundState;
use crate::opened::open_disk;
use crate::options::Options;
use crate::pool::{Inner, Pool};
use crate::roots;
use crate::{Error, Result, labels};

/// Freed blocks stay untouched for this many txgs. States no older than this are tried without `-X`.
const SAFE_TXGS: u64 = 2;
/// Blocks that each reader has in work at once.
const WINDOW_PER_READER: usize = 16;

/// Which states may be returned to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewind {
    /// Try states of any age, and read all their blocks. Otherwise only the last states are tried.
    pub extreme: bool,
    /// None newer than this.
    pub max_txg: Option<Txg>,
}

impl Pool {
    /// Looks for the newest state of a pool that can be read, among those that `rewind` allows; `None` if there is
    /// none. Reads only.
    ///
    /// # Errors
    /// Devices are missing or in use, or this build cannot read such pools.
    pub fn find_state(found: &Found, rewind: Rewind, options: &Options) -> Result<Option<FoundState>> {
        let open = |path| open_disk(path, Access::ReadOnly).map(|disk| Arc::new(disk) as Arc<dyn Disk>);
        let disks = found.devices.values().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        Pool::find_state_on(&disks, rewind, options)
    }

    /// As [`Pool::find_state`], on devices that are open.
    ///
    /// # Errors
    /// As [`Pool::find_state`].
    pub fn find_state_on(
        disks: &[Arc<dyn Disk>],
        rewind: Rewind,
        options: &Options,
    ) -> Result<Option<FoundState>> {
        let states = states_on(disks);
        let Some(newest) = states.first() else { return Ok(None) };
        let (newest, newest_time) = (newest.txg, newest.timestamp);
        let oldest_safe = newest.0.saturating_sub(SAFE_TXGS);
        // The newest state did not overwrite blocks of the one before, so that one is complete unless a device lost data.
        // Blocks of earlier states may have been overwritten after an import, which does not know when blocks were freed.
        let is_whole = |nth: usize| nth < 2;
        let is_recent = |nth: usize, state: &Uberblock| is_whole(nth) || state.txg.0 >= oldest_safe;
        let max_txg = rewind.max_txg.unwrap_or(newest);
        for (nth, uberblock) in states.into_iter().enumerate() {
            if !rewind.extreme && !is_recent(nth, &uberblock) {
                break;
            }
            if uberblock.txg > max_txg {
                continue;
            }
            let state = FoundState { uberblock, newest, newest_time, data_errors: 0 };
            if let Some(data_errors) = try_state(disks, &state, is_whole(nth), options)? {
                return Ok(Some(FoundState { data_errors, ..state }));
            }
        }
        Ok(None)
    }
}

/// The best uberblock of each txg, newest first.
fn states_on(disks: &[Arc<dyn Disk>]) -> Vec<Uberblock> {
    let mut states: BTreeMap<Txg, Uberblock> = BTreeMap::new();
    for uberblock in disks.iter().flat_map(|disk| labels::read(&**disk).uberblocks) {
        match states.get(&uberblock.txg) {
            Some(other) if other.rank() >= uberblock.rank() => {}
            _ => drop(states.insert(uberblock.txg, uberblock)),
        }
    }
    states.into_values().rev().collect()
}

/// Opens the pool in this state and reads all required metadata. Returns the number of unreadable file blocks; `None` if the
/// state cannot be used.
fn try_state(
    disks: &[Arc<dyn Disk>],
    state: &FoundState,
    whole: bool,
    options: &Options,
) -> Result<Option<u64>> {
    let options = Options {
        read_only: true,
        watched: false,
        state: Some(state.clone()),
        new_name: None,
        ..options.clone()
    };
    let pool = match Pool::import_disks(disks.to_vec(), options) {
        Ok(pool) => pool,
        // Another state of the pool would give the same error.
        Err(error @ (Error::Unreadable { .. } | Error::MissingDevices { .. } | Error::Busy { .. })) => {
            return Err(error);
        }
        Err(error) => {
            tracing::info!(txg = state.txg().0, %error, "this state cannot be used");
            return Ok(None);
        }
    };
    let since = if whole { Txg(state.txg().0.saturating_sub(SAFE_TXGS + 1)) } else { Txg(0) };
    let found = read_through(&pool.inner, since);
    if let Err(error) = &found {
        tracing::info!(txg = state.txg().0, %error, "this state cannot be used");
    }
    Ok(found.unwrap_or_default())
}

/// Reads the MOS, every dataset's root, and all blocks of datasets that were born after `since`. Returns the number of
/// unreadable file blocks; `None` if metadata cannot be read.
fn read_through(inner: &Inner, since: Txg) -> Result<Option<u64>> {
    let mut whole = true;
    let mut roots = roots::roots(inner, &mut |_, _| whole = false)?;
    if !whole {
        return Ok(None);
    }
    // Destroyed datasets are not looked at.
    roots.retain(|root| root.owner != walk::DESTROYED);
    for Root { owner, ptr, since: own, .. } in &mut roots {
        if owner.0 == 0 {
            continue;
        }
        if !ptr.is_hole() && inner.storage.read(ptr).is_err() {
            return Ok(None);
        }
        *own = since.max(*own);
    }
    let storage = &inner.storage;
    let readers = storage.readers();
    let (mut metadata, mut data) = (0u64, 0u64);
    readers.map_ordered(
        storage::Caller::Works,
        Walk::new(&inner.storage, &roots),
        readers.count() * WINDOW_PER_READER,
        |item| match item {
            Item::Embedded(..) => None,
            Item::Unreadable(..) => Some(true),
            Item::Block(place, block) => {
                let lost = storage.verify_copies(&block).lost;
                let of_pool =
                    place.owner() == ObjectId(0) || block.level > 0 || block.object_type.is_metadata();
                lost.then_some(of_pool)
            }
        },
        |lost| {
            match lost {
                Some(true) => metadata += 1,
                Some(false) => data += 1,
                None => {}
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok((metadata == 0).then_some(data))
}
