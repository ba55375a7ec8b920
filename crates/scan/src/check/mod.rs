//! Checking a pool: every checksum matches, every allocated byte is referenced exactly once, and every sum is right.
//!
//! From:   an open pool with nothing dirty.
//! To:     findings, one by one, and a summary. Nothing is written. `zpl` checks the contents of file systems (links,
//! directories, owners).

mod accounts;
mod labels;
mod livelists;
mod sectors;
mod shared;
mod snapshots;
mod space;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc;

use dsl::walk::{DESTROYED, Item, Owner, Place, Root, Walk, WrongFill};
use format::ObjectId;
use format::blkptr::{Block, BlockPtr, Dva};
use storage::{BadCopy, ReadError, Storage, Trail, Verified};

use dsl::Sizes;
use pool::label_faults::LabelFault;
use pool::{Error, Inner, Pool, Result, roots};

/// Blocks that each reader has in work at once.
const WINDOW_PER_READER: usize = 16;

/// An error in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A copy of a block is damaged; `lost` when no copy is good.
    BadCopy {
        /// Where in the pool's objects.
        place: String,
        /// The copy.
        dva: Dva,
        /// What is wrong with it.
        why: String,
        /// No copy of the block can be read.
        lost: bool,
        /// The structure that the block belongs to.
        of: Option<Part>,
        /// Which block of the object it is, if it holds data.
        data: Option<DataBlock>,
    },
    /// A device is missing, so its copies were not read.
    Absent {
        /// Top-level vdev.
        vdev: u32,
        /// Which of its children.
        child: usize,
    },
    /// A device is shorter than the place of its labels, and perhaps than its data.
    CutShort {
        /// The device.
        path: PathBuf,
        /// Its bytes.
        size: u64,
    },
    /// Some of the four labels of a device are not as they should be. The pool is opened by the others.
    Labels {
        /// The device.
        path: PathBuf,
        /// The number of each damaged label, and its fault.
        faults: Vec<(usize, LabelFault)>,
    },
    /// An indirect block or object that leads to more blocks cannot be read.
    Unreadable {
        /// Where in the pool's objects.
        place: String,
        /// Why.
        why: String,
        /// The object of a dataset that it belongs to, if there is one.
        of: Option<Part>,
    },
    /// A block lies where another does.
    DoubleReference {
        /// Where in the pool's objects.
        place: String,
        /// The copy.
        dva: Dva,
    },
    /// A block lies in space that the space maps call free.
    NotAllocated {
        /// Top-level vdev.
        vdev: u32,
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Space is allocated and nothing refers to it.
    Leak {
        /// Top-level vdev.
        vdev: u32,
        /// Byte offset.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A figure in the pool differs from the sum of its parts.
    Sum {
        /// Which figure.
        what: String,
        /// The value in the pool.
        stored: u64,
        /// The right value.
        counted: u64,
    },
}

/// An object of a dataset: the number of the dataset, and its own.
pub type Part = (ObjectId, ObjectId);

/// A block of data of an object. Other datasets may have the same block in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataBlock {
    /// Its number in the object.
    pub blkid: u64,
    /// Its first copy.
    pub first: Dva,
}

/// The object that the block at `place` belongs to; `None` if it is no object of a dataset.
fn part(place: &Place) -> Option<Part> {
    let (dataset, object) = (place.owner(), place.object);
    (![ObjectId(0), DESTROYED].contains(&dataset) && object.0 != 0).then_some((dataset, object))
}

