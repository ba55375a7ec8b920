//! Devices that join and leave a pool: `zpool attach`, `detach` and `replace`, and hot spares.
//!
//! From:   the administrator, by way of the command line.
//! To:     the configuration in MOS and labels, the vdevs in `storage`, and a resilver of what joined.
//! Source: docs/format/11-redundancy.md §8.2 to §8.4, §8.10; Pitfalls 1 and 2.

use std::sync::Arc;

use dmu::zap;
use format::config::{VdevConfig, VdevKind};
use format::zap::int_key;
use format::{Guid, ObjectId, ObjectType, Txg, label};
use storage::host::Disk;
use storage::{Health, Leaf, TopVdev, TxgRuns, Vdevs};

use crate::aux_vdevs::{self, AuxKind};
use crate::marks::{REBUILT, RESILVERED};
use crate::pool::{Inner, Pool};
use crate::replacement::{self, IS_SPARE, Joins, OLD};
use crate::shape::{Progress, TOP_GUID, shape_of, spare_number};
use crate::state::Syncing;
use crate::{Error, Result, labels, new_vdevs};

/// The list of vdev ZAPs in the object directory.
pub(crate) const ZAPS: &str = "com.delphix:vdev_zap_map";
/// A new device misses all txgs up to this many after the one that attaches it, because logs may have been written for
/// these already.
const TXGS_BEGUN: u64 = 3;
/// Keys that move from a top-level vdev to the vdev that takes its place.
const OF_TOP: [&str; 2] = ["allocation_bias", "non_allocating"];

/// A device that is to join the pool.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    /// The leaf beside which it is put.
    pub(crate) beside: Guid,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) joins: Joins,
    /// Guid of the new leaf.
    pub(crate) new: Guid,
    /// Guid of the vdev above both, if one is to be put there.
    pub(crate) above: Guid,
    /// It is rebuilt in the order of its places, instead of block by block.
    pub(crate) sequential: bool,
    /// The entry of a distributed spare in the list of spares.
    pub(crate) distributed: Option<VdevConfig>,
}

/// A device joined or came back: a resilver (crate `scan`) must write the blocks that it misses.
#[must_use = "without a resilver, the device stays behind: give this to `scan::Scans::resilver_joined`"]
#[derive(Debug)]
pub struct Joined(pub(crate) ());

/// A device that left.
struct Left {
    leaf: Option<Leaf>,
    /// The spare's guid if the device returns to the spares; `None`: wipe its labels.
    spare: Option<Guid>,
}

impl Pool {
    /// Attaches `disk` to the mirror of the leaf `guid`, or makes a new mirror of both. The disk lacks all earlier data
    /// until it is resilvered (crate `scan`).
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::BadDevice`]; [`Error::NotAttachable`] where no mirror can be; [`Error::Rebuilding`].
    pub fn attach(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<Joined> {
        self.join(guid, disk, Joins::Mirror, false)
    }

    /// As [`Pool::attach`], but what is in use is copied in the order of places, without looking at checksums (`zpool attach -s`).
    ///
    /// # Errors
    /// As [`Pool::attach`]; [`Error::NotSequential`]; [`Error::Resilvering`].
    pub fn attach_sequentially(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<Joined> {
        self.join(guid, disk, Joins::Mirror, true)
    }

    /// Replaces the leaf `guid` by `disk`. The old leaf leaves the pool when a resilver (crate `scan`) has written all data
    /// to the new one. The new device may have the path of the old one; then the old one must not be open.
    ///
    /// # Errors
    /// As [`Pool::attach`]; [`Error::InReplacement`].
    pub fn replace(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<Joined> {
        self.join(guid, disk, Joins::Replacing, false)
    }

    /// As [`Pool::replace`], but what is in use is copied in the order of places, without looking at checksums
    /// (`zpool replace -s`).
    ///
    /// # Errors
    /// As [`Pool::replace`]; [`Error::NotSequential`]; [`Error::Resilvering`].
    pub fn replace_sequentially(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<Joined> {
        self.join(guid, disk, Joins::Replacing, true)
    }

    fn join(&self, beside: Guid, disk: Arc<dyn Disk>, joins: Joins, sequential: bool) -> Result<Joined> {
        let is_known = |leaf: &Leaf| leaf.disk.path() == disk.path();
        if self.inner.storage.vdevs().leaves().any(is_known) {
            return Err(Error::Busy { path: disk.path().to_path_buf(), holder: Some("this pool".into()) });
        }
        let (new, above) = (Guid(self.inner.new_guid()), Guid(self.inner.new_guid()));
        self.take_in(Joining { beside, disk, joins, new, above, sequential, distributed: None })
    }

    /// Lets a device join. The caller then begins a resilver (crate `scan`).
    pub(crate) fn take_in(&self, joining: Joining) -> Result<Joined> {
        self.run(move |syncing| syncing.join(&joining).map(Joined))
    }

    /// Takes a leaf out of its mirror, or ends a replacement or the use of a spare. Wipes its labels; a spare gets spare
    /// labels.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::NoReplicas`] if the other leaves do not hold all of its data;
    /// [`Error::NotAMirror`].
    pub fn detach(&self, guid: Guid) -> Result<()> {
        self.check_resumed()?;
        self.inner.detach(guid)
    }
}

