//! Accounting of snapshots: the blocks that each keeps allocated, and the charges of their datasets.
//!
//! Source: docs/format/06-mos-dsl.md §7.3, §8.2, §8.3.

use std::collections::BTreeMap;

use dsl::info::DatasetInfo;
use dsl::space::has_breakdown;
use dsl::walk::Owner;
use dsl::{bookmark, deadlist, list};
use format::bookmark::{Bookmark, BookmarkV2, HAS_FBN, SNAPSHOT_EXISTS};
use format::dsl_dataset::DslDataset;
use format::{ObjectId, Txg};

use super::Finding;
use dsl::Sizes;
use pool::{Inner, Result};

/// Compares deadlists, the sizes that follow from them, and the lists of blocks to free.
pub(super) fn compare(
    inner: &Inner,
    sums: &BTreeMap<Owner, Sizes>,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let mut expect = |what: String, stored: u64, counted: u64| {
        if stored != counted {
            report(Finding::Sum { what, stored, counted });
        }
    };
    // The walk has reported the parts that are left out.
    let heads = list::survey(&inner.view(), &inner.name(), (None, false), &mut |_, _| {})?;
    let mut failed = Vec::new();
    for head in heads {
        if let Err(error) = line(inner, &head, sums, &mut expect) {
            failed.push((head.name, error));
        }
    }
    for (name, error) in failed {
        report(Finding::Unreadable {
            place: format!("'{name}', its snapshots"),
            why: error.to_string(),
            of: None,
        });
    }
    Ok(())
}

/// A head and its snapshots, newest first.
fn line(
    inner: &Inner,
    head: &DatasetInfo,
    sums: &BTreeMap<Owner, Sizes>,
    expect: &mut dyn FnMut(String, u64, u64),
) -> Result<()> {
    let mos = inner.mos();
    let name = &head.name;
    let origin_txg = mos.origin_txg(head.dir.origin)?;
    let marks = bookmark::all(mos, head.id)?;
    let (mut blocks, mut dead) = (Sizes::default(), Sizes::default());
    let (mut id, mut phys): (ObjectId, DslDataset) = (head.id, head.phys);
    loop {
        blocks += sums.get(&id).copied().unwrap_or_default();
        let header = deadlist::header(mos, phys.deadlist)?;
        let listed = deadlist::space_between(mos, phys.deadlist, Txg(0), Txg(u64::MAX))?;
        expect(format!("'{name}' dataset {id} deadlist"), header.used as u64, listed.used as u64);
        dead += deadlist::space_between(mos, phys.deadlist, origin_txg, Txg(u64::MAX))?;
        if phys.prev_snap.0 == 0 {
            break;
        }
        let prev = mos.earlier(&phys)?;
        if id == head.id {
            let shared = prev.referenced_bytes.wrapping_add_signed(-header.used);
            let unique = phys.referenced_bytes.wrapping_sub(shared);
            expect(format!("'{name}' unique"), phys.unique_bytes, unique);
        }
        if prev.dir != head.dir_id {
            break;
        }
        for (leaf, v2) in marks_of(&marks, prev.creation_txg) {
            let what = format!("'{name}#{leaf}'");
            expect(format!("{what} referenced"), v2.referenced_bytes, prev.referenced_bytes);
            expect(
                format!("{what} freed before the next snapshot"),
                v2.freed_before_next_bytes,
                header.used as u64,
            );
        }
        let alone = deadlist::space_between(mos, phys.deadlist, prev.prev_snap_txg, Txg(u64::MAX))?;
        expect(format!("'{name}' snapshot {} unique", phys.prev_snap), prev.unique_bytes, alone.used as u64);
        (id, phys) = (phys.prev_snap, prev);
    }
    if !has_breakdown(&head.dir) {
        return Ok(());
    }
    let charged = &head.dir.used_breakdown;
    expect(format!("'{name}' used by its snapshots"), charged.snap, dead.used as u64);
    expect(format!("'{name}' used by it and its snapshots"), charged.head + charged.snap, blocks.used as u64);
    Ok(())
}

/// Bookmarks of the snapshot of this txg with the sums of blocks freed before the next snapshot.
fn marks_of(marks: &[(String, Bookmark)], txg: Txg) -> impl Iterator<Item = (&str, BookmarkV2)> {
    let counts = HAS_FBN | SNAPSHOT_EXISTS;
    marks
        .iter()
        .filter(move |(_, mark)| mark.creation_txg == txg)
        .filter_map(|(leaf, mark)| Some((leaf.as_str(), mark.v2?)))
        .filter(move |(_, v2)| v2.flags & counts == counts)
}