impl Finding {
    /// The object that is damaged, where that is known.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        match self {
            Finding::BadCopy { of, .. } | Finding::Unreadable { of, .. } => *of,
            _ => None,
        }
    }

    /// The damaged block, if it holds data.
    #[must_use]
    pub fn data(&self) -> Option<DataBlock> {
        match self {
            Finding::BadCopy { data, .. } => *data,
            _ => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, dva: &Dva| {
            write!(f, " at {}:{:#x}:{:#x}", dva.vdev, dva.offset, dva.asize)
        };
        match self {
            Finding::BadCopy { place, dva, why, lost, of: _, data: _ } => {
                write!(f, "{place}: {}", if *lost { "damaged block" } else { "damaged copy of a block" })?;
                at(f, dva)?;
                write!(f, ": {why}")
            }
            Finding::Absent { vdev, child } => {
                write!(f, "vdev {vdev}: device {child} is not there: what it holds was not looked at")
            }
            Finding::CutShort { path, size } => {
                write!(f, "{}: its end is missing: it has {size} bytes", path.display())
            }
            Finding::Labels { path, faults } => labels::write(f, path, faults),
            Finding::Unreadable { place, why, of: _ } => write!(f, "{place}: cannot be read: {why}"),
            Finding::DoubleReference { place, dva } => {
                write!(f, "{place}: space used twice")?;
                at(f, dva)
            }
            Finding::NotAllocated { vdev, offset, len } => {
                write!(f, "vdev {vdev}: {len} bytes at {offset:#x} are in use but called free")
            }
            Finding::Leak { vdev, offset, len } => {
                write!(f, "vdev {vdev}: {len} bytes at {offset:#x} are allocated but not in use (leaked)")
            }
            Finding::Sum { what, stored, counted } => write!(f, "{what}: says {stored}, is {counted}"),
        }
    }
}

/// The counts of what the check looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Datasets and snapshots.
    pub datasets: u64,
    /// Blocks on disk, each with all its copies.
    pub blocks: u64,
    /// Bytes read and verified, over all copies.
    pub bytes: u64,
    /// Findings reported.
    pub findings: u64,
}

/// Checks the whole pool, reporting each finding as it is made.
///
/// # Errors
/// If the walk itself cannot go on.
pub fn check(pool: &Pool, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
    pool.sync()?;
    let inner = pool.inner();
    let mut findings = 0;
    let mut report = |finding| {
        findings += 1;
        report(finding);
    };
    let shared = shared::Shared::load(inner, &mut report)?;
    let heads = roots::roots(inner, &mut |place, why| report(Finding::Unreadable { place, why, of: None }))?;
    let mut books = Books {
        storage: inner.storage(),
        claims: space::Claims::new(inner.storage().vdevs().tops()),
        shared,
        sums: BTreeMap::new(),
        summary: Summary::default(),
    };
    books.summary.datasets =
        heads.iter().filter(|root| ![ObjectId(0), DESTROYED].contains(&root.owner)).count() as u64;
    report_devices(inner.storage(), &mut report);
    let labels = labels::faults(inner);
    books.walk(&heads, &mut report)?;
    books.compare(inner, &mut report);
    labels::report_lasting(inner, labels, &mut report);
    let mut summary = books.summary;
    summary.findings = findings;
    Ok(summary)
}

/// Reports absent devices, and devices that end too early.
fn report_devices(storage: &Storage, report: &mut dyn FnMut(Finding)) {
    for top in storage.vdevs().tops() {
        for child in top.absent() {
            report(Finding::Absent { vdev: top.id, child });
        }
        for storage::Leaf { disk, .. } in top.cut_short() {
            report(Finding::CutShort { path: disk.path().to_path_buf(), size: disk.size() });
        }
    }
}

/// Reports wrong counts of blocks in indirect blocks and objsets.
fn report_fills(wrong: &mpsc::Receiver<WrongFill>, report: &mut dyn FnMut(Finding)) {
    for WrongFill { place, stored, counted } in wrong.try_iter() {
        report(Finding::Sum { what: format!("{place}: what is below"), stored, counted });
    }
}

/// Sums over all visited blocks.
struct Books<'a> {
    storage: &'a Storage,
    /// The space of the blocks.
    claims: space::Claims,
    /// References to shared blocks: by the tables, and as counted.
    shared: shared::Shared,
    /// Sizes by owner.
    sums: BTreeMap<Owner, Sizes>,
    summary: Summary,
}

