//! Upgrading pools of a legacy version: makes the objects that newer versions need.
//!
//! Source: docs/format/01-labels-uberblock.md §10; 06-mos-dsl.md §6, §7.3.

use format::config::VERSION_FEATURES;
use format::{ObjectId, ObjectType};

use crate::change::Change;
use crate::features::Features;
use crate::{Result, history, tree, version};

impl Change<'_> {
    /// Makes the objects that versions after `from` up to `to` need.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub fn upgrade(&mut self, from: u64, to: u64) -> Result<()> {
        let reaches = |first: u64| from < first && to >= first;
        if reaches(version::HISTORY) && self.mos().directory_object("history")?.is_none() {
            history::create(self.mos(), self.tx, self.view.room.dspace)?;
        }
        if reaches(version::ORIGIN) {
            self.upgrade_origins()?;
        }
        if reaches(version::DEADLISTS) {
            self.upgrade_clones()?;
        }
        if reaches(VERSION_FEATURES) {
            *self.features = Some(Features::create(self.mos(), self.tx)?);
        }
        Ok(())
    }

    /// All directories but the special ones.
    fn every_dir(&self) -> Result<Vec<ObjectId>> {
        let mos = self.mos();
        let (mut found, mut next) = (Vec::new(), vec![tree::root_dir(mos)?]);
        while let Some(dir) = next.pop() {
            next.extend(tree::children(mos, dir)?.into_iter().map(|(_, child)| child));
            found.push(dir);
        }
        Ok(found)
    }

    /// Makes `$ORIGIN@$ORIGIN` the origin of all datasets, and stores the clones of all snapshots.
    fn upgrade_origins(&mut self) -> Result<()> {
        let dirs = self.every_dir()?;
        self.create_origin(tree::root_dir(self.mos())?)?;
        let common = self.origin_of_all()?;
        for dir_id in dirs {
            let mos = self.mos();
            let mut dir = mos.dir(dir_id)?;
            if dir.head_dataset.0 == 0 {
                continue;
            }
            // The oldest of the line: a snapshot, or the head if it has none.
            let (mut id, mut phys) = (dir.head_dataset, mos.dataset(dir.head_dataset)?);
            let mut origin = ObjectId(0);
            while phys.prev_snap.0 != 0 {
                let prev = mos.earlier(&phys)?;
                if prev.next_snap != id {
                    origin = phys.prev_snap;
                    break;
                }
                (id, phys) = (phys.prev_snap, prev);
            }
            if origin.0 == 0 {
                origin = common;
                let mut first = mos.dataset(common)?;
                first.num_children += 1;
                (phys.prev_snap, phys.prev_snap_txg) = (common, first.creation_txg);
                mos.put_dataset(self.tx, common, &first)?;
                mos.put_dataset(self.tx, id, &phys)?;
                dir.origin = common;
                mos.put_dir(self.tx, dir_id, &dir)?;
            }
            let mut snap = mos.dataset(origin)?;
            if snap.next_clones.0 == 0 {
                snap.next_clones = mos.create_zap(self.tx, ObjectType::NEXT_CLONES, 0)?.id();
                mos.put_dataset(self.tx, origin, &snap)?;
            }
            mos.add_int(self.tx, snap.next_clones, id.0)?;
        }
        Ok(())
    }

    /// Stores the clones of all directories, and makes the list of blocks to free.
    fn upgrade_clones(&mut self) -> Result<()> {
        let dirs = self.every_dir()?;
        self.create_free(tree::root_dir(self.mos())?)?;
        for dir_id in dirs {
            let mos = self.mos();
            let dir = mos.dir(dir_id)?;
            if dir.origin.0 == 0 || dir.head_dataset.0 == 0 {
                continue;
            }
            let home = mos.dataset(dir.origin)?.dir;
            let mut above = mos.dir(home)?;
            if above.clones.0 == 0 {
                above.clones = mos.create_zap(self.tx, ObjectType::DSL_CLONES, 0)?.id();
                mos.put_dir(self.tx, home, &above)?;
            }
            mos.add_int(self.tx, above.clones, dir.head_dataset.0)?;
        }
        Ok(())
    }
}
