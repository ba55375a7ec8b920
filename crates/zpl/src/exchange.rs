//! Exchanging two names (`RENAME_EXCHANGE`).

use dmu::zap;
use format::ObjectId;
use format::znode::{Znode, pflags};
use pool::Hold;

use crate::create::check_project;
use crate::dir::{Found, Name, is_dot};
use crate::fs::NAME_COST;
use crate::node::{count_change, modified};
use crate::remove::{Remover, check_removable};
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result};

impl Filesystem {
    /// Exchanges the objects of `name` in `dir` and of `new_name` in `new_dir`, atomically.
    ///
    /// # Errors
    /// [`Error::NotFound`] when one of them is missing; [`Error::Invalid`] when a directory would become part of
    /// itself; [`Error::CrossProject`].
    pub fn exchange(&self, dir: ObjectId, name: &[u8], new_dir: ObjectId, new_name: &[u8]) -> Result<()> {
        self.exchange_by(Remover::Anybody, Name { dir, name }, Name { dir: new_dir, name: new_name })
    }

    /// As [`Filesystem::exchange`], on behalf of `by`.
    pub(crate) fn exchange_by(&self, by: Remover, one: Name<'_>, other: Name<'_>) -> Result<()> {
        self.changing(|| self.exchange_names(by, one, other))
    }

    fn exchange_names(&self, by: Remover, one: Name<'_>, other: Name<'_>) -> Result<()> {
        let Name { dir, name } = one;
        let Name { dir: new_dir, name: new_name } = other;
        if is_dot(name) || is_dot(new_name) {
            return Err(Error::Invalid);
        }
        self.check_reserved(dir, name)?;
        self.check_reserved(new_dir, new_name)?;
        let (from_object, to_object) = (self.directory(dir)?, self.directory(new_dir)?);
        let _renames = (dir != new_dir).then(|| self.rename_turn());
        let _names = self.inner.names.write_all(&[dir, new_dir]);
        let one = self.find(&from_object, name)?.ok_or(Error::NotFound)?;
        let other = self.find(&to_object, new_name)?.ok_or(Error::NotFound)?;
        if one.id == other.id {
            return Ok(());
        }
        let swallows =
            |above: &Found, below| Ok::<_, Error>(above.id == below || self.is_dir_above(above.id, below)?);
        if dir != new_dir && (swallows(&one, new_dir)? || swallows(&other, dir)?) {
            return Err(Error::Invalid);
        }

        let _nodes = self.inner.nodes.write_all(&[dir, new_dir, one.id, other.id]);
        let (from_object, mut from) = self.directory_for_change(dir)?;
        let mut to = if dir == new_dir { None } else { Some(self.directory_for_change(new_dir)?) };
        let (one_object, mut one_node) = self.node_for_change(one.id)?;
        let (other_object, mut other_node) = self.node_for_change(other.id)?;
        check_removable(&from, &one_node, by)?;
        check_removable(to.as_ref().map_or(&from, |(_, to)| to), &other_node, by)?;
        let now = self.now();
        if let Some((_, to)) = &mut to {
            check_project(to, &one_node)?;
            check_project(&from, &other_node)?;
            let is_dir = |znode: &Znode| u64::from(is_kind(znode, FileKind::Directory));
            let (gone, come) = (is_dir(&one_node), is_dir(&other_node));
            from.links = (from.links + come).saturating_sub(gone);
            to.links = (to.links + gone).saturating_sub(come);
            modified(to, now);
        }
        modified(&mut from, now);
        for (znode, parent) in [(&mut one_node, new_dir), (&mut other_node, dir)] {
            znode.parent = parent;
            znode.ctime = now;
            znode.flags |= pflags::ARCHIVE | pflags::AV_MODIFIED;
            count_change(znode);
        }

        let tx = self.begin(Hold::write(2 * NAME_COST))?;
        let to_object = to.as_ref().map_or(&from_object, |(object, _)| object);
        zap::update(&from_object, &tx, &one.name, &self.entry(&other_node, other.id))?;
        zap::update(to_object, &tx, &other.name, &self.entry(&one_node, one.id))?;
        self.store(&from_object, &tx, &from)?;
        if let Some((object, to)) = &to {
            self.store(object, &tx, to)?;
        }
        self.store(&one_object, &tx, &one_node)?;
        self.store(&other_object, &tx, &other_node)?;
        // The log has no record for this: only OpenZFS 2.2 and later know such a record, and no feature flag protects it.
        self.note_unlogged(&tx);
        Ok(())
    }

    /// Whether `above` is an ancestor of `below`.
    fn is_dir_above(&self, above: ObjectId, below: ObjectId) -> Result<bool> {
        Ok(self.directory(above).is_ok() && self.is_within(below, above)?)
    }
}
