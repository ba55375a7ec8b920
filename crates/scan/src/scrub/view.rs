//! A view: the trees of a synced txg, read while the pool changes.

use std::sync::Arc;

use dmu::Objset;
use dsl::walk::Root;
use format::dsl_dataset::DslDataset;
use format::{ByteOrder, ObjectId, ObjectType, Txg};

use pool::{Error, Inner, Result};

/// The trees of one synced txg.
pub(super) struct View {
    pub(super) txg: Txg,
    pub(super) roots: Vec<Root>,
}

impl View {
    fn fresh(inner: &Inner) -> Result<View> {
        let (txg, root) = inner.committed();
        let mos = Objset::open(inner.storage.clone(), Arc::default(), root)?;
        let mut roots = vec![Root::new(ObjectId(0), "the MOS", root, Txg(0))];
        for entry in mos.synced_objects() {
            let (id, dnode) = entry?;
            if dnode.bonus_type != ObjectType::DSL_DATASET {
                continue;
            }
            let phys = DslDataset::decode(&dnode.bonus, ByteOrder::Little).map_err(Error::corrupt(id))?;
            roots.push(Root::new(id, format!("dataset {id}"), phys.bp, phys.prev_snap_txg));
        }
        Ok(View { txg, roots })
    }

    /// `last` while it is valid, otherwise a newer view; `None` when `goes_on` returns false.
    pub(super) fn sure(
        inner: &Inner,
        last: Option<View>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<View>> {
        let mut last = last;
        while goes_on() {
            if let Some(view) = last.take().filter(|view| view.holds(inner)) {
                return Ok(Some(view));
            }
            let (before, _) = inner.committed();
            match View::fresh(inner) {
                Ok(view) => last = Some(view),
                // The root was overwritten during the read; otherwise the error is real.
                Err(error) if inner.open_txg().0 <= before.0 + 3 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(None)
    }

    /// Whether no block of this view can have been overwritten yet.
    pub(super) fn holds(&self, inner: &Inner) -> bool {
        // What the next txg frees is free for the third.
        inner.open_txg().0 <= self.txg.0 + 3
    }
}
