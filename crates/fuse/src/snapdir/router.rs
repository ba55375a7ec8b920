//! Each message goes to the owner of its node: the mounted file system, one of its snapshots, or the made-up directories
//! between the two. A node may also be of another file system that is shown in place of a directory, with all that belongs
//! to that.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, EarlyReply, Errno, FileAttr, FileHandle, Filesystem, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, RequestId, TimeOrNow, WriteFlags,
};
use zpl::rank::RankedRwLock;
use zpl::session::{Folder, Node, SNAPSHOT, Slot, is_acl};
use zpl::{CONTROL, ObjectId, Session};

use super::control::folder_ttl;
use super::opened::Snapshots;
use super::tree::Tree;
use super::volumes::VolumeFile;
use crate::attributes::{LONG, SHORT, attr};
use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::limits::{CAPABILITY, CAPABILITY_LEN};
use crate::places::{Owner, Places};
use crate::replies::{Entry, reply_entry, reply_sized};

/// A file system with its snapshots, as the crate `fuser` calls it.
pub(crate) struct Router {
    head: Arc<Bridge>,
    snapshots: Arc<Snapshots>,
    /// The other file systems of the mount; only the router of the mounted one has them.
    others: Option<Arc<Others>>,
}

/// The file systems that are shown within a mount, wherever in it, by their places.
pub(crate) struct Others {
    routers: RankedRwLock<HashMap<Slot, Arc<Router>>>,
    pub(crate) places: Arc<Places>,
}

impl Others {
    pub(crate) fn new(places: Arc<Places>) -> Others {
        Others { routers: RankedRwLock::default(), places }
    }

    pub(crate) fn put(&self, slot: Slot, router: Router) {
        let mut routers = self.routers.write();
        routers.insert(slot, Arc::new(router));
    }

    pub(crate) fn take_out(&self, slot: Slot) -> Option<Arc<Router>> {
        self.routers.write().remove(&slot)
    }

    fn get(&self, slot: Slot) -> Option<Arc<Router>> {
        self.routers.read().get(&slot).cloned()
    }

    /// Whom the nodes at `slot` belong to; `None`: to the file system that is mounted.
    fn of(&self, slot: Slot) -> Option<Answer<Arc<Router>>> {
        if let Some(router) = self.get(slot) {
            return Some(Ok(router));
        }
        match self.places.owner(slot)? {
            Owner::Snapshot(owner) => {
                self.get(owner?).map_or(Some(Err(Errno::ESTALE)), |router| Some(Ok(router)))
            }
            Owner::Tree => Some(Err(Errno::ESTALE)),
            Owner::Lost => Some(Err(Errno::EIO)),
        }
    }

    /// The mount ends.
    fn clear(&self) {
        let routers = std::mem::take(&mut *self.routers.write());
        routers.values().for_each(|router| router.end());
    }
}

/// To which tree, folder or link a node id belongs.
enum At<'a> {
    Tree(Tree<'a>),
    Folder(Folder),
    Volume(VolumeFile),
    /// The link that is shown in place of this directory.
    Link(ObjectId),
    /// Another file system's, or one of its snapshots'.
    Other(Arc<Router>),
    /// The snapshot of the node was destroyed or cannot be opened.
    Nowhere(Errno),
}

/// Where a message about two nodes stays.
enum Both<'a> {
    Tree(Tree<'a>),
    Other(Arc<Router>),
}

impl Router {
    /// `others` are those in the mount of this file system, if it has one of its own.
    pub(crate) fn new(head: Arc<Bridge>, snapshots: Arc<Snapshots>, others: Option<Arc<Others>>) -> Router {
        Router { head, snapshots, others }
    }

    /// The owner of a node, within this file system.
    fn node(&self, ino: INodeNo) -> Node {
        self.head.kernel.numbers.node(ino.0)
    }

    /// The other file system that a node belongs to.
    fn other(&self, ino: INodeNo) -> Option<Answer<Arc<Router>>> {
        match self.node(ino) {
            Node::Within(slot) => self.others.as_ref()?.of(slot),
            _ => None,
        }
    }

    /// Nothing is served any more.
    fn end(&self) {
        self.snapshots.clear();
        self.head.session.release_all();
        if let Ok(fs) = self.head.fs() {
            fs.dataset().set_mounted_writable(false);
        }
    }

