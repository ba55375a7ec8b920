//! `zpool attach` on a raidz vdev: it gets one child more, and its sectors begin to move.
//!
//! From:   the administrator, by way of the command line.
//! To:     the configuration in MOS and labels, the vdevs in `storage`; the sync then moves the sectors (`sync/reflow.rs`).
//! Source: docs/format/11-redundancy.md §11.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dmu::zap;
use format::config::{VdevConfig, VdevKind};
use format::zap::Value;
use format::{Guid, ObjectType, features, label};
use storage::host::Disk;
use storage::interrupt;
use storage::layout::{Grown, Raidz, Spread};
use storage::{Leaf, TopVdev};

use crate::pool::Pool;
use crate::reflow::{BYTES_COPIED, END_TIME, MOVING, Reflow, START_TIME, STATE, Word, end_of};
use crate::shape::{EXPANDING, is_expanding};
use crate::state::Syncing;
use crate::tree_change::{ZAPS, said};
use crate::{Error, Result, aux_vdevs, new_vdevs};

/// The first bytes of the boot loader of FreeBSD, if it lies in the boot area.
const LOADER: [u8; 5] = [0xeb, 0x0e, b'B', b'T', b'X'];

/// How often is looked whether sectors move again that could not a moment ago.
const GLANCE: Duration = Duration::from_millis(20);

