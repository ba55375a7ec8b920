//! Comparing livelists with the trees of their clones.

use std::hash::{DefaultHasher, Hash, Hasher};

use dsl::info::DatasetInfo;
use dsl::{Sizes, frees, list, livelist};
use format::ObjectId;
use format::blkptr::BlockPtr;

use super::Finding;
use pool::{Inner, Result};

/// Blocks, in any order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Set {
    count: u64,
    sizes: Sizes,
    /// Sum of the hashes of all blocks, so that their order does not matter.
    hashes: u64,
}

impl Set {
    fn add(&mut self, inner: &Inner, ptr: &BlockPtr) {
        let BlockPtr::Block(block) = ptr else { return };
        let mut hasher = DefaultHasher::new();
        let dva = block.dvas[0];
        (dva.vdev.0, dva.offset, block.physical_birth().0, block.birth.0).hash(&mut hasher);
        self.hashes = self.hashes.wrapping_add(hasher.finish());
        self.count += 1;
        self.sizes += Sizes::of(inner.storage().vdevs(), ptr);
    }
}

/// Compares the livelist of each clone with the blocks that destroying the clone would free.
pub(super) fn compare(inner: &Inner, report: &mut dyn FnMut(Finding)) -> Result<()> {
    // The walk has reported the parts that are left out.
    for info in list::survey(&inner.view(), &inner.name(), (None, false), &mut |_, _| {})? {
        let mut unreadable = |why: String| {
            let place = format!("the livelist of '{}'", info.name);
            report(Finding::Unreadable { place, why, of: None });
        };
        match livelist::of(inner.mos(), info.dir_id) {
            Ok(None) => {}
            Err(error) => unreadable(error.to_string()),
            Ok(Some(list)) => match listed(inner, list) {
                Err(error) => unreadable(error.to_string()),
                Ok(listed) => compare_one(inner, &info, (list, listed), report)?,
            },
        }
    }
    Ok(())
}

fn listed(inner: &Inner, list: ObjectId) -> Result<Set> {
    let mut listed = Set::default();
    livelist::for_each(inner.mos(), list, &mut |ptr| {
        listed.add(inner, ptr);
        Ok(())
    })?;
    Ok(listed)
}

fn compare_one(
    inner: &Inner,
    info: &DatasetInfo,
    (list, listed): (ObjectId, Set),
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let origin_txg = inner.mos().origin_txg(info.dir.origin)?;
    let mut owned = Set::default();
    for ptr in frees::blocks_of(inner.storage(), &info.phys.bp, origin_txg) {
        // The walk has reported unreadable blocks; what is below them is not known.
        let Ok(ptr) = ptr else { return Ok(()) };
        owned.add(inner, &ptr);
    }
    let name = format!("the livelist of '{}'", info.name);
    let mut expect = |what: &str, stored: u64, counted: u64| {
        if stored != counted {
            report(Finding::Sum { what: format!("{what} of {name}"), stored, counted });
        }
    };
    expect("blocks", listed.count, owned.count);
    let parts = livelist::totals_of_parts(inner.mos(), list)?;
    for (what, sums) in [("sums", livelist::totals(inner.mos(), list)?), ("sums of the parts", parts)] {
        expect(what, sums.used as u64, owned.sizes.used as u64);
        expect(&format!("compressed {what}"), sums.comp as u64, owned.sizes.comp as u64);
        expect(&format!("uncompressed {what}"), sums.uncomp as u64, owned.sizes.uncomp as u64);
    }
    if listed != owned && listed.count == owned.count {
        let why = "it lists other blocks than the clone has".to_owned();
        report(Finding::Unreadable { place: name, why, of: None });
    }
    Ok(())
}
