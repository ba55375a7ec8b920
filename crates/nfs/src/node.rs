//! The node of a handle: in an exported file system, in a snapshot of it, or a folder of `.zfs`.

use std::sync::Arc;

use zpl::session::permission::Access;
use zpl::session::{Caller, Folder, Meaning, Notice, Target, is_made_up};
use zpl::{CONTROL, FileKind, ObjectId, Session, SnapshotKey, Stat, pflags};

use crate::export::Entered;
use crate::handle::{Handle, Named};
use crate::status::{self, Answer, Fail, Status};

/// A node.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Object(Stat),
    /// A folder of `.zfs`, which is not stored.
    Folder(Folder, Stat),
}

impl Node {
    pub(crate) fn stat(&self) -> &Stat {
        match self {
            Node::Object(stat) | Node::Folder(_, stat) => stat,
        }
    }
}

/// The file system of a call: an export, or a snapshot of it.
pub(crate) struct Here {
    // Rust drops it before `entered`: the session is closed before the call counts as done.
    pub(crate) session: Arc<Session>,
    pub(crate) snapshot: Option<SnapshotKey>,
    pub(crate) entered: Entered,
}

/// The node of a call, and the user who asks.
pub(crate) struct Spot {
    pub(crate) here: Here,
    pub(crate) node: Node,
    pub(crate) by: Caller,
    /// The client may change nothing.
    pub(crate) is_read_only: bool,
    /// Changes of names may be answered before they are durable.
    pub(crate) is_async: bool,
}

impl Here {
    /// The exported file system, or a snapshot of it.
    pub(crate) fn of(entered: Entered, snapshot: Option<SnapshotKey>) -> Answer<Here> {
        let session = match snapshot {
            None => entered.opened.session.clone(),
            Some(key) => entered.opened.snapshot(key)?,
        };
        Ok(Here { session, snapshot, entered })
    }

    /// The node that a handle names.
    pub(crate) fn node(&self, named: Named) -> Answer<Node> {
        match named {
            Named::Folder(folder) => self.folder(folder),
            Named::Object(id, generation) => {
                if is_made_up(id) {
                    return Err(Status::STALE.into());
                }
                let stat = self.session.stat(id).map_err(|error| match error {
                    zpl::Error::NotFound => Status::STALE,
                    error => status::of(&error),
                })?;
                // Objects of extended attributes are no files of clients.
                let is_another = stat.generation != generation || stat.flags & pflags::XATTR != 0;
                if is_another { Err(Status::STALE.into()) } else { Ok(Node::Object(stat)) }
            }
        }
    }

    pub(crate) fn folder(&self, folder: Folder) -> Answer<Node> {
        self.session.check_control().map_err(|_| Status::STALE)?;
        Ok(Node::Folder(folder, self.session.folder_stat(folder)?))
    }

    pub(crate) fn object(&self, id: ObjectId) -> Answer<Node> {
        Ok(Node::Object(self.session.stat(id)?))
    }

    fn is_root(&self, id: ObjectId) -> bool {
        id == self.session.root()
    }

    /// Tells file systems apart: a snapshot has the numbers of its head.
    pub(crate) fn fsid(&self) -> u64 {
        self.snapshot.map_or(self.entered.export().guid(), |key| key.guid.0)
    }

    pub(crate) fn handle(&self, node: &Node) -> Handle {
        let named = match node {
            Node::Object(stat) => Named::Object(stat.id, stat.generation),
            Node::Folder(folder, _) => Named::Folder(*folder),
        };
        Handle { dataset: self.entered.export().guid(), snapshot: self.snapshot, named }
    }

    /// The same export, without the snapshot or in another one.
    fn beside(&self, snapshot: Option<SnapshotKey>) -> Answer<Here> {
        Here::of(self.entered.again(), snapshot)
    }

