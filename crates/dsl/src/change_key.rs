//! Changing the user's key of a dataset. The keys that encrypt its data stay the same; they are wrapped with the new key.
//!
//! Source: docs/format/13-encryption.md §6.

use std::collections::BTreeSet;
use std::sync::Arc;

use codec::crypt::WrappingKey;
use dmu::zap;
use format::ObjectId;
use format::crypt::IV;

use crate::change::Change;
use crate::keys::{self, KeyObject, UserKey};
use crate::new_encryption::OwnKey;
use crate::props::Value;
use crate::{Error, KeyError, Result, tree};

/// Location of the key of an encryption root.
pub const KEYLOCATION: &str = "keylocation";

/// The new key of a dataset.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// A key of its own.
    Own {
        /// That key.
        key: Arc<OwnKey>,
        /// The new `keylocation`. With `None` it stays, or becomes `prompt`.
        location: Option<String>,
    },
    /// Use the key of the dataset above.
    Inherit,
    /// It becomes an encryption root. A stream brought its keys wrapped with its own key already.
    BecomeRoot,
    /// It inherits its key. A stream brought its keys wrapped with the key of the dataset above already.
    Rejoin,
}

/// The key and parameters with which the keys of datasets are wrapped from now on.
struct NewWrapping {
    root: ObjectId,
    /// `None`: they keep their bytes.
    with: Option<(WrappingKey, UserKey)>,
}

