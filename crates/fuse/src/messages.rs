//! The messages of the protocol, each with the call that answers it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use zpl::session::{Change, Creation, Name, Position, Rename};
use zpl::{FileKind, NAME_MAX};

use crate::access::keeps_quiet;
use crate::attributes::{from_request, nothing, when};
use crate::bridge::Bridge;
use crate::caller;
use crate::errno;
use crate::ioctl::Ioctl;
use crate::limits::CAPABILITY;
use crate::progress::cached_pages;
use crate::replies::{reply_created, reply_empty, reply_entry, reply_sized, reply_written};
use crate::xattrs::mode_of;

/// Bytes of one read or write request.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests of read-ahead and write-back in flight. With fewer, the kernel reads less far ahead.
const BACKGROUND_MAX: u16 = 64;
const O_EXCL: i32 = 0o200;

thread_local! {
    /// Reused buffers for read data: fresh memory for each request would cost as much as decompression.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The node that a program asks to make.
fn creation(
    bridge: &Bridge,
    kind: FileKind,
    (parent, name): (INodeNo, &OsStr),
    mode: (u32, u32),
) -> Creation {
    let (mode, umask) = mode;
    Creation { dir: bridge.id(parent), name: name.as_bytes().to_vec(), kind, mode, umask, rdev: 0 }
}

impl Bridge {
    /// Agrees with the kernel on the capabilities of the mount.
    pub(crate) fn begin(&self, config: &mut KernelConfig) {
        // Without FUSE_ASYNC_DIO: with it, the kernel does not drop pages that a program reads into its cache while an
        // asynchronous direct write (AIO, io_uring) is under way. Later reads get the old data from there.
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_EXPLICIT_INVAL_DATA
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_EXPORT_SUPPORT
            | InitFlags::FUSE_NO_OPEN_SUPPORT
            | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        if self.session.had_acls() {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        let missing = wanted - config.capabilities();
        if !missing.is_empty() {
            tracing::info!(?missing, "this kernel's FUSE lacks something");
        }
        self.session.set_heeds_acls((wanted - missing).contains(InitFlags::FUSE_POSIX_ACL));
        // The missing flags were taken off.
        let _ = config.add_capabilities(wanted - missing);
        // If these values are not possible, the nearest possible ones are used.
        if let Err(nearest) = config.set_max_write(REQUEST_MAX) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(REQUEST_MAX) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
    }
}

impl fuser::Filesystem for Bridge {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.begin(config);
        Ok(())
    }

    fn destroy(&mut self) {
        self.session.release_all();
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (dir, by) = (self.id(parent), caller::of(req));
        match self.answer_at(dir, || self.find(&by, dir, name.as_bytes())) {
            Ok(None) => {
                let ttl = self.entry_ttl();
                reply.entry_with_ttls(&ttl, &ttl, &nothing(), Generation(0));
            }
            Ok(Some(entry)) => reply_entry(Ok(entry), reply),
            Err(errno) => reply.error(errno),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        if ino != INodeNo::ROOT {
            // Objects without names are freed now.
            self.change(move |bridge| {
                let _ = bridge.answer(|| {
                    let id = bridge.id(ino);
                    if bridge.session.release(id, nlookup) {
                        bridge.kernel.limits.forget(id);
                    }
                    Ok(())
                });
            });
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let id = self.id(ino);
        match self.answer_at(id, || fh.map_or(Ok(()), |_| self.lost.tell(id)).and_then(|()| self.stat(id))) {
            Ok((attr, ttl)) => reply.attr(&ttl, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn statx(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyStatx) {
        let id = self.id(ino);
        match self.answer_at(id, || self.stat(id)) {
            Ok((attr, ttl)) => reply.statx(&ttl, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime, ctime) = (atime.map(when), mtime.map(when), ctime.map(from_request));
        let change = Change { mode, uid, gid, size, atime, mtime, ctime };
        let (id, by, thread) = (self.id(ino), caller::of(req), req.pid());
        self.change(move |bridge| {
            match bridge.answer_at(id, || bridge.set_attributes(id, (&by, thread), &change)) {
                Ok((attr, ttl)) => reply.attr(&ttl, &attr),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let id = self.id(ino);
        match self.answer_at(id, || self.session.readlink(id).map_err(errno::from)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Ok(kind) = FileKind::of_mode(mode.into()) else { return reply.error(Errno::EINVAL) };
        let by = caller::of(req);
        let wanted = Creation { rdev, ..creation(self, kind, (parent, name), (mode, umask)) };
        self.change(move |bridge| {
            reply_entry(bridge.answer_at(wanted.dir, || bridge.make(&by, &wanted)), reply);
        });
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let by = caller::of(req);
        let wanted = creation(self, FileKind::Directory, (parent, name), (mode, umask));
        self.change(move |bridge| {
            reply_entry(bridge.answer_at(wanted.dir, || bridge.make(&by, &wanted)), reply);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name, by) = (self.id(parent), name.to_owned(), caller::of(req));
        self.change(move |bridge| {
            let done = || bridge.session.unlink(&by, dir, name.as_bytes()).map_err(errno::from);
            reply_empty(bridge.answer_at(dir, done), reply);
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name, by) = (self.id(parent), name.to_owned(), caller::of(req));
        self.change(move |bridge| {
            let done = || bridge.session.rmdir(&by, dir, name.as_bytes()).map_err(errno::from);
            reply_empty(bridge.answer_at(dir, done), reply);
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let by = caller::of(req);
        let wanted = creation(self, FileKind::Symlink, (parent, name), (0o777, 0));
        let target = target.as_os_str().as_bytes().to_vec();
        self.change(move |bridge| {
            reply_entry(bridge.answer_at(wanted.dir, || bridge.make_symlink(&by, &wanted, &target)), reply);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = if flags == RenameFlags::RENAME_NOREPLACE {
            Rename::Refuse
        } else if flags.is_empty() {
            Rename::Replace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Rename::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let from = (self.id(parent), name.to_owned());
        let to = (self.id(newparent), newname.to_owned());
        let by = caller::of(req);
        self.change(move |bridge| {
            let from = Name { dir: from.0, name: from.1.as_bytes() };
            let to = Name { dir: to.0, name: to.1.as_bytes() };
            let done = || bridge.session.rename(&by, from, to, how).map_err(errno::from);
            reply_empty(bridge.answer_both(from.dir, to.dir, done), reply);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (id, dir, name, by) = (self.id(ino), self.id(newparent), newname.to_owned(), caller::of(req));
        self.change(move |bridge| {
            let entry = || bridge.make_link(&by, id, dir, name.as_bytes());
            reply_entry(bridge.answer_both(id, dir, entry), reply);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.sees_opens {
            // The kernel never asks again in this mount: it opens and closes by itself, and known nodes keep their objects.
            return reply.error(Errno::ENOSYS);
        }
        let id = self.id(ino);
        match self.answer_at(id, || self.open_file(id, &caller::of(req), flags)) {
            Ok(()) => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(errno),
        }
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let by = caller::of(req);
        let wanted = creation(self, FileKind::Regular, (parent, name), (mode, umask));
        self.change(move |bridge| {
            let answer = bridge.answer_at(wanted.dir, || match bridge.make(&by, &wanted) {
                // Another front end made the name meanwhile.
                Err(Errno::EEXIST) if flags & O_EXCL == 0 => bridge
                    .find(&by, wanted.dir, &wanted.name)?
                    .filter(|entry| entry.attr.kind == fuser::FileType::RegularFile)
                    .ok_or(Errno::EEXIST),
                other => other,
            });
            reply_created(answer, reply);
        });
    }

    fn tmpfile(
        &self,
        req: &Request,
        parent: INodeNo,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        // The kernel enforces `O_EXCL`, which forbids a later name.
        let by = caller::of(req);
        let wanted = creation(self, FileKind::Regular, (parent, OsStr::new("")), (mode, umask));
        self.change(move |bridge| {
            reply_created(bridge.answer_at(wanted.dir, || bridge.make_unnamed(&by, &wanted)), reply)
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ.with_borrow_mut(|data| {
            let (id, by) = (self.id(ino), caller::of(req));
            let read = || {
                let len = self.read_range(&by, Position { file: id, offset }, size, data)?;
                if !keeps_quiet(flags) {
                    self.session.note_access(id);
                }
                Ok(len)
            };
            match self.answer_at(id, read) {
                Ok(len) => reply.data(&data[..len]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (at, by) = (Position { file: self.id(ino), offset }, caller::of(req));
        self.change_with(cached_pages(write_flags, data), data, move |bridge, data| {
            let write = || bridge.write_range(&by, at, data, write_flags);
            reply_written(bridge.answer_at(at.file, write), reply);
        });
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // The kernel has written its pages back by now; there is nothing to do at close.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let id = self.id(ino);
        self.change(move |bridge| {
            reply_empty(bridge.answer_at(id, || bridge.session.fsync(id).map_err(errno::from)), reply)
        });
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn readdir(&self, req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let id = self.id(ino);
        match self.answer_at(id, || self.list(&caller::of(req), id, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let id = self.id(ino);
        match self.answer_at(id, || self.list_known(&caller::of(req), id, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.answer(|| self.fs()?.space().map_err(errno::from)) {
            Ok(space) => {
                let unit = space.record_size.max(512);
                let free = space.available / unit;
                let blocks = (space.referenced + space.available) / unit;
                // A new file takes a dnode of 512 bytes.
                let more_files = space.available >> 9;
                let files = more_files + space.objects;
                reply.statfs(
                    blocks,
                    free,
                    free,
                    files,
                    more_files,
                    unit as u32,
                    NAME_MAX as u32,
                    unit as u32,
                );
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (id, by) = (self.id(ino), caller::of(req));
        let (name, value) = (name.to_owned(), value.to_vec());
        self.change(move |bridge| {
            let named = (name.as_bytes(), value.as_slice());
            let set = || bridge.session.set_xattr(&by, id, named, mode_of(flags)?).map_err(errno::from);
            reply_empty(bridge.answer_at(id, set), reply);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (id, by) = (self.id(ino), caller::of(req));
        if self.writeback && size == 0 && name.as_bytes() == CAPABILITY {
            return self.capability_len(&by, id, reply);
        }
        let value = || self.session.xattr(&by, id, name.as_bytes()).map_err(errno::from);
        reply_sized(self.answer_at(id, value), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (id, by) = (self.id(ino), caller::of(req));
        let names = || self.session.xattr_names(&by, id).map_err(errno::from);
        reply_sized(self.answer_at(id, names), size, reply);
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (id, name, by) = (self.id(ino), name.to_owned(), caller::of(req));
        self.change(move |bridge| {
            reply_empty(bridge.answer_at(id, || bridge.remove_xattr(&by, id, name.as_bytes())), reply);
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        out_size: u32,
        reply: ReplyIoctl,
    ) {
        self.control(req, ino, Ioctl { command: cmd, data: in_data, out: out_size as usize }, reply);
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (at, by) = (Position { file: self.id(ino), offset }, caller::of(req));
        self.change(move |bridge| {
            reply_empty(bridge.answer_at(at.file, || bridge.allocate(&by, at, length, mode)), reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let (shared, id) = (self.shared.clone(), self.id(ino));
        self.seeker.run(Box::new(move || match shared.answer_at(id, || shared.seek(id, offset, whence)) {
            Ok(at) => reply.offset(at),
            Err(errno) => reply.error(errno),
        }));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        _fh_in: FileHandle,
        offset_in: u64,
        ino_out: INodeNo,
        _fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let from = Position { file: self.id(ino_in), offset: offset_in };
        let to = Position { file: self.id(ino_out), offset: offset_out };
        let by = caller::of(req);
        self.change(move |bridge| {
            let copy = || bridge.copy(&by, from, to, len);
            reply_written(bridge.answer_both(from.file, to.file, copy), reply);
        });
    }
}
