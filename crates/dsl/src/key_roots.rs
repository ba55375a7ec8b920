//! Setting the encryption roots of datasets that were received raw.
//!
//! A raw stream brings the keys of a dataset wrapped with the user's key of the sender's encryption root. Only the
//! replication stream says which datasets share one key. No key is needed here, because no key is wrapped again.
//!
//! Source: docs/format/13-encryption.md §6, §7.2.

use format::ObjectId;

use crate::change::Change;
use crate::props::Value;
use crate::{KeyError, Result, keys, tree};

impl Change<'_> {
    /// Makes the dataset `name` an encryption root. Datasets below it with the same root now inherit from it.
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

    /// Lets the encryption root `name` inherit its key from the dataset above. Datasets that inherited from it follow.
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

    /// Changes the encryption root of all directories at and below `dir` from `from` to `to`.
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
