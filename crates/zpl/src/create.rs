//! New nodes and new names.
//!
//! Source: docs/format/07-zpl-sa.md §4, §5; docs/format/10-create-checklist.md §C.

use std::sync::Arc;

use dmu::{NewObject, Object, Tx, zap};
use format::zil::{Body, Create, xat};
use format::znode::{Time, Znode, pflags, rdev};
use format::{ObjectId, ObjectType};
use pool::Hold;

use crate::attributes::Encoded;
use crate::dir::{check_name, is_dot};
use crate::fs::NAME_COST;
use crate::logged::flags_with;
use crate::node::{count_change, modified};
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result, Times, legacy};

/// Set-group-id.
const S_ISGID: u64 = 0o2000;
/// Longest target of a symbolic link, in bytes.
const TARGET_MAX: usize = 4095;
const SECTOR: usize = 512;

/// ACLs of a new node, by the names of the extended attributes that hold them.
type Acls = Vec<(&'static [u8], Vec<u8>)>;

/// The bytes that storing these ACLs may write.
pub(crate) fn acl_cost(acls: &Acls) -> u64 {
    acls.len() as u64 * 2 * NAME_COST
}

/// Attributes of a new node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// The type of the node.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// The umask: bits removed from the mode, unless the directory has a default ACL.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// If set: in a setgid directory, the node gets the directory's group, and a new directory becomes setgid. If not set,
    /// group and mode are used as given.
    pub inherits_group: bool,
    /// Device number as programs see it (`makedev`); for devices only.
    pub rdev: u64,
    /// Its times; all of them now if not given.
    pub times: Option<Times>,
}

impl NewNode {
    /// A node of this kind and mode, owned by root, made now.
    #[must_use]
    pub const fn new(kind: FileKind, mode: u32) -> NewNode {
        NewNode { kind, mode, umask: 0, uid: 0, gid: 0, inherits_group: false, rdev: 0, times: None }
    }

    /// Group and permission bits in a directory with these attributes.
    fn group_in(&self, dir: &Znode) -> (u64, u64) {
        let mode = u64::from(self.mode & 0o7777);
        if !self.inherits_group || dir.mode & S_ISGID == 0 {
            return (self.gid.into(), mode);
        }
        (dir.gid, if self.kind == FileKind::Directory { mode | S_ISGID } else { mode })
    }

    /// The attributes of the node in directory `parent`, which has the attributes `dir`.
    pub(crate) fn znode(&self, (parent, dir): (ObjectId, &Znode), now: Time) -> Result<Znode> {
        let (gid, mode) = self.group_in(dir);
        let mut znode = fresh(self.kind.mode() | mode, [self.uid.into(), gid], parent, now);
        if self.kind.is_device() {
            let (major, minor) = rdev::from_user(self.rdev);
            znode.rdev = Some(rdev::pack(major, minor).ok_or(Error::Invalid)?);
        }
        if let Some(times) = self.times {
            (znode.atime, znode.mtime) = (times.atime, times.mtime);
            znode.ctime = times.ctime.unwrap_or(now);
            znode.crtime = times.crtime.unwrap_or(now);
        }
        Ok(znode)
    }
}

/// The attributes of a new, empty node; its generation is set when it is stored, unless a log gives it.
pub(crate) fn fresh(mode: u64, [uid, gid]: [u64; 2], parent: ObjectId, now: Time) -> Znode {
    let mut znode = Znode {
        mode,
        uid,
        gid,
        parent,
        atime: now,
        mtime: now,
        ctime: now,
        crtime: now,
        links: 1,
        flags: Znode::new_flags(mode, false),
        ..Znode::default()
    };
    if is_kind(&znode, FileKind::Directory) {
        (znode.size, znode.links) = (2, 2);
    }
    znode.set_trivial_acl();
    znode
}

