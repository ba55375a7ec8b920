//! `.zfs/volume`: the volumes directly below a mounted file system, as files of a fixed size.
//!
//! A volume is open as long as the kernel knows its file. The pool then refuses a rollback, because the kernel may have
//! pages of it. Only the user who serves the mount may open the file. Like a device, it ignores `O_TRUNC`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::{Folder, file_of};
use zpl::{ObjectId, SnapshotKey, Volume};

use crate::attributes::{SHORT, attr};
use crate::bridge::Bridge;
use crate::contents::{Sought, allocation};
use crate::errno::{self, Answer};
use crate::limits::{CAPABILITY, CAPABILITY_LEN};
use crate::progress::cached_pages;
use crate::replies::{Entry, reply_empty, reply_sized, reply_written};
use crate::shared::Shared;

/// Maximal number of looks until the kernel has reported a file that it dropped. On a busy machine a look takes longer, too.
const LOOKS: u32 = 300;
const PAUSE: Duration = Duration::from_millis(1);

/// The volumes whose files the kernel knows.
pub(crate) struct Volumes {
    head: Arc<Shared>,
    known: RankedMutex<HashMap<ObjectId, Known>>,
}

struct Known {
    key: SnapshotKey,
    /// Its name at the last look-up.
    name: Vec<u8>,
    volume: Volume,
    /// Number of uses by the kernel.
    count: u64,
}

impl Volumes {
    pub(crate) fn new(head: Arc<Shared>) -> Volumes {
        Volumes { head, known: RankedMutex::new(Rank::KnownVolumes, HashMap::new()) }
    }