    fn at(&self, ino: INodeNo) -> At<'_> {
        if let Some(other) = self.other(ino) {
            return other.map_or_else(At::Nowhere, At::Other);
        }
        let snapshot = match self.node(ino) {
            Node::Head => return At::Tree(Tree::Head(&self.head)),
            Node::Folder(folder) => return At::Folder(folder),
            Node::Link(dir) => return At::Link(dir),
            Node::Volume(id) => {
                return VolumeFile::new(&self.head, &self.snapshots.volumes, id)
                    .map_or_else(At::Nowhere, At::Volume);
            }
            Node::Root(dataset) => self.head.answer(|| self.snapshots.behind(dataset)),
            Node::Within(slot) => self.head.answer(|| self.snapshots.at(slot)),
        };
        snapshot.map_or_else(At::Nowhere, |bridge| At::Tree(Tree::Snapshot(bridge)))
    }

    /// The node of `name` if it is not a stored entry.
    fn find(&self, parent: INodeNo, name: &[u8]) -> Option<Answer<Entry>> {
        let root = INodeNo(self.head.kernel.numbers.root());
        Some(match (self.node(parent), name) {
            (Node::Head, CONTROL) if parent == root && !self.head.session.is_snapshot() => {
                self.snapshots.control()
            }
            // Where it is shown, the mount knows. NFS servers ask, and take another way then.
            (Node::Head, b"..") if parent == root && self.others.is_none() => Err(Errno::ESTALE),
            (Node::Head, _) => return None,
            (Node::Folder(Folder::Control), b"..") => self.head.entry(self.head.root()),
            (Node::Folder(folder), name) => self.snapshots.find_in(folder, name),
            (Node::Root(dataset), b".") => self.snapshots.root(dataset),
            (Node::Root(_), b"..") => self.snapshots.find_in(Folder::Control, SNAPSHOT),
            (Node::Within(slot), b"..") => {
                let bridge = match self.snapshots.at(slot) {
                    Ok(bridge) => bridge,
                    Err(errno) => return Some(Err(errno)),
                };
                let above =
                    bridge.fs().and_then(|fs| fs.lookup(bridge.id(parent), b"..").map_err(errno::from));
                match above {
                    Ok(Some((above, _))) if above == bridge.root() => {
                        match self.node(INodeNo(bridge.kernel.numbers.root())) {
                            Node::Root(dataset) => self.snapshots.root(dataset),
                            _ => return None,
                        }
                    }
                    _ => return None,
                }
            }
            (Node::Link(dir), b".") => self.head.link_entry(dir),
            (Node::Root(_) | Node::Volume(_) | Node::Within(_) | Node::Link(_), _) => return None,
        })
    }

    /// Attributes of a folder of `.zfs`, or of the root of a snapshot, and how long they hold.
    fn made_up_attr(&self, ino: INodeNo) -> Option<Answer<(FileAttr, Duration)>> {
        match self.node(ino) {
            Node::Folder(folder) => {
                let attr = self.head.answer(|| self.snapshots.folder_attr(folder));
                Some(attr.map(|attr| (attr, folder_ttl(folder))))
            }
            Node::Root(dataset) => Some(self.snapshots.root_attr(dataset).map(|attr| (attr, LONG))),
            Node::Volume(id) => {
                let attr = self.head.answer(|| self.snapshots.volumes.attr(id));
                Some(attr.map(|attr| (attr, SHORT)))
            }
            Node::Link(dir) => {
                let stat = self.head.answer(|| self.head.session.link_stat(dir).map_err(errno::from));
                Some(stat.map(|stat| (attr(&stat, ino), SHORT)))
            }
            Node::Head | Node::Within(_) => None,
        }
    }

    /// The file system in which a message about two nodes stays; `across` when it does not.
    fn both(&self, one: INodeNo, other: INodeNo, across: Errno) -> Answer<Both<'_>> {
        match (self.at(one), self.at(other)) {
            (At::Nowhere(errno), _) | (_, At::Nowhere(errno)) => Err(errno),
            (At::Tree(tree), At::Tree(other)) if std::ptr::eq(&*tree, &*other) => Ok(Both::Tree(tree)),
            (At::Other(one), At::Other(other)) if Arc::ptr_eq(&one, &other) => Ok(Both::Other(one)),
            (At::Other(_), _) | (_, At::Other(_)) => Err(Errno::EXDEV),
            _ => Err(across),
        }
    }
}

