//! Encrypting new datasets: with a key of their own, or with that of the dataset above.
//!
//! Source: docs/format/13-encryption.md §5.

use std::sync::Arc;

use codec::crypt::{DatasetKeys, WrappingKey};
use format::crypt::{IV, Suite};
use format::{ObjectId, features};

use crate::change::Change;
use crate::keys::{self, KeyObject};
use crate::new_encryption::{NewEncryption, OwnKey, Wanted};
use crate::{KeyError, Result};

/// The encryption of a new dataset, after the checks against its parent.
pub(crate) struct Judged {
    suite: Suite,
    /// It inherits its key: the key object of the dataset above.
    inherited: Option<KeyObject>,
    own: Option<Arc<OwnKey>>,
}

impl Change<'_> {
    /// Checks the wanted encryption of a new dataset below `parent`, before any change; `None`: not encrypted.
    pub(crate) fn judge_encryption(
        &self,
        parent: Option<ObjectId>,
        new: &NewEncryption,
    ) -> Result<Option<Judged>> {
        let above = parent.map(|parent| keys::of(self.mos(), parent)).transpose()?.flatten();
        let suite = match new.wanted {
            Wanted::Inherit => above.map(|above| above.wrapped.suite),
            Wanted::Off => None,
            Wanted::On(suite) => Some(suite),
        };
        let Some(suite) = suite else {
            return if new.own.is_some() { Err(KeyError::NotOn.into()) } else { Ok(None) };
        };
        if !self.enables(&features::ENCRYPTION) || !self.enables(&features::BOOKMARK_V2) {
            return Err(KeyError::NotEnabled.into());
        }
        let own = new.own.clone();
        let inherited = match (&own, above) {
            (Some(_), _) => None,
            (None, Some(above)) if self.view.keyring.is_here(above.root) => Some(above),
            (None, Some(_)) => return Err(KeyError::RootNotLoaded.into()),
            (None, None) => return Err(KeyError::NoKeyFormat.into()),
        };
        Ok(Some(Judged { suite, inherited, own }))
    }

    /// Makes the keys of the new directory `dir`. The key of a new encryption root is loaded from now on.
    pub(crate) fn encrypt(&mut self, dir: ObjectId, judged: &Judged) -> Result<()> {
        let entropy = self.mos().host.entropy.clone();
        let guid = entropy.u64().max(1);
        let fresh = DatasetKeys::generate(judged.suite, guid, &mut |bytes| entropy.fill(bytes));
        let mut iv = [0; IV];
        entropy.fill(&mut iv);
        let (root, user_key, wrapped) = match (&judged.own, &judged.inherited) {
            (Some(own), _) => (dir, own.user_key, Some(own.key.wrap(&fresh, iv))),
            (None, Some(above)) => {
                let wrap = |key: &WrappingKey| key.wrap(&fresh, iv);
                (above.root, above.user_key, self.view.keyring.with_key(above.root, wrap))
            }
            (None, None) => return Err(KeyError::NoKeyFormat.into()),
        };
        let wrapped = wrapped.ok_or(KeyError::RootNotLoaded)?;
        self.create_key_object(dir, root, &wrapped, &user_key)?;
        if let Some(own) = &judged.own {
            self.view.keyring.load(dir, own.key.clone());
        }
        Ok(())
    }

    /// As [`Change::create_head`], for an encrypted directory: also marks the head.
    pub(crate) fn mark_encrypted(&mut self, head: ObjectId) -> Result<()> {
        self.mark_dataset(head, &features::ENCRYPTION)
    }
}
