//! The tables of a pool that is being imported: space maps, their logs, and how blocks are shared.
//!
//! From:   the MOS of the last txg on the disks.
//! To:     `import`, and crates above that compare these tables with what is in use.
//! Source: docs/format/05-space-maps.md; 01-labels-uberblock.md §5.1.

use std::collections::BTreeMap;

use dmu::zap;
use dsl::livelist;
use format::config::{PoolConfig, VdevConfig};
use format::{Corrupt, ObjectId, Txg};
use storage::Storage;
use storage::allocator::{Allocator, METASLABS_MAX};

use crate::brt::Brt;
use crate::create::vdev_spec;
use crate::ddt::Ddt;
use crate::mos::Mos;
use crate::pool::Inner;
use crate::space_maps::{self, Logs, MapTable};
use crate::{Error, Result, bpobj, bptree};

/// Metaslab arrays and logs. Metaslabs themselves load when they are needed.
fn read_tables(mos: &Mos, storage: &Storage, config: &PoolConfig) -> Result<(MapTable, Logs)> {
    let mut arrays = Vec::new();
    let mut unflushed = BTreeMap::new();
    let tops = storage.vdevs().tops();
    for (vdev, top) in config.tree.children.iter().zip(tops) {
        let Some(config) = vdev.top.as_ref().filter(|_| top.metaslab_shift > 0) else { continue };
        let count = top.metaslab_count();
        if count > METASLABS_MAX {
            return Err(Error::corrupt(config.metaslab_array)(Corrupt::new("metaslabs of a vdev", count)));
        }
        arrays.push((top.id, config.metaslab_array, top.metaslab_count()));
        if let Some(txgs) = unflushed_txgs(mos, vdev, top.metaslab_count())? {
            unflushed.insert(top.id, txgs);
        }
    }
    let table = MapTable::load(&mos.objset, &arrays)?;
    let logs = space_maps::load_logs(mos, tops, &unflushed)?;
    Ok((table, logs))
}

impl Inner {
    /// The space maps as they are on disk now.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_space_tables(&self) -> Result<(MapTable, Logs)> {
        let config = self.info().config.clone();
        read_tables(&self.mos, &self.storage, &config)
    }
}

/// The allocator with the sums of all space maps.
pub(crate) fn load_space(
    mos: &Mos,
    storage: &Storage,
    config: &PoolConfig,
    synced: Txg,
) -> Result<(Allocator, MapTable, Logs)> {
    let (table, logs) = read_tables(mos, storage, config)?;
    let tops = storage.vdevs().tops();
    let mut allocator = Allocator::new(synced);
    for (id, (_, maps)) in &table.vdevs {
        let top = &tops[*id as usize];
        let mut allocated = Vec::with_capacity(maps.len());
        for (metaslab, map) in maps.iter().enumerate() {
            let logged = logs.get(&(*id, metaslab as u32)).map(|entries| space_maps::log_delta(entries));
            let own = match map.0 {
                0 => None,
                _ => Some(space_maps::header(&mos.objset, *map)?.alloc),
            };
            let sum = match (own, logged) {
                (None, None) => None,
                (own, logged) => Some(own.unwrap_or(0) + logged.unwrap_or(0)),
            };
            allocated.push(sum.map(|bytes| bytes.max(0) as u64));
        }
        allocator.add_vdev(vdev_spec(top), allocated).map_err(Error::corrupt(ObjectId(0)))?;
    }
    Ok((allocator, table, logs))
}

/// The dedup tables and the tables of cloned blocks. A read-only import ignores tables that cannot be read.
pub(crate) fn references(inner: &Inner) -> Result<(Ddt, Brt)> {
    let mos = &inner.mos.objset;
    let read = || Ok((Ddt::load(mos, inner.storage.vdevs())?, Brt::load(mos, inner.storage.vdevs())?));
    match read() {
        Err(error) if inner.terms.read_only().is_some() => {
            tracing::warn!(%error, "how blocks are shared cannot be read");
            Ok(Default::default())
        }
        found => found,
    }
}

/// Whether the pool frees blocks of destroyed datasets from now on.
pub(crate) fn goes_on_freeing(inner: &Inner) -> bool {
    inner.terms.read_only().is_none()
        && is_freeing(&inner.mos).unwrap_or_else(|error| {
            tracing::warn!(%error, "what waits to be freed cannot be read: it stays allocated");
            false
        })
}

/// Whether blocks of destroyed datasets wait to be freed.
fn is_freeing(mos: &Mos) -> Result<bool> {
    let listed = mos.directory_object("free_bpobj")?.map(|list| bpobj::is_empty(mos, list)).transpose()?;
    Ok(listed == Some(false) || bptree::is_there(mos)? || livelist::is_queued(mos)?)
}

fn unflushed_txgs(mos: &Mos, vdev: &VdevConfig, count: u64) -> Result<Option<Vec<u64>>> {
    let Some(top_zap) = vdev.zap_top.filter(|id| id.0 != 0) else { return Ok(None) };
    let key = b"com.delphix:ms_unflushed_phys_txgs";
    let Some(array) = zap::lookup_u64(&*mos.object(top_zap)?, key)? else { return Ok(None) };
    let mut raw = vec![0; count as usize * 8];
    mos.object(ObjectId(array))?.read(0, &mut raw)?;
    Ok(Some(raw.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect()))
}