/// Gives files and directories the project they get where projects are counted.
pub(crate) fn assign_project(znode: &mut Znode, parent: Option<&Znode>) {
    let (file, dir) = (is_kind(znode, FileKind::Regular), is_kind(znode, FileKind::Directory));
    if !file && !dir {
        return;
    }
    znode.flags |= pflags::PROJID;
    znode.projid = Some(0);
    if let Some(parent) = parent.filter(|parent| parent.flags & pflags::PROJINHERIT != 0) {
        znode.projid = Some(parent.projid.unwrap_or(0));
        if dir {
            znode.flags |= pflags::PROJINHERIT;
        }
    }
}

/// The dnode of a new node.
pub(crate) struct NewDnode {
    /// The number of the object, if an intent log gives it.
    pub id: Option<ObjectId>,
    pub slots: u8,
    /// Bytes of its blocks.
    pub block_size: u32,
}

/// A new node with its name and its attributes.
struct NewEntry<'a> {
    name: &'a [u8],
    znode: Znode,
    /// Where a symbolic link leads.
    target: Option<&'a [u8]>,
    /// Number and slots of the object, if an intent log gives them.
    logged: Option<(ObjectId, u8)>,
    acls: Acls,
    /// When its directory changed.
    now: Time,
}

/// How an entry refers to its object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    /// The first that it ever had.
    First,
    /// One more.
    Again,
}

impl Filesystem {
    /// Stores a new node.
    pub(crate) fn new_object(&self, tx: &Tx, znode: &mut Znode, dnode: NewDnode) -> Result<Arc<Object>> {
        if znode.generation == 0 {
            znode.generation = tx.txg().0;
        }
        let NewDnode { id, slots, block_size } = dnode;
        let (bonus_type, Encoded { bonus, spill }) = self.inner.attributes.encode_new(tx, znode, slots)?;
        let object_type = if is_kind(znode, FileKind::Directory) {
            ObjectType::DIRECTORY_CONTENTS
        } else {
            ObjectType::PLAIN_FILE_CONTENTS
        };
        let mut new = NewObject::plain(object_type).block_size(block_size).bonus(bonus_type, bonus);
        new.slots = slots;
        let object = match id {
            Some(id) => self.inner.objset.create_object_numbered(tx, id, new)?,
            None => self.inner.objset.create_object(tx, new)?,
        };
        if spill.is_some() {
            object.set_spill(tx, spill);
        }
        Ok(object)
    }

    /// Dnode slots of a new node.
    pub(crate) fn slots(&self) -> u8 {
        self.inner.dataset.settings().dnode_slots.clamp(1, 32)
    }

    /// Creates anything but a symbolic link.
    ///
    /// # Errors
    /// [`Error::Exists`]; [`Error::NotFound`] when `dir` was removed; [`Error::Invalid`] for a symbolic link or a
    /// device number that cannot be stored; [`Error::NoSpace`], [`Error::Quota`].
    pub fn create(&self, dir: ObjectId, name: &[u8], new: &NewNode) -> Result<ObjectId> {
        if new.kind == FileKind::Symlink {
            return Err(Error::Invalid);
        }
        self.changing(|| self.make(dir, name, new, None, &mut Vec::new()))
    }

    /// Creates a regular file with its whole content, at most one record, in one step.
    ///
    /// # Errors
    /// As [`Filesystem::create`]; [`Error::Invalid`] when `data` is longer than the dataset's record size.
    pub fn create_with(
        &self,
        dir: ObjectId,
        name: &[u8],
        new: &NewNode,
        mut data: Vec<u8>,
    ) -> Result<ObjectId> {
        let max = self.inner.dataset.settings().record_size;
        if new.kind != FileKind::Regular || data.len() as u64 > max {
            return Err(Error::Invalid);
        }
        self.changing(|| self.make(dir, name, new, None, &mut data))
    }

