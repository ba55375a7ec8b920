//! Moving names.

use std::sync::Arc;

use dmu::rank::MutexHeld;
use dmu::{Object, zap};
use format::zil::{Body, Rename, RenameKind};
use format::znode::{Time, Znode, pflags};
use format::{Corrupt, ObjectId};
use pool::{Hold, Tx};

use crate::create::check_project;
use crate::dir::{Found, Name, check_name, is_dot};
use crate::fs::NAME_COST;
use crate::locks::Guard;
use crate::node::{count_change, modified};
use crate::remove::{Fate, Remover, check_removable};
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

/// A rename, with the entries of both names as they are under the locks.
struct Moving<'a> {
    from: Name<'a>,
    to: Name<'a>,
    found: Found,
    /// The entry that has the new name now, and loses it.
    victim: Option<Found>,
}

impl<'a> Moving<'a> {
    /// `None` if both names are links to one file: then nothing is done.
    fn of(from: Name<'a>, to: Name<'a>, found: Found, victim: Option<Found>) -> Option<Moving<'a>> {
        let same = victim.as_ref().is_some_and(|victim| victim.id == found.id);
        // Another spelling of the same name is a rename.
        let respelled = same
            && from.dir == to.dir
            && victim.as_ref().is_some_and(|victim| victim.name == found.name)
            && found.name != to.name;
        let victim = victim.filter(|_| !respelled);
        (!same || respelled).then_some(Moving { from, to, found, victim })
    }
}

/// The locks of the names that a rename changes. Renames of directories to other parents come one after another.
struct NamesHeld<'a> {
    _renames: Option<MutexHeld<'a, ()>>,
    _names: Vec<Guard<'a>>,
}

/// The nodes that a move changes.
struct Moved {
    /// The directory that loses the entry.
    from: (Arc<Object>, Znode),
    /// The directory that gets the entry, if it is another directory.
    to: Option<(Arc<Object>, Znode)>,
    /// The node that gets the new name.
    node: (Arc<Object>, Znode),
    lost: Option<Lost>,
}

/// The node that loses the new name.
struct Lost {
    object: Arc<Object>,
    znode: Znode,
    fate: Option<Fate>,
    is_dir: bool,
}

impl Moved {
    /// Updates sizes, link counts and times in memory.
    fn count(&mut self, moving: &Moving<'_>, now: Time) {
        let is_dir = is_kind(&self.node.1, FileKind::Directory);
        let victim_is_dir = self.lost.as_ref().is_some_and(|lost| lost.is_dir);
        let from = &mut self.from.1;
        from.size = from.size.saturating_sub(1);
        from.links = from.links.saturating_sub(is_dir.into());
        let to = self.to.as_mut().map_or(&mut *from, |(_, to)| to);
        to.size = to.size.saturating_add(moving.victim.is_none().into());
        to.links = to.links.saturating_add(is_dir.into()).saturating_sub(victim_is_dir.into());
        modified(to, now);
        modified(&mut self.from.1, now);
        let node = &mut self.node.1;
        node.parent = moving.to.dir;
        node.ctime = now;
        node.flags |= pflags::ARCHIVE | pflags::AV_MODIFIED;
        count_change(node);
    }
}

