//! Going on with a stream that its receiver got only the beginning of.
//!
//! Source: docs/format/09-send-stream.md §6.

use std::io::Write;

use format::{Guid, ObjectId};

use super::traverse::Traversal;
use super::{Sent, Source};
use crate::pool::Pool;
use crate::{Dataset, DatasetInfo, Error, Result, ResumeToken};

/// The walk from `at` (object, byte offset) on.
pub(super) fn start<'a>(
    walk: Traversal<'a>,
    snapshot: &Dataset,
    at: Option<(u64, u64)>,
) -> Result<Traversal<'a>> {
    let Some((id, offset)) = at else { return Ok(walk) };
    let block_size = match snapshot.objset().object(ObjectId(id)) {
        Ok(object) => object.block_size(),
        // What it was is told by what follows.
        Err(dmu::Error::NoObject(_)) => return Ok(walk.starting_at(id, 0)),
        Err(error) => return Err(error.into()),
    };
    Ok(walk.starting_at(id, offset / block_size))
}

/// What a token is about, found in this pool.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// The snapshot, whatever it is called now.
    pub snapshot: String,
    /// What the stream builds upon.
    pub from: Option<Source>,
}

impl Pool {
    /// The snapshot that a token is about and what its stream builds upon, by their guids: in the file system that
    /// the token names, or below it.
    ///
    /// # Errors
    /// [`Error::NoDataset`] with the name of what is gone; [`Error::Unsupported`].
    pub fn resumption(&self, token: &ResumeToken) -> Result<Resumption> {
        if token.raw {
            return Err(Error::Unsupported("raw streams of encrypted datasets".into()));
        }
        if token.redacted {
            return Err(Error::Unsupported("redacted streams".into()));
        }
        let fs = token.toname.split('@').next().unwrap_or(&token.toname);
        let snapshot =
            self.by_guid(fs, token.toguid, false)?.ok_or_else(|| Error::NoDataset(token.toname.clone()))?;
        let from = match token.fromguid {
            Guid(0) => None,
            guid => {
                let gone = || Error::NoDataset(format!("incremental source {:#x}", guid.0));
                Some(Source::of(&self.by_guid(fs, guid, true)?.ok_or_else(gone)?))
            }
        };
        Ok(Resumption { snapshot: snapshot.name, from })
    }

    /// The snapshot (or bookmark) with this guid: of `fs`, below it, or anywhere in the pool.
    fn by_guid(&self, fs: &str, guid: Guid, marks: bool) -> Result<Option<DatasetInfo>> {
        for top in [fs, &self.name()] {
            let list = match self.list(top, None, true) {
                Err(Error::NoDataset(_)) => continue,
                list => list?,
            };
            for info in list {
                if info.is_snapshot() && info.phys.guid == guid {
                    return Ok(Some(info));
                }
                if marks && !info.is_snapshot() {
                    let found = self.bookmarks(&info.name)?.into_iter().find(|mark| mark.phys.guid == guid);
                    if found.is_some() {
                        return Ok(found);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Writes the rest of the stream that the token tells of. Returns its bytes; `progress` hears them grow.
    ///
    /// # Errors
    /// As [`Pool::resumption`] and [`Pool::send`].
    pub fn send_resumed(
        &self,
        token: &ResumeToken,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let Resumption { snapshot, from } = self.resumption(token)?;
        let at = Some((token.object, token.offset));
        self.send_on(&snapshot, from.as_ref(), token.flags, at, out, progress)
    }

    /// About how many bytes [`Pool::send_resumed`] would write.
    ///
    /// # Errors
    /// As [`Pool::resumption`].
    pub fn resumed_size(&self, token: &ResumeToken) -> Result<u64> {
        let Resumption { snapshot, from } = self.resumption(token)?;
        let at = Some((token.object, token.offset));
        self.size_of_rest(&snapshot, from.as_ref(), token.flags, at)
    }
}