    /// Creates a symbolic link to `target`; `new` gives mode (usually 0777), owner and times.
    ///
    /// # Errors
    /// As [`Filesystem::create`]; [`Error::NotFound`] for an empty target, [`Error::NameTooLong`] for one beyond
    /// 4095 bytes.
    pub fn symlink(&self, dir: ObjectId, name: &[u8], new: &NewNode, target: &[u8]) -> Result<ObjectId> {
        match target.len() {
            0 => return Err(Error::NotFound),
            1..=TARGET_MAX if !target.contains(&0) => {}
            1..=TARGET_MAX => return Err(Error::Invalid),
            _ => return Err(Error::NameTooLong),
        }
        let new = NewNode { kind: FileKind::Symlink, ..new.clone() };
        self.changing(|| self.make(dir, name, &new, Some(target), &mut Vec::new()))
    }

    /// `data` is taken once the transaction has begun.
    fn make(
        &self,
        dir: ObjectId,
        name: &[u8],
        new: &NewNode,
        target: Option<&[u8]>,
        data: &mut Vec<u8>,
    ) -> Result<ObjectId> {
        if is_dot(name) {
            return Err(Error::Exists);
        }
        check_name(name, self.inner.utf8_only)?;
        self.check_reserved(dir, name)?;
        let _names = self.inner.names.write(dir);
        let _node = self.inner.nodes.write(dir);
        let (dir_object, mut parent) = self.directory_for_change(dir)?;
        if self.find(&dir_object, name)?.is_some() {
            return Err(Error::Exists);
        }
        let now = self.now();
        let mut znode = new.znode((dir, &parent), now)?;
        let acls = self.inherited_acls(&dir_object, &parent, &mut znode, new)?;
        let entry = NewEntry { name, znode, target, logged: None, acls, now };
        self.place(&dir_object, &mut parent, entry, data)
    }

    /// Creates the node of a record of an intent log, with all attributes of the record.
    pub(crate) fn make_logged(&self, create: &Create) -> Result<ObjectId> {
        let (dir, name) = (create.dir, &create.name);
        check_name(name, false)?;
        let _names = self.inner.names.write(dir);
        let _node = self.inner.nodes.write(dir);
        let (dir_object, mut parent) = self.directory_for_change(dir)?;
        if self.find(&dir_object, name)?.is_some() {
            return Err(Error::Exists);
        }
        let node = &create.node;
        let mut znode = fresh(node.mode, [node.uid, node.gid], dir, node.crtime);
        znode.generation = node.generation;
        znode.rdev = FileKind::of_mode(node.mode).is_ok_and(FileKind::is_device).then_some(node.rdev);
        znode.flags |= parent.flags & pflags::XATTR;
        if let Some(attrs) = &create.attrs {
            znode.flags = flags_with(znode.flags, attrs);
            if attrs.wanted[0] & xat::CREATETIME != 0 {
                znode.crtime = attrs.crtime;
            }
        }
        let entry = NewEntry {
            name,
            znode,
            target: create.target.as_deref(),
            logged: Some((node.object, node.slots)),
            acls: Vec::new(),
            now: node.crtime,
        };
        self.place(&dir_object, &mut parent, entry, &mut Vec::new())
    }

