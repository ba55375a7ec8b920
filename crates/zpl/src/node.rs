//! Nodes: reading and changing the attributes that `stat` shows.

use dmu::Object;
use format::ObjectId;
use format::znode::{self, Time, Znode, pflags, rdev};
use pool::Hold;

use crate::attributes::is_legacy;
use crate::fs::ATTRIBUTE_COST;
use crate::legacy::FUIDS;
use crate::log::set_attr;
use crate::owner::owners_of;
use crate::stat::{FileKind, SetAttr, Stat};
use crate::xattr_log::Told;
use crate::{Error, Filesystem, Result};

/// The longest step, in nanoseconds, of the clock that times of files come from. Since Linux 6.13 the kernel's times can be
/// ahead of that clock by up to a step, because other file systems ask for finer ones.
const CLOCK_STEP: i128 = 10_000_000;
/// Owner shown for an id that is no POSIX id (a Windows SID behind an FUID).
const NOBODY: u32 = 65534;

/// Flags that a user may set: read-only, hidden, … up to project inheritance.
const USER_FLAGS: u64 = (pflags::PROJID - 1) & !(pflags::READONLY - 1);

impl Filesystem {
    /// The attributes that `stat` shows of object `id`.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Damaged`].
    pub fn stat(&self, id: ObjectId) -> Result<Stat> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.node(id)?;
        stat_of(&object, &znode)
    }

    /// Changes attributes, and the size of a regular file.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] as the node's flags have it; [`Error::Invalid`] for the size of anything else; [`Error::Unsupported`] for a project without project
    /// quota.
    pub fn setattr(&self, id: ObjectId, set: &SetAttr) -> Result<()> {
        let only_size = *set == SetAttr { size: set.size, ..SetAttr::default() };
        let changes_owner = set.uid.is_some() || set.gid.is_some() || set.projid.is_some();
        // Each step takes the lock for itself and starts again by itself.
        self.changing(|| {
            if let Some(size) = set.size {
                self.resize(id, size)?;
                if only_size {
                    return Ok(());
                }
            }
            self.retrying(|| self.set_attributes(id, set))?;
            if changes_owner { self.retrying(|| self.hand_on_hidden(id)) } else { Ok(()) }
        })
    }

    fn set_attributes(&self, id: ObjectId, set: &SetAttr) -> Result<()> {
        let _node = self.inner.nodes.write(id);
        let (object, mut znode) = self.node_for_change(id)?;
        if set.mode.is_some() || set.uid.is_some() || set.gid.is_some() {
            self.check_attributes_change(&znode, pflags::IMMUTABLE | pflags::APPENDONLY)?;
        }
        let is_late = reports_late_write(set, &znode);
        if (set.atime.is_some() || set.mtime.is_some()) && !is_late {
            // A writer that appends may set the times.
            self.check_attributes_change(&znode, pflags::IMMUTABLE)?;
        }
        let before = znode.clone();
        let (mut xattr_form, mut told) = (None, Told::default());
        if let Some(mode) = set.mode {
            znode.mode = znode.mode & znode::S_IFMT | u64::from(mode & 0o7777);
            xattr_form = self.acl_after_chmod(&object, &mut znode, &mut told)?;
            znode.set_trivial_acl();
        }
        let put = |field: &mut u64, value: Option<u32>| {
            if let Some(value) = value {
                *field = value.into();
            }
        };
        put(&mut znode.uid, set.uid);
        put(&mut znode.gid, set.gid);
        let when = |field: &mut Time, time: Option<Time>| *field = time.unwrap_or(*field);
        when(&mut znode.atime, set.atime);
        when(&mut znode.mtime, set.mtime);
        when(&mut znode.crtime, set.crtime);
        if let Some(flags) = set.flags {
            if self.version() < FUIDS {
                return Err(Error::Unsupported("flags of files in file systems before version 3"));
            }
            if flags & !znode.flags & pflags::PROJINHERIT != 0 && (!self.has_projects() || is_legacy(&object))
            {
                return Err(Error::Unsupported("projects in this file system"));
            }
            znode.flags = znode.flags & !USER_FLAGS | flags & USER_FLAGS;
        }
        if let Some(projid) = set.projid {
            if !self.has_projects() || is_legacy(&object) {
                return Err(Error::Unsupported("projects in this file system"));
            }
            znode.projid = Some(projid);
            znode.flags |= pflags::PROJID;
        }
        self.check_new_owners(Some(&before), &znode)?;
        znode.ctime = match set.ctime {
            // The flag was set after the cached write.
            Some(_) if is_late && znode.flags & pflags::IMMUTABLE != 0 => znode.ctime,
            given => given.unwrap_or_else(|| self.now()),
        };
        count_change(&mut znode);
        let logged = set.crtime.is_none() && set.flags.is_none() && set.projid.is_none();
        // The change replaces stored bytes, so a full quota does not refuse it. (The kernel's cache sends the times of a
        // file at any moment, and `: > file` arrives as a truncation with times.)
        let tx = self.begin(Hold::acknowledged(ATTRIBUTE_COST))?;
        if let Some((file, value)) = xattr_form {
            // The ACL keeps its length, because only the permission bits in it change.
            file.write(&tx, 0, &value)?;
        }
        self.store(&object, &tx, &znode)?;
        if logged {
            self.note_node(&tx, id, &znode, || set_attr(id, set, &znode));
            self.note_xattrs(&tx, id, &znode, told);
        } else {
            self.note_unlogged(&tx);
        }
        Ok(())
    }

    /// Changes the owners of the hidden xattr directory of an object and of its files to the object's owners, who are
    /// charged for them. After a restart, it skips the files that have the owners already.
    fn hand_on_hidden(&self, id: ObjectId) -> Result<()> {
        let _node = self.inner.nodes.write(id);
        let znode = match self.node(id) {
            // It was removed since its attributes were changed.
            Err(Error::NotFound) => return Ok(()),
            found => found?.1,
        };
        let Some(dir) = znode.xattr.filter(|dir| dir.0 != 0) else { return Ok(()) };
        let files = self.hidden_files(dir)?;
        for id in std::iter::once(dir).chain(files) {
            let (object, mut own) = self.node_for_change(id)?;
            // In a damaged directory, an entry may name a foreign object.
            if own.flags & pflags::XATTR == 0 || owners_of(&own) == owners_of(&znode) {
                continue;
            }
            (own.uid, own.gid) = (znode.uid, znode.gid);
            if znode.projid.is_some() && !is_legacy(&object) {
                (own.projid, own.flags) = (znode.projid, own.flags | pflags::PROJID);
            }
            let tx = self.begin(Hold::write(ATTRIBUTE_COST))?;
            self.store(&object, &tx, &own)?;
        }
        Ok(())
    }

    /// Refuses a change of a file's contents that its flags forbid.
    pub(crate) fn check_contents_change(&self, znode: &Znode) -> Result<()> {
        self.check_attributes_change(znode, pflags::IMMUTABLE | pflags::READONLY)
    }

    /// Refuses a change that one of these flags forbids. A replay is always allowed, because the change was allowed when it
    /// was logged.
    pub(crate) fn check_attributes_change(&self, znode: &Znode, flags: u64) -> Result<()> {
        if znode.flags & flags != 0 && !self.inner.dataset.is_replaying() {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Refuses to open a file for writing if its flags forbid it. `appends`: every write goes to the end of the file.
    ///
    /// # Errors
    /// [`Error::NotPermitted`]; [`Error::NotFound`]; [`Error::Damaged`].
    pub fn check_opened_for_writing(&self, id: ObjectId, appends: bool) -> Result<()> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        self.check_contents_change(&znode)?;
        if appends { Ok(()) } else { self.check_attributes_change(&znode, pflags::APPENDONLY) }
    }

    /// Sets the access time to now, as the properties `atime` and `relatime` say. `always` overrides `atime=off`. Returns
    /// whether the access time changed.
    ///
    /// # Errors
    /// If the attributes cannot be read or changed.
    pub fn accessed(&self, id: ObjectId, always: bool) -> Result<bool> {
        let settings = self.inner.dataset.settings();
        let kept = settings.atime || always;
        if !kept || self.inner.dataset.check_writable().is_err() {
            return Ok(false);
        }
        let now = self.now();
        if settings.relatime {
            // Most accesses change nothing, so this uses a shared lock first.
            let _shared = self.inner.nodes.read(id);
            if !is_stale(&self.node(id)?.1, now) {
                return Ok(false);
            }
        }
        let _node = self.inner.nodes.write(id);
        let (object, mut znode) = self.node_for_change(id)?;
        znode.atime = now;
        // A read must not wait for writers or syncs. If the locks are busy, the access time is not updated now; a later read
        // updates it.
        let Some(tx) = self.inner.dataset.begin_at_once(Hold::write(ATTRIBUTE_COST))? else {
            return Ok(false);
        };
        self.store(&object, &tx, &znode)?;
        Ok(true)
    }
}

