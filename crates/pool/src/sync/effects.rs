//! Changes of datasets and their effects on the open pool.
//!
//! From:   jobs of the sync thread.
//! To:     `dsl`, which changes objects of the MOS; then, in this crate, the open datasets, the intent logs and the
//!         allocator.

use std::sync::atomic::Ordering;

use dsl::change::{Change, Effect};
use dsl::frees;
use format::ObjectId;

use crate::Result;
use crate::state::Syncing;

impl Syncing<'_> {
    /// Changes datasets, then applies the effects of the change to the open pool.
    ///
    /// # Errors
    /// Those of `change`; or an effect cannot be applied.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut Change<'_>) -> Result<T>) -> Result<T> {
        let inner = self.inner;
        let mut under_way = Change {
            view: inner.view(),
            tx: &self.tx,
            features: &mut self.state.features,
            is_used: &|id| inner.open.is_used(id) || inner.held_lists.is_held(id),
            user: inner.terms.user(),
            effects: Vec::new(),
        };
        let done = change(&mut under_way)?;
        for effect in under_way.effects {
            self.carry_out(effect)?;
        }
        Ok(done)
    }

    fn carry_out(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::Closed(id) => self.close(id),
            Effect::Moved { from, to } => self.rename_below(&from, &to),
            Effect::Renamed { id, name } => {
                let open = self.inner.open.get(id);
                open.into_iter().for_each(|dataset| dataset.rename(name.clone()));
            }
            Effect::LogEnded { head, root } => self.free_log_of(head, &root)?,
            Effect::LogMoved { from, to } => {
                // The log goes with its blocks, which belong to the old contents of the head.
                let logged = self.inner.open.logged().remove(&from);
                if let Some(dataset) = logged {
                    self.inner.open.logged().insert(to, dataset);
                }
            }
            Effect::LogOfSnapshot { head, dir, name } => self.forget_log(head, dir, name)?,
            Effect::Snapshotted { head, snapshot } => {
                self.inner.scrub.follow(|progress| progress.snapshotted(head, snapshot, self.txg));
            }
            Effect::Destroyed { id, next } => {
                self.inner.scrub.follow(|progress| progress.destroyed(id, next, self.txg));
            }
            Effect::Swapped(one, other) => {
                self.inner.scrub.follow(|progress| progress.swapped(one, other, self.txg));
            }
            Effect::NewHead { id, new } => self.write_new_head(id, new)?,
            Effect::Freed(blocks) => blocks.iter().try_for_each(|ptr| self.free_block(ptr))?,
            Effect::TreeFreed { root, since } => {
                let inner = self.inner;
                for ptr in frees::blocks_of(&inner.storage, &root, since) {
                    self.free_block(&ptr?)?;
                }
            }
            Effect::Waiting => self.state.freeing = true,
        }
        Ok(())
    }

    /// Removes an unused dataset from the table.
    fn close(&self, id: ObjectId) {
        let open = self.inner.open.forget(id);
        if let Some(dataset) = open {
            dataset.destroyed.store(true, Ordering::Release);
        }
    }

    /// The datasets at `from` and below it have names that begin with `to` now.
    fn rename_below(&self, from: &str, to: &str) {
        for dataset in self.inner.open.all() {
            let name = dataset.name();
            if let Some(rest) = name.strip_prefix(from)
                && (rest.is_empty() || rest.starts_with(['/', '@']))
            {
                dataset.rename(format!("{to}{rest}"));
            }
        }
    }
}
