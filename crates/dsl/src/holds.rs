//! Holds and clones of snapshots, and the space that destroying snapshots would free.
//!
//! Source: docs/format/06-mos-dsl.md §6, §9.2.

use std::collections::BTreeSet;

use dmu::zap;
use format::dsl_dataset::DslDataset;
use format::zap::Value;
use format::{ObjectId, ObjectType, Txg};

use crate::change::Change;
use crate::info::DatasetInfo;
use crate::mos::Mos;
use crate::view::View;
use crate::{Error, Result, deadlist, tree, version};

/// How many hold a snapshot.
pub(crate) fn hold_count(mos: &Mos, snap: &DslDataset) -> Result<u64> {
    Ok(if snap.userrefs.0 == 0 { 0 } else { zap::count(&*mos.object(snap.userrefs)?)? })
}

/// Holds of a snapshot: tag, and seconds since 1970, by tag.
pub fn holds(view: &View<'_>, info: &DatasetInfo) -> Result<Vec<(String, u64)>> {
    if info.phys.userrefs.0 == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in zap::entries(&*view.mos.object(info.phys.userrefs)?) {
        let entry = entry?;
        found.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.number().unwrap_or(0)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Names of the clones of a snapshot, in order. Unfinished receives do not count.
pub fn clones(view: &View<'_>, info: &DatasetInfo) -> Result<Vec<String>> {
    if info.phys.next_clones.0 == 0 {
        return Ok(Vec::new());
    }
    let mos = view.mos;
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(info.phys.next_clones)?).collect::<Vec<_>>() {
        if let Some(first) = entry?.number() {
            found.push(tree::name_of(view, mos.dataset(ObjectId(first))?.dir)?);
            let hidden = found.last().is_some_and(|name| name.contains("/%"));
            found.truncate(found.len() - usize::from(hidden));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Bytes that only the snapshots `doomed` refer to. For each run of adjacent snapshots, these are the blocks born after the
/// snapshot before the run and freed before the one after it.
pub fn reclaims(view: &View<'_>, doomed: &BTreeSet<ObjectId>) -> Result<u64> {
    let mos = view.mos;
    let mut bytes = 0;
    for &last in doomed {
        let mut at = mos.dataset(last)?;
        if doomed.contains(&at.next_snap) {
            continue;
        }
        let mut run = vec![at.next_snap];
        let mut since = at.prev_snap_txg;
        let mut id = last;
        while doomed.contains(&at.prev_snap) {
            run.push(id);
            id = at.prev_snap;
            at = mos.earlier(&at)?;
            since = at.prev_snap_txg;
        }
        for id in run {
            let list = mos.dataset(id)?.deadlist;
            bytes += deadlist::space_between(mos, list, since, Txg(u64::MAX))?.used as u64;
        }
    }
    Ok(bytes)
}

impl Change<'_> {
    /// Holds a snapshot under `tag`.
    pub fn hold(&mut self, name: &str, tag: &str) -> Result<()> {
        let mos = self.mos();
        version::check(mos.version(), version::HOLDS)?;
        let id = tree::snapshot(mos, &self.view.pool, name)?;
        let mut snap = mos.dataset(id)?;
        if snap.userrefs.0 == 0 {
            snap.userrefs = mos.create_zap(self.tx, ObjectType::USERREFS, 0)?.id();
            mos.put_dataset(self.tx, id, &snap)?;
        }
        let refs = mos.object(snap.userrefs)?;
        if zap::lookup(&refs, tag.as_bytes())?.is_some() {
            return Err(Error::Exists(tag.to_owned()));
        }
        Ok(zap::insert(&refs, self.tx, tag.as_bytes(), &Value::from_u64(mos.now()))?)
    }

    /// Releases the hold `tag` of a snapshot.
    pub fn release(&mut self, name: &str, tag: &str) -> Result<()> {
        let mos = self.mos();
        let id = tree::snapshot(mos, &self.view.pool, name)?;
        let snap = mos.dataset(id)?;
        let missing = || Error::NoHold(tag.to_owned());
        if snap.userrefs.0 == 0 {
            return Err(missing());
        }
        let refs = mos.object(snap.userrefs)?;
        if zap::lookup(&refs, tag.as_bytes())?.is_none() {
            return Err(missing());
        }
        self.check_deferred(id, 1)?;
        zap::remove(&refs, self.tx, tag.as_bytes())?;
        self.destroy_if_deferred(id)
    }
}