/// Whether a change of attributes is the cache's late report of the time of a write whose data arrived before. It sets only
/// the two times of a write, and they are older than the last change of the file. The file may have become immutable since.
fn reports_late_write(set: &SetAttr, znode: &Znode) -> bool {
    let times = SetAttr { mtime: set.mtime, ctime: set.ctime, ..SetAttr::default() };
    let is_older = |ctime: Time| nanoseconds(ctime) <= nanoseconds(znode.ctime) + CLOCK_STEP;
    set.mtime.is_some() && set.ctime.is_some_and(is_older) && *set == times
}

fn nanoseconds(time: Time) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Whether an access at `now` changes the access time under `relatime`: it is older than the last change, or a day old.
fn is_stale(znode: &Znode, now: Time) -> bool {
    const DAY: i64 = 24 * 60 * 60;
    znode.atime <= znode.mtime.max(znode.ctime) || now.secs.saturating_sub(znode.atime.secs) >= DAY
}

pub(crate) fn stat_of(object: &Object, znode: &Znode) -> Result<Stat> {
    let kind = FileKind::of_mode(znode.mode).map_err(Error::damaged(object.id()))?;
    let posix = |id: u64| u32::try_from(id).unwrap_or(NOBODY);
    let head = object.head();
    Ok(Stat {
        id: object.id(),
        kind,
        mode: (znode.mode & 0o7777) as u32,
        uid: posix(znode.uid),
        gid: posix(znode.gid),
        parent: znode.parent,
        nlink: znode.links,
        size: znode.size,
        // The dnode itself counts, as in OpenZFS.
        blocks: (object.used_bytes().saturating_add(256) >> 9) + u64::from(head.slots),
        block_size: head.block_size.into(),
        atime: znode.atime,
        mtime: znode.mtime,
        ctime: znode.ctime,
        crtime: znode.crtime,
        rdev: match znode.rdev {
            Some(stored) if kind.is_device() => {
                let (major, minor) = rdev::unpack(stored);
                rdev::to_user(major, minor)
            }
            _ => 0,
        },
        flags: znode.flags,
        projid: znode.projid.unwrap_or(0),
        generation: znode.generation,
        dirty: object.is_dirty(),
    })
}

/// OpenZFS 2.4 counts changes in objects that have the counter.
pub(crate) fn count_change(znode: &mut Znode) {
    if let Some(seq) = &mut znode.seq {
        *seq = seq.wrapping_add(1);
    }
}

/// The contents (of a file, or the entries of a directory) changed at `now`.
pub(crate) fn modified(znode: &mut Znode, now: Time) {
    (znode.mtime, znode.ctime) = (now, now);
    znode.flags |= pflags::ARCHIVE | pflags::AV_MODIFIED;
    count_change(znode);
}