    /// The node of a name in a folder of `.zfs`, and its file system if that is another one.
    fn find_in_folder(&self, within: Folder, name: &[u8]) -> Answer<(Option<Here>, Node)> {
        if within == Folder::Control && name == b".." {
            return Ok((None, self.object(self.session.root())?));
        }
        match self.session.find_in_control(within, name)? {
            Meaning::Folder(Folder::Volumes) | Meaning::Volume => Err(Status::NOENT.into()),
            Meaning::Folder(folder) => Ok((None, self.folder(folder)?)),
            Meaning::Snapshot => {
                let key = self.session.fs()?.snapshot_named(name)?.ok_or(Status::NOENT)?;
                let there = self.beside(Some(key))?;
                let root = there.object(there.session.root())?;
                Ok((Some(there), root))
            }
        }
    }

    /// The node of `name` in the directory `dir`, with the permissions of `by`; and its file system, if that is another one.
    pub(crate) fn find(&self, by: &Caller, dir: &Node, name: &[u8]) -> Answer<(Option<Here>, Node)> {
        let stat = match dir {
            Node::Folder(within, _) => return self.find_in_folder(*within, name),
            Node::Object(stat) if stat.kind != FileKind::Directory => return Err(Status::NOTDIR.into()),
            Node::Object(stat) => stat,
        };
        let at_root = self.is_root(stat.id);
        if at_root && self.snapshot.is_none() && name == CONTROL {
            self.session.check_control()?;
            self.session.demand(by, stat.id, Access::EXECUTE)?;
            return Ok((None, self.folder(Folder::Control)?));
        }
        if at_root && name == b".." {
            return match self.snapshot {
                None => Ok((None, dir.clone())),
                Some(_) => {
                    let head = self.beside(None)?;
                    let node = head.folder(Folder::Snapshots)?;
                    Ok((Some(head), node))
                }
            };
        }
        match self.session.lookup(by, stat.id, name)? {
            None => Err(Status::NOENT.into()),
            Some(Target::Object(id) | Target::Link(id) | Target::Tree(id)) => Ok((None, self.object(id)?)),
        }
    }
}

impl Spot {
    /// The stored object.
    pub(crate) fn object(&self) -> Answer<ObjectId> {
        match &self.node {
            Node::Object(stat) => Ok(stat.id),
            Node::Folder(folder, _) => Err(Session::control_refusal(*folder).into()),
        }
    }

    /// The stored object, which is about to be changed.
    pub(crate) fn changeable(&self) -> Answer<ObjectId> {
        if self.is_read_only || self.here.snapshot.is_some() {
            return Err(Status::ROFS.into());
        }
        self.object()
    }

    /// The stored directory, in which a name is about to be changed.
    pub(crate) fn directory(&self, name: &[u8]) -> Answer<ObjectId> {
        let id = self.changeable()?;
        if self.node.stat().kind != FileKind::Directory {
            return Err(Status::NOTDIR.into());
        }
        match name {
            b"" => Err(Status::ACCES.into()),
            b"." | b".." => Err(Status::INVAL.into()),
            _ if name.len() > zpl::NAME_MAX => Err(Status::NAMETOOLONG.into()),
            _ if name.contains(&b'/') || name.contains(&0) => Err(Status::INVAL.into()),
            CONTROL if self.here.is_root(id) => Err(Status::EXIST.into()),
            _ => Ok(id),
        }
    }

    /// The regular file.
    pub(crate) fn file(&self) -> Answer<&Stat> {
        match self.node.stat() {
            stat if stat.kind == FileKind::Regular => Ok(stat),
            stat if stat.kind == FileKind::Directory => Err(Status::ISDIR.into()),
            _ => Err(Status::INVAL.into()),
        }
    }

    /// Reports a change to other caches, and makes it durable. `id` is the changed object.
    pub(crate) fn settle(&self, id: ObjectId, notices: &[Notice<'_>]) -> Answer<()> {
        self.tell(notices);
        if self.is_async { Ok(()) } else { self.here.session.fsync(id).map_err(Fail::from) }
    }

    pub(crate) fn tell(&self, notices: &[Notice<'_>]) {
        self.here.entered.export().changed(notices);
    }
}
