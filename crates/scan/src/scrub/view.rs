//! A view: the trees of a synced txg, read while the pool changes.

use std::sync::Arc;

use dmu::Objset;
use dsl::walk::Root;
use format::blkptr::BlockPtr;
use format::dsl_dataset::DslDataset;
use format::{ByteOrder, ObjectId, ObjectType, Txg};

use pool::{Error, Inner, Result};

const LE: ByteOrder = ByteOrder::Little;

/// The trees of one synced txg.
pub(super) struct View {
    pub(super) txg: Txg,
    root: BlockPtr,
    mos: Objset,
    /// All datasets and the MOS, if they were asked for.
    pub(super) roots: Vec<Root>,
}

fn root_of(id: ObjectId, phys: &DslDataset) -> Root {
    Root::new(id, format!("dataset {id}"), phys.bp, phys.prev_snap_txg)
}

impl View {
    fn fresh(inner: &Inner) -> Result<View> {
        let (txg, root) = inner.committed();
        let mos = Objset::open(inner.storage().clone(), Arc::default(), root)?;
        Ok(View { txg, root, mos, roots: Vec::new() })
    }

    fn mos_root(&self) -> Root {
        Root::new(ObjectId(0), "the MOS", self.root, Txg(0))
    }

    /// The root of the MOS or of a dataset; `None` where it is not there. The blocks read are valid while the view holds.
    pub(super) fn root(&self, owner: ObjectId) -> Result<Option<Root>> {
        if owner.0 == 0 {
            return Ok(Some(self.mos_root()));
        }
        let object = match self.mos.object(owner) {
            Ok(object) => object,
            Err(dmu::Error::NoObject(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        object.with_bonus(|kind, raw| match kind {
            ObjectType::DSL_DATASET => {
                let phys = DslDataset::decode(raw, LE).map_err(Error::corrupt(owner))?;
                Ok(Some(root_of(owner, &phys)))
            }
            _ => Ok(None),
        })
    }

    fn list(&mut self) -> Result<()> {
        self.roots.push(self.mos_root());
        for entry in self.mos.synced_objects() {
            let (id, dnode) = entry?;
            if dnode.bonus_type == ObjectType::DSL_DATASET {
                let phys = DslDataset::decode(&dnode.bonus, LE).map_err(Error::corrupt(id))?;
                self.roots.push(root_of(id, &phys));
            }
        }
        Ok(())
    }

    /// `last` while it is valid, otherwise a newer view; `None` when `goes_on` returns false.
    pub(super) fn sure(
        inner: &Inner,
        last: Option<View>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<View>> {
        View::sure_of(inner, last, goes_on, &|_| Ok(()))
    }

    /// As [`View::sure`], with the roots of all datasets.
    pub(super) fn sure_of_all(
        inner: &Inner,
        last: Option<View>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<View>> {
        View::sure_of(inner, last, goes_on, &View::list)
    }

    fn sure_of(
        inner: &Inner,
        last: Option<View>,
        goes_on: &dyn Fn() -> bool,
        prepare: &dyn Fn(&mut View) -> Result<()>,
    ) -> Result<Option<View>> {
        let mut last = last;
        while goes_on() {
            if let Some(view) = last.take().filter(|view| view.holds(inner)) {
                return Ok(Some(view));
            }
            let (before, _) = inner.committed();
            let fresh = View::fresh(inner).and_then(|mut view| prepare(&mut view).map(|()| view));
            match fresh {
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
        // Space that the next txg frees can be used by the third.
        inner.open_txg().0 <= self.txg.0 + 3
    }
}
