//! The four labels of a leaf: their configurations and uberblock rings. Nothing in them is trusted, and they are written in
//! a safe order.
//!
//! Source: docs/format/01-labels-uberblock.md §2, §4.3, §5.

use std::io::{self, IoSlice};
use std::sync::Arc;

use format::config::{Label, PoolConfig};
use format::label::{self, BOOT_ENV, PHYS, RING, SIZE};
use format::nvlist::NvList;
use format::uberblock::{Mmp, Uberblock};
use format::{Guid, Txg};
use storage::host::Disk;
use storage::{Leaf, WriteError};

/// Everything readable in a leaf's labels.
#[derive(Clone, Debug)]
pub struct Labels {
    /// Decoded configurations with a good checksum, in label order.
    pub configs: Vec<Label>,
    /// The best uberblock with a good checksum, if any.
    pub best: Option<Uberblock>,
    /// How many of the four labels could be read and verified.
    pub good: usize,
    /// All uberblocks with a good checksum.
    pub uberblocks: Vec<Uberblock>,
}

/// Reads all four labels of `disk`. It leaves out unreadable and damaged configurations, but keeps the uberblocks of the
/// same label. The only copy of the newest uberblock may be in a label whose configuration was torn by a later write.
#[must_use]
pub fn read(disk: &dyn Disk) -> Labels {
    let mut labels = Labels { configs: Vec::new(), best: None, good: 0, uberblocks: Vec::new() };
    let Some(offsets) = label::offsets(disk.size()) else { return labels };
    let raws: Vec<_> =
        offsets.into_iter().filter_map(|offset| Some((offset, read_raw(disk, offset)?))).collect();
    labels.configs = raws.iter().filter_map(|(offset, raw)| config(raw, *offset)).collect();
    labels.good = labels.configs.len();
    let ashift = labels.pool_configs().find_map(|pool| Some(pool.tree.top.as_ref()?.ashift)).unwrap_or(9);
    if labels.good > 0 {
        labels.uberblocks =
            raws.iter().flat_map(|(offset, raw)| ring(RING.of(raw), offset + RING.offset, ashift)).collect();
    }
    labels.best = labels.uberblocks.iter().max_by_key(|ub| ub.rank()).cloned();
    labels
}

/// Whether any label of `disk`, damaged or not, is as `asked`.
pub fn any(disk: &dyn Disk, asked: fn(&[u8]) -> bool) -> bool {
    let offsets = label::offsets(disk.size()).into_iter().flatten();
    offsets.filter_map(|offset| read_raw(disk, offset)).any(|raw| asked(&raw))
}

pub(crate) fn read_raw(disk: &dyn Disk, offset: u64) -> Option<Vec<u8>> {
    let mut raw = vec![0; SIZE as usize];
    disk.read_at(&mut raw, offset).ok()?;
    Some(raw)
}

/// The configuration in the label at `offset`, if it can be verified.
pub(crate) fn config(raw: &[u8], offset: u64) -> Option<Label> {
    let phys = PHYS.of(raw);
    codec::embedded::verify(phys, [offset + PHYS.offset, 0, 0, 0])?;
    label::decode_phys(phys).and_then(|list| Label::from_nvlist(&list)).ok()
}

pub(crate) fn ring(raw: &[u8], at: u64, ashift: u32) -> Vec<Uberblock> {
    let slot_size = 1u64 << label::uberblock_shift(ashift);
    label::uberblock_slots(raw, ashift)
        .zip((at..).step_by(slot_size as usize))
        .filter(|(slot, at)| codec::embedded::verify(slot, [*at, 0, 0, 0]).is_some())
        .filter_map(|(slot, _)| Uberblock::decode(slot).ok())
        .filter(|ub| ub.txg != Txg(0))
        .collect()
}

impl Labels {
    /// The configuration for the state of txg `txg`: the newest one up to that txg. If a power cut left only newer ones, the
    /// oldest of them.
    #[must_use]
    pub fn config_for(&self, txg: Txg) -> Option<&PoolConfig> {
        let fitting = self.pool_configs().filter(|config| config.txg <= txg).max_by_key(|config| config.txg);
        fitting.or_else(|| self.pool_configs().min_by_key(|config| config.txg))
    }

