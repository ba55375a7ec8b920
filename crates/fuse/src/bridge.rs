//! The messages one by one: who asks for what, which call answers it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyStatx, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::os::unix::ffi::OsStrExt;
use zpl::{FileKind, NAME_MAX, ObjectId};

use crate::access::keeps_quiet;
use crate::attributes::Wanted;
use crate::errno;
use crate::file_flags::Ioctl;
use crate::interrupts::Change;
use crate::limits::CAPABILITY;
use crate::names::{Creation, nothing};
use crate::replies::{reply_created, reply_empty, reply_entry, reply_sized};
use crate::seats::Seats;
use crate::seeker::Seeker;
use crate::shared::Shared;
use crate::xattrs::Caller;

/// Bytes of one read or write request.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests of read-ahead and write-back in flight. With fewer, the kernel reads less far ahead.
const BACKGROUND_MAX: u16 = 64;
const O_EXCL: i32 = 0o200;

thread_local! {
    /// Bytes on their way to a reader: fresh memory for each request would cost as much as decompression.
    static READ: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A mounted file system, as the crate `fuser` calls it.
pub(crate) struct Bridge {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seeker: Arc<Seeker>,
    pub(crate) seats: Seats<Task>,
}

/// What may wait for the pool.
pub(crate) type Task = Box<dyn FnOnce(&Bridge) + Send>;

/// Where a write goes.
#[derive(Clone, Copy)]
struct WriteAt {
    id: ObjectId,
    offset: u64,
    flags: WriteFlags,
}

impl Bridge {
    fn creation(
        &self,
        request: &Request,
        kind: FileKind,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Creation {
        let (dir, name, caller) = (self.id(parent), name.to_owned(), Caller::of(request));
        Creation { dir, name, kind, mode, umask, rdev: 0, caller }
    }

    /// Does `job`, for which there is a seat, and what waits for one.
    fn serve(&self, mut job: Option<Task>) {
        while let Some(now) = job {
            now(self);
            job = self.seats.next();
        }
    }

    /// Does what may wait for the pool, or leaves it to others.
    pub(crate) fn change(&self, job: impl FnOnce(&Bridge) + Send + 'static) {
        let taken = self.progress.take(0);
        let change = Change::of_current(&self.interrupts);
        let job = move |bridge: &Bridge| {
            change.run(|| job(bridge));
            bridge.progress.finish(taken);
        };
        if self.seats.sit() {
            job(self);
            self.serve(self.seats.next());
        } else {
            self.serve(self.seats.sit_or_leave(Box::new(job), 0));
        }
    }

    fn write_and_reply(&self, at: WriteAt, data: &[u8], reply: ReplyWrite) {
        match self.answer_at(at.id, || self.write_range(at.id, at.offset, data, at.flags)) {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }
}

impl Deref for Bridge {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl fuser::Filesystem for Bridge {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without FUSE_ASYNC_DIO: with it, the kernel does not drop pages that somebody reads into its cache while an
        // asynchronous direct write (AIO, io_uring) is under way, and later reads get the old data from there.
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
        if self.had_acls {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        let missing = wanted - config.capabilities();
        if !missing.is_empty() {
            tracing::info!(?missing, "this kernel's FUSE lacks something");
        }
        self.acls.store((wanted - missing).contains(InitFlags::FUSE_POSIX_ACL), Ordering::Release);
        // What is missing was taken off.
        let _ = config.add_capabilities(wanted - missing);
        // The nearest possible values do where these are not.
        if let Err(nearest) = config.set_max_write(REQUEST_MAX) {
            let _ = config.set_max_write(nearest);
        }
        if let Err(nearest) = config.set_max_readahead(REQUEST_MAX) {
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.forget_all();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let dir = self.id(parent);
        match self.answer_at(dir, || self.find(dir, name)) {
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
            // What has no name any more is freed now.
            self.change(move |bridge| {
                let _ = bridge.answer(|| {
                    let id = bridge.id(ino);
                    if bridge.forget_node(id, nlookup) {
                        bridge.limits.forget(id);
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
        let wanted = Wanted { mode, uid, gid, size, atime, mtime, ctime };
        let (id, caller) = (self.id(ino), Caller::of(req));
        self.change(move |bridge| match bridge.answer_at(id, || bridge.set_attributes(id, caller, wanted)) {
            Ok((attr, ttl)) => reply.attr(&ttl, &attr),
            Err(errno) => reply.error(errno),
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let id = self.id(ino);
        match self.answer_at(id, || self.fs()?.readlink(id).map_err(errno::from)) {
            Ok(target) => {
                let _ = self.answer_at(id, || Ok(self.note_access(id)));
                reply.data(&target);
            }
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
        let wanted = Creation { rdev, ..self.creation(req, kind, parent, name, mode, umask) };
        self.change(move |bridge| reply_entry(bridge.answer_at(wanted.dir, || bridge.make(&wanted)), reply));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let wanted = self.creation(req, FileKind::Directory, parent, name, mode, umask);
        self.change(move |bridge| reply_entry(bridge.answer_at(wanted.dir, || bridge.make(&wanted)), reply));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (self.id(parent), name.to_owned());
        self.change(move |bridge| reply_empty(bridge.answer_at(dir, || bridge.unlink(dir, &name)), reply));
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (self.id(parent), name.to_owned());
        self.change(move |bridge| reply_empty(bridge.answer_at(dir, || bridge.rmdir(dir, &name)), reply));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let wanted = self.creation(req, FileKind::Symlink, parent, name, 0o777, 0);
        let target = target.as_os_str().to_owned();
        self.change(move |bridge| {
            reply_entry(bridge.answer_at(wanted.dir, || bridge.make_symlink(&wanted, &target)), reply);
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (self.id(parent), name.to_owned());
        let to = (self.id(newparent), newname.to_owned());
        self.change(move |bridge| {
            let (from, to) = ((from.0, &*from.1), (to.0, &*to.1));
            reply_empty(bridge.answer_both(from.0, to.0, || bridge.rename(from, to, flags)), reply);
        });
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (id, dir, name) = (self.id(ino), self.id(newparent), newname.to_owned());
        self.change(move |bridge| {
            reply_entry(bridge.answer_both(id, dir, || bridge.link(id, dir, &name)), reply)
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if !self.sees_opens {
            // The kernel never asks again in this mount: it opens and closes by itself, and known nodes keep their objects.
            return reply.error(Errno::ENOSYS);
        }
        let id = self.id(ino);
        match self.answer_at(id, || self.open_file(id, flags)) {
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
        let wanted = self.creation(req, FileKind::Regular, parent, name, mode, umask);
        self.change(move |bridge| {
            let answer = bridge.answer_at(wanted.dir, || match bridge.make(&wanted) {
                // Somebody was quicker, not through this kernel.
                Err(Errno::EEXIST) if flags & O_EXCL == 0 => bridge
                    .find(wanted.dir, &wanted.name)?
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
        // Whether it may have a name later (`O_EXCL`) the kernel sees to.
        let wanted = self.creation(req, FileKind::Regular, parent, OsStr::new(""), mode, umask);
        self.change(move |bridge| {
            reply_created(bridge.answer_at(wanted.dir, || bridge.make_unnamed(&wanted)), reply)
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        READ.with_borrow_mut(|data| {
            let id = self.id(ino);
            let read = || {
                let len = self.read_range(id, offset, size, data)?;
                if !keeps_quiet(flags) {
                    self.note_access(id);
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
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages of the kernel's cache: no program waits for them.
        let is_cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let pages = if is_cached { data.len().div_ceil(rustix::param::page_size()) } else { 0 };
        let taken = self.progress.take(pages as u64);
        let at = WriteAt { id: self.id(ino), offset, flags: write_flags };
        let change = Change::of_current(&self.interrupts);
        if self.seats.sit() {
            change.run(|| self.write_and_reply(at, data, reply));
            self.progress.finish(taken);
            self.serve(self.seats.next());
        } else {
            let data = data.to_vec();
            let bytes = data.len() as u64;
            let job: Task = Box::new(move |bridge| {
                change.run(|| bridge.write_and_reply(at, &data, reply));
                bridge.progress.finish(taken);
            });
            self.serve(self.seats.sit_or_leave(job, bytes));
        }
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // The kernel has written its pages back by now; there is nothing to do at close.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let id = self.id(ino);
        self.change(move |bridge| reply_empty(bridge.answer_at(id, || bridge.make_durable(id)), reply));
    }

    fn fsyncdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(req, ino, fh, datasync, reply);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let id = self.id(ino);
        match self.answer_at(id, || self.list(id, offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let id = self.id(ino);
        match self.answer_at(id, || self.list_known(id, offset, &mut reply)) {
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
        let (id, caller) = (self.id(ino), Caller::of(req));
        let (name, value) = (name.to_owned(), value.to_vec());
        self.change(move |bridge| {
            let set = || bridge.set_xattr(id, name.as_bytes(), &value, flags, &caller);
            reply_empty(bridge.answer_at(id, set), reply);
        });
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let id = self.id(ino);
        if self.writeback && size == 0 && name.as_bytes() == CAPABILITY {
            return self.capability_len(id, reply);
        }
        reply_sized(self.answer_at(id, || self.xattr(id, name.as_bytes())), size, reply);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_sized(self.answer_at(self.id(ino), || self.xattr_names(self.id(ino), req.uid())), size, reply);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (id, name) = (self.id(ino), name.to_owned());
        self.change(move |bridge| {
            reply_empty(bridge.answer_at(id, || bridge.remove_xattr(id, name.as_bytes())), reply);
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
        let (id, caller) = (self.id(ino), req.uid());
        self.change(move |bridge| {
            reply_empty(bridge.answer_at(id, || bridge.allocate(id, caller, offset, length, mode)), reply);
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
        let (from, to) = ((self.id(ino_in), offset_in), (self.id(ino_out), offset_out));
        let caller = req.uid();
        self.change(move |bridge| {
            match bridge.answer_both(from.0, to.0, || bridge.copy(caller, from, to, len)) {
                Ok(copied) => reply.written(copied),
                Err(errno) => reply.error(errno),
            }
        });
    }
}