    fn known(&self) -> MutexHeld<'_, HashMap<ObjectId, Known>> {
        self.known.lock()
    }

    fn number(&self, id: ObjectId) -> INodeNo {
        INodeNo(self.head.kernel.numbers.of(id))
    }

    fn attr_of(&self, volume: &Volume) -> FileAttr {
        let stat = self.head.session.volume_stat(volume);
        attr(&stat, self.number(stat.id))
    }

    fn entry(&self, known: &Known) -> Entry {
        let attr = self.attr_of(&known.volume);
        Entry { attr, generation: Generation(known.key.guid.0), attr_ttl: SHORT, entry_ttl: SHORT }
    }

    /// Looks up the volume `name`, and counts one more use by the kernel.
    pub(crate) fn find(&self, name: &[u8]) -> Answer<Entry> {
        let fs = self.head.fs()?;
        let key = fs.volume_named(name).map_err(errno::from)?.ok_or(Errno::ENOENT)?;
        file_of(key.id).ok_or(Errno::EIO)?;
        let is_known = self.known().contains_key(&key.id);
        // This runs without the lock, because it reads from the disks.
        let opened = match is_known {
            true => None,
            false => Some(fs.open_volume(key, name).map_err(errno::from)?),
        };
        let mut table = self.known();
        let fresh = opened.map(|volume| Known { key, name: Vec::new(), volume, count: 0 });
        let known = match (table.entry(key.id), fresh) {
            (std::collections::hash_map::Entry::Occupied(known), _) => known.into_mut(),
            (std::collections::hash_map::Entry::Vacant(vacant), Some(fresh)) => vacant.insert(fresh),
            // The kernel dropped it meanwhile.
            (std::collections::hash_map::Entry::Vacant(_), None) => return Err(Errno::ESTALE),
        };
        if known.key != key {
            return Err(Errno::ESTALE);
        }
        known.count += 1;
        known.name = name.to_vec();
        Ok(self.entry(known))
    }

    fn volume(&self, id: ObjectId) -> Answer<Volume> {
        self.known().get(&id).map(|known| known.volume.clone()).ok_or(Errno::ESTALE)
    }

    pub(crate) fn attr(&self, id: ObjectId) -> Answer<FileAttr> {
        Ok(self.attr_of(&self.volume(id)?))
    }

    /// The kernel dropped `count` uses of a file.
    pub(crate) fn forget(&self, id: ObjectId, count: u64) {
        let mut table = self.known();
        let Some(known) = table.get_mut(&id) else { return };
        known.count = known.count.saturating_sub(count);
        let closed = if known.count == 0 { table.remove(&id) } else { None };
        drop(table);
        drop(closed);
    }

    /// Makes the kernel drop the file of a volume, which closes it. If it is in use, it stays open. Do not call it from a
    /// thread that serves requests.
    pub(crate) fn let_go(&self, key: SnapshotKey) {
        let name_of =
            || self.known().get(&key.id).filter(|known| known.key == key).map(|known| known.name.clone());
        let Some(name) = name_of() else { return };
        let folder = self.number(ObjectId(Folder::Volumes.number()));
        self.head.kernel.tell(|kernel| kernel.inval_entry(folder, OsStr::from_bytes(&name)));
        for _ in 0..LOOKS {
            if name_of().is_none() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Makes the kernel drop the pages and the name of a file, because it takes it for longer than the volume: it had written
    /// beyond the end before that was refused. It asks for the size again when no program has the file open any more. Do not
    /// call it from a thread that serves requests.
    fn forget_size(&self, id: ObjectId) {
        let Some(name) = self.known().get(&id).map(|known| known.name.clone()) else { return };
        let (file, folder) = (self.number(id), self.number(ObjectId(Folder::Volumes.number())));
        self.head.kernel.tell(|kernel| kernel.inval_inode(file, 0, 0));
        self.head.kernel.tell(|kernel| kernel.inval_entry(folder, OsStr::from_bytes(&name)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.known().is_empty()
    }

    /// The mount ends.
    pub(crate) fn clear(&self) {
        let closed = std::mem::take(&mut *self.known());
        drop(closed);
    }
}

/// The file of a volume, as messages are about it.
pub(crate) struct VolumeFile {
    /// The bridge of the file system above: its threads serve the volume, too.
    pub(crate) head: Arc<Bridge>,
    pub(crate) volume: Volume,
    id: ObjectId,
    volumes: Arc<Volumes>,
}

impl VolumeFile {
    pub(crate) fn new(head: &Bridge, volumes: &Arc<Volumes>, id: ObjectId) -> Answer<VolumeFile> {
        Ok(VolumeFile { head: head.own(), volume: volumes.volume(id)?, id, volumes: volumes.clone() })
    }

    fn own(&self) -> VolumeFile {
        let VolumeFile { head, volume, id, volumes } = self;
        VolumeFile { head: head.clone(), volume: volume.clone(), id: *id, volumes: volumes.clone() }
    }

    /// Makes the kernel drop data that was refused.
    fn drop_refused(&self, ino: INodeNo, errno: Errno, end: u64) {
        let file = self.own();
        if errno == Errno::ENOSPC && end > self.volume.size() {
            self.head.seeker.run(Box::new(move || file.volumes.forget_size(file.id)));
        } else if errno == Errno::EROFS {
            // Data that a program wrote to a mapping of the file is in the page cache and must be dropped.
            let head = file.head.shared.clone();
            self.head.seeker.run(Box::new(move || head.kernel.tell(|kernel| kernel.inval_inode(ino, 0, 0))));
        }
    }

    fn read_range(&self, offset: u64, size: u32) -> Answer<Vec<u8>> {
        let len = u64::from(size).min(self.volume.size().saturating_sub(offset));
        let mut data = vec![0; len as usize];
        self.volume.read(offset, &mut data).map_err(errno::from)?;
        Ok(data)
    }

    /// Where the next data or hole is.
    fn seek(&self, offset: i64, what: Sought) -> Answer<i64> {
        let size = self.volume.size();
        let mut at = u64::try_from(offset).ok().filter(|at| *at < size).ok_or(Errno::ENXIO)?;
        while at < size {
            for extent in self.volume.extents(at, size - at, 2).map_err(errno::from)? {
                if extent.is_hole == (what == Sought::Hole) {
                    return i64::try_from(at).map_err(|_| Errno::EOVERFLOW);
                }
                at += extent.length;
            }
        }
        // The end of a file counts as a hole.
        if what == Sought::Hole {
            i64::try_from(size).map_err(|_| Errno::EOVERFLOW)
        } else {
            Err(Errno::ENXIO)
        }
    }
}

fn write_range(volume: &Volume, offset: u64, data: &[u8]) -> Answer<u32> {
    if offset.checked_add(data.len() as u64).is_none_or(|end| end > volume.size()) {
        return Err(Errno::ENOSPC);
    }
    volume.write(offset, data).map_err(errno::from)?;
    Ok(data.len() as u32)
}

fn allocate(volume: &Volume, offset: u64, length: u64, mode: i32) -> Answer<()> {
    use zpl::session::Allocation;
    match allocation(mode)? {
        Allocation::Punch | Allocation::Zero { .. } => volume.zero(offset, length).map_err(errno::from),
        // As a device. `refreservation` is what keeps space for a volume.
        Allocation::Reserve { .. } => Err(Errno::EOPNOTSUPP),
    }
}

impl Filesystem for VolumeFile {
    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // The kernel cuts a file for `O_TRUNC`, which devices ignore.
        if size.is_some_and(|size| size != 0 && size != self.volume.size()) {
            return reply.error(Errno::EINVAL);
        }
        let stat = self.head.session.volume_stat(&self.volume);
        // Times are not stored.
        reply.attr(&SHORT, &attr(&stat, ino));
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // The answer, whether the kernel asks again, is the same for all nodes of a mount.
        match self.head.sees_opens {
            true => reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE),
            false => reply.error(Errno::ENOSYS),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.head.answer(|| self.read_range(offset, size)) {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let pages = cached_pages(write_flags, data);
        let file = self.own();
        self.head.change_with(pages, data, move |bridge, data| {
            let written = bridge.answer(|| write_range(&file.volume, offset, data));
            if let Err(errno) = written {
                file.drop_refused(ino, errno, offset.saturating_add(data.len() as u64));
            }
            reply_written(written, reply);
        });
    }

    fn fsync(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let volume = self.volume.clone();
        self.head.change(move |bridge| {
            reply_empty(bridge.answer(|| volume.flush().map_err(errno::from)), reply);
        });
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let volume = self.volume.clone();
        self.head.change(move |bridge| {
            reply_empty(bridge.answer(|| allocate(&volume, offset, length, mode)), reply);
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Some(what) = Sought::of(whence) else { return reply.error(Errno::EINVAL) };
        let file = self.own();
        self.head.seeker.run(Box::new(move || {
            // Pages that the kernel has not sent yet are data, too.
            file.head.kernel.tell(|kernel| kernel.inval_inode(ino, 0, 0));
            match file.head.answer(|| file.seek(offset, what)) {
                Ok(at) => reply.offset(at),
                Err(errno) => reply.error(errno),
            }
        }));
    }

    fn getxattr(&self, _request: &Request, _ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        // As for files of a snapshot: the first write of a program gets the error, and not a later write-back.
        match size == 0 && name.as_bytes() == CAPABILITY && self.volume.is_read_only() {
            true => reply.size(CAPABILITY_LEN),
            false => reply.error(Errno::EOPNOTSUPP),
        }
    }

    fn removexattr(&self, _request: &Request, _ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let is_write = name.as_bytes() == CAPABILITY && self.volume.is_read_only();
        reply.error(if is_write { Errno::EROFS } else { Errno::EOPNOTSUPP });
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_sized(Ok(Vec::new()), size, reply);
    }

    fn setxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        _cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }
}