impl Inner {
    pub(crate) fn new_guid(&self) -> u64 {
        loop {
            let guid = self.host.entropy.u64();
            if guid != 0 {
                return guid;
            }
        }
    }

    pub(crate) fn detach(&self, guid: Guid) -> Result<()> {
        let left = self.run(move |syncing| syncing.leave(guid))?;
        // This must come last: until the txg is on disk, the device is part of the pool.
        match (&left.leaf, left.spare) {
            (Some(leaf), _) if leaf.distributed().is_some() => leaf.close(),
            (Some(leaf), Some(spare)) => self.is_spare_again(leaf, spare),
            (Some(leaf), None) => labels::let_go(leaf),
            (None, _) => {}
        }
        self.autoexpand()
    }

    /// Removes replaced devices and spares that are not needed any more, once the remaining devices hold all data.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn end_replacing(&self) -> Result<()> {
        let tree = self.info().config.tree.clone();
        let is_whole = |vdev: &VdevConfig| {
            vdev.leaves()
                .all(|leaf| self.is_open(leaf.guid.0) && self.members.of(leaf.guid.0).missing().is_empty())
        };
        let mut ended = replacement::ended(&tree, &is_whole);
        ended.dedup();
        for guid in ended {
            match self.detach(guid) {
                Ok(()) | Err(Error::NoReplicas | Error::NoSuchDevice | Error::NotAMirror) => {}
                // It leaves when that is gone.
                Err(Error::CheckpointExists | Error::DiscardingCheckpoint) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The parent of the vdev with this guid, and its position there.
fn parent_mut(vdev: &mut VdevConfig, guid: Guid) -> Option<(&mut VdevConfig, usize)> {
    if let Some(at) = vdev.children.iter().position(|child| child.guid == guid) {
        return Some((vdev, at));
    }
    vdev.children.iter_mut().find_map(|child| parent_mut(child, guid))
}

/// Inserts a vdev above another one. Keys that only top-level vdevs have move to the new one.
fn put_above(vdev: &mut VdevConfig, kind: VdevKind, guid: Guid) {
    let mut above = VdevConfig::new(kind, vdev.id, guid);
    (above.create_txg, above.whole_disk) = (vdev.create_txg, Some(false));
    (above.top, above.zap_top) = (vdev.top.take(), vdev.zap_top.take());
    for key in OF_TOP {
        if let Some(value) = vdev.extra.remove(key) {
            above.extra.insert(key, value);
        }
    }
    std::mem::swap(vdev, &mut above);
    above.id = 0;
    vdev.children = vec![above];
}

/// Replaces `vdev` by its only child.
pub(crate) fn pull_up(vdev: &mut VdevConfig) {
    let mut child = vdev.children.remove(0);
    child.id = vdev.id;
    if vdev.top.is_some() {
        // It keeps the id and guid that labels of other vdevs and block pointers use.
        child.guid = vdev.guid;
    }
    (child.top, child.zap_top) = (vdev.top.take(), vdev.zap_top.take());
    for key in OF_TOP {
        if let Some(value) = vdev.extra.remove(key) {
            child.extra.insert(key, value);
        }
    }
    *vdev = child;
}

/// The path of a leaf as the history has it.
pub(crate) fn said(leaf: &VdevConfig) -> String {
    String::from_utf8_lossy(leaf.path.as_deref().unwrap_or_default()).into_owned()
}

impl Syncing<'_> {
    fn join(&mut self, joining: &Joining) -> Result<()> {
        let Joining { beside, disk, joins, new, above, sequential, distributed } = joining;
        self.state.keeping.check_none()?;
        self.check_not_removing()?;
        let slot = self.slot(*beside)?;
        let top = self.top_of(slot).clone();
        self.check_joining(joining, &top)?;
        self.check_way(joining, slot.top)?;
        if distributed.is_none() {
            let spare = (*joins == Joins::Spare).then_some(*new);
            aux_vdevs::prepare_leaf(disk, spare, self.state.config.version)?;
        }
        let mut leaf = self.new_leaf(joining, &top)?;
        let health: Arc<Health> = self.inner.members.of(new.0);
        let mut missing = TxgRuns::default();
        missing.insert(Txg::INITIAL, Txg(self.txg.0 + TXGS_BEGUN));
        health.set_missing(missing);
        let (parent, at) = parent_mut(&mut self.state.config.tree, *beside).ok_or(Error::NoSuchDevice)?;
        leaf.create_txg = parent.children[at].create_txg;
        let (path, old) = (said(&leaf), said(&parent.children[at]));
        if leaf.path.is_some() && leaf.path == parent.children[at].path {
            parent.children[at].path.as_mut().into_iter().for_each(|path| path.extend_from_slice(OLD));
            parent.children[at].extra.remove("devid");
        }
        let kind = match joins {
            Joins::Mirror => VdevKind::Mirror,
            Joins::Replacing => VdevKind::Replacing,
            Joins::Spare => VdevKind::Spare,
        };
        let group = if parent.kind == kind {
            parent
        } else {
            put_above(&mut parent.children[at], kind, *above);
            &mut parent.children[at]
        };
        leaf.id = group.children.len() as u64;
        group.children.push(leaf);
        self.state.config_dirty = true;
        let mut joined = Leaf::with_health(new.0, disk.clone(), health);
        if let Some(number) = distributed.as_ref().and_then(spare_number) {
            joined = joined.as_distributed(number);
        }
        self.relay(slot.top, top, &[joined]);
        let (what, to) = match joins {
            Joins::Mirror => ("attach", "to"),
            Joins::Replacing => ("replace", "for"),
            Joins::Spare => ("spare in", "for"),
        };
        self.log_internal("vdev attach", &format!("{what} vdev={path} {to} vdev={old}"))?;
        if *sequential { self.begin_rebuild(slot.top) } else { Ok(()) }
    }

    /// Refuses a device that cannot be put there.
    fn check_joining(&mut self, joining: &Joining, top: &TopVdev) -> Result<()> {
        let Joining { beside, disk, joins, .. } = joining;
        let (parent, at) = parent_mut(&mut self.state.config.tree, *beside).ok_or(Error::NoSuchDevice)?;
        replacement::check(parent, at, *joins)?;
        if top.is_log() && *joins == Joins::Spare {
            return Err(Error::SpareForLog);
        }
        let vdev = &self.state.config.tree.children[top.id as usize];
        let is_other = |spare: &VdevConfig| spare.extra.get_u64(TOP_GUID) != Some(top.guid);
        if let Some(spare) = &joining.distributed {
            let number = spare_number(spare);
            let is_part =
                matches!(vdev.kind, VdevKind::Draid { nspares, .. } if number.is_some_and(|it| it < nspares));
            if is_other(spare) || !is_part {
                return Err(Error::OtherDraid);
            }
            if vdev.leaves().any(|leaf| spare_number(leaf) == number) {
                return Err(Error::SpareInUse);
            }
        }
        if label::asize_of(disk.size()) < top.asize_of_leaf() {
            return Err(Error::TooSmall);
        }
        if disk.sector_size() > 1 << top.ashift {
            let why = "its sectors are larger than those of the vdev".to_owned();
            return Err(Error::BadDevice { path: disk.path().to_path_buf(), why });
        }
        Ok(())
    }

    /// Refuses a resilver while devices are rebuilt, and the other way round. A spare joins at once and is resilvered later.
    fn check_way(&self, joining: &Joining, index: usize) -> Result<()> {
        match joining.sequential {
            true => self.check_sequential(index),
            false if joining.joins != Joins::Spare && self.is_rebuilding()? => Err(Error::Rebuilding),
            false => Ok(()),
        }
    }

    /// The configuration of a device that joins.
    fn new_leaf(&mut self, joining: &Joining, top: &TopVdev) -> Result<VdevConfig> {
        let mut leaf = match &joining.distributed {
            Some(listed) => {
                let mut leaf = VdevConfig { top: None, ..listed.clone() };
                leaf.extra.remove("ashift");
                leaf
            }
            None => new_vdevs::new_device(0, joining.new, &joining.disk, Some(top.ashift))?.0,
        };
        leaf.top = None;
        let mos = self.mos();
        if let Some(zaps) = mos.directory_object(ZAPS)? {
            let id = mos.create_zap(&self.tx, ObjectType::ZAP_METADATA, 0)?.id();
            mos.add_int(&self.tx, zaps, id.0)?;
            leaf.zap_leaf = Some(id);
        }
        leaf.extra.insert(if joining.sequential { REBUILT } else { RESILVERED }, self.txg.0);
        if joining.joins == Joins::Spare {
            leaf.extra.insert(IS_SPARE, 1u64);
        }
        Ok(leaf)
    }

    /// Lays the leaves of a top-level vdev out as the configuration says; `more` are open leaves that were not among them.
    pub(crate) fn relay(&mut self, index: usize, mut top: TopVdev, more: &[Leaf]) {
        let config = &self.state.config.tree.children[index];
        let open: Vec<Leaf> = top.leaves().chain(more).cloned().collect();
        let find = |vdev: &VdevConfig| open.iter().find(|leaf| leaf.guid == vdev.guid.0).cloned();
        top.guid = config.guid.0;
        let progress = Progress { motion: top.motion().cloned().unwrap_or_default(), next: self.txg };
        top.shape = shape_of(config, &progress, &find);
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        tops[index] = top;
        let vdevs = Vdevs::new(tops);
        vdevs.set_slow_limit(self.inner.groups.limits.slow_io());
        self.inner.storage.set_vdevs(vdevs);
    }

    fn leave(&mut self, guid: Guid) -> Result<Left> {
        self.state.keeping.check_none()?;
        let slot = self.slot(guid)?;
        let top = self.top_of(slot).clone();
        let root = &mut self.state.config.tree;
        let (parent, at) = parent_mut(root, guid).ok_or(Error::NoSuchDevice)?;
        if !matches!(parent.kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare) {
            return Err(Error::NotAMirror);
        }
        if !top.can_lose(guid.0) {
            return Err(Error::NoReplicas);
        }
        let gone = parent.children.remove(at);
        (0..).zip(&mut parent.children).for_each(|(id, child)| child.id = id);
        let stays = replacement::after_detach(parent, at, &gone);
        let mut renamed = None;
        if parent.children.len() == 1 {
            let own = parent.children[0].guid;
            pull_up(parent);
            renamed = (parent.guid != own && parent.kind.is_leaf()).then_some((own, parent.guid));
        }
        self.state.config_dirty = true;
        self.log_internal("detach", &format!("vdev={}", said(&gone)))?;
        let left = top.leaves().find(|leaf| leaf.guid == guid.0).cloned();
        let mut more = Vec::new();
        if let Some((own, now)) = renamed {
            more.extend(top.leaves().find(|leaf| leaf.guid == own.0).map(|leaf| leaf.renamed(now.0)));
            self.inner.members.rename(own.0, now.0);
            if let Some(listed) = self.state.listed.remove(&own.0) {
                self.state.listed.insert(now.0, listed);
            }
        }
        self.relay(slot.top, top, &more);
        self.state.listed.remove(&guid.0);
        self.inner.members.remove(guid.0);
        if let Some(list) = gone.dtl.filter(|list| list.0 != 0) {
            self.free_list(list)?;
        }
        if let Some(own) = gone.zap_leaf.filter(|own| own.0 != 0) {
            self.free_vdev_zap(own)?;
        }
        if let Some(spare) = stays {
            aux_vdevs::take_off(self.mos(), &self.tx, AuxKind::Spare, spare)?;
        }
        let spare = gone.extra.get_u64(IS_SPARE).is_some_and(|flag| flag != 0).then_some(guid);
        Ok(Left { leaf: left, spare })
    }

    pub(crate) fn free_vdev_zap(&mut self, own: ObjectId) -> Result<()> {
        let mos = self.mos();
        if let Some(zaps) = mos.directory_object(ZAPS)? {
            zap::remove(&mos.object(zaps)?, &self.tx, int_key(own.0).as_bytes())?;
        }
        mos.free(&self.tx, own)
    }
}
