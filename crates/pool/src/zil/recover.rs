//! After a crash: finding the logs, claiming their space, and reading the records to replay.
//!
//! From:   the objsets of all heads, as of the last synced txg.
//! To:     `import`, before anything is allocated; `zpl`, which knows what records mean.
//! Source: docs/format/08-zil.md §4.1, §4.4.

use std::collections::BTreeSet;

use codec::crypt::DatasetKeys;
use dmu::Objset;
use format::blkptr::Block;
use format::objset::ZilHeader;
use format::zil::Record;
use format::{ObjectId, Txg};
use storage::Storage;
use storage::allocator::{Allocator, SpaceMapSource};

use super::bad_log;
use crate::log::chain::{self, Walk};
use crate::log::recovery::Recovery;
use crate::log::{Phase, State};
use crate::state::{Dataset, Inner};
use crate::{Error, Result};

/// Upper limit of the distance between the last txg on disk and the birth txg of a log block. Empty txgs leave no trace on
/// disk, but no machine reaches this many.
const AHEAD_MAX: u64 = 1 << 40;

/// A log that must be handled before the pool is written.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: String,
    header: ZilHeader,
    blocks: Vec<Block>,
    /// The blocks of `blocks` that no space map contains.
    to_claim: Vec<Block>,
    /// Blocks of other files that its records share.
    cloned: Vec<Block>,
    /// The references of the log to these blocks are not counted yet.
    uncounted: bool,
    replay: bool,
}

/// The logs of all file systems and volumes that hold something to be replayed, or blocks that no space map knows.
/// With `drop_logs` all that there are, and none of them is to be replayed.
///
/// # Errors
/// [`Error::Replay`] when a log cannot be replayed; a device refused.
pub(crate) fn scan(inner: &Inner, synced: Txg, drop_logs: bool) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for info in dsl::list::list(&inner.view(), &inner.name(), None, false)? {
        if info.phys.bp.is_hole() {
            continue;
        }
        // A dataset that cannot be read cannot be opened either, so its log does not matter.
        let Ok(objset) = Objset::open(inner.storage.clone(), inner.budget.clone(), info.phys.bp) else {
            tracing::warn!(dataset = info.name, "its root cannot be read, nor its intent log");
            continue;
        };
        let header = objset.zil_header();
        if header.log.block().is_none() {
            continue;
        }
        if drop_logs {
            found.push(dropped(inner, &info.name, info.id, header, synced));
        } else {
            found.extend(examine(inner, &info.name, info.id, header, synced)?);
        }
    }
    Ok(found)
}

/// A log whose records are discarded: frees those of its blocks that the space maps contain.
fn dropped(inner: &Inner, name: &str, id: ObjectId, header: ZilHeader, synced: Txg) -> Found {
    let claimed = header.claim_txg.0 != 0;
    let mut walk = Walk::new(&inner.storage, id, &header);
    let (mut blocks, mut places, mut cloned) = (Vec::new(), BTreeSet::new(), Vec::new());
    while let Some(block) = walk.next() {
        blocks.push(block);
        let Ok(Some(contents)) = walk.open(&block) else { break };
        // The data that records refer to belongs to the log from the claim on.
        let records = contents.outlines().map_while(Result::ok);
        for record in records.take_while(|record| claimed && chain::is_claimed(&header, record.seq)) {
            blocks.extend(chain::data_of(&record, header.claim_txg));
            cloned.extend(chain::cloned_by(&record));
        }
    }
    blocks.retain(|block| claimed || block.birth <= synced);
    blocks.retain(|block| places.insert((block.dvas[0].vdev, block.dvas[0].offset)));
    Found {
        name: name.to_owned(),
        header,
        blocks,
        to_claim: Vec::new(),
        cloned,
        uncounted: false,
        replay: false,
    }
}

