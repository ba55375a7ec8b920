//! Root blocks of heads that a change of the DSL makes: of new datasets and of clones.
//!
//! Source: docs/format/06-mos-dsl.md §6, §9.5; 10-create-checklist.md §B.

use dmu::{BlockIo, Objset};
use dsl::info::DatasetInfo;
use dsl::new_head::{NewFilesystem, NewHead};
use dsl::promises::Own;
use dsl::settings::settings;
use dsl::{Features, change, version};
use format::objset::{self, ObjsetType, ZilHeader};
use format::{ObjectId, features};

use crate::Result;
use crate::props::DatasetKind;
use crate::state::Syncing;
use crate::state::{Dataset, Found};

impl Syncing<'_> {
    /// Makes the first objects of a new head, and writes it.
    pub(super) fn write_new_head(&mut self, id: ObjectId, new: NewHead) -> Result<()> {
        let NewHead { dir, name, os_type, filesystem, initialise, sealed } = new;
        // Only file systems have user accounting. For a raw receive, it is computed when the dataset is first opened.
        let owned = os_type == ObjsetType::Zfs && sealed.is_none();
        let features = self.state.features.as_ref();
        let enabled = |feature| owned && features.is_some_and(|f| f.is_enabled(feature));
        let (userobj, project) = (enabled(&features::USEROBJ_ACCOUNTING), enabled(&features::PROJECT_QUOTA));
        let at = self.state.config.version;
        let mut flags = if owned && at >= 15 { objset::FLAG_USER_ACCOUNTING } else { 0 };
        if userobj {
            flags |= objset::FLAG_USEROBJ_ACCOUNTING;
        }
        if project {
            flags |= objset::FLAG_PROJECT_QUOTA;
        }
        let size = if at >= 15 { objset::SIZE_V3 } else { objset::SIZE_V1 };
        let keys = match sealed {
            None => self.inner.keyring.keys_of(self.mos(), dir, &name)?,
            Some(_) => None,
        };
        let io = BlockIo::with_keys(self.inner.storage.clone(), keys);
        let objset = Objset::create(io, self.inner.budget.clone(), os_type, flags, size);
        if let Some(keys) = &sealed {
            objset.arrive_sealed(keys)?;
        }
        let newest = version::newest_filesystem(at);
        let filesystem = NewFilesystem { version: filesystem.version.min(newest), ..filesystem };
        initialise(&objset, &self.tx, &filesystem)?;
        self.write_head((id, dir, name), objset)?;
        for (feature, wanted) in
            [(&features::USEROBJ_ACCOUNTING, userobj), (&features::PROJECT_QUOTA, project)]
        {
            if wanted {
                self.change(|dsl| dsl.mark_dataset(id, feature))?;
            }
        }
        Ok(())
    }

    /// A head that starts from a snapshot's root must not keep the intent log header of that root.
    pub(super) fn forget_log(&mut self, id: ObjectId, dir: ObjectId, name: String) -> Result<()> {
        let root = self.mos().dataset(id)?.bp;
        if root.is_hole() {
            return Ok(());
        }
        let objset = self.inner.view().objset(root)?;
        if objset.synced_root().0.zil_header == ZilHeader::default() {
            return Ok(());
        }
        objset.clear_log();
        self.write_head((id, dir, name), objset)
    }

    /// Writes the objset of a head that is not open.
    fn write_head(&mut self, (id, dir_id, name): (ObjectId, ObjectId, String), objset: Objset) -> Result<()> {
        let mos = self.mos();
        let info = DatasetInfo {
            name,
            kind: DatasetKind::Filesystem,
            dir_id,
            id,
            dir: mos.dir(dir_id)?,
            phys: mos.dataset(id)?,
            mark: None,
        };
        // Uses the features of the syncing txg, which may differ from the published ones.
        let counts = self.state.features.as_ref().map(Features::all);
        let (settings, policy) = settings(&self.inner.view(), &info, counts)?;
        let marks = change::marks(mos, id)?;
        let found = Found { objset, settings, policy, own: Own::default(), marks };
        let dataset = Dataset::new(self.inner.clone(), &info, found);
        let frozen = dataset.objset().freeze();
        self.sync_and_settle(&dataset, frozen)
    }
}
