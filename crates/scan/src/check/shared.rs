//! Shared blocks (dedup and clones): compares the references found with the counts of the tables.
//!
//! Source: docs/format/14-dedup-and-cloning.md §7, §9.

use std::collections::BTreeMap;

use format::ChecksumKind;
use format::blkptr::{Block, Dva};
use format::brt::RANGE_SIZE;
use format::ddt::{Entry, Histogram, Key};

use pool::brt::Brt;
use pool::ddt::{self, Ddt};
use pool::{Inner, Result};

use super::Finding;

/// Place and birth of the first copy of a block.
type Place = (u32, u64, u64);

/// References to a shared block.
struct References {
    counted: u64,
    found: u64,
    /// The copies that a dedup table names besides the first. The copies that the first pointer does not name stay
    /// here.
    rest: Option<Box<Block>>,
}

/// The shared blocks of a pool.
pub(super) struct Shared {
    blocks: BTreeMap<Place, References>,
    /// Cloned blocks, by vdev and offset of the first copy.
    clones: BTreeMap<(u32, u64), References>,
    /// Unreferenced blocks that a log has not freed yet.
    waiting: Vec<Block>,
}

/// The role of a block pointer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    /// The only reference, or the first of several: it accounts for the space.
    First,
    /// One more, which a table counts.
    Further,
    /// One more than the table counts.
    Uncounted,
}

fn place(block: &Block) -> Place {
    (block.dvas[0].vdev.0, block.dvas[0].offset, block.physical_birth().0)
}

/// Notes the blocks of an entry.
fn note(
    blocks: &mut BTreeMap<Place, References>,
    (kind, key, entry): (ChecksumKind, &Key, &Entry),
) -> Result<()> {
    for slot in entry.slots.iter().filter(|slot| slot.is_used()) {
        let block = Entry::block(kind, key, slot).map_err(storage::ReadError::from)?;
        let rest = (block.dvas[1] != Dva::default()).then(|| {
            let [_, second, third] = block.dvas;
            Box::new(Block { dvas: [second, third, Dva::default()], ..block })
        });
        blocks.insert(place(&block), References { counted: slot.refs, found: 0, rest });
    }
    Ok(())
}

/// OpenZFS counts cloned blocks in ranges, up to the end of a vdev's last metaslab. Its zdb opens no pool that has more ranges.
fn check_ranges(inner: &Inner, brt: &Brt, report: &mut dyn FnMut(Finding)) {
    let config = inner.info().config.clone();
    for (vdev, stored) in brt.sizes() {
        let top = config.tree.children.iter().find(|top| top.id == u64::from(vdev));
        let Some(top) = top.and_then(|top| top.top.as_ref()).filter(|top| top.metaslab_shift > 0) else {
            continue;
        };
        let metaslabs = top.asize.checked_shr(top.metaslab_shift).unwrap_or(0);
        let counted =
            (metaslabs << top.metaslab_shift.min(63)).div_ceil(RANGE_SIZE).saturating_mul(RANGE_SIZE);
        if stored > counted {
            let what = format!("bytes of vdev {vdev} in which clones are counted");
            report(Finding::Sum { what, stored, counted });
        }
    }
}

impl Shared {
    /// Reads the dedup tables, and compares their statistics with their entries.
    pub(super) fn load(inner: &Inner, report: &mut dyn FnMut(Finding)) -> Result<Shared> {
        let (mut blocks, mut waiting) = (BTreeMap::new(), Vec::new());
        let vdevs = inner.storage().vdevs();
        let ddt = Ddt::load(&inner.mos().objset, vdevs)?;
        for (kind, key, entry) in ddt.logged() {
            note(&mut blocks, (kind, key, &entry))?;
            for slot in entry.slots.iter().filter(|slot| slot.is_used() && slot.refs == 0) {
                waiting.push(Entry::block(kind, key, slot).map_err(storage::ReadError::from)?);
            }
        }
        for store in ddt.stores() {
            let mut histogram = Histogram::default();
            for entry in store.entries() {
                let (key, entry) = entry?;
                if ddt.is_logged(store.kind(), &key) {
                    continue;
                }
                histogram.add(&ddt::counts(vdevs, store.kind(), &key, &entry));
                note(&mut blocks, (store.kind(), &key, &entry))?;
            }
            let (stored, counted) = (store.histogram.total(), histogram.total());
            if store.histogram != histogram {
                let what = format!("references in the statistics of '{}'", store.name());
                let (stored, counted) = (stored.ref_blocks, counted.ref_blocks);
                report(Finding::Sum { what, stored, counted });
            }
        }
        let mut clones = BTreeMap::new();
        let brt = Brt::load(&inner.mos().objset, vdevs)?;
        check_ranges(inner, &brt, report);
        for entry in brt.entries() {
            let (vdev, offset, further) = entry?;
            clones.insert(
                (vdev, offset),
                References { counted: further.saturating_add(1), found: 0, rest: None },
            );
        }
        Ok(Shared { blocks, clones, waiting })
    }

    /// Copies of blocks in use that the table names, and the first pointer to the block does not.
    pub(super) fn further_copies(&self) -> impl Iterator<Item = &Block> {
        let in_use = self.blocks.values().filter(|references| references.found > 0);
        in_use.filter_map(|references| references.rest.as_deref())
    }

    /// Unreferenced blocks that are still allocated.
    pub(super) fn waiting(&self) -> &[Block] {
        &self.waiting
    }

    /// Notes a block pointer to `block`. A block that no table knows has one.
    pub(super) fn refer(&mut self, block: &Block) -> Reference {
        let is_data = block.level == 0 && !block.object_type.is_metadata();
        let mut known = if block.dedup { self.blocks.get_mut(&place(block)) } else { None };
        if known.is_none() && is_data {
            known = self.clones.get_mut(&(block.dvas[0].vdev.0, block.dvas[0].offset));
        }
        let Some(references) = known else { return Reference::First };
        references.found += 1;
        match references.found {
            1 => {
                // Later pointers may have more copies than earlier ones, as the entry got them.
                let is_new = |dva: &&Dva| **dva != Dva::default() && !block.dvas.contains(*dva);
                references.rest = references.rest.take().and_then(|mut rest| {
                    let mut left = rest.dvas.iter().filter(is_new).copied().collect::<Vec<_>>().into_iter();
                    rest.dvas = std::array::from_fn(|_| left.next().unwrap_or_default());
                    (rest.dvas[0] != Dva::default()).then_some(rest)
                });
                Reference::First
            }
            found if found <= references.counted => Reference::Further,
            _ => Reference::Uncounted,
        }
    }

    /// Reports blocks whose number of references differs from the tables.
    pub(super) fn compare(&self, report: &mut dyn FnMut(Finding)) {
        let shared = self.blocks.iter().map(|((vdev, offset, _), references)| (vdev, offset, references));
        let cloned = self.clones.iter().map(|((vdev, offset), references)| (vdev, offset, references));
        for (vdev, offset, References { counted, found, .. }) in shared.chain(cloned) {
            if counted != found {
                let what = format!("references to the shared block at {vdev}:{offset:#x}");
                report(Finding::Sum { what, stored: *counted, counted: *found });
            }
        }
    }
}
