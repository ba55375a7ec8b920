//! Giving a file system a newer version of its format.
//!
//! Objects that exist keep their form; objects made from then on have that of the new version.
//! Source: docs/format/07-zpl-sa.md §1.1, §4.3.

use dmu::{NewObject, Tx, zap};
use format::zap::Value;
use format::znode::{S_IFREG, master};
use format::{ObjectType, dnode};
use pool::Hold;

use crate::attributes::Tables;
use crate::create::fresh;
use crate::fs::{MASTER_NODE, NAME_COST};
use crate::legacy::SYSTEM_ATTRIBUTES;
use crate::{Error, Filesystem, Result};

/// Names that the tables of system attributes are made of, for the space that they may take.
const TABLES_COST: u64 = 16 * NAME_COST;

impl Filesystem {
    /// Gives the file system version `version`, which is on disk when this returns.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a version that is older than its own, or none; [`Error::Unsupported`] for one that the pool is
    /// too old for; [`Error::ReadOnly`], [`Error::NoSpace`].
    pub fn upgrade(&self, version: u64) -> Result<()> {
        if version < self.version() || version > master::ZPL_VERSION {
            return Err(Error::Invalid);
        }
        if version > self.inner.dataset.newest_version() {
            return Err(Error::Unsupported("this version in a pool of an older one"));
        }
        if version == self.version() {
            return Ok(());
        }
        self.inner.dataset.check_writable()?;
        self.wait_for_room();
        let tables = self.retrying(|| self.put_version(version))?;
        // The intent log must not contain records that need the new version before that version is on disk.
        self.inner.dataset.sync()?;
        self.inner.attributes.upgraded(version, tables);
        self.inner.dataset.revise();
        Ok(())
    }

    fn put_version(&self, version: u64) -> Result<Option<Tables>> {
        let _node = self.inner.nodes.write(MASTER_NODE);
        let node = self.inner.objset.object(MASTER_NODE)?;
        let known = zap::lookup_u64(&node, master::SA_ATTRS.as_bytes())?;
        let tx = self.begin(Hold::write(TABLES_COST))?;
        let put = |key: &str, value| zap::update(&node, &tx, key.as_bytes(), &Value::from_u64(value));
        put(master::VERSION, version)?;
        self.note_unlogged(&tx);
        if version < SYSTEM_ATTRIBUTES || self.inner.attributes.has_tables() || known.is_some() {
            return Ok(None);
        }
        let (tables, id) = self.make_tables(&tx)?;
        put(master::SA_ATTRS, id)?;
        Ok(Some(tables))
    }

    /// Returns the tables and the number of the object that leads to them.
    fn make_tables(&self, tx: &Tx) -> Result<(Tables, u64)> {
        let objset = &self.inner.objset;
        let salt = || self.inner.dataset.host().entropy.u64();
        let new = |object_type| objset.create_object(tx, NewObject::plain(object_type));
        let leader = new(ObjectType::SA_MASTER_NODE)?;
        let registry = new(ObjectType::SA_ATTR_REGISTRATION)?;
        let layouts = new(ObjectType::SA_ATTR_LAYOUTS)?;
        zap::create(&leader, tx, salt(), 0)?;
        for (key, object) in [(master::SA_REGISTRY, &registry), (master::SA_LAYOUTS, &layouts)] {
            zap::insert(&leader, tx, key.as_bytes(), &Value::from_u64(object.id().0))?;
        }
        let tables = Tables::create(tx, registry, layouts, &salt)?;
        // OpenZFS refuses a file system whose table of layouts is empty: it gets the one of a plain file.
        let file = fresh(S_IFREG | 0o644, [0, 0], self.root(), self.now());
        tables.encode(tx, &file, dnode::bonus_capacity(1, 1, false))?;
        Ok((tables, leader.id().0))
    }
}