    /// Stores a new node and its name in a directory, which has the attributes `parent`; `data` is its content. The caller
    /// holds the directory's locks and knows that the name is free.
    fn place(
        &self,
        dir_object: &Arc<Object>,
        parent: &mut Znode,
        entry: NewEntry<'_>,
        data: &mut Vec<u8>,
    ) -> Result<ObjectId> {
        let NewEntry { name, mut znode, target, logged, acls, now } = entry;
        if let Some(target) = target {
            znode.size = target.len() as u64;
            znode.symlink = Some(target.to_vec());
            if !self.inner.attributes.has_tables() && legacy::is_long(target) {
                *data = target.to_vec();
            }
        }
        if self.has_projects() {
            assign_project(&mut znode, Some(parent));
        }
        self.check_new_owners(None, &znode)?;
        let content = !data.is_empty();
        let mut block_size = SECTOR;
        if content {
            znode.size = data.len() as u64;
            block_size = data.len().next_multiple_of(SECTOR);
        }
        let is_dir = is_kind(&znode, FileKind::Directory);
        parent.size = parent.size.saturating_add(1);
        parent.links = parent.links.saturating_add(is_dir.into());
        modified(parent, now);
        let salt = is_dir.then(|| self.inner.dataset.host().entropy.u64());

        let bytes = if content { block_size as u64 } else { 0 };
        let tx = self.begin(Hold::write(NAME_COST + acl_cost(&acls) + bytes))?;
        self.count_pending_object(&tx, &znode)?;
        self.count_pending_bytes(&tx, &znode, bytes, block_size as u64)?;
        let mut block = std::mem::take(data);
        let slots = logged.map_or(self.slots(), |(_, slots)| slots);
        let dnode = NewDnode { id: logged.map(|(id, _)| id), slots, block_size: block_size as u32 };
        let object = self.new_object(&tx, &mut znode, dnode)?;
        let fill = || {
            if let Some(salt) = salt {
                zap::create(&object, &tx, salt, self.normflags())?;
            }
            if content {
                block.resize(block_size, 0);
                object.put_block(&tx, 0, Arc::new(block));
            }
            let told = self.keep_acls(&tx, &object, &mut znode, acls)?;
            self.insert(dir_object, &tx, name, &znode, object.id())?;
            self.store(dir_object, &tx, parent).inspect_err(|_| {
                // The directory is unchanged. The first error is more useful than this one.
                let _ = zap::remove(dir_object, &tx, name);
            })?;
            Ok(told)
        };
        match fill() {
            Ok(told) => {
                self.note_create(&tx, dir_object.id(), name, &object, &znode);
                self.note_xattrs(&tx, object.id(), &znode, told);
                Ok(object.id())
            }
            Err(error) => {
                self.unmake(&tx, object, &znode);
                Err(error)
            }
        }
    }

    /// Frees a node that could not be completed, in the transaction that made it.
    pub(crate) fn unmake(&self, tx: &Tx, object: Arc<Object>, znode: &Znode) {
        let made = self.doomed(&object, znode).unwrap_or_else(|_| vec![object]);
        made.iter().for_each(|object| self.inner.objset.free_object(tx, object));
    }

    /// Adds the entry of a node to a directory.
    pub(crate) fn insert(
        &self,
        dir: &Arc<Object>,
        tx: &Tx,
        name: &[u8],
        znode: &Znode,
        id: ObjectId,
    ) -> Result<()> {
        Ok(zap::insert(dir, tx, name, &self.entry(znode, id))?)
    }

    /// Makes a hard link to object `id`, which is no directory. The first name of a file made with `O_TMPFILE` is on disk
    /// when this returns, unless `sync=disabled`.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] for a directory; [`Error::NotFound`] when its last name is gone; [`Error::Exists`];
    /// [`Error::CrossProject`].
    pub fn link(&self, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.changing(|| {
            let named = self.add_name(id, dir, name)?;
            self.settle(named)
        })
    }