    /// The configurations that name a pool.
    pub fn pool_configs(&self) -> impl Iterator<Item = &PoolConfig> {
        self.configs.iter().filter_map(|config| match config {
            Label::Pool(pool) => Some(pool),
            Label::Aux(_) => None,
        })
    }
}

fn write(disk: &Arc<dyn Disk>, bytes: &[u8], offset: u64) -> Result<(), WriteError> {
    disk.write_at(&[IoSlice::new(bytes)], offset).map_err(|source| WriteError::Device {
        path: disk.path().to_path_buf(),
        offset,
        source,
    })
}

/// Which two of the four labels: an update writes one half before the uberblock, the other after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Labels 0 and 2.
    Even,
    /// Labels 1 and 3.
    Odd,
}

impl Half {
    /// The half of the labels to write first when the pool's state is that of txg `synced`. After a power cut, one half may
    /// be torn or too new; that half is written first. If the power fails again during this write, the other half still
    /// leads to the pool.
    #[must_use]
    pub fn to_write_first(disk: &dyn Disk, synced: Txg) -> Half {
        let Some(offsets) = label::offsets(disk.size()) else { return Half::Even };
        let usable =
            offsets.map(|offset| match read_raw(disk, offset).and_then(|raw| config(&raw, offset)) {
                Some(Label::Pool(config)) if config.txg <= synced => config.txg,
                _ => Txg(0),
            });
        let worth = |a: Txg, b: Txg| (a.max(b), a.min(b));
        let (even, odd) = (worth(usable[0], usable[2]), worth(usable[1], usable[3]));
        if odd < even { Half::Odd } else { Half::Even }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Half {
        match self {
            Half::Even => Half::Odd,
            Half::Odd => Half::Even,
        }
    }
}

/// Writes the configuration of `leaf` into half of its labels, or into one of them if the device refuses the other. Not durable
/// before a flush.
///
/// # Errors
/// The device refused both, or is too small for labels.
pub fn write_config(
    disk: &Arc<dyn Disk>,
    config: &PoolConfig,
    leaf: Guid,
    half: Half,
) -> Result<(), WriteError> {
    for_each_of_half(disk, config, leaf, half, |raw, at| write(disk, raw, at))
}

/// Reads half of the labels of `leaf` back, which [`write_config`] wrote and a flush made durable. If the device
/// returns other bytes, they are written once more. One label with the written bytes is enough.
///
/// # Errors
/// For both labels: the device gives something else again, or refuses.
pub fn prove_config(
    disk: &Arc<dyn Disk>,
    config: &PoolConfig,
    leaf: Guid,
    half: Half,
) -> Result<(), WriteError> {
    for_each_of_half(disk, config, leaf, half, |raw, at| {
        let failed = |source| WriteError::Device { path: disk.path().to_path_buf(), offset: at, source };
        let is_there = || {
            let mut found = vec![0; raw.len()];
            disk.read_at(&mut found, at).map(|()| found == raw).map_err(failed)
        };
        if is_there()? {
            return Ok(());
        }
        write(disk, raw, at)?;
        disk.flush().map_err(failed)?;
        let lost = || failed(io::Error::other("a label that was written reads back as something else"));
        if is_there()? { Ok(()) } else { Err(lost()) }
    })
}

/// Calls `each` with the configuration of `leaf` as half of its labels have it, and where they lie. It has to succeed for one of
/// them.
fn for_each_of_half(
    disk: &Arc<dyn Disk>,
    config: &PoolConfig,
    leaf: Guid,
    half: Half,
    mut each: impl FnMut(&[u8], u64) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let list = config.to_label_nvlist(leaf).expect("the leaf is part of the pool it belongs to");
    let offsets = label::offsets(disk.size()).ok_or(WriteError::NoSpace)?;
    let mut done = Vec::new();
    let half = offsets.into_iter().skip(usize::from(half == Half::Odd)).step_by(2);
    for_each_sealed(&list, half, |raw, at| {
        done.push(each(raw, at));
        Ok(())
    })?;
    one_is_enough(done)
}

/// One good label leads to the pool. So a device with a bad place in one of its labels stays in use. OpenZFS does the same:
/// it counts the labels that were written and fails where there is none. A power cut is harmless: the other half is written
/// at another time, and one of its labels is good, too.
///
/// # Errors
/// The first one, if none of the labels is good.
fn one_is_enough(done: Vec<Result<(), WriteError>>) -> Result<(), WriteError> {
    let is_enough = done.iter().any(Result::is_ok);
    for error in done.into_iter().filter_map(Result::err) {
        if !is_enough {
            return Err(error);
        }
        tracing::warn!(%error, "a label cannot be used; another one of the device is good");
    }
    Ok(())
}

/// Writes a configuration into the labels at `offsets`. Not durable before a flush.
///
/// # Errors
/// The device refused, or the configuration is too long for a label.
pub(crate) fn write_list(
    disk: &Arc<dyn Disk>,
    list: &NvList,
    offsets: impl IntoIterator<Item = u64>,
) -> Result<(), WriteError> {
    for_each_sealed(list, offsets, |raw, at| write(disk, raw, at))
}

/// Calls `each` with the bytes of a configuration for each of the labels at `offsets`, and where they lie.
fn for_each_sealed(
    list: &NvList,
    offsets: impl IntoIterator<Item = u64>,
    mut each: impl FnMut(&[u8], u64) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut raw = label::encode_phys(list).ok_or(WriteError::NoSpace)?;
    for offset in offsets {
        let at = offset + PHYS.offset;
        codec::embedded::seal(&mut raw, [at, 0, 0, 0]);
        each(&raw, at)?;
    }
    Ok(())
}

/// Writes an uberblock into its slot of all four rings, or of those where the device does not refuse it. Not durable before a
/// flush.
///
/// # Errors
/// The device refused all four, or is too small for labels.
pub fn write_uberblock(disk: &Arc<dyn Disk>, uberblock: &Uberblock, ashift: u32) -> Result<(), WriteError> {
    write_uberblock_into(disk, uberblock, ashift, |_| true)
}

fn write_uberblock_into(
    disk: &Arc<dyn Disk>,
    uberblock: &Uberblock,
    ashift: u32,
    is_meant: impl Fn(usize) -> bool,
) -> Result<(), WriteError> {
    let is_kept = uberblock.mmp.is_some_and(Mmp::is_on);
    let slot = label::uberblock_slot(uberblock.txg, ashift, is_kept);
    let offsets = label::offsets(disk.size()).ok_or(WriteError::NoSpace)?;
    let meant = offsets.into_iter().enumerate().filter(|(label, _)| is_meant(*label));
    let done = meant.map(|(_, offset)| {
        let at = label::uberblock_offset(offset, slot, ashift);
        let mut raw = uberblock.encode_slot(ashift);
        codec::embedded::seal(&mut raw, [at, 0, 0, 0]);
        write(disk, &raw, at)
    });
    one_is_enough(done.collect())
}

/// As [`write_uberblock`], into half of the rings.
///
/// # Errors
/// The device refused both, or is too small for labels.
pub fn write_uberblock_half(
    disk: &Arc<dyn Disk>,
    uberblock: &Uberblock,
    ashift: u32,
    half: Half,
) -> Result<(), WriteError> {
    write_uberblock_into(disk, uberblock, ashift, |label| (label % 2 == 1) == (half == Half::Odd))
}

/// Writes a heartbeat into the last slot of the ring of label `copy`, and makes it durable.
///
/// # Errors
/// The device refused, or is too small for labels.
pub(crate) fn write_heartbeat(
    leaf: &Leaf,
    uberblock: &Uberblock,
    ashift: u32,
    copy: usize,
) -> Result<(), WriteError> {
    let offsets = label::offsets(leaf.disk.size()).ok_or(WriteError::NoSpace)?;
    let at = label::uberblock_offset(offsets[copy], label::uberblock_count(ashift) - 1, ashift);
    let mut raw = uberblock.encode_slot(ashift);
    codec::embedded::seal(&mut raw, [at, 0, 0, 0]);
    write(&leaf.disk, &raw, at)?;
    let failed = |source| WriteError::Device { path: leaf.disk.path().to_path_buf(), offset: at, source };
    leaf.flush().map_err(failed)
}

/// Empties the slots of all four rings that hold a state with a txg above `kept` and up to `newest`. Not durable before
/// a flush.
///
/// # Errors
/// The device refused, or is too small for labels.
pub fn forget_states(disk: &Arc<dyn Disk>, kept: Txg, newest: Txg, ashift: u32) -> Result<(), WriteError> {
    let slot_size = 1usize << label::uberblock_shift(ashift);
    for offset in label::offsets(disk.size()).ok_or(WriteError::NoSpace)? {
        let Some(raw) = read_raw(&**disk, offset) else { continue };
        let at = offset + RING.offset;
        for slot in (at..at + RING.len as u64).step_by(slot_size) {
            let from = (slot - offset) as usize;
            let states = ring(&raw[from..from + slot_size], slot, ashift);
            if states.iter().any(|state| state.txg > kept && state.txg <= newest) {
                write(disk, &vec![0; slot_size], slot)?;
            }
        }
    }
    Ok(())
}

/// Prepares the labels of a new pool's leaf: empty boot environment, no configuration, empty rings. This removes all old
/// uberblocks, because one with a higher txg would be taken for the newest state of the new pool.
///
/// # Errors
/// The device refused, or is too small for labels.
pub fn initialise(disk: &Arc<dyn Disk>) -> Result<(), WriteError> {
    for offset in label::offsets(disk.size()).ok_or(WriteError::NoSpace)? {
        let mut boot_env = vec![0; BOOT_ENV.len];
        codec::embedded::seal(&mut boot_env, [offset + BOOT_ENV.offset, 0, 0, 0]);
        write(disk, &boot_env, offset + BOOT_ENV.offset)?;
        write(disk, &vec![0; PHYS.len + RING.len], offset + PHYS.offset)?;
    }
    Ok(())
}

/// Wipes all four labels.
///
/// # Errors
/// The device refused, or is too small for labels.
pub fn clear(disk: &Arc<dyn Disk>) -> Result<(), WriteError> {
    for offset in label::offsets(disk.size()).ok_or(WriteError::NoSpace)? {
        write(disk, &vec![0; SIZE as usize], offset)?;
    }
    Ok(())
}

/// Wipes the labels of a device that left the pool, and closes it.
pub(crate) fn let_go(leaf: &Leaf) {
    let wiped = clear(&leaf.disk).map_err(|error| error.to_string());
    if let Err(why) = wiped.and_then(|()| leaf.disk.flush().map_err(|error| error.to_string())) {
        tracing::warn!(why, "the labels of a device that left the pool stay");
    }
    leaf.close();
}

#[cfg(test)]
mod tests {
    use storage::host::{Fault, ScriptedDisk};