fn refusal(folder: Folder) -> Errno {
    errno::from(Session::control_refusal(folder))
}

/// Methods that pass a message on to the file system of its node. `else` is the answer of a folder.
macro_rules! send_on {
    ($(fn $name:ident($node:ident $(, $arg:ident: $kind:ty)*; $reply:ty) else |$folder:pat_param| $refusal:expr;)*) => {
        $(
            fn $name(&self, request: &Request, $node: INodeNo, $($arg: $kind,)* reply: $reply) {
                match self.at($node) {
                    At::Tree(tree) => Filesystem::$name(&*tree, request, $node, $($arg,)* reply),
                    At::Folder($folder) => reply.error($refusal),
                    At::Volume(file) => Filesystem::$name(&file, request, $node, $($arg,)* reply),
                    At::Link(_) => reply.error(Errno::EPERM),
                    At::Other(other) => Filesystem::$name(&*other, request, $node, $($arg,)* reply),
                    At::Nowhere(errno) => reply.error(errno),
                }
            }
        )*
    };
}

impl Filesystem for Router {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.head.begin(config);
        Ok(())
    }

    fn destroy(&mut self) {
        self.head.interrupts.clear();
        if let Some(others) = &self.others {
            others.clear();
        }
        self.end();
    }

    fn dispatching(&self, request: &Request, early: EarlyReply, dispatch: &mut dyn FnMut()) {
        self.head.interrupts.dispatching(request, early, dispatch);
    }

    fn interrupt(&self, interrupted: RequestId) {
        self.head.interrupts.interrupt(interrupted);
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(other) = self.other(parent) {
            return match other {
                Ok(other) => other.lookup(request, parent, name, reply),
                Err(errno) => reply.error(errno),
            };
        }
        match self.head.answer(|| self.find(parent, name.as_bytes()).transpose()) {
            Ok(None) => match self.at(parent) {
                At::Tree(tree) => tree.lookup(request, parent, name, reply),
                At::Folder(_) => reply.error(Errno::ENOENT),
                At::Link(_) | At::Volume(_) | At::Other(_) => reply.error(Errno::ENOTDIR),
                At::Nowhere(errno) => reply.error(errno),
            },
            Ok(Some(entry)) => reply_entry(Ok(entry), reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, request: &Request, ino: INodeNo, nlookup: u64) {
        match (self.node(ino), self.other(ino)) {
            (Node::Head, _) => return self.head.forget(request, ino, nlookup),
            (_, Some(Ok(other))) => return other.forget(request, ino, nlookup),
            (_, Some(Err(_))) => return,
            (_, None) => {}
        }
        // No program waits for an answer.
        let _ = self.head.answer(|| {
            match self.node(ino) {
                // They are not counted.
                Node::Head | Node::Folder(_) | Node::Link(_) => {}
                Node::Root(dataset) => self.snapshots.forget_root(dataset, nlookup),
                Node::Volume(id) => self.snapshots.volumes.forget(id, nlookup),
                Node::Within(slot) => self.snapshots.forget_within(slot, |bridge| {
                    bridge.session.release(bridge.id(ino), nlookup);
                }),
            }
            Ok(())
        });
    }

    fn getattr(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.made_up_attr(ino) {
            Some(Ok((attr, ttl))) => reply.attr(&ttl, &attr),
            Some(Err(errno)) => reply.error(errno),
            None => match self.at(ino) {
                At::Tree(tree) => tree.getattr(request, ino, fh, reply),
                At::Other(other) => other.getattr(request, ino, fh, reply),
                At::Folder(_) | At::Volume(_) | At::Link(_) => reply.error(Errno::ESTALE),
                At::Nowhere(errno) => reply.error(errno),
            },
        }
    }

    fn statx(&self, request: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyStatx) {
        match self.made_up_attr(ino) {
            Some(Ok((attr, ttl))) => reply.statx(&ttl, &attr),
            Some(Err(errno)) => reply.error(errno),
            None => match self.at(ino) {
                At::Tree(tree) => tree.statx(request, ino, fh, reply),
                At::Other(other) => other.statx(request, ino, fh, reply),
                At::Folder(_) | At::Volume(_) | At::Link(_) => reply.error(Errno::ESTALE),
                At::Nowhere(errno) => reply.error(errno),
            },
        }
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if let At::Folder(folder) = self.at(parent) {
            return reply.error(refusal(folder));
        }
        match self.both(parent, newparent, Errno::EXDEV) {
            Ok(Both::Tree(tree)) => {
                Filesystem::rename(&*tree, request, parent, name, newparent, newname, flags, reply);
            }
            Ok(Both::Other(other)) => other.rename(request, parent, name, newparent, newname, flags, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn link(&self, request: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        match self.both(ino, newparent, Errno::EXDEV) {
            Ok(Both::Tree(tree)) => Filesystem::link(&*tree, request, ino, newparent, newname, reply),
            Ok(Both::Other(other)) => other.link(request, ino, newparent, newname, reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.at(ino) {
            // The answer, whether the kernel asks again, is the same for all nodes of a mount.
            At::Tree(tree) => tree.open(request, ino, flags, reply),
            At::Other(other) => other.open(request, ino, flags, reply),
            At::Volume(file) => file.open(request, ino, flags, reply),
            At::Folder(_) | At::Link(_) => reply.error(Errno::EISDIR),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.at(ino) {
            At::Tree(tree) => Filesystem::readlink(&*tree, request, ino, reply),
            At::Other(other) => other.readlink(request, ino, reply),
            At::Link(dir) => match self.head.session.link_target(dir) {
                Some(target) => reply.data(&target),
                None => reply.error(Errno::ESTALE),
            },
            At::Folder(_) | At::Volume(_) => reply.error(Errno::EINVAL),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn opendir(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.head.opendir(request, ino, flags, reply);
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if self.node(ino) == Node::Head {
            return self.head.write(request, ino, fh, offset, data, write_flags, flags, lock_owner, reply);
        }
        match self.other(ino) {
            Some(Ok(other)) => {
                return other.write(request, ino, fh, offset, data, write_flags, flags, lock_owner, reply);
            }
            Some(Err(errno)) => return reply.error(errno),
            None => {}
        }
        if let At::Volume(file) = self.at(ino) {
            return file.write(request, ino, fh, offset, data, write_flags, flags, lock_owner, reply);
        }
        reply.error(Errno::EROFS);
        // Data that a program wrote to a mapping of the file is in the page cache and must be dropped.
        let head = self.head.shared.clone();
        self.head.seeker.run(Box::new(move || head.kernel.tell(|kernel| kernel.inval_inode(ino, 0, 0))));
    }

    fn flush(&self, request: &Request, ino: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        self.head.flush(request, ino, fh, owner, reply);
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.at(ino) {
            At::Tree(tree) => tree.readdir(request, ino, fh, offset, reply),
            At::Other(other) => other.readdir(request, ino, fh, offset, reply),
            At::Folder(folder) => {
                match self.head.answer(|| self.snapshots.list(folder, offset, &mut reply)) {
                    Ok(()) => reply.ok(),
                    Err(errno) => reply.error(errno),
                }
            }
            At::Link(_) | At::Volume(_) => reply.error(Errno::ENOTDIR),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.at(ino) {
            At::Tree(tree) => tree.readdirplus(request, ino, fh, offset, reply),
            At::Other(other) => other.readdirplus(request, ino, fh, offset, reply),
            At::Folder(folder) => {
                match self.head.answer(|| self.snapshots.list_names(folder, offset, &mut reply)) {
                    Ok(()) => reply.ok(),
                    Err(errno) => reply.error(errno),
                }
            }
            At::Link(_) | At::Volume(_) => reply.error(Errno::ENOTDIR),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, request: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.at(ino) {
            At::Tree(tree) => tree.statfs(request, ino, reply),
            At::Other(other) => other.statfs(request, ino, reply),
            At::Folder(_) | At::Volume(_) | At::Link(_) => self.head.statfs(request, ino, reply),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.at(ino) {
            // Where the kernel does not ask when a file is opened, it would gather what is written, and the error would
            // come too late. But before the first write it asks for the length of this attribute. An answer above 0
            // makes it remove the attribute, and the program gets the error of that. A program that asks for the
            // value itself hears that there is none.
            At::Tree(tree) if name.as_bytes() == CAPABILITY && size == 0 && tree.refuses_writes(ino) => {
                reply.size(CAPABILITY_LEN);
            }
            At::Tree(tree) => tree.getxattr(request, ino, name, size, reply),
            At::Other(other) => other.getxattr(request, ino, name, size, reply),
            At::Folder(_) if is_acl(name.as_bytes()) => reply.error(Errno::ENODATA),
            At::Volume(file) => file.getxattr(request, ino, name, size, reply),
            At::Folder(_) | At::Link(_) => reply.error(Errno::EOPNOTSUPP),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.at(ino) {
            At::Tree(tree) if name.as_bytes() == CAPABILITY && tree.refuses_writes(ino) => {
                let refused = tree.session.check_writable().map_err(errno::from);
                reply.error(refused.err().unwrap_or(Errno::EPERM));
            }
            At::Tree(tree) => tree.removexattr(request, ino, name, reply),
            At::Other(other) => other.removexattr(request, ino, name, reply),
            At::Volume(file) => file.removexattr(request, ino, name, reply),
            At::Folder(_) | At::Link(_) => reply.error(Errno::EOPNOTSUPP),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.at(ino) {
            At::Tree(tree) => tree.listxattr(request, ino, size, reply),
            At::Other(other) => other.listxattr(request, ino, size, reply),
            At::Volume(file) => file.listxattr(request, ino, size, reply),
            At::Folder(_) | At::Link(_) => reply_sized(Ok(Vec::new()), size, reply),
            At::Nowhere(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // With this error the kernel copies by itself, out of the snapshot.
        let across = if self.node(ino_out) == Node::Head { Errno::EXDEV } else { Errno::EROFS };
        match self.both(ino_in, ino_out, across) {
            Ok(Both::Tree(tree)) => tree.copy_file_range(
                request, ino_in, fh_in, offset_in, ino_out, fh_out, offset_out, len, flags, reply,
            ),
            Ok(Both::Other(other)) => other.copy_file_range(
                request, ino_in, fh_in, offset_in, ino_out, fh_out, offset_out, len, flags, reply,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    send_on! {
        fn setattr(
            ino,
            mode: Option<u32>,
            uid: Option<u32>,
            gid: Option<u32>,
            size: Option<u64>,
            atime: Option<TimeOrNow>,
            mtime: Option<TimeOrNow>,
            ctime: Option<SystemTime>,
            fh: Option<FileHandle>,
            crtime: Option<SystemTime>,
            chgtime: Option<SystemTime>,
            bkuptime: Option<SystemTime>,
            flags: Option<BsdFileFlags>;
            ReplyAttr
        ) else |_| Errno::EPERM;
        fn mknod(parent, name: &OsStr, mode: u32, umask: u32, rdev: u32; ReplyEntry) else |_| Errno::EPERM;
        fn mkdir(parent, name: &OsStr, mode: u32, umask: u32; ReplyEntry) else |folder| refusal(folder);
        fn unlink(parent, name: &OsStr; ReplyEmpty) else |_| Errno::EPERM;
        fn rmdir(parent, name: &OsStr; ReplyEmpty) else |folder| refusal(folder);
        fn symlink(parent, name: &OsStr, target: &Path; ReplyEntry) else |_| Errno::EPERM;
        fn create(parent, name: &OsStr, mode: u32, umask: u32, flags: i32; ReplyCreate) else |_| Errno::EACCES;
        fn tmpfile(parent, mode: u32, umask: u32, flags: i32; ReplyCreate) else |_| Errno::EOPNOTSUPP;
        fn read(
            ino,
            fh: FileHandle,
            offset: u64,
            size: u32,
            flags: OpenFlags,
            lock_owner: Option<LockOwner>;
            ReplyData
        ) else |_| Errno::EISDIR;
        fn fsync(ino, fh: FileHandle, datasync: bool; ReplyEmpty) else |_| Errno::EINVAL;
        fn fsyncdir(ino, fh: FileHandle, datasync: bool; ReplyEmpty) else |_| Errno::EINVAL;
        fn setxattr(ino, name: &OsStr, value: &[u8], flags: i32, position: u32; ReplyEmpty)
            else |_| Errno::EOPNOTSUPP;
        fn ioctl(
            ino,
            fh: FileHandle,
            flags: IoctlFlags,
            cmd: u32,
            in_data: &[u8],
            out_size: u32;
            ReplyIoctl
        ) else |_| Errno::ENOTTY;
        fn fallocate(ino, fh: FileHandle, offset: u64, length: u64, mode: i32; ReplyEmpty)
            else |_| Errno::EISDIR;
        fn lseek(ino, fh: FileHandle, offset: i64, whence: i32; ReplyLseek) else |_| Errno::EISDIR;
    }
}