impl Change<'_> {
    /// Changes the user's key of the file system or volume `name`, and of all datasets below that inherit from the same
    /// encryption root.
    ///
    /// # Errors
    /// [`KeyError`]; then nothing has changed.
    pub fn change_key(&mut self, name: &str, change: &KeyChange) -> Result<()> {
        let mos = self.mos();
        let dir = tree::dir_of(mos, &self.view.pool, name)?;
        let object = keys::of(mos, dir)?.ok_or_else(|| KeyError::NotEncrypted(name.to_owned()))?;
        self.check_key_change(name, dir, &object, change)?;
        let above = || -> Result<KeyObject> {
            let parent = mos.dir(dir)?.parent;
            keys::of(mos, parent)?.ok_or_else(|| KeyError::ParentNotEncrypted.into())
        };
        let wrapping = match change {
            KeyChange::Own { key, .. } => {
                NewWrapping { root: dir, with: Some((key.key.clone(), key.user_key)) }
            }
            KeyChange::BecomeRoot => NewWrapping { root: dir, with: None },
            KeyChange::Rejoin => NewWrapping { root: above()?.root, with: None },
            KeyChange::Inherit => {
                let above = above()?;
                let key = self.view.keyring.with_key(above.root, WrappingKey::clone);
                let key = key.ok_or(KeyError::ParentNotLoaded)?;
                NewWrapping { root: above.root, with: Some((key, above.user_key)) }
            }
        };
        self.rewrap_below(dir, object.root, &wrapping)?;
        let location = match change {
            KeyChange::Own { location: Some(location), .. } => Some(location.as_str()),
            KeyChange::Own { location: None, .. } if object.root == dir => None,
            KeyChange::Own { .. } | KeyChange::BecomeRoot => Some("prompt"),
            KeyChange::Inherit | KeyChange::Rejoin => {
                self.set_property(dir, KEYLOCATION, None)?;
                self.view.keyring.forget(dir);
                None
            }
        };
        if let Some(location) = location {
            self.set_property(dir, KEYLOCATION, Some(&Value::Text(location.to_owned())))?;
        }
        if let KeyChange::Own { key, .. } = change {
            self.view.keyring.load(dir, key.key.clone());
        }
        Ok(())
    }

    fn check_key_change(
        &self,
        name: &str,
        dir: ObjectId,
        object: &KeyObject,
        change: &KeyChange,
    ) -> Result<()> {
        let mos = self.mos();
        let phys = mos.dir(dir)?;
        let is_clone = phys.origin.0 != 0 && Some(mos.dataset(phys.origin)?.dir) != self.origin_dir()?;
        if is_clone {
            return Err(KeyError::Clone.into());
        }
        if matches!(change, KeyChange::Inherit) && object.root != dir {
            return Err(KeyError::NotItsRoot.into());
        }
        let needs_key = matches!(change, KeyChange::Own { .. } | KeyChange::Inherit);
        if needs_key && !self.view.keyring.is_here(object.root) {
            return Err(KeyError::NotLoaded(name.to_owned()).into());
        }
        Ok(())
    }

    /// The directory of the snapshot `$ORIGIN@$ORIGIN`, the origin of all datasets.
    fn origin_dir(&self) -> Result<Option<ObjectId>> {
        let mos = self.mos();
        tree::child(mos, tree::root_dir(mos)?, "$ORIGIN")
    }

    /// Wraps the keys of `top`, of the directories below it and of clones of these again, if their encryption root is `old`.
    fn rewrap_below(&mut self, top: ObjectId, old: ObjectId, new: &NewWrapping) -> Result<()> {
        let mos = self.mos();
        let (mut dirs, mut objects, mut seen) = (vec![top], BTreeSet::new(), BTreeSet::new());
        while let Some(dir) = dirs.pop() {
            let Some(object) = keys::of(mos, dir)?.filter(|object| object.root == old) else { continue };
            if !seen.insert(dir) {
                continue;
            }
            objects.insert(object.id);
            let hidden = |name: &str| name.starts_with(['$', '%']);
            let children = tree::children(mos, dir)?;
            dirs.extend(children.into_iter().filter(|(name, _)| !hidden(name)).map(|(_, child)| child));
            dirs.extend(self.clones_of(dir)?);
        }
        let objects = objects.into_iter().map(|id| keys::read(mos, id)).collect::<Result<Vec<_>>>()?;
        objects.iter().try_for_each(|object| self.rewrap_one(object, old, new))
    }

    /// The directories of the clones of the snapshots of a directory.
    fn clones_of(&self, dir: ObjectId) -> Result<Vec<ObjectId>> {
        let mos = self.mos();
        let clones = mos.dir(dir)?.clones;
        if clones.0 == 0 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for entry in zap::entries(&*mos.object(clones)?) {
            if let Some(head) = entry?.number() {
                found.push(mos.dataset(ObjectId(head))?.dir);
            }
        }
        Ok(found)
    }

    fn rewrap_one(&mut self, object: &KeyObject, old: ObjectId, new: &NewWrapping) -> Result<()> {
        let Some((key, user_key)) = &new.with else { return self.set_key_root(object.id, new.root) };
        let mut iv = [0; IV];
        self.mos().host.entropy.fill(&mut iv);
        let rewrap = |old: &WrappingKey| Ok(key.wrap(&old.unwrap(&object.wrapped)?, iv));
        let wrapped = self.view.keyring.with_key(old, rewrap).ok_or(KeyError::RootNotLoaded)?;
        let wrapped = wrapped.map_err(|_: codec::crypt::CryptError| {
            Error::corrupt(object.id)(format::Corrupt::new(
                "keys wrapped with another key",
                object.wrapped.guid,
            ))
        })?;
        self.rewrap(object.id, new.root, &wrapped, user_key)
    }

    /// Refuses to move a directory away from the dataset from which it inherits its key.
    pub(crate) fn check_key_moves(&self, dir: ObjectId, parent: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(object) = keys::of(mos, dir)?.filter(|object| object.root != dir) else { return Ok(()) };
        match keys::of(mos, parent)? {
            Some(above) if above.root == object.root => Ok(()),
            Some(_) => Err(KeyError::LeavesRoot.into()),
            None => Err(Error::NoDataset(tree::name_of(&self.view, parent)?)),
        }
    }

    /// Checks that the keys allow promoting a clone over the directory `parent`.
    pub(crate) fn check_key_promotes(&self, clone: ObjectId, parent: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(object) = keys::of(mos, parent)? else { return Ok(()) };
        if object.root == parent {
            return Ok(());
        }
        let root_above = |dir: ObjectId| -> Result<Option<ObjectId>> {
            Ok(keys::of(mos, mos.dir(dir)?.parent)?.map(|above| above.root))
        };
        if root_above(clone)? == root_above(parent)? { Ok(()) } else { Err(KeyError::PromotesOutside.into()) }
    }

    /// The clone that is promoted over an encryption root becomes the encryption root.
    pub(crate) fn promote_keys(&mut self, clone: ObjectId, parent: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(object) = keys::of(mos, parent)?.filter(|object| object.root == parent) else {
            return Ok(());
        };
        if keys::object_of(mos, clone)? != Some(object.id) {
            return Ok(());
        }
        let props = mos.object(mos.dir(parent)?.props_zap)?;
        let location = zap::lookup(&props, KEYLOCATION.as_bytes())?;
        let location = location.and_then(|value| value.as_text().map(str::to_owned));
        self.rewrap_below(parent, parent, &NewWrapping { root: clone, with: None })?;
        self.set_property(parent, KEYLOCATION, None)?;
        let location = location.unwrap_or_else(|| "prompt".to_owned());
        self.set_property(clone, KEYLOCATION, Some(&Value::Text(location)))?;
        self.view.keyring.move_key(parent, clone);
        Ok(())
    }
}