    /// Returns whether it was the first.
    fn add_name(&self, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<Named> {
        if is_dot(name) {
            return Err(Error::Exists);
        }
        check_name(name, self.inner.utf8_only)?;
        self.check_reserved(dir, name)?;
        let _names = self.inner.names.write(dir);
        let _nodes = self.inner.nodes.write_all(&[dir, id]);
        let (dir_object, mut parent) = self.directory_for_change(dir)?;
        let (object, mut znode) = self.node_for_change(id)?;
        if is_kind(&znode, FileKind::Directory) || znode.flags & (pflags::XATTR | pflags::IMMUTABLE) != 0 {
            return Err(Error::NotPermitted);
        }
        let named = self.named(id, &znode)?;
        check_project(&parent, &znode)?;
        if self.find(&dir_object, name)?.is_some() {
            return Err(Error::Exists);
        }
        let now = self.now();
        znode.links = znode.links.saturating_add(1);
        znode.parent = dir;
        znode.ctime = now;
        count_change(&mut znode);
        parent.size = parent.size.saturating_add(1);
        modified(&mut parent, now);
        let tx = self.begin(Hold::write(NAME_COST))?;
        self.insert(&dir_object, &tx, name, &znode, id)?;
        self.store(&dir_object, &tx, &parent)?;
        self.store(&object, &tx, &znode)?;
        match named {
            Named::Again => self.note_names(&tx, || Body::Link { dir, object: id, name: name.to_vec() }),
            Named::First => self.first_name(&tx, id)?,
        }
        Ok(named)
    }
}

/// A directory whose project is inherited takes no links to files of other projects.
pub(crate) fn check_project(dir: &Znode, znode: &Znode) -> Result<()> {
    if dir.flags & pflags::PROJINHERIT != 0 && dir.projid.unwrap_or(0) != znode.projid.unwrap_or(0) {
        return Err(Error::CrossProject);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::znode::{S_IFDIR, S_IFIFO, S_IFREG};

    const NOW: Time = Time { secs: 7, nanos: 1 };

    #[test]
    fn new_nodes_are_those_of_openzfs() {
        let mut file = fresh(S_IFREG | 0o644, [1, 2], ObjectId(34), NOW);
        assign_project(&mut file, None);
        assert_eq!((file.flags, file.links, file.size), (0x8408_0000_0004, 1, 0));
        let mut dir = fresh(S_IFDIR | 0o755, [1, 2], ObjectId(34), NOW);
        assign_project(&mut dir, None);
        assert_eq!((dir.flags, dir.links, dir.size), (0x8408_0000_0144, 2, 2));
        let mut fifo = fresh(S_IFIFO | 0o644, [1, 2], ObjectId(34), NOW);
        assign_project(&mut fifo, None);
        assert_eq!((fifo.projid, fifo.flags & pflags::PROJID), (None, 0));
    }

    #[test]
    fn projects_are_inherited_where_the_parent_says_so() {
        let mut parent = fresh(S_IFDIR | 0o755, [0, 0], ObjectId(34), NOW);
        assign_project(&mut parent, None);
        parent.projid = Some(9);
        let child = |mode, parent: &Znode| {
            let mut child = fresh(mode, [0, 0], ObjectId(34), NOW);
            assign_project(&mut child, Some(parent));
            child
        };
        assert_eq!(child(S_IFREG | 0o644, &parent).projid, Some(0));
        parent.flags |= pflags::PROJINHERIT;
        assert_eq!(child(S_IFREG | 0o644, &parent).projid, Some(9));
        assert_ne!(child(S_IFDIR | 0o755, &parent).flags & pflags::PROJINHERIT, 0);
        assert!(check_project(&parent, &child(S_IFREG, &parent)).is_ok());
        assert!(check_project(&parent, &fresh(S_IFREG, [0, 0], ObjectId(1), NOW)).is_err());
    }

    #[test]
    fn a_device_number_beyond_what_linux_has_is_refused() {
        let mut device = NewNode::new(FileKind::CharDevice, 0o600);
        device.rdev = rdev::to_user(10, 200);
        let dir = (ObjectId(2), &fresh(S_IFDIR | 0o755, [0, 0], ObjectId(34), NOW));
        assert_eq!(device.znode(dir, NOW).unwrap().rdev, Some(0xa0_00c8));
        device.rdev = rdev::to_user(5000, 1);
        assert!(matches!(device.znode(dir, NOW), Err(Error::Invalid)));
    }

    #[test]
    fn groups_are_handed_down_by_setgid_directories() {
        let made = |kind, inherits_group, dir_mode| {
            let dir = fresh(S_IFDIR | dir_mode, [0, 7], ObjectId(34), NOW);
            let new = NewNode { gid: 20, inherits_group, ..NewNode::new(kind, 0o755) };
            let znode = new.znode((ObjectId(2), &dir), NOW).unwrap();
            (znode.gid, znode.mode & 0o7777)
        };
        assert_eq!(made(FileKind::Directory, true, 0o755), (20, 0o755));
        assert_eq!(made(FileKind::Directory, true, 0o2755), (7, 0o2755));
        assert_eq!(made(FileKind::Regular, true, 0o2755), (7, 0o755));
        assert_eq!(made(FileKind::Directory, false, 0o2755), (20, 0o755));
    }
}
