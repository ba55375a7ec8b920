//! Replaying the records of an intent log after a crash.
//!
//! From:   `pool`, which found and claimed the log at import.
//! To:     the other operations of this crate, under the numbers, owners and times that the records give.
//! Source: docs/format/08-zil.md §4.2.
//!
//! A record may be replayed twice if the power fails during a replay. Changes that are done already are skipped.

use std::sync::Arc;

use dmu::zap;
use format::ObjectId;
use format::objset::ObjsetType;
use format::zil::{self, Body, Create, CreateKind, LoggedNode, Record, Rename, RenameKind, Write, mask, xat};
use format::znode::{S_IFCHR, pflags};
use pool::zil::Replay;
use pool::{Dataset, Hold, KeyError, Pool};

use crate::create::{NewDnode, assign_project, fresh};
use crate::logged::{flags_with, logged_data, projid_of};
use crate::volume::Volume;
use crate::{Error, Filesystem, Replace, Result, SetAttr, XattrMode};

/// Replays all intent logs that a crash left in the pool; returns the names of the datasets, and the number of records
/// of each. To be called after an import for writing.
///
/// The log of an encrypted dataset stays until its key is loaded. A dataset that is neither a file system nor a volume
/// was written by another program, and only that program understands its records: such a log stays, as with OpenZFS.
///
/// # Errors
/// The first record that cannot be replayed: its log stays, and its dataset cannot be changed before. All others were
/// replayed.
pub fn replay_logs(pool: &Pool) -> Result<Vec<(String, u64)>> {
    let mut done = Vec::new();
    let mut failed = Ok(());
    for name in pool.logs_to_replay() {
        match pool.open(&name).map_err(Error::from).and_then(|dataset| replay_log(&dataset)) {
            Ok(Some(records)) => done.push((name, records)),
            Ok(None) | Err(Error::Pool(pool::Error::Key(KeyError::NotLoaded(_)))) => {}
            Err(error) => failed = failed.and(Err(error)),
        }
    }
    failed.map(|()| done)
}

/// Replays the intent log of one dataset, if a crash left one; returns the number of records. Returns `None` for a
/// dataset that is neither a file system nor a volume.
///
/// # Errors
/// As [`replay_logs`].
pub fn replay_log(dataset: &Arc<Dataset>) -> Result<Option<u64>> {
    match dataset.objset().os_type() {
        ObjsetType::Zfs => Filesystem::open_as_it_is(dataset.clone())?.replay().map(Some),
        ObjsetType::Zvol => Volume::open_as_it_is(dataset.clone())?.replay().map(Some),
        ObjsetType::None | ObjsetType::Meta | ObjsetType::Other => Ok(None),
    }
}

impl Filesystem {
    /// Replays the log of this file system, if there is one to replay.
    pub(crate) fn replay(&self) -> Result<u64> {
        let Some(replay) = self.inner.dataset.replay() else { return Ok(0) };
        let mut count = 0;
        for record in replay.records() {
            let record = record?;
            let mut done = self.replay_record(&replay, &record);
            if matches!(done, Err(Error::Exists)) {
                // An earlier record may have removed the object with this number. The number is free after a sync.
                self.inner.dataset.sync()?;
                done = self.replay_record(&replay, &record);
            }
            done.inspect_err(|error| {
                let (name, seq, what) = (self.inner.dataset.name(), record.seq, record.body.name());
                tracing::error!(dataset = name, seq, what, %error, "the intent log cannot be replayed");
            })?;
            count += 1;
        }
        replay.finish()?;
        Ok(count)
    }

    fn replay_record(&self, replay: &Replay<'_>, record: &Record) -> Result<()> {
        replay.at(Some(record.seq));
        let done = match &record.body {
            Body::Create(create) if create.kind == CreateKind::XattrDir => self.replay_xattr_dir(create),
            Body::Create(create) => self.replay_create(create),
            Body::Remove { dir, name, is_dir: false } => gone_is_fine(self.unlink(*dir, name)),
            Body::Remove { dir, name, is_dir: true } => gone_is_fine(self.rmdir(*dir, name)),
            Body::Link { dir, object, name } => match self.link(*object, *dir, name) {
                Err(Error::Exists) if self.is_called(*object, *dir, name)? => Ok(()),
                done => done,
            },
            Body::Rename(rename) => self.replay_rename(replay, record.seq, rename),
            Body::Write(write) => gone_is_fine(self.replay_write(replay, record.seq, write)),
            Body::Extend { object, offset, length } => {
                gone_is_fine(self.replay_extend(*object, *offset, *length))
            }
            Body::Truncate { object, offset, length: 0 } => gone_is_fine(self.truncate(*object, *offset)),
            Body::Truncate { object, offset, length } => gone_is_fine(self.punch(*object, *offset, *length)),
            Body::SetAttr(set) => gone_is_fine(self.replay_set_attr(replay, record.seq, set)),
            Body::SetSaXattr { object, name, value: Some(value) } => {
                self.wait_for_room();
                let put = || self.xattr_put(*object, name, value, XattrMode::Either, true);
                gone_is_fine(self.retrying(put))
            }
            Body::SetSaXattr { object, name, value: None } => match self.xattr_remove(*object, name) {
                Err(Error::NoXattr) => Ok(()),
                done => gone_is_fine(done),
            },
            Body::AclV0 { .. } | Body::Acl(_) => Err(Error::Unsupported("NFSv4 ACLs in an intent log")),
            Body::CloneRange(clone) => gone_is_fine(self.replay_clone(clone)),
        };
        replay.at(None);
        done
    }

    fn is_called(&self, object: ObjectId, dir: ObjectId, name: &[u8]) -> Result<bool> {
        Ok(self.lookup(dir, name)?.is_some_and(|(found, _)| found == object))
    }