    use super::*;
    use crate::testing::made;

    /// A disk that forgets those of the next writes that `forgotten` names, with half of its labels written and proved.
    fn proved(forgotten: &[usize]) -> (Result<(), WriteError>, Labels) {
        let pool = made(&[ScriptedDisk::new(64 << 20)]);
        let (config, leaf) = (pool.info().config, pool.leaves().next().expect("one device").guid);
        let scripted = ScriptedDisk::new(64 << 20);
        forgotten.iter().for_each(|op| scripted.inject(Fault::Forget { op: *op }));
        let disk: Arc<dyn Disk> = Arc::new(scripted);
        write_config(&disk, &config, Guid(leaf), Half::Odd).expect("the disk takes writes");
        disk.flush().expect("the disk flushes");
        (prove_config(&disk, &config, Guid(leaf), Half::Odd), read(&*disk))
    }

    #[test]
    fn labels_that_the_device_kept_are_accepted() {
        let (done, labels) = proved(&[]);
        done.expect("both are there");
        assert_eq!(labels.configs.len(), 2);
    }

    #[test]
    fn a_label_that_the_device_forgot_is_written_once_more() {
        let (done, labels) = proved(&[1]);
        done.expect("the second write of it stays");
        assert_eq!(labels.configs.len(), 2);
    }

    #[test]
    fn a_device_that_forgets_both_labels_twice_refuses_them() {
        // Two labels, a flush, and each label once more with a flush.
        let (done, labels) = proved(&[0, 1, 3, 5]);
        let error = done.expect_err("no label is there").to_string();
        assert!(error.contains("reads back as something else"), "{error}");
        assert_eq!(labels.configs.len(), 0);
    }

    #[test]
    fn one_label_of_a_half_is_enough() {
        let (done, labels) = proved(&[0, 3]);
        done.expect("the other label is there");
        assert_eq!(labels.configs.len(), 1);
    }
}