impl Filesystem {
    /// Moves `name` in `dir` to `new_name` in `new_dir`, and removes the object that had the new name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Exists`] when replacing is refused; [`Error::NotEmpty`], [`Error::NotDir`],
    /// [`Error::IsDir`] when the node with the new name is of another kind; [`Error::Invalid`] when a directory would come to
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
        if is_dot(from.name) || is_dot(to.name) {
            return Err(Error::Invalid);
        }
        check_name(to.name, self.inner.utf8_only)?;
        self.check_reserved(from.dir, from.name)?;
        self.check_reserved(to.dir, to.name)?;
        let (held, found, victim) = self.find_both(from, to)?;
        if victim.is_some() && replace == Replace::Refused {
            return Err(Error::Exists);
        }
        let Some(moving) = Moving::of(from, to, found, victim) else { return Ok(()) };
        let free_next = self.move_entry(by, &moving)?;
        drop(held);
        if let Some(victim) = moving.victim {
            self.free_next(victim.id, free_next);
        }
        Ok(())
    }

    /// The entries of both names under the locks of the names; there may be none of the new name.
    fn find_both(&self, from: Name<'_>, to: Name<'_>) -> Result<(NamesHeld<'_>, Found, Option<Found>)> {
        let (from_object, to_object) = (self.directory(from.dir)?, self.directory(to.dir)?);
        loop {
            // The needed locks depend on the objects of the names. The names are looked up again under the locks.
            let source = self.lookup(from.dir, from.name)?.ok_or(Error::NotFound)?;
            let target = self.lookup(to.dir, to.name)?;
            let moves_dir = from.dir != to.dir && source.1 == FileKind::Directory;
            let renames = moves_dir.then(|| self.rename_turn());
            let mut dirs = vec![from.dir, to.dir];
            dirs.extend(target.filter(|(_, kind)| *kind == FileKind::Directory).map(|(id, _)| id));
            let names = self.inner.names.write_all(&dirs);
            let found = self.find(&from_object, from.name)?.ok_or(Error::NotFound)?;
            let victim = self.find(&to_object, to.name)?;
            if found.id != source.0 || victim.as_ref().map(|v| v.id) != target.map(|(id, _)| id) {
                continue;
            }
            if moves_dir && self.is_within(to.dir, found.id)? {
                return Err(Error::Invalid);
            }
            return Ok((NamesHeld { _renames: renames, _names: names }, found, victim));
        }
    }

    /// Moves an entry in one transaction, under the locks of its nodes. The caller holds the locks of the names. Returns
    /// whether the node that lost the new name must be freed next.
    fn move_entry(&self, by: Remover, moving: &Moving<'_>) -> Result<bool> {
        let Moving { from, to, found, victim } = moving;
        let mut ids = vec![from.dir, to.dir, found.id];
        ids.extend(victim.as_ref().map(|victim| victim.id));
        let nodes = self.inner.nodes.write_all(&ids);
        let now = self.now();
        let mut moved = self.nodes_of(by, moving, now)?;
        moved.count(moving, now);

        let tx = self.begin(Hold::write(2 * NAME_COST))?;
        let to_object = moved.to.as_ref().map_or(&moved.from.0, |(object, _)| object);
        self.enter_moved(&tx, to_object, moving, &moved.node.1)?;
        zap::remove(&moved.from.0, &tx, &found.name)?;
        for (object, znode) in [Some(&moved.from), moved.to.as_ref(), Some(&moved.node)].into_iter().flatten()
        {
            self.store(object, &tx, znode)?;
        }
        let free_next = match moved.lost {
            None => false,
            Some(Lost { object, znode, fate, .. }) => self.meet(&tx, &object, &znode, fate)?,
        };
        // If the new name survives a crash, the data written under the old name must survive, too.
        self.inner.dataset.note_for_all(found.id);
        self.note_names(&tx, || {
            Body::Rename(Rename {
                from_dir: from.dir,
                from: found.name.clone(),
                to_dir: to.dir,
                to: to.name.to_vec(),
                kind: RenameKind::Replace,
            })
        });
        drop((tx, nodes));
        Ok(free_next)
    }

    /// Reads the nodes that a move changes, and checks that `by` may move them.
    fn nodes_of(&self, by: Remover, moving: &Moving<'_>, now: Time) -> Result<Moved> {
        let Moving { from, to, found, victim } = moving;
        let from_dir = self.directory_for_change(from.dir)?;
        let to_dir = if from.dir == to.dir { None } else { Some(self.directory_for_change(to.dir)?) };
        let node = self.node_for_change(found.id)?;
        check_removable(&from_dir.1, &node.1, by)?;
        if let Some((_, dir)) = &to_dir {
            check_project(dir, &node.1)?;
        }
        let mut lost = None;
        if let Some(victim) = victim {
            let (object, mut znode) = self.node_for_change(victim.id)?;
            let is_dir = is_kind(&znode, FileKind::Directory);
            match (is_kind(&node.1, FileKind::Directory), is_dir) {
                (true, false) => return Err(Error::NotDir),
                (false, true) => return Err(Error::IsDir),
                (true, true) if zap::count(&object)? != 0 => return Err(Error::NotEmpty),
                _ => {}
            }
            check_removable(to_dir.as_ref().map_or(&from_dir.1, |(_, dir)| dir), &znode, by)?;
            let fate = self.lose_link(&object, &mut znode, now)?;
            lost = Some(Lost { object, znode, fate, is_dir });
        }
        Ok(Moved { from: from_dir, to: to_dir, node, lost })
    }

    /// Writes the entry of the new name, in place of the entry that had this name.
    fn enter_moved(&self, tx: &Tx, dir: &Arc<Object>, moving: &Moving<'_>, znode: &Znode) -> Result<()> {
        let Moving { to, found, victim, .. } = moving;
        match victim {
            Some(victim) if victim.name == to.name => {
                zap::update(dir, tx, to.name, &self.entry(znode, found.id))?;
            }
            Some(victim) => {
                self.insert(dir, tx, to.name, znode, found.id)?;
                zap::remove(dir, tx, &victim.name)?;
            }
            None => self.insert(dir, tx, to.name, znode, found.id)?,
        }
        Ok(())
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