    fn replay_create(&self, create: &Create) -> Result<()> {
        if create.acl.is_some() {
            return Err(Error::Unsupported("NFSv4 ACLs in an intent log"));
        }
        self.wait_for_room();
        match self.retrying(|| self.make_logged(create)) {
            Err(Error::Exists) if self.is_called(create.node.object, create.dir, &create.name)? => Ok(()),
            done => done.map(drop),
        }
    }

    /// The hidden directory for extended attributes of an object.
    fn replay_xattr_dir(&self, create: &Create) -> Result<()> {
        self.wait_for_room();
        self.retrying(|| self.make_xattr_dir(create))
    }

    fn make_xattr_dir(&self, create: &Create) -> Result<()> {
        let node = &create.node;
        let _nodes = self.inner.nodes.write(create.dir);
        let (object, mut znode) = self.node_for_change(create.dir)?;
        if znode.xattr == Some(node.object) {
            return Ok(());
        }
        let mut new = fresh(node.mode, [node.uid, node.gid], create.dir, node.crtime);
        new.flags |= pflags::XATTR;
        if self.has_projects() {
            assign_project(&mut new, Some(&znode));
        }
        new.generation = node.generation;
        let salt = self.inner.dataset.host().entropy.u64();
        let tx = self.begin(Hold::write(2 * crate::fs::NAME_COST))?;
        let dnode = NewDnode { id: Some(node.object), slots: node.slots, block_size: 512 };
        let dir = self.new_object(&tx, &mut new, dnode)?;
        zap::create(&dir, &tx, salt, self.normflags())?;
        znode.xattr = Some(node.object);
        znode.ctime = node.crtime;
        self.store(&object, &tx, &znode)?;
        self.note_unlogged(&tx);
        Ok(())
    }

    fn replay_rename(&self, replay: &Replay<'_>, seq: u64, rename: &Rename) -> Result<()> {
        let Rename { from_dir, from, to_dir, to, kind } = rename;
        match kind {
            RenameKind::Replace => gone_is_fine(self.rename(*from_dir, from, *to_dir, to, Replace::Allowed)),
            RenameKind::Exchange => self.exchange(*from_dir, from, *to_dir, to),
            RenameKind::Whiteout(whiteout) => {
                replay.at(None);
                if !self.is_called(whiteout.object, *from_dir, from)? {
                    gone_is_fine(self.rename(*from_dir, from, *to_dir, to, Replace::Allowed))?;
                }
                replay.at(Some(seq));
                self.replay_create(&created_by(whiteout, *from_dir, from))
            }
        }
    }

    fn replay_write(&self, replay: &Replay<'_>, seq: u64, write: &Write) -> Result<()> {
        let (offset, mut data) = logged_data(&self.inner.dataset, write)?;
        // The file may end within a block that was written whole.
        let size = self.stat(write.object)?.size.max(write.offset + write.length);
        data.truncate(size.saturating_sub(offset).min(data.len() as u64) as usize);
        // A write that takes two transactions is complete with the second one.
        let border = (offset / WRITE_STEP + 1) * WRITE_STEP - offset;
        let (first, second) = data.split_at(data.len().min(border as usize));
        if !second.is_empty() {
            replay.at(None);
            self.write(write.object, offset, first)?;
            replay.at(Some(seq));
            return self.write(write.object, offset + first.len() as u64, second);
        }
        self.write(write.object, offset, first)
    }

    fn replay_extend(&self, object: ObjectId, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length).ok_or(Error::FileTooBig)?;
        if self.stat(object)?.size < end { self.truncate(object, end) } else { Ok(()) }
    }

    fn replay_set_attr(&self, replay: &Replay<'_>, seq: u64, logged: &zil::SetAttr) -> Result<()> {
        let has = |bit| logged.mask & bit != 0;
        let mut set = SetAttr {
            mode: has(mask::MODE).then_some(logged.mode as u32 & 0o7777),
            uid: has(mask::UID).then_some(logged.uid as u32),
            gid: has(mask::GID).then_some(logged.gid as u32),
            atime: has(mask::ATIME).then_some(logged.atime),
            mtime: has(mask::MTIME).then_some(logged.mtime),
            ..SetAttr::default()
        };
        if let Some(attrs) = &logged.attrs {
            let stat = self.stat(logged.object)?;
            let wants = |bit| attrs.wanted[0] & bit != 0;
            set.crtime = wants(xat::CREATETIME).then_some(attrs.crtime);
            set.flags = Some(flags_with(stat.flags, attrs));
            set.projid = wants(xat::PROJID).then(|| projid_of(attrs));
        }
        if has(mask::SIZE) {
            replay.at(None);
            self.truncate(logged.object, logged.size)?;
            replay.at(Some(seq));
        }
        self.setattr(logged.object, &set)
    }
}

/// Bytes of a write in one transaction.
const WRITE_STEP: u64 = crate::change::WRITE_STEP;

/// The whiteout entry that replaces a name moved away by a union mount.
fn created_by(whiteout: &LoggedNode, dir: ObjectId, name: &[u8]) -> Create {
    Create {
        kind: CreateKind::File,
        dir,
        node: LoggedNode { mode: if whiteout.mode == 0 { S_IFCHR } else { whiteout.mode }, ..*whiteout },
        acl: None,
        attrs: None,
        domains: Vec::new(),
        name: name.to_vec(),
        target: None,
    }
}

/// A record about a removed object or name was replayed before, or a later record makes it irrelevant.
fn gone_is_fine(done: Result<()>) -> Result<()> {
    match done {
        Err(Error::NotFound) => Ok(()),
        done => done,
    }
}
