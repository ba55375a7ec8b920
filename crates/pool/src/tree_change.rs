//! Devices that join and leave a pool's mirrors: `zpool attach`, `detach` and `replace`.
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
use storage::{Health, Leaf, Shape, TopVdev, TxgRuns, Vdevs};

use crate::pool::{Inner, Pool};
use crate::state::Syncing;
use crate::{Error, Result, labels, new_vdevs};

/// The list of vdev ZAPs in the object directory.
pub(crate) const ZAPS: &str = "com.delphix:vdev_zap_map";
/// A new device lacks what was written up to this many txgs after the one that attaches it: logs may be written for these already.
const TXGS_BEGUN: u64 = 3;
/// What of a top-level vdev moves to the vdev that takes its place.
const OF_TOP: [&str; 2] = ["allocation_bias", "non_allocating"];

/// What a new device becomes beside the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joins {
    Mirror,
    Replacing,
}

/// A device that left, to be wiped and let go of.
struct Left(Option<Leaf>);

impl Pool {
    /// Makes `disk` one more side of the mirror of the leaf `guid`, or the other side of a new one. Until it is
    /// resilvered (crate `scan`), it lacks what was written before.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::BadDevice`]; [`Error::Unsupported`] where no mirror can be.
    pub fn attach(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<()> {
        self.join(guid, disk, Joins::Mirror)
    }

    /// Puts `disk` in place of the leaf `guid`, which leaves the pool when a resilver (crate `scan`) has
    /// written all to the new device.
    ///
    /// # Errors
    /// As [`Pool::attach`].
    pub fn replace(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<()> {
        self.join(guid, disk, Joins::Replacing)
    }

    fn join(&self, guid: Guid, disk: Arc<dyn Disk>, joins: Joins) -> Result<()> {
        let is_known = |leaf: &Leaf| leaf.disk.path() == disk.path();
        if self.inner.storage.vdevs().leaves().any(is_known) {
            return Err(Error::Busy { path: disk.path().to_path_buf(), holder: Some("this pool".into()) });
        }
        let new = Guid(self.inner.new_guid());
        let above = Guid(self.inner.new_guid());
        self.run(move |syncing| syncing.join(guid, &disk, joins, [new, above]))
    }

    /// Takes a leaf out of its mirror. Its labels are wiped.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::NoReplicas`] where the others do not have all that it has; [`Error::NotAMirror`].
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
        let Left(leaf) = self.run(move |syncing| syncing.leave(guid))?;
        // Only now: until the txg was on disk, the device was part of the pool.
        leaf.iter().for_each(let_go);
        self.autoexpand()
    }

    /// Has devices leave that were replaced, once all is on those that replace them.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn end_replacing(&self) -> Result<()> {
        let tree = self.info().config.tree.clone();
        for vdev in tree.walk().filter(|vdev| vdev.kind == VdevKind::Replacing) {
            let Some((newest, older)) = vdev.children.split_last() else { continue };
            let is_whole = self.is_open(newest.guid.0) && self.members.of(newest.guid.0).missing().is_empty();
            if !is_whole {
                continue;
            }
            for old in older {
                match self.detach(old.guid) {
                    Ok(()) | Err(Error::NoReplicas) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Wipes the labels of a device that left the pool, and closes it.
pub(crate) fn let_go(leaf: &Leaf) {
    let wiped = labels::clear(&leaf.disk).map_err(|error| error.to_string());
    if let Err(why) = wiped.and_then(|()| leaf.disk.flush().map_err(|error| error.to_string())) {
        tracing::warn!(why, "the labels of a device that left the pool stay");
    }
    leaf.close();
}

/// The vdev that has the one with this guid as a child, and where.
fn parent_mut(vdev: &mut VdevConfig, guid: Guid) -> Option<(&mut VdevConfig, usize)> {
    if let Some(at) = vdev.children.iter().position(|child| child.guid == guid) {
        return Some((vdev, at));
    }
    vdev.children.iter_mut().find_map(|child| parent_mut(child, guid))
}

/// Puts a vdev above another one, in whose place it comes. What only a top-level vdev has moves to it.
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

/// Puts the only child of `vdev` in its place.
fn pull_up(vdev: &mut VdevConfig) {
    let mut child = vdev.children.remove(0);
    child.id = vdev.id;
    if vdev.top.is_some() {
        // The labels of other top-level vdevs and all pointers know it by what it was.
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

impl Syncing<'_> {
    fn join(
        &mut self,
        guid: Guid,
        disk: &Arc<dyn Disk>,
        joins: Joins,
        [new, above]: [Guid; 2],
    ) -> Result<()> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot).clone();
        let bad = |why: &str| Error::BadDevice { path: disk.path().to_path_buf(), why: why.to_owned() };
        if !matches!(top.shape, Shape::Disk(_) | Shape::Mirror(_)) {
            return Err(Error::Unsupported("attaching or replacing devices of raidz".into()));
        }
        if label::asize_of(disk.size()) < top.asize {
            return Err(Error::TooSmall);
        }
        if disk.sector_size() > 1 << top.ashift {
            return Err(bad("its sectors are larger than those of the vdev"));
        }
        let root = &self.state.config.tree;
        if root.walk().any(|vdev| matches!(vdev.kind, VdevKind::Replacing | VdevKind::Spare)) {
            return Err(Error::Unsupported("another change while a device is being replaced".into()));
        }
        labels::initialise(disk)?;
        let (mut leaf, _) = new_vdevs::new_device(0, new, disk, Some(top.ashift))?;
        leaf.top = None;
        let mos = self.mos();
        if let Some(zaps) = mos.directory_object(ZAPS)? {
            let id = mos.create_zap(&self.tx, ObjectType::ZAP_METADATA, 0)?.id();
            mos.add_int(&self.tx, zaps, id.0)?;
            leaf.zap_leaf = Some(id);
        }
        leaf.extra.insert("resilver_txg", self.txg.0);
        let next = Txg(self.txg.0 + TXGS_BEGUN);
        let mut missing = TxgRuns::default();
        missing.insert(Txg::INITIAL, next);
        let health: Arc<Health> = self.inner.members.of(new.0);
        health.set_missing(missing);
        let (parent, at) = parent_mut(&mut self.state.config.tree, guid).ok_or(Error::NoSuchDevice)?;
        leaf.create_txg = parent.children[at].create_txg;
        let group = match joins {
            Joins::Mirror if parent.kind == VdevKind::Mirror => parent,
            Joins::Mirror => {
                put_above(&mut parent.children[at], VdevKind::Mirror, above);
                &mut parent.children[at]
            }
            Joins::Replacing => {
                put_above(&mut parent.children[at], VdevKind::Replacing, above);
                &mut parent.children[at]
            }
        };
        leaf.id = group.children.len() as u64;
        group.children.push(leaf);
        self.state.config_dirty = true;
        self.relay(slot.top, top, &[Leaf::with_health(new.0, disk.clone(), health)]);
        Ok(())
    }

    /// Lays the leaves of a mirror out as the configuration says; `more` are open leaves that were not among them.
    fn relay(&mut self, index: usize, mut top: TopVdev, more: &[Leaf]) {
        let config = &self.state.config.tree.children[index];
        let open: Vec<Leaf> = top.leaves().chain(more).cloned().collect();
        let find = |guid: Guid| open.iter().find(|leaf| leaf.guid == guid.0).cloned();
        top.guid = config.guid.0;
        top.shape = match config.kind.is_leaf() {
            true => find(config.guid).map_or(Shape::Missing, Shape::Disk),
            false => Shape::Mirror(config.leaves().map(|leaf| find(leaf.guid)).collect()),
        };
        let mut tops = self.inner.storage.vdevs().tops().to_vec();
        tops[index] = top;
        self.inner.storage.set_vdevs(Vdevs::new(tops));
    }

    fn leave(&mut self, guid: Guid) -> Result<Left> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot).clone();
        let root = &mut self.state.config.tree;
        let (parent, at) = parent_mut(root, guid).ok_or(Error::NoSuchDevice)?;
        if !matches!(parent.kind, VdevKind::Mirror | VdevKind::Replacing) {
            return Err(Error::NotAMirror);
        }
        if !top.can_lose(guid.0) {
            return Err(Error::NoReplicas);
        }
        let gone = parent.children.remove(at);
        (0..).zip(&mut parent.children).for_each(|(id, child)| child.id = id);
        let mut renamed = None;
        if parent.children.len() == 1 {
            let own = parent.children[0].guid;
            pull_up(parent);
            renamed = (parent.guid != own && parent.kind.is_leaf()).then_some((own, parent.guid));
        }
        self.state.config_dirty = true;
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
        Ok(Left(left))
    }

    pub(crate) fn free_vdev_zap(&mut self, own: ObjectId) -> Result<()> {
        let mos = self.mos();
        if let Some(zaps) = mos.directory_object(ZAPS)? {
            zap::remove(&mos.object(zaps)?, &self.tx, int_key(own.0).as_bytes())?;
        }
        mos.free(&self.tx, own)
    }
}
