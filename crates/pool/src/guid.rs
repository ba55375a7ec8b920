//! Giving a pool another guid, so that it can be used beside a copy of itself.
//!
//! The new guid takes effect with the uberblock of its txg, whose guid sum contains it (01 §6). After a power cut before
//! that, some labels have the old guid and some the new one. `discover` finds such pools by the old guid.

use format::Guid;

use crate::pool::Pool;
use crate::state::Syncing;
use crate::{Error, Result};

impl Pool {
    /// Gives the pool the guid `wanted`, or a random one. Returns the new guid.
    ///
    /// # Errors
    /// [`Error::GuidTaken`] for 0 and the guid of a vdev of this pool; [`Error::DeviceAway`]; [`Error::ReadOnly`], or it
    /// cannot be written.
    pub fn set_guid(&self, wanted: Option<Guid>) -> Result<Guid> {
        self.check_writable()?;
        self.run(move |syncing| syncing.set_guid(wanted))
    }
}

impl Syncing<'_> {
    fn set_guid(&mut self, wanted: Option<Guid>) -> Result<Guid> {
        self.state.keeping.check_none()?;
        self.check_all_here()?;
        let entropy = &self.inner.host.entropy;
        let is_free = |guid: &Guid| guid.0 != 0 && self.state.config.tree.find(*guid).is_none();
        let new = match wanted {
            Some(guid) => Some(guid).filter(is_free),
            None => std::iter::repeat_with(|| Guid(entropy.u64())).find(is_free),
        };
        let new = new.ok_or(Error::GuidTaken)?;
        self.log_command()?;
        let old = std::mem::replace(&mut self.state.config.pool_guid, new);
        self.state.config.tree.guid = new;
        self.state.config_dirty = true;
        self.inner.happened("pool_reguid", &[]);
        tracing::info!(old = old.0, new = new.0, "the pool has a new guid");
        Ok(new)
    }

    /// The labels of a device that is away keep the old guid: it would never again belong to the pool.
    fn check_all_here(&self) -> Result<()> {
        let is_here = |guid: Guid| self.inner.is_open(guid.0) && !self.inner.members.of(guid.0).has_failed();
        let mut leaves = self.state.config.tree.leaves();
        if leaves.all(|leaf| is_here(leaf.guid)) { Ok(()) } else { Err(Error::DeviceAway) }
    }
}
