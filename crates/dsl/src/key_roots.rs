//! Which datasets have a user's key of their own, after they were received raw.
//!
//! A raw stream brings the keys of a dataset wrapped with the user's key of its encryption root where it was sent, so that it is
//! known only to the package which of them have the same. No key is needed here: nothing is wrapped anew.
//!
//! Source: docs/format/13-encryption.md §6, §7.2.

use format::ObjectId;

use crate::change::Change;
use crate::props::Value;
use crate::{KeyError, Result, keys, tree};

impl Change<'_> {
    /// The dataset `name` becomes an encryption root; those below that had the same root take their key from it.
    ///
    /// # Errors
    /// [`KeyError::NotEncrypted`], or the DSL cannot be read.
    pub fn become_key_root(&mut self, name: &str) -> Result<()> {
        let dir = tree::dir_of(self.mos(), &self.view.pool, name)?;
        let here = keys::of(self.mos(), dir)?.ok_or_else(|| KeyError::NotEncrypted(name.to_owned()))?;
        if here.root == dir {
            return Ok(());
        }
        self.move_key_roots(dir, here.root, dir)?;
        self.set_property(dir, "keylocation", Some(&Value::Text("prompt".into())))
    }

    /// The encryption root `name` takes its key from the dataset above, and all that took theirs from it do, too.
    ///
    /// # Errors
    /// [`KeyError::NotEncrypted`]: it or the dataset above is not; or the DSL cannot be read.
    pub fn take_key_from_above(&mut self, name: &str) -> Result<()> {
        let mos = self.mos();
        let dir = tree::dir_of(mos, &self.view.pool, name)?;
        let not_encrypted = || KeyError::NotEncrypted(name.to_owned());
        let here = keys::of(mos, dir)?.ok_or_else(not_encrypted)?;
        let above = keys::of(mos, mos.dir(dir)?.parent)?.ok_or_else(not_encrypted)?;
        if here.root != dir {
            return Ok(());
        }
        self.move_key_roots(dir, dir, above.root)?;
        self.set_property(dir, "keylocation", None)
    }

    /// All at and below `dir` with the root `from` have the root `to` from now on.
    fn move_key_roots(&mut self, dir: ObjectId, from: ObjectId, to: ObjectId) -> Result<()> {
        let mut queue = vec![dir];
        while let Some(dir) = queue.pop() {
            let Some(here) = keys::of(self.mos(), dir)? else { continue };
            if here.root == from {
                self.set_key_root(here.id, to)?;
            }
            queue.extend(tree::children(self.mos(), dir)?.into_iter().map(|(_, child)| child));
        }
        Ok(())
    }
}
