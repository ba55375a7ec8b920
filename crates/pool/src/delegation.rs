//! Delegated permissions (`zfs allow`): what a dataset lets others do. They are kept for OpenZFS, which asks for them;
//! a pool that is served here belongs to whoever serves it.
//!
//! From:   who-keys and names of permissions, judged by the caller.
//! To:     the grants that `dsl` keeps with directories.

use dsl::delegation::{self, Grant};
use dsl::room::Reserve;
use dsl::tree;

use crate::pool::Pool;
use crate::props::names::NAME_MAX;
use crate::{Error, Result};

impl Pool {
    /// What a file system or volume itself grants, by who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be read.
    pub fn grants(&self, name: &str) -> Result<Vec<Grant>> {
        let _shared = self.shared();
        let mos = &self.inner.mos;
        delegation::grants(mos, tree::dir_of(mos, &self.inner.name(), name)?)
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
            let dir = tree::dir_of(syncing.mos(), &syncing.state.config.name, &name)?;
            grants.iter().try_for_each(|grant| syncing.change(|dsl| dsl.allow(dir, grant)))
        })
    }

    /// Takes back what was granted on each of the datasets; a grant without names takes back all of its who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be written.
    pub fn unallow(&self, datasets: Vec<String>, grants: Vec<Grant>) -> Result<()> {
        self.run_beside(Reserve::Half, 1, move |syncing| {
            for name in &datasets {
                let dir = tree::dir_of(syncing.mos(), &syncing.state.config.name, name)?;
                grants.iter().try_for_each(|grant| syncing.change(|dsl| dsl.unallow(dir, grant)))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use dmu::zap;
    use format::{ObjectId, ObjectType};
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
