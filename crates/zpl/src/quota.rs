//! Space and objects by user, group and project, and the quotas on them.
//!
//! From:   the accounting ZAPs, which `dmu` keeps as it syncs; quota ZAPs at the master node.
//! To:     write operations, and `zfs userspace`.
//! Source: docs/format/07-zpl-sa.md §1, §8.
//!
//! Quota checks use the sums of the last sync plus the bytes written since (`pending.rs`). The write that reaches the quota
//! succeeds, and the next one is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use dmu::{NewObject, zap};
use format::objset::{FLAG_PROJECT_QUOTA, FLAG_USER_ACCOUNTING, FLAG_USEROBJ_ACCOUNTING};
use format::zap::Value;
use format::znode::Znode;
use format::{ObjectId, ObjectType};
use pool::Hold;

use crate::fs::{MASTER_NODE, NAME_COST};
use crate::legacy::USER_SPACE;
use crate::owner::{Amount, NO_PROJECT, OBJECTS, Owner, Quotas, Usage, owners_of};
use crate::{Error, Filesystem, Result};

/// At a quota, a change waits for at most this many syncs. Other changes may take the freed space first.
const QUOTA_WAITS: u32 = 8;

impl Filesystem {
    /// The quotas as they are set now.
    fn quotas(&self) -> Result<Arc<Quotas>> {
        let revision = self.inner.dataset.revision();
        let known = self.inner.quotas.read().clone();
        if let Some(known) = known.filter(|known| known.revision == revision) {
            return Ok(known);
        }
        let node = self.inner.objset.object(MASTER_NODE)?;
        let mut quotas = Quotas { revision, ..Quotas::default() };
        for owner in Owner::ALL {
            for amount in Amount::ALL {
                let (key, default) = owner.keys(amount);
                let object = match zap::lookup_u64(&node, key.as_bytes())?.filter(|&id| id != 0) {
                    Some(id) => Some(self.inner.objset.object(ObjectId(id))?),
                    None => None,
                };
                let default = zap::lookup_u64(&node, default.as_bytes())?.unwrap_or(0);
                quotas.any |= object.is_some() || default > 0;
                quotas.limits[owner as usize][amount as usize] = (object, default);
            }
        }
        let quotas = Arc::new(quotas);
        *self.inner.quotas.write() = Some(quotas.clone());
        Ok(quotas)
    }

    fn is_counted(&self, owner: Owner, amount: Amount) -> bool {
        if self.version() < USER_SPACE {
            return false;
        }
        let flags = self.inner.objset.synced_root().0.flags;
        let needed = match amount {
            Amount::Bytes => FLAG_USER_ACCOUNTING,
            Amount::Objects => FLAG_USER_ACCOUNTING | FLAG_USEROBJ_ACCOUNTING,
        } | if owner == Owner::Project { FLAG_PROJECT_QUOTA } else { 0 };
        flags & needed == needed
    }

    fn used(&self, owner: Owner, amount: Amount, id: u64) -> Result<u64> {
        match self.inner.objset.special(owner.special()) {
            Some(object) => Ok(zap::lookup_u64(&object, amount.used_key(id).as_bytes())?.unwrap_or(0)),
            None => Ok(0),
        }
    }

    fn quota_in(&self, quotas: &Quotas, owner: Owner, amount: Amount, id: u64) -> Result<u64> {
        let (object, default) = &quotas.limits[owner as usize][amount as usize];
        let own = match object {
            Some(object) => zap::lookup_u64(object, format!("{id:x}").as_bytes())?,
            None => None,
        };
        Ok(own.unwrap_or(*default))
    }

    /// Remaining `amount` of the quota of `id`, and its unsynced use; `None` without a quota.
    fn left(&self, quotas: &Quotas, owner: Owner, amount: Amount, id: u64) -> Result<Option<(u64, u64)>> {
        if owner == Owner::Project && (id == NO_PROJECT || !self.has_projects()) {
            return Ok(None);
        }
        let quota = self.quota_in(quotas, owner, amount, id)?;
        if quota == 0 {
            return Ok(None);
        }
        // This order matters: if a sync happens between the two reads, its bytes are counted twice rather than missed.
        let pending = self.inner.pending.sum((owner, amount, id), self.inner.dataset.synced_txg());
        let used = self.used(owner, amount, id)?.saturating_add(pending);
        Ok(Some((quota.saturating_sub(used), pending)))
    }

    /// Counts a new object for the owners of `znode`, if there are quotas.
    pub(crate) fn count_pending_object(&self, tx: &dmu::Tx, znode: &Znode) -> Result<()> {
        self.count_pending(tx, znode, Amount::Objects, || 1)
    }

    /// Counts `bytes` written bytes in blocks of `block` bytes for the owners of `znode`, if there are quotas.
    pub(crate) fn count_pending_bytes(
        &self,
        tx: &dmu::Tx,
        znode: &Znode,
        bytes: u64,
        block: u64,
    ) -> Result<()> {
        self.count_pending(tx, znode, Amount::Bytes, || self.inner.dataset.charge_of(bytes, block))
    }

