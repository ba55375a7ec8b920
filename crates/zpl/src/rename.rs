//! Moving names.

use std::sync::Arc;

use dmu::{Object, zap};
use format::zil::{Body, Rename, RenameKind};
use format::znode::pflags;
use format::{Corrupt, ObjectId};
use pool::Hold;

use crate::create::check_project;
use crate::dir::{Name, check_name, is_dot};
use crate::fs::NAME_COST;
use crate::node::{count_change, modified};
use crate::remove::{Remover, check_removable};
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result};

/// Maximal depth of directories; more means damage.
const DEPTH_MAX: u32 = 1 << 20;

/// Whether a rename may replace an existing entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// As POSIX says.
    Allowed,
    /// `RENAME_NOREPLACE`.
    Refused,
}

impl Filesystem {
    /// Moves `name` in `dir` to `new_name` in `new_dir`, and removes the object that had the new name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Exists`] when replacing is refused; [`Error::NotEmpty`], [`Error::NotDir`],
    /// [`Error::IsDir`] when what is in the way does not fit; [`Error::Invalid`] when a directory would come to
    /// be inside itself; [`Error::CrossProject`].
    pub fn rename(
        &self,
        dir: ObjectId,
        name: &[u8],
        new_dir: ObjectId,
        new_name: &[u8],
        replace: Replace,
    ) -> Result<()> {
        let to = Name { dir: new_dir, name: new_name };
        self.rename_by(Remover::Anybody, Name { dir, name }, to, replace)
    }

    /// As [`Filesystem::rename`], on behalf of `by`.
    pub(crate) fn rename_by(
        &self,
        by: Remover,
        from: Name<'_>,
        to: Name<'_>,
        replace: Replace,
    ) -> Result<()> {
        self.changing(|| self.move_name(by, from, to, replace))
    }