impl Pool {
    /// Adds `disk` to the raidz vdev `guid`. From then on the sectors of the vdev move, a part with each txg, until they lie on all its
    /// devices ([`Pool::expansion`]). A scrub is to follow (crate `scan`).
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`], [`Error::NotAttachable`]; [`Error::RaidzExpansionOff`]; [`Error::Expanding`]; a device of the vdev is not
    /// whole, or the new one does not fit.
    pub fn widen(&self, guid: Guid, disk: Arc<dyn Disk>) -> Result<()> {
        let is_known = |leaf: &Leaf| leaf.disk.path() == disk.path();
        if self.inner.storage.vdevs().leaves().any(is_known) {
            return Err(Error::Busy { path: disk.path().to_path_buf(), holder: Some("this pool".into()) });
        }
        let new = Guid(self.inner.new_guid());
        self.run(move |syncing| syncing.widen(guid, new, &disk))
    }

    /// Bytes that still are to be moved of a raidz vdev that gets a child; at least one while that goes on.
    ///
    /// # Errors
    /// The MOS cannot be read.
    pub fn unreflowed(&self) -> Result<u64> {
        let running = self.expansion()?.filter(|it| it.ended.is_none());
        Ok(running.map_or(0, |it| it.allocated.saturating_sub(it.copied).max(1)))
    }

    /// Whether an expansion has ended since the last call: a scrub is to follow.
    #[must_use]
    pub fn take_expanded(&self) -> bool {
        let has_ended = self.inner.reflow_news.take_ended();
        if has_ended {
            // They waited for the end.
            self.resume_treatments();
        }
        has_ended
    }

    /// Waits until no sector of a raidz vdev is on its way, or none can move.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; [`Error::Stopped`]; [`Error::ExpansionWaits`].
    pub fn wait_widened(&self) -> Result<()> {
        let mut copied = 0;
        while let Some(it) = self.expansion()? {
            if it.ended.is_some() {
                // The txg with the end may be on its way still. The scrub that follows is known when that txg is on the
                // disks.
                return self.sync();
            }
            if it.waits {
                return Err(Error::ExpansionWaits);
            }
            if interrupt::is_wanted() {
                return Err(Error::Interrupted);
            }
            if std::mem::replace(&mut copied, it.copied) == it.copied {
                std::thread::sleep(GLANCE);
            }
            self.sync()?;
        }
        Ok(())
    }
}

impl Syncing<'_> {
    /// Refuses other changes of the devices while a raidz vdev is being expanded.
    pub(crate) fn check_not_expanding(&self) -> Result<()> {
        if self.state.reflow.is_some() { Err(Error::Expanding) } else { Ok(()) }
    }

    fn widen(&mut self, guid: Guid, new: Guid, disk: &Arc<dyn Disk>) -> Result<()> {
        self.state.keeping.check_none()?;
        self.check_not_removing()?;
        let tops = &self.state.config.tree.children;
        let index = tops.iter().position(|top| top.guid == guid).ok_or(Error::NoSuchDevice)?;
        let nparity = self.check_widening(index, disk)?;
        let top = self.inner.storage.vdevs().tops()[index].clone();
        let own = self.top_zap(top.id)?;
        aux_vdevs::prepare_leaf(disk, None, self.state.config.version)?;
        let leaf = self.new_child(new, disk, &top)?;
        let features = self.state.features.as_mut().ok_or(Error::RaidzExpansionOff)?;
        features.adjust(&self.tx, &features::RAIDZ_EXPANSION, 1)?;
        let own = self.mos().object(own)?;
        for (key, value) in [(STATE, MOVING), (START_TIME, self.inner.host.clock.now().0)] {
            zap::update(&own, &self.tx, key, &Value::from_u64(value))?;
        }
        for key in [END_TIME, BYTES_COPIED] {
            if zap::lookup(&own, key)?.is_some() {
                zap::remove(&own, &self.tx, key)?;
            }
        }
        let path = said(&leaf);
        let config = &mut self.state.config.tree.children[index];
        config.children.push(leaf);
        config.extra.insert(EXPANDING, format::nvlist::NvValue::Boolean);
        self.state.config_dirty = true;
        let health = self.inner.members.of(new.0);
        let (vdev, since) = (top.id, self.txg);
        self.relay(index, top, &[Leaf::with_health(new.0, disk.clone(), health)]);
        let (word, copied, noted, obstacle) = (Word::default(), 0, 0, None);
        self.state.reflow = Some(Reflow { vdev, word, since, copied, noted, obstacle });
        self.log_expansion("started", vdev)?;
        self.log_internal("vdev attach", &format!("attach vdev={path} to vdev=raidz{nparity}-{vdev}"))
    }

    /// Notes in the history what became of an expansion, with the number of devices that the vdev has now.
    pub(crate) fn log_expansion(&self, what: &str, vdev: u32) -> Result<()> {
        let width = self.state.config.tree.children[vdev as usize].children.len();
        let text = format!("{} vdev {vdev} new width {width}", self.inner.name());
        self.log_internal(&format!("raidz vdev expansion {what}"), &text)
    }

    /// Refuses a vdev that cannot be expanded, with the checks in the order of OpenZFS. Returns the number of parity
    /// columns.
    fn check_widening(&self, index: usize, disk: &Arc<dyn Disk>) -> Result<u8> {
        let config = &self.state.config.tree.children[index];
        let VdevKind::Raidz { nparity } = config.kind else { return Err(Error::NotAttachable) };
        let enabled =
            self.state.features.as_ref().is_some_and(|all| all.is_enabled(&features::RAIDZ_EXPANSION));
        if !enabled || config.zap_top.is_none_or(|own| own.0 == 0) {
            return Err(Error::RaidzExpansionOff);
        }
        if self.state.config.tree.walk().any(is_expanding) {
            return Err(Error::Expanding);
        }
        let top = &self.inner.storage.vdevs().tops()[index];
        // Blocks are still born that do not count with the child that came last.
        if top.spread().and_then(Spread::complete_since).is_some_and(|since| since > self.txg) {
            return Err(Error::Expanding);
        }
        let bad = |why: &str| Error::BadDevice { path: disk.path().to_path_buf(), why: why.to_owned() };
        if disk.size() < label::MIN_DEVICE {
            return Err(bad(&format!("it has {} bytes, a vdev needs 64 MiB", disk.size())));
        }
        if label::asize_of(disk.size()) < top.asize_of_leaf() {
            return Err(Error::TooSmall);
        }
        if disk.sector_size() > 1 << top.ashift {
            return Err(bad("its sectors are larger than those of the vdev"));
        }
        let wide = Raidz::new(top.ashift, config.children.len() + 1, nparity.into());
        let layout = wide.and_then(|now| Grown::in_motion(now, &[], Arc::default()));
        if layout.and_then(|layout| layout.scratch()).is_none_or(|scratch| scratch > end_of(top)) {
            return Err(Error::NotAttachable);
        }
        if config.children.iter().any(|child| !child.kind.is_leaf()) || !self.inner.storage.is_whole(top.id) {
            return Err(Error::RaidzNotWhole);
        }
        for leaf in top.leaves() {
            let mut begin = vec![0; 1 << top.ashift];
            if leaf.disk.read_at(&mut begin, label::BOOT_START).is_err() {
                return Err(Error::RaidzNotWhole);
            }
            if begin.starts_with(&LOADER) {
                return Err(Error::BootAreaInUse);
            }
        }
        Ok(nparity)
    }

    /// The configuration of the new child.
    fn new_child(&mut self, new: Guid, disk: &Arc<dyn Disk>, top: &TopVdev) -> Result<VdevConfig> {
        let (mut leaf, _) = new_vdevs::new_device(0, new, disk, Some(top.ashift))?;
        leaf.top = None;
        leaf.id = self.state.config.tree.children[top.id as usize].children.len() as u64;
        leaf.create_txg = Some(self.txg);
        let mos = self.mos();
        if let Some(zaps) = mos.directory_object(ZAPS)? {
            let id = mos.create_zap(&self.tx, ObjectType::ZAP_METADATA, 0)?.id();
            mos.add_int(&self.tx, zaps, id.0)?;
            leaf.zap_leaf = Some(id);
        }
        Ok(leaf)
    }
}

impl crate::Inner {
    /// Whether nothing of an expansion can move now.
    pub(crate) fn expansion_waits(&self, vdev: u32, copied: u64) -> bool {
        let most = self.groups.limits.reflow_max.load(Ordering::Relaxed);
        let is_suspended = most != 0 && copied >= most;
        is_suspended || !self.storage.is_whole(vdev) || self.reflow_news.is_hindered()
    }
}
