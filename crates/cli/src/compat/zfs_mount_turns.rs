//! The order of mounts and unmounts over several pools, because a file system may be mounted inside another pool.
//!
//! Each pool has its own server, which mounts only the file systems of that pool. The client calls the servers in turns.

use std::collections::BTreeSet;

use pool::props::dataset as props;
use pool::props::{DatasetKind, Value};

use crate::around::Surroundings;
use crate::open::{self, pool_of};

/// A pool, and those of its file systems whose turn it is; none: all.
pub type Turn = (String, Vec<String>);

/// The order of mounting: a folder comes before the mount points in it.
pub fn of_mounting(pools: Vec<String>, around: &Surroundings) -> Vec<Turn> {
    let mut places: Vec<(String, String)> = Vec::new();
    for pool in &pools {
        // For a pool that cannot be read, its server gets the order to mount everything, and reports the reason.
        if pools.len() > 1 {
            places.extend(mountpoints(pool, around).unwrap_or_default());
        }
    }
    places.sort();
    turns(pools, places.into_iter().map(|(_, dataset)| dataset))
}

/// The order of unmounting: the last mount comes first.
pub fn of_unmounting(pools: Vec<String>, around: &Surroundings) -> Vec<Turn> {
    let mounted = open::mounted_by(&pools, around).into_iter().rev().map(|mount| mount.dataset);
    turns(pools, mounted)
}

/// The mount points of the file systems of a pool; `None` if it cannot be read.
fn mountpoints(name: &str, around: &Surroundings) -> Option<Vec<(String, String)>> {
    let session = open::open_for(name, around, open::Intent::Read).ok()?;
    let pool = session.pool();
    let property = props::parse("mountpoint").expect("the table has it");
    let list = pool.list(name, None, false).ok()?;
    let filesystems = list.into_iter().filter(|info| info.kind == DatasetKind::Filesystem);
    let place = |info: pool::DatasetInfo| match pool.property(&info, property) {
        Ok(Some((Value::Text(path), _))) if path.starts_with('/') => Some((path, info.name)),
        _ => None,
    };
    Some(filesystems.filter_map(place).collect())
}

/// `datasets` in groups of the same pool, in order. If each pool has only one group, its server handles all of them at once.
fn turns(pools: Vec<String>, datasets: impl Iterator<Item = String>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for dataset in datasets.filter(|dataset| pools.iter().any(|pool| pool == pool_of(dataset))) {
        match turns.last_mut() {
            Some((pool, list)) if pool == pool_of(&dataset) => list.push(dataset),
            _ => turns.push((pool_of(&dataset).to_owned(), vec![dataset])),
        }
    }
    let named: BTreeSet<String> = turns.iter().map(|(pool, _)| pool.clone()).collect();
    if named.len() == turns.len() {
        turns.iter_mut().for_each(|(_, list)| list.clear());
    }
    let others = pools.into_iter().filter(|pool| !named.contains(pool));
    turns.extend(others.map(|pool| (pool, Vec::new())));
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pools: &[&str], datasets: &[&str]) -> Vec<String> {
        let pools = pools.iter().map(|pool| (*pool).to_owned()).collect();
        let turns = turns(pools, datasets.iter().map(|dataset| (*dataset).to_owned()));
        turns.into_iter().map(|(pool, list)| format!("{pool}: {}", list.join(" "))).collect()
    }

    #[test]
    fn pools_take_turns_only_where_one_lies_in_another() {
        assert_eq!(of(&["a", "b"], &["b/x", "b", "a", "a/y"]), ["b: ", "a: "]);
        assert_eq!(of(&["a", "b", "c"], &["a", "b", "b/x", "a/y"]), ["a: a", "b: b b/x", "a: a/y", "c: "]);
        assert_eq!(of(&["a"], &["z", "a"]), ["a: "]);
    }
}