    fn move_name(&self, by: Remover, from: Name<'_>, to: Name<'_>, replace: Replace) -> Result<()> {
        let Name { dir, name } = from;
        let Name { dir: new_dir, name: new_name } = to;
        if is_dot(name) || is_dot(new_name) {
            return Err(Error::Invalid);
        }
        check_name(new_name, self.inner.utf8_only)?;
        self.check_reserved(dir, name)?;
        self.check_reserved(new_dir, new_name)?;
        let (from_object, to_object) = (self.directory(dir)?, self.directory(new_dir)?);
        loop {
            // The needed locks depend on the objects of the names. The names are looked up again under the locks.
            let source = self.lookup(dir, name)?.ok_or(Error::NotFound)?;
            let target = self.lookup(new_dir, new_name)?;
            let moves_dir = dir != new_dir && source.1 == FileKind::Directory;
            let _renames = moves_dir
                .then(|| self.inner.renames.lock().expect("no code panics while holding the rename lock"));
            let mut dirs = vec![dir, new_dir];
            dirs.extend(target.filter(|(_, kind)| *kind == FileKind::Directory).map(|(id, _)| id));
            let names = self.inner.names.write_all(&dirs);
            let found = self.find(&from_object, name)?.ok_or(Error::NotFound)?;
            let victim = self.find(&to_object, new_name)?;
            if found.id != source.0 || victim.as_ref().map(|v| v.id) != target.map(|(id, _)| id) {
                continue;
            }
            if moves_dir && self.is_within(new_dir, found.id)? {
                return Err(Error::Invalid);
            }
            if victim.is_some() && replace == Replace::Refused {
                return Err(Error::Exists);
            }
            let same = victim.as_ref().is_some_and(|victim| victim.id == found.id);
            // Another spelling of the same name is a rename; if both names are links to one file, nothing is done.
            let respelled = same
                && dir == new_dir
                && victim.as_ref().is_some_and(|victim| victim.name == found.name)
                && found.name != new_name;
            if same && !respelled {
                return Ok(());
            }
            let victim = victim.filter(|_| !respelled);

            let mut ids = vec![dir, new_dir, found.id];
            ids.extend(victim.as_ref().map(|victim| victim.id));
            let nodes = self.inner.nodes.write_all(&ids);
            let (from_object, mut from) = self.directory_for_change(dir)?;
            let mut to = if dir == new_dir { None } else { Some(self.directory_for_change(new_dir)?) };
            let (object, mut znode) = self.node_for_change(found.id)?;
            check_removable(&from, &znode, by)?;
            if let Some((_, to)) = &to {
                check_project(to, &znode)?;
            }
            let is_dir = is_kind(&znode, FileKind::Directory);
            let now = self.now();
            let mut lost = None;
            let mut victim_is_dir = false;
            if let Some(victim) = &victim {
                let (object, mut znode) = self.node_for_change(victim.id)?;
                victim_is_dir = is_kind(&znode, FileKind::Directory);
                match (is_dir, victim_is_dir) {
                    (true, false) => return Err(Error::NotDir),
                    (false, true) => return Err(Error::IsDir),
                    (true, true) if zap::count(&object)? != 0 => return Err(Error::NotEmpty),
                    _ => {}
                }
                check_removable(to.as_ref().map_or(&from, |(_, to)| to), &znode, by)?;
                let fate = self.lose_link(&object, &mut znode, now)?;
                lost = Some((object, znode, fate));
            }

            from.size = from.size.saturating_sub(1);
            from.links = from.links.saturating_sub(is_dir.into());
            {
                let to = to.as_mut().map_or(&mut from, |(_, to)| to);
                to.size = to.size.saturating_add(victim.is_none().into());
                to.links = to.links.saturating_add(is_dir.into()).saturating_sub(victim_is_dir.into());
                modified(to, now);
            }
            modified(&mut from, now);
            znode.parent = new_dir;
            znode.ctime = now;
            znode.flags |= pflags::ARCHIVE | pflags::AV_MODIFIED;
            count_change(&mut znode);

            let tx = self.begin(Hold::write(2 * NAME_COST))?;
            let to_object: &Arc<Object> = to.as_ref().map_or(&from_object, |(object, _)| object);
            match &victim {
                Some(victim) if victim.name == new_name => {
                    zap::update(to_object, &tx, new_name, &self.entry(&znode, found.id))?;
                }
                Some(victim) => {
                    self.insert(to_object, &tx, new_name, &znode, found.id)?;
                    zap::remove(to_object, &tx, &victim.name)?;
                }
                None => self.insert(to_object, &tx, new_name, &znode, found.id)?,
            }
            zap::remove(&from_object, &tx, &found.name)?;
            self.store(&from_object, &tx, &from)?;
            if let Some((object, to)) = &to {
                self.store(object, &tx, to)?;
            }
            self.store(&object, &tx, &znode)?;
            let free_next = match &mut lost {
                None => false,
                Some((object, znode, fate)) => self.meet(&tx, object, znode, fate.take())?,
            };
            // If the new name survives a crash, the data written under the old name must survive, too.
            self.inner.dataset.note_for_all(found.id);
            self.note_names(&tx, || {
                Body::Rename(Rename {
                    from_dir: dir,
                    from: found.name.clone(),
                    to_dir: new_dir,
                    to: new_name.to_vec(),
                    kind: RenameKind::Replace,
                })
            });
            drop((tx, nodes, names));
            if let Some(victim) = victim {
                self.free_next(victim.id, free_next);
            }
            return Ok(());
        }
    }

    /// Whether directory `id` is `above` or somewhere below it.
    pub(crate) fn is_within(&self, mut id: ObjectId, above: ObjectId) -> Result<bool> {
        for _ in 0..DEPTH_MAX {
            if id == above {
                return Ok(true);
            }
            if id == self.root() {
                return Ok(false);
            }
            id = self.parent(id)?;
        }
        Err(Error::damaged(id)(Corrupt::new("depth of a directory", DEPTH_MAX.into())))
    }
}
