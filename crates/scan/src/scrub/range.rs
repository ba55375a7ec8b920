//! The range of births for a scrub: since the last scrub, or between two dates.
//!
//! Pools note the time of a txg in many places: uberblocks, datasets and snapshots, the history, and since OpenZFS 2.4
//! a table made for this (06 §1.3). A date between two of them is widened to the next, so that nothing is left out.

use dmu::zap;
use format::dsl_dataset::DslDataset;
use format::{ByteOrder, ObjectType, Txg};

use dsl::history;
use dsl::mos::{DIRECTORY, Mos};
use pool::{Error, Pool, Result, labels};

/// Key of the table of txgs and times, by how far apart they are.
const TABLES: [&str; 3] = [
    "com.klarasystems:txg_log_time:minutes",
    "com.klarasystems:txg_log_time:days",
    "com.klarasystems:txg_log_time:months",
];
/// Words before the pairs of a table, and how many pairs there are.
const TABLE_HEADER: usize = 3;
const TABLE_PAIRS: usize = 256;

/// Blocks by their birth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Births {
    /// Later than this.
    pub after: Txg,
    /// Up to this, or up to now.
    pub up_to: Option<Txg>,
}

/// The range of births between two dates, in seconds since 1970. It may be slightly larger, depending on the times that the
/// pool stores.
///
/// # Errors
/// If the stored times cannot be read.
pub(super) fn births_between(pool: &Pool, start: Option<u64>, end: Option<u64>) -> Result<Births> {
    let times = times(pool)?;
    // A clock may have been set back. Every txg with a time between the dates belongs to the range.
    let before = |date: u64| {
        let first = times.iter().filter(|(time, _)| *time >= date).map(|(_, txg)| *txg).min();
        let earlier = times.iter().map(|(_, txg)| *txg).filter(|txg| first.is_none_or(|first| *txg < first));
        earlier.max()
    };
    let behind = |date: u64| {
        let last = times.iter().filter(|(time, _)| *time <= date).map(|(_, txg)| *txg).max();
        times.iter().map(|(_, txg)| *txg).filter(|txg| last.is_none_or(|last| *txg > last)).min()
    };
    Ok(Births { after: start.and_then(before).unwrap_or_default(), up_to: end.and_then(behind) })
}

/// Seconds since 1970 and the txg that was open or synced then, in no order.
fn times(pool: &Pool) -> Result<Vec<(u64, Txg)>> {
    let mos = pool.inner().mos();
    let mut times = tables(mos)?;
    for leaf in pool.inner().storage().vdevs().tops().iter().flat_map(storage::TopVdev::leaves) {
        times.extend(labels::read(&*leaf.disk).uberblocks.iter().map(|state| (state.timestamp, state.txg)));
    }
    for entry in mos.objset.synced_objects() {
        let (id, dnode) = entry?;
        if dnode.bonus_type == ObjectType::DSL_DATASET {
            let phys = DslDataset::decode(&dnode.bonus, ByteOrder::Little).map_err(Error::corrupt(id))?;
            times.push((phys.creation_time, phys.creation_txg));
        }
    }
    for event in history::read(mos)? {
        times.extend(event.record.get_u64("history txg").map(|txg| (event.time, Txg(txg))));
    }
    let newest = pool.inner().committed().0;
    times.retain(|(time, txg)| *time > 0 && txg.0 > 0 && *txg <= newest);
    Ok(times)
}

/// The entries of the tables of OpenZFS 2.4.
fn tables(mos: &Mos) -> Result<Vec<(u64, Txg)>> {
    let directory = mos.object(DIRECTORY)?;
    let mut times = Vec::new();
    for key in TABLES {
        let Some(value) = zap::lookup(&directory, key.as_bytes())? else { continue };
        let words = value.to_u64s();
        let pairs = words.get(TABLE_HEADER..).unwrap_or_default().chunks_exact(2).take(TABLE_PAIRS);
        times.extend(pairs.map(|pair| (pair[0], Txg(pair[1]))));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrub::tests::made;

    #[test]
    fn dates_are_widened_to_the_next_txg_that_has_one() {
        let disk = storage::host::ScriptedDisk::new(128 << 20);
        let pool = made(&disk);
        for name in ["tank@a", "tank@b"] {
            pool.snapshot(&[name.to_owned()], &[]).expect("taken");
        }
        let last = times(&pool).expect("read").into_iter().max_by_key(|(_, txg)| *txg).expect("some");
        let births = births_between(&pool, Some(last.0 + 1), Some(0)).expect("known");
        assert_eq!(births.after, last.1);
        assert!(births.up_to.is_some_and(|txg| txg < last.1), "{births:?}");
        assert_eq!(births_between(&pool, None, None).expect("known"), Births::default());
        assert_eq!(births_between(&pool, Some(1), Some(u64::MAX)).expect("known"), Births::default());
    }
}
