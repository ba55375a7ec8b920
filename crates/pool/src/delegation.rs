//! Delegated permissions (`zfs allow`): what a dataset lets others do. They are kept for OpenZFS, which asks for them;
//! a pool that is served here belongs to whoever serves it.
//!
//! From:   who-keys and names of permissions, judged by the caller.
//! To:     the two-level ZAP of a DSL directory.
//! Source: docs/format/06-mos-dsl.md §10.1.

use dmu::zap;
use format::zap::Value as Stored;
use format::{ObjectId, ObjectType};

use crate::dsl::lookup;
use crate::mos::Mos;
use crate::pool::{Pool, Reserve};
use crate::props::names::NAME_MAX;
use crate::sync::Syncing;
use crate::{Error, Result};

/// Permissions of one who-key, such as `ul$1000`: user 1000, on the dataset itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Kind, scope, `$` and whom; the first letter is upper case when the names are sets.
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

impl Pool {
    /// What a file system or volume itself grants, by who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be read.
    pub fn grants(&self, name: &str) -> Result<Vec<Grant>> {
        let _shared = self.shared();
        let mos = &self.inner.mos;
        let dir = mos.dir(lookup::dir_of(mos, &self.inner.name(), name)?)?;
        if dir.deleg_zap.0 == 0 {
            return Ok(Vec::new());
        }
        let grant = |(key, id)| Ok(Grant { key, names: names(mos, id)? });
        entries(mos, dir.deleg_zap)?.into_iter().map(grant).collect()
    }

    /// Grants more.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], [`Error::BadTag`] for a name that is empty or too long, or it cannot be written.
    pub fn allow(&self, name: &str, grants: Vec<Grant>) -> Result<()> {
        for name in grants.iter().flat_map(|grant| grant.names.iter().chain([&grant.key])) {
            if name.is_empty() || name.len() >= NAME_MAX {
                return Err(Error::BadTag(name.clone()));
            }
        }
        let name = name.to_owned();
        self.run_beside(Reserve::Half, 1, move |syncing| {
            let dir = lookup::dir_of(syncing.mos(), &syncing.state.config.name, &name)?;
            grants.iter().try_for_each(|grant| syncing.allow(dir, grant))
        })
    }

    /// Takes back what was granted on each of the datasets; a grant without names takes back all of its who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be written.
    pub fn unallow(&self, datasets: Vec<String>, grants: Vec<Grant>) -> Result<()> {
        self.run_beside(Reserve::Half, 1, move |syncing| {
            for name in &datasets {
                let dir = lookup::dir_of(syncing.mos(), &syncing.state.config.name, name)?;
                grants.iter().try_for_each(|grant| syncing.unallow(dir, grant))?;
            }
            Ok(())
        })
    }
}

impl Syncing<'_> {
    fn allow(&mut self, dir_id: ObjectId, grant: &Grant) -> Result<()> {
        let mos = self.mos();
        crate::version::check(mos.version(), crate::version::DELEGATION)?;
        let mut dir = mos.dir(dir_id)?;
        if dir.deleg_zap.0 == 0 {
            dir.deleg_zap = mos.create_zap(&self.tx, ObjectType::DSL_PERMS, 0)?.id();
            mos.put_dir(&self.tx, dir_id, &dir)?;
        }
        let outer = mos.object(dir.deleg_zap)?;
        let inner = match zap::lookup_u64(&outer, grant.key.as_bytes())? {
            Some(id) => mos.object(ObjectId(id))?,
            None => {
                let inner = mos.create_zap(&self.tx, ObjectType::DSL_PERMS, 0)?;
                let id = Stored::from_u64(inner.id().0);
                zap::update(&outer, &self.tx, grant.key.as_bytes(), &id)?;
                inner
            }
        };
        for name in &grant.names {
            zap::update(&inner, &self.tx, name.as_bytes(), &Stored::from_u64(0))?;
        }
        Ok(())
    }

    fn unallow(&mut self, dir_id: ObjectId, grant: &Grant) -> Result<()> {
        let mos = self.mos();
        let dir = mos.dir(dir_id)?;
        if dir.deleg_zap.0 == 0 {
            return Ok(());
        }
        let outer = mos.object(dir.deleg_zap)?;
        let Some(id) = zap::lookup_u64(&outer, grant.key.as_bytes())?.map(ObjectId) else { return Ok(()) };
        let inner = mos.object(id)?;
        for name in &grant.names {
            zap::discard(&inner, &self.tx, name.as_bytes())?;
        }
        if grant.names.is_empty() || names(mos, id)?.is_empty() {
            zap::remove(&outer, &self.tx, grant.key.as_bytes())?;
            mos.free(&self.tx, id)?;
        }
        Ok(())
    }

    /// What those above grant to whoever creates something (`allow -c`), granted on the new directory. Root needs none.
    pub(crate) fn grant_to_creator(&mut self, dir_id: ObjectId, parent: ObjectId) -> Result<()> {
        let (mos, user) = (self.mos(), self.inner.user);
        if user == 0 {
            return Ok(());
        }
        for above in lookup::chain(mos, parent)? {
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
            mos.free(&self.tx, names)?;
        }
        mos.free(&self.tx, zap_id)
    }
}

#[cfg(test)]
mod tests {
    use storage::host::ScriptedDisk;

    use super::*;
    use crate::scrub::tests::made;
    use crate::{NewFilesystem, Options};
    use std::sync::Arc;

    #[test]
    fn whoever_creates_a_file_system_gets_what_those_above_grant_to_creators() {
        let disk = ScriptedDisk::new(128 << 20);
        made(&disk).export().expect("exported");
        let options = Options { user: 1000, ..Options::default() };
        let host = options.host.clone();
        let pool = Pool::import_disks(vec![Arc::new(disk.clone())], options).expect("imported");
        let grant = |key: &str, names: &[&str]| Grant {
            key: key.into(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        pool.allow("tank", vec![grant("c-$", &["destroy", "mount"])]).expect("granted");
        let new = |name: &str| {
            let nothing: crate::Initialise = Arc::new(|objset, tx, _| {
                let new = dmu::NewObject::plain(ObjectType::MASTER_NODE);
                zap::create(&objset.create_object_at(tx, ObjectId(1), new), tx, 7, 0)
            });
            pool.create_filesystem(name, Vec::new(), NewFilesystem::plain(&host), nothing).expect("created");
        };
        new("tank/a");
        pool.allow("tank/a", vec![grant("C-$", &["@set"])]).expect("granted");
        new("tank/a/b");
        let mut granted = pool.grants("tank/a/b").expect("read");
        granted.iter_mut().for_each(|grant| grant.names.sort());
        granted.sort_by(|a, b| a.key.cmp(&b.key));
        assert_eq!(granted, [grant("Ul$1000", &["@set"]), grant("ul$1000", &["destroy", "mount"])]);
        let mut found = Vec::new();
        crate::check::check(&pool, &mut |finding| found.push(finding)).expect("checked");
        assert!(found.is_empty(), "{found:?}");
    }
}
