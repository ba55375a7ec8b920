//! Giving directories another name or another parent.
//!
//! Source: docs/format/06-mos-dsl.md §4, §8.3.

use dmu::zap;

use crate::change::{Change, Effect};
use crate::sizes::Sizes;
use crate::space::{Category, add_space};
use crate::{Error, Result, tree};

impl Change<'_> {
    /// Moves the directory `from` to `to`, within the pool.
    pub fn rename_dir(&mut self, from: &str, to: &str) -> Result<()> {
        let mos = self.mos();
        let pool = self.view.pool.clone();
        let dir_id = tree::dir_of(mos, &pool, from)?;
        let (new_parent, leaf) = to.rsplit_once('/').ok_or_else(|| Error::Exists(to.to_owned()))?;
        let new_parent = tree::dir_of(mos, &pool, new_parent)?;
        if tree::child(mos, new_parent, leaf)?.is_some() {
            return Err(Error::Exists(to.to_owned()));
        }
        let mut dir = mos.dir(dir_id)?;
        let old_parent = dir.parent;
        let old_leaf = from.rsplit_once('/').map_or(from, |(_, leaf)| leaf);
        if new_parent != old_parent {
            if tree::chain(mos, new_parent)?.contains(&dir_id) {
                return Err(Error::BelowItself);
            }
            self.check_key_moves(dir_id, new_parent)?;
            self.check_move(old_parent, new_parent, dir.used_bytes.max(dir.reserved))?;
            let counted = self.counts_to_move(dir_id, new_parent)?;
            self.adjust_counts(old_parent, counted.map(|count| -count))?;
            self.adjust_counts(new_parent, counted)?;
            let charged = dir.used_bytes.max(dir.reserved);
            let hidden = (charged - dir.used_bytes) as i64;
            let sizes = Sizes {
                used: dir.used_bytes as i64,
                comp: dir.compressed_bytes as i64,
                uncomp: dir.uncompressed_bytes as i64,
            };
            let reserved = Sizes { used: hidden, ..Sizes::default() };
            add_space(mos, self.tx, old_parent, Category::Child, -sizes)?;
            add_space(mos, self.tx, old_parent, Category::ChildReserved, -reserved)?;
            add_space(mos, self.tx, new_parent, Category::Child, sizes)?;
            add_space(mos, self.tx, new_parent, Category::ChildReserved, reserved)?;
        }
        zap::remove(&mos.object(mos.dir(old_parent)?.child_dir_zap)?, self.tx, old_leaf.as_bytes())?;
        let children = mos.object(mos.dir(new_parent)?.child_dir_zap)?;
        zap::insert(&children, self.tx, leaf.as_bytes(), &format::zap::Value::from_u64(dir_id.0))?;
        dir = mos.dir(dir_id)?;
        dir.parent = new_parent;
        mos.put_dir(self.tx, dir_id, &dir)?;
        self.effects.push(Effect::Moved { from: from.to_owned(), to: to.to_owned() });
        Ok(())
    }
}
