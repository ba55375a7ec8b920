//! Hot spares: putting a spare in the place of a device (`zpool replace POOL DEVICE SPARE`, or automatically when a device
//! fails), and returning it.
//!
//! From:   the administrator; the server, which looks at the devices now and then.
//! To:     `tree_change`, which puts a spare beside the device; the label of a spare that is not needed any more.
//! Source: docs/format/11-redundancy.md §9; 12-auxiliary-vdevs.md §4.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use format::Guid;
use format::config::{VdevConfig, VdevKind};
use storage::host::{Access, Disk};
use storage::{Leaf, spare_disk};

use crate::aux_vdevs::{self, AuxKind, AuxVdev};
use crate::opened::open_disk;
use crate::pool::{Inner, Pool};
use crate::replacement::Joins;
use crate::shape::{SECTOR, TOP_GUID};
use crate::tree_change::{Joined, Joining};
use crate::{Error, Result, distributed};

impl Pool {
    /// Puts a spare of the pool in the place of the leaf `guid`.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::SpareInUse`]; as [`Pool::replace`].
    pub fn replace_by_spare(&self, guid: Guid, spare: Guid) -> Result<Joined> {
        self.fill_in(guid, spare, false)
    }

    /// As [`Pool::replace_by_spare`], but the spare is rebuilt in the order of places.
    ///
    /// # Errors
    /// As [`Pool::replace_by_spare`] and [`Pool::replace_sequentially`].
    pub fn replace_by_spare_sequentially(&self, guid: Guid, spare: Guid) -> Result<Joined> {
        self.fill_in(guid, spare, true)
    }

    fn fill_in(&self, guid: Guid, spare: Guid, sequential: bool) -> Result<Joined> {
        let is_meant = |aux: &AuxVdev| aux.kind == AuxKind::Spare && aux.config.guid == spare;
        let aux = self.aux_vdevs()?.into_iter().find(is_meant).ok_or(Error::NoSuchDevice)?;
        if aux.in_use || aux.used_by.is_some() {
            return Err(Error::SpareInUse);
        }
        if aux.is_distributed {
            return self.fill_in_distributed(guid, aux.config, sequential);
        }
        let path = aux.device.ok_or(Error::NoSuchDevice)?;
        let disk = self.inner.take_spare(&path)?;
        let above = Guid(self.inner.new_guid());
        let joins = Joins::Spare;
        let joining = Joining {
            beside: guid,
            disk: disk.clone(),
            joins,
            new: spare,
            above,
            sequential,
            distributed: None,
        };
        let taken = self.take_in(joining);
        if self.inner.info().config.tree.find(spare).is_none() {
            self.inner.hold_aux(disk);
        }
        taken
    }

    fn fill_in_distributed(&self, guid: Guid, spare: VdevConfig, sequential: bool) -> Result<Joined> {
        let name = spare.path.as_deref().unwrap_or_default();
        let vdevs = self.inner.storage.vdevs();
        let own = vdevs.tops().iter().find(|top| spare.extra.get_u64(TOP_GUID) == Some(top.guid));
        let smallest = own.and_then(|top| top.leaves().map(|leaf| leaf.disk.size()).min());
        let size = smallest.ok_or(Error::OtherDraid)?;
        self.take_in(Joining {
            beside: guid,
            disk: spare_disk(Path::new(OsStr::from_bytes(name)), size, SECTOR),
            joins: Joins::Spare,
            new: spare.guid,
            above: Guid(self.inner.new_guid()),
            sequential,
            distributed: Some(spare),
        })
    }

    /// As [`Pool::replace_by_spare`]. A distributed spare is rebuilt in the order of places where that can be.
    ///
    /// # Errors
    /// As [`Pool::replace_by_spare`].
    fn replace_by_spare_as_fits(&self, guid: Guid, spare: Guid) -> Result<Joined> {
        let is_distributed = |aux: &AuxVdev| aux.config.guid == spare && aux.is_distributed;
        if self.aux_vdevs()?.iter().any(is_distributed) {
            match self.fill_in(guid, spare, true) {
                Err(Error::NotSequential | Error::Resilvering) => {}
                done => return done,
            }
        }
        self.fill_in(guid, spare, false)
    }