    fn count_pending(
        &self,
        tx: &dmu::Tx,
        znode: &Znode,
        amount: Amount,
        more: impl FnOnce() -> u64,
    ) -> Result<()> {
        if !self.quotas()?.any {
            return Ok(());
        }
        let (dataset, more) = (&self.inner.dataset, more());
        let synced = dataset.synced_txg();
        for (owner, id) in owners_of(znode) {
            self.inner.pending.add((owner, amount, id), tx.txg(), more, synced);
        }
        Ok(())
    }

    /// Bytes of data that a file can still take before a quota, a reservation or the size of the pool refuses more. Changes
    /// in flight count in full; data counts with all copies and in whole sectors.
    ///
    /// # Errors
    /// As [`Filesystem::read`].
    pub fn space_left(&self, id: ObjectId) -> Result<u64> {
        let left = self.space_left_to_owners(id)?;
        let dataset = &self.inner.dataset;
        let object = self.inner.objset.object(id)?;
        // The single block of a small file can still grow.
        let record = if object.max_blkid() == 0 { dataset.settings().record_size } else { 0 };
        let block = object.block_size().max(record);
        let charge = dataset.charge_of(block, block).max(block);
        Ok((u128::from(left) * u128::from(block) / u128::from(charge)) as u64)
    }

    fn space_left_to_owners(&self, id: ObjectId) -> Result<u64> {
        let mut least = self.inner.dataset.space_left();
        let quotas = self.quotas()?;
        if !quotas.any {
            return Ok(least);
        }
        let znode = {
            let _shared = self.inner.nodes.read(id);
            self.node(id)?.1
        };
        for (owner, id) in owners_of(&znode) {
            if let Some((left, _)) = self.left(&quotas, owner, Amount::Bytes, id)? {
                least = least.min(left);
            }
        }
        Ok(least)
    }

    /// Checks whether a write to a file would be allowed now. Waits for a sync if that may free quota.
    ///
    /// # Errors
    /// [`Error::Quota`] or [`Error::NoSpace`] if not; as [`Filesystem::read`].
    pub fn check_write(&self, id: ObjectId) -> Result<()> {
        self.retrying(|| {
            let znode = {
                let _shared = self.inner.nodes.read(id);
                self.file_for_change(id)?.1
            };
            self.check_space(&znode)?;
            self.begin(Hold::write(0)).map(drop)
        })
    }

    /// Refuses to write into a file whose owners have used up their space.
    pub(crate) fn check_space(&self, znode: &Znode) -> Result<()> {
        self.check_owners(&Amount::ALL[..1], owners_of(znode))
    }

    /// Refuses to give `znode` to owners, new or old, that have used up their space or number of objects.
    pub(crate) fn check_new_owners(&self, before: Option<&Znode>, znode: &Znode) -> Result<()> {
        let before = before.map(owners_of);
        let changed = owners_of(znode).into_iter().filter(|owner| before.is_none_or(|b| !b.contains(owner)));
        self.check_owners(&Amount::ALL, changed)
    }

    fn check_owners(&self, amounts: &[Amount], owners: impl IntoIterator<Item = (Owner, u64)>) -> Result<()> {
        let quotas = self.quotas()?;
        // Logged changes were allowed when they were made.
        if !quotas.any || self.inner.dataset.is_replaying() {
            return Ok(());
        }
        // Read first, so that frees after this moment are not waited for.
        let synced = self.inner.dataset.synced_txg();
        match self.pending_at_a_quota(&quotas, amounts, owners)? {
            None => Ok(()),
            Some(0) if !self.inner.pending.frees_since(synced) => Err(Error::Quota),
            // A sync may lower the counted use: data may compress, and frees are counted.
            Some(_) => Err(Error::Waits(self.inner.dataset.next_sync(QUOTA_WAITS))),
        }
    }

    /// Unsynced use of the owners who have reached a quota; `None` if none has.
    fn pending_at_a_quota(
        &self,
        quotas: &Quotas,
        amounts: &[Amount],
        owners: impl IntoIterator<Item = (Owner, u64)>,
    ) -> Result<Option<u64>> {
        let mut most = None;
        for (owner, id) in owners {
            for amount in amounts {
                if let Some((0, pending)) = self.left(quotas, owner, *amount, id)? {
                    if pending == 0 {
                        return Ok(Some(0));
                    }
                    most = most.max(Some(pending));
                }
            }
        }
        Ok(most)
    }

    /// Use of one user, group or project, as of the last sync.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this amount is not counted in the file system; or its table cannot be read.
    pub fn usage(&self, owner: Owner, amount: Amount, id: u64) -> Result<u64> {
        if !self.is_counted(owner, amount) {
            return Err(Error::Unsupported("space by owner in this file system"));
        }
        self.used(owner, amount, id)
    }