/// Follows one chain as an import of OpenZFS does.
fn examine(
    inner: &Inner,
    name: &str,
    id: ObjectId,
    mut header: ZilHeader,
    synced: Txg,
) -> Result<Option<Found>> {
    let storage = &inner.storage;
    let claimed = header.claim_txg.0 != 0;
    let first_txg = if claimed { header.claim_txg } else { synced.next() };
    let (mut blocks, mut data, mut cloned) = (Vec::new(), Vec::new(), Vec::new());
    let (mut replay, mut last_block, mut last_record) = (false, 0, 0);
    let mut cut_off = false;
    let mut walk = Walk::new(storage, id, &header);
    'chain: while let Some(block) = walk.next() {
        last_block = chain::seq(&block);
        blocks.push(block);
        let Some(contents) = walk.open(&block)? else { break };
        for record in contents.outlines() {
            let record = record.map_err(|why| bad_log(name, why))?;
            if !chain::is_claimed(&header, record.seq) {
                break 'chain;
            }
            if let Some(place) = chain::data_of(&record, first_txg) {
                // The last records before a crash may refer to data that never reached the disk. The log ends there.
                if !claimed && storage.read_stored(&place).is_err() {
                    cut_off = true;
                    break 'chain;
                }
                data.push(place);
            }
            // The log also ends at a record that clones a block of a txg that never became durable.
            if !claimed && chain::cloned_by(&record).any(|block| block.physical_birth() >= first_txg) {
                cut_off = true;
                break 'chain;
            }
            cloned.extend(chain::cloned_by(&record));
            last_record = record.seq;
            replay |= record.txg >= first_txg && record.seq > header.replay_seq;
        }
    }
    let mut places = BTreeSet::new();
    data.retain(|block| !blocks.iter().any(|other| other.dvas[0] == block.dvas[0]));
    blocks.extend(data);
    blocks.retain(|block| places.insert((block.dvas[0].vdev, block.dvas[0].offset)));
    let unknown = |block: &&Block| !claimed && block.birth > synced;
    let mut to_claim: Vec<Block> = blocks.iter().filter(unknown).copied().collect();
    if let Some(block) = to_claim.iter().find(|block| block.birth.0 > synced.0 + AHEAD_MAX) {
        return Err(bad_log(name, format_args!("a block is from txg {}", block.birth)));
    }
    if !replay {
        if !claimed && to_claim.is_empty() && !cut_off {
            // OpenZFS leaves such an empty log after every export; it is harmless. After the end of a truncated log there
            // may be blocks that were not claimed. They must not be treated as part of the log when their txg syncs.
            return Ok(None);
        }
        blocks.retain(|block| claimed || block.birth <= synced);
        to_claim.clear();
        cloned.retain(|_| claimed);
    } else if !claimed {
        header.claim_txg = first_txg;
        header.claim_blk_seq = last_block;
        header.claim_lr_seq = last_record;
        header.flags |= ZilHeader::FLAG_REPLAY_NEEDED | ZilHeader::FLAG_CLAIM_LR_SEQ_VALID;
    }
    Ok(Some(Found { name: name.to_owned(), header, blocks, to_claim, cloned, uncounted: !claimed, replay }))
}

/// Marks the blocks of all found logs that no space map knows as allocated in the first txg after the crash.
///
/// # Errors
/// [`Error::Replay`] when one lies in space that is in use, or a space map cannot be read.
pub(crate) fn claim<S: SpaceMapSource<Error = Error>>(
    found: &[Found],
    allocator: &mut Allocator,
    storage: &Storage,
    txg: Txg,
    source: &mut S,
) -> Result<()> {
    for log in found {
        let mut places = Vec::new();
        for block in &log.to_claim {
            let extents = storage.extents(block);
            places.extend(extents.map_err(|error| bad_log(&log.name, error.to_string()))?);
        }
        for dva in places {
            let claimed = allocator.claim(dva, txg, source);
            if !claimed.map_err(|error| bad_log(&log.name, words_of(error)))? {
                return Err(bad_log(&log.name, "a block of it lies where another does"));
            }
        }
    }
    Ok(())
}

/// Why the space of a log could not be claimed: the text of the innermost error.
fn words_of(error: storage::allocator::AllocError<Error>) -> String {
    match error {
        storage::allocator::AllocError::Source { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}

impl Found {
    /// The last txg that gave birth to a block of it.
    pub(crate) fn newest(&self) -> Txg {
        self.to_claim.iter().map(|block| block.birth).max().unwrap_or_default()
    }

    /// Hands the log over to the dataset that it belongs to, whose next sync writes that it was claimed.
    pub(crate) fn hand_over(self, dataset: &std::sync::Arc<Dataset>) {
        let Found { header, mut blocks, cloned, uncounted, .. } = self;
        let phase = if self.replay {
            let recovery = Recovery { header, blocks, cloned, uncounted, ..Recovery::default() };
            Phase::Replay(Box::new(recovery))
        } else {
            blocks.extend(cloned);
            Phase::Discard(blocks)
        };
        *dataset.log.lock() = State { phase, ..State::default() };
        dataset.list_logged();
    }
}

/// The records of a claimed log that are not done, oldest first. Sealed ones are opened with `keys`.
pub(super) fn unreplayed<'a>(
    storage: &'a Storage,
    id: ObjectId,
    header: &ZilHeader,
    keys: Option<&'a DatasetKeys>,
) -> impl Iterator<Item = Result<Record>> + 'a {
    let header = *header;
    let mut walk = Walk::new(storage, id, &header);
    let mut ready: std::collections::VecDeque<Record> = Default::default();
    let mut last = 0;
    std::iter::from_fn(move || {
        loop {
            if let Some(record) = ready.pop_front() {
                return Some(Ok(record));
            }
            let mut contents = match walk.next().map(|block| walk.open(&block)) {
                Some(Ok(Some(contents))) => contents,
                Some(Err(error)) => return Some(Err(error.into())),
                // The chain must end where it ended when the log was claimed.
                _ if last < header.claim_lr_seq => {
                    last = u64::MAX;
                    return Some(Err(Error::DamagedLog));
                }
                _ => return None,
            };
            if let Err(error) = contents.unseal(keys) {
                last = u64::MAX;
                return Some(Err(error.into()));
            }
            for record in contents.records() {
                let Ok(record) = record else { break };
                if !chain::is_claimed(&header, record.seq) {
                    break;
                }
                last = record.seq;
                if record.seq > header.replay_seq && record.txg >= header.claim_txg {
                    ready.push_back(record);
                }
            }
        }
    })
}