impl Books<'_> {
    /// Visits every block, and reads every copy of it.
    fn walk(&mut self, heads: &[Root], report: &mut dyn FnMut(Finding)) -> Result<()> {
        let (fills, wrong_fills) = mpsc::channel();
        let storage = self.storage;
        let walk = Walk::counting(storage, heads, fills);
        let readers = storage.readers();
        let verified = readers.map_ordered(
            storage::Caller::Works,
            walk,
            readers.count() * WINDOW_PER_READER,
            |item| match item {
                Item::Block(place, block) => {
                    let copies = storage.verify_copies(&block);
                    let trail = storage.trail(&block);
                    (Item::Block(place, block), copies, trail)
                }
                other => (other, Verified::default(), Ok(Trail::default())),
            },
            |(item, copies, trail)| {
                report_fills(&wrong_fills, report);
                match item {
                    Item::Unreadable(place, why) => {
                        report(Finding::Unreadable { of: part(&place), place: place.to_string(), why });
                    }
                    Item::Embedded(place, ptr) => {
                        let sizes = Sizes::of(storage.vdevs(), &BlockPtr::Embedded(ptr));
                        *self.sums.entry(place.owner()).or_default() += sizes;
                    }
                    Item::Block(place, block) => self.enter(&place, block, copies, trail, report),
                }
                Ok::<(), Error>(())
            },
        );
        verified?;
        report_fills(&wrong_fills, report);
        Ok(())
    }

    /// Adds a block whose copies were read.
    fn enter(
        &mut self,
        place: &Place,
        block: Block,
        copies: Verified,
        trail: std::result::Result<Trail, ReadError>,
        report: &mut dyn FnMut(Finding),
    ) {
        self.summary.blocks += 1;
        self.summary.bytes += copies.bytes;
        let lost = copies.lost;
        let holds_data = place.level == 0 && block.level == 0 && part(place).is_some();
        let data = holds_data.then_some(DataBlock { blkid: place.blkid, first: block.dvas[0] });
        for BadCopy { dva, error, .. } in copies.bad {
            report(Finding::BadCopy {
                place: place.to_string(),
                dva,
                why: error.to_string(),
                lost,
                of: part(place),
                data,
            });
        }
        *self.sums.entry(place.owner()).or_default() +=
            Sizes::of(self.storage.vdevs(), &BlockPtr::Block(block));
        let trail = trail.unwrap_or_else(|error| {
            report(Finding::Unreadable { place: place.to_string(), why: error.to_string(), of: part(place) });
            Trail::default()
        });
        if self.shared.refer(&block) != shared::Reference::Further {
            self.claims.claim_block(trail, place, report);
        }
    }

    /// Compares the figures of the pool with the sums. A check that fails is a finding; the other checks still run.
    fn compare(&mut self, inner: &Inner, report: &mut dyn FnMut(Finding)) {
        let Books { claims, shared, sums, .. } = self;
        for (what, done) in [
            ("the intent logs", space::claim_logs(inner, (claims, shared), report)),
            ("the lists of blocks", space::claim_lists(inner, (claims, shared), report)),
            ("the copies of a vdev", space::claim_copies(inner, claims, report)),
            ("the space maps", space::compare(inner, claims, report)),
            ("the mappings of removed vdevs", space::compare_obsolete(inner, claims, report)),
            ("the space accounting", accounts::compare(inner, sums, report)),
            ("the livelists", livelists::compare(inner, report)),
            ("the snapshots", snapshots::compare(inner, sums, report)),
            ("the features", accounts::features(inner, report)),
        ] {
            if let Err(error) = done {
                report(Finding::Unreadable { place: what.to_owned(), why: error.to_string(), of: None });
            }
        }
        shared.compare(report);
    }
}
