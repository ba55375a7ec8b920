//! Delegated permissions (`zfs allow`). They are stored for OpenZFS, which checks them. Here, the user who runs the server
//! owns the pool.
//!
//! From:   who-keys and names of permissions, judged by the caller.
//! To:     the two-level ZAP of a DSL directory.
//! Source: docs/format/06-mos-dsl.md §10.1.

use dmu::zap;
use format::zap::Value as Stored;
use format::{ObjectId, ObjectType};

use crate::change::Change;
use crate::mos::Mos;
use crate::{Result, tree, version};

/// Permissions of one who-key, such as `ul$1000`: user 1000, on the dataset itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Kind, scope, `$` and the user or group. The first letter is upper case if the names are permission sets.
    pub key: String,
    /// Names of permissions, or of sets with their `@`.
    pub names: Vec<String>,
}

/// The entries of a delegation ZAP: who-key, and the ZAP with the names.
fn entries(mos: &Mos, zap_id: ObjectId) -> Result<Vec<(String, ObjectId)>> {
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(zap_id)?) {
        let entry = entry?;
        if let Some(names) = entry.number() {
            found.push((String::from_utf8_lossy(&entry.name).into_owned(), ObjectId(names)));
        }
    }
    Ok(found)
}

/// The names in one of the inner ZAPs.
fn names(mos: &Mos, id: ObjectId) -> Result<Vec<String>> {
    let object = mos.object(id)?;
    zap::entries(&object).map(|entry| Ok(String::from_utf8_lossy(&entry?.name).into_owned())).collect()
}

/// The grants of the directory `dir` itself, by who-key.
///
/// # Errors
/// It cannot be read.
pub fn grants(mos: &Mos, dir: ObjectId) -> Result<Vec<Grant>> {
    let dir = mos.dir(dir)?;
    if dir.deleg_zap.0 == 0 {
        return Ok(Vec::new());
    }
    let grant = |(key, id)| Ok(Grant { key, names: names(mos, id)? });
    entries(mos, dir.deleg_zap)?.into_iter().map(grant).collect()
}

impl Change<'_> {
    /// Grants more on a directory.
    ///
    /// # Errors
    /// The pool is older than grants, or they cannot be read.
    pub fn allow(&mut self, dir_id: ObjectId, grant: &Grant) -> Result<()> {
        let mos = self.mos();
        version::check(mos.version(), version::DELEGATION)?;
        let mut dir = mos.dir(dir_id)?;
        if dir.deleg_zap.0 == 0 {
            dir.deleg_zap = mos.create_zap(self.tx, ObjectType::DSL_PERMS, 0)?.id();
            mos.put_dir(self.tx, dir_id, &dir)?;
        }
        let outer = mos.object(dir.deleg_zap)?;
        let inner = match zap::lookup_u64(&outer, grant.key.as_bytes())? {
            Some(id) => mos.object(ObjectId(id))?,
            None => {
                let inner = mos.create_zap(self.tx, ObjectType::DSL_PERMS, 0)?;
                let id = Stored::from_u64(inner.id().0);
                zap::update(&outer, self.tx, grant.key.as_bytes(), &id)?;
                inner
            }
        };
        for name in &grant.names {
            zap::update(&inner, self.tx, name.as_bytes(), &Stored::from_u64(0))?;
        }
        Ok(())
    }

    /// Removes grants on a directory. A grant without permission names removes all permissions of its who-key.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn unallow(&mut self, dir_id: ObjectId, grant: &Grant) -> Result<()> {
        let mos = self.mos();
        let dir = mos.dir(dir_id)?;
        if dir.deleg_zap.0 == 0 {
            return Ok(());
        }
        let outer = mos.object(dir.deleg_zap)?;
        let Some(id) = zap::lookup_u64(&outer, grant.key.as_bytes())?.map(ObjectId) else { return Ok(()) };
        let inner = mos.object(id)?;
        for name in &grant.names {
            zap::discard(&inner, self.tx, name.as_bytes())?;
        }
        if grant.names.is_empty() || names(mos, id)?.is_empty() {
            zap::remove(&outer, self.tx, grant.key.as_bytes())?;
            mos.free(self.tx, id)?;
        }
        Ok(())
    }

    /// Applies the grants of `allow -c` above to the creator of a new directory. Root needs none.
    pub(crate) fn grant_to_creator(&mut self, dir_id: ObjectId, parent: ObjectId) -> Result<()> {
        let (mos, user) = (self.mos(), self.user);
        if user == 0 {
            return Ok(());
        }
        for above in tree::chain(mos, parent)? {
            let zap_id = mos.dir(above)?.deleg_zap;
            if zap_id.0 == 0 {
                continue;
            }
            for (from, to) in [("c-$", "ul$"), ("C-$", "Ul$")] {
                if let Some(id) = zap::lookup_u64(&*mos.object(zap_id)?, from.as_bytes())? {
                    let grant = Grant { key: format!("{to}{user}"), names: names(mos, ObjectId(id))? };
                    self.allow(dir_id, &grant)?;
                }
            }
        }
        Ok(())
    }

    /// Frees the delegation ZAP of a directory with all below it.
    pub(crate) fn free_grants(&mut self, zap_id: ObjectId) -> Result<()> {
        if zap_id.0 == 0 {
            return Ok(());
        }
        let mos = self.mos();
        for (_, names) in entries(mos, zap_id)? {
            mos.free(self.tx, names)?;
        }
        mos.free(self.tx, zap_id)
    }
}