    /// The quota that one user, group or project has of its own; 0: none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn quota(&self, owner: Owner, amount: Amount, id: u64) -> Result<u64> {
        let quotas = self.quotas()?;
        match &quotas.limits[owner as usize][amount as usize].0 {
            Some(object) => Ok(zap::lookup_u64(object, format!("{id:x}").as_bytes())?.unwrap_or(0)),
            None => Ok(0),
        }
    }

    /// The quota of each user, group or project that has none of its own; 0: none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn default_quota(&self, owner: Owner, amount: Amount) -> Result<u64> {
        Ok(self.quotas()?.limits[owner as usize][amount as usize].1)
    }

    /// All owners with usage or a quota, by id. Ids above 32 bits are users of other domains (the domain's index is in the
    /// upper half).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this amount is not counted in the file system; or its table cannot be read.
    pub fn usage_by(&self, owner: Owner) -> Result<BTreeMap<u64, Usage>> {
        if !self.is_counted(owner, Amount::Bytes) {
            return Err(Error::Unsupported("space by owner in this file system"));
        }
        let mut found: BTreeMap<u64, Usage> = BTreeMap::new();
        if let Some(object) = self.inner.objset.special(owner.special()) {
            for entry in zap::entries(&object) {
                let entry = entry?;
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                let (id, objects) = match name.strip_prefix(OBJECTS) {
                    Some(id) => (id, true),
                    None => (name.as_str(), false),
                };
                let Ok(id) = u64::from_str_radix(id, 16) else { continue };
                let usage = found.entry(id).or_default();
                *(if objects { &mut usage.objects } else { &mut usage.bytes }) = entry.number();
            }
        }
        let quotas = self.quotas()?;
        for amount in Amount::ALL {
            let Some(object) = &quotas.limits[owner as usize][amount as usize].0 else { continue };
            for entry in zap::entries(object) {
                let entry = entry?;
                let Ok(id) = u64::from_str_radix(&String::from_utf8_lossy(&entry.name), 16) else { continue };
                let usage = found.entry(id).or_default();
                match amount {
                    Amount::Bytes => usage.byte_quota = entry.number(),
                    Amount::Objects => usage.object_quota = entry.number(),
                }
            }
        }
        Ok(found)
    }

    /// Sets the quota of one user, group or project; 0 removes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where this is not counted; [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn set_quota(&self, owner: Owner, amount: Amount, id: u64, quota: u64) -> Result<()> {
        if !self.is_counted(owner, amount) {
            return Err(Error::Unsupported("quotas by owner in this file system"));
        }
        self.wait_for_room();
        self.retrying(|| self.put_quota(owner, amount, id, quota))?;
        self.inner.dataset.revise();
        Ok(())
    }

    fn put_quota(&self, owner: Owner, amount: Amount, id: u64, quota: u64) -> Result<()> {
        let node = self.inner.objset.object(MASTER_NODE)?;
        let _node = self.inner.nodes.write(MASTER_NODE);
        let (key, _) = owner.keys(amount);
        let known = zap::lookup_u64(&node, key.as_bytes())?.filter(|&id| id != 0);
        if known.is_none() && quota == 0 {
            return Ok(());
        }
        let salt = self.inner.dataset.host().entropy.u64();
        let tx = self.begin(Hold::write(NAME_COST))?;
        let object = match known {
            Some(known) => self.inner.objset.object(ObjectId(known))?,
            None => {
                let new = NewObject::plain(ObjectType::USERGROUP_QUOTA);
                let object = self.inner.objset.create_object(&tx, new)?;
                zap::create(&object, &tx, salt, 0)?;
                zap::update(&node, &tx, key.as_bytes(), &Value::from_u64(object.id().0))?;
                object
            }
        };
        let name = format!("{id:x}");
        match quota {
            0 => zap::discard(&object, &tx, name.as_bytes())?,
            quota => zap::update(&object, &tx, name.as_bytes(), &Value::from_u64(quota))?,
        }
        Ok(())
    }

    /// Sets the quota of all users, groups or projects that have none of their own; 0 removes it.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn set_default_quota(&self, owner: Owner, amount: Amount, quota: u64) -> Result<()> {
        let node = self.inner.objset.object(MASTER_NODE)?;
        let (_, key) = owner.keys(amount);
        self.wait_for_room();
        self.retrying(|| {
            let _node = self.inner.nodes.write(MASTER_NODE);
            let tx = self.begin(Hold::write(NAME_COST))?;
            match quota {
                0 => zap::discard(&node, &tx, key.as_bytes())?,
                quota => zap::update(&node, &tx, key.as_bytes(), &Value::from_u64(quota))?,
            }
            Ok(())
        })?;
        self.inner.dataset.revise();
        Ok(())
    }
}