    /// The failed or missing devices that a spare may replace, and the number of spares that may be free. The caller
    /// tries again when this value changes.
    #[must_use]
    pub fn wants_spares(&self) -> Option<(Vec<Guid>, usize)> {
        let held = self.inner.aux_disks.len() + distributed::idle(&self.inner.info().config.tree);
        let may = held > 0 && self.read_only().is_none() && self.trouble().is_none();
        let lost = if may { self.inner.without_spare() } else { Vec::new() };
        (!lost.is_empty()).then_some((lost, held))
    }

    /// Puts spares in the place of failed or missing devices. Returns the devices that got a spare.
    ///
    /// # Errors
    /// The lists of spares cannot be read. Spares that cannot be used are reported in the log.
    pub fn use_spares(&self) -> Result<(Vec<Guid>, Joined)> {
        let Some((lost, _)) = self.wants_spares() else { return Ok((Vec::new(), Joined(()))) };
        let mut spares: Vec<AuxVdev> = self.aux_vdevs()?;
        spares.retain(|aux| {
            let is_there = aux.device.is_some() || aux.is_distributed;
            aux.kind == AuxKind::Spare && !aux.in_use && aux.used_by.is_none() && is_there
        });
        // Distributed spares come first. Those of other vdevs do not fit.
        spares.sort_by_key(|aux| !aux.is_distributed);
        let tree = self.info().config.tree;
        let mut helped = Vec::new();
        for guid in lost {
            let top = tree.children.iter().find(|top| top.find(guid).is_some()).map(|top| top.guid.0);
            let fits = |aux: &AuxVdev| !aux.is_distributed || aux.config.extra.get_u64(TOP_GUID) == top;
            let fills_in = |aux: &AuxVdev| match self.replace_by_spare_as_fits(guid, aux.config.guid) {
                Ok(Joined(())) => true,
                Err(error) => {
                    tracing::warn!(%error, "a spare cannot fill in");
                    false
                }
            };
            let used = spares.iter().position(|aux| fits(aux) && fills_in(aux));
            if let Some(used) = used {
                spares.remove(used);
                helped.push(guid);
            }
        }
        Ok((helped, Joined(())))
    }
}

impl Inner {
    /// The leaves that need a spare and have none. Leaves that an administrator took offline need none.
    fn without_spare(&self) -> Vec<Guid> {
        let config = self.info().config.clone();
        let mut lost = Vec::new();
        for top in config.tree.children.iter().filter(|top| top.top.as_ref().is_some_and(|top| !top.is_log)) {
            for parent in std::iter::once(&config.tree).chain(top.walk()) {
                let is_helped = matches!(parent.kind, VdevKind::Spare | VdevKind::Replacing);
                let of_top = parent.children.iter().filter(|child| {
                    !is_helped
                        && child.kind.is_leaf()
                        && (parent.kind != VdevKind::Root || child.id == top.id)
                });
                lost.extend(of_top.filter(|leaf| self.is_lost(leaf)).map(|leaf| leaf.guid));
            }
        }
        lost
    }

    fn is_lost(&self, leaf: &VdevConfig) -> bool {
        let has_failed = self.members.of(leaf.guid.0).has_failed();
        !self.is_offline(leaf) && (has_failed || !self.is_open(leaf.guid.0))
    }

    /// Takes the open device of a spare out of the list of held spares.
    fn take_spare(&self, path: &Path) -> Result<Arc<dyn Disk>> {
        match self.aux_disks.take(path) {
            Some(disk) => Ok(disk),
            None => Ok(Arc::new(open_disk(path, Access::ReadWrite { exclusive: true })?)),
        }
    }

    fn hold_aux(&self, disk: Arc<dyn Disk>) {
        self.aux_disks.hold([disk]);
    }

    /// Writes a spare label to a spare that left the tree.
    pub(crate) fn is_spare_again(&self, leaf: &Leaf, guid: Guid) {
        let version = self.info().config.version;
        if let Err(error) = aux_vdevs::label_spare(&leaf.disk, guid, version) {
            tracing::warn!(%error, "a spare keeps the label of a device in use");
        }
        let path = leaf.disk.path().to_path_buf();
        leaf.close();
        match open_disk(&path, Access::ReadWrite { exclusive: true }) {
            Ok(disk) => self.hold_aux(Arc::new(disk)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "a spare is not held"),
        }
    }
}
