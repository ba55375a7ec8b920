//! Resuming a stream from a token.
//!
//! Source: docs/format/09-send-stream.md §6.

use std::collections::BTreeSet;
use std::io::Write;

use format::Guid;

use pool::{DatasetInfo, Error, Result, ResumeToken};

use super::traverse::{Event, Traversal};
use super::{HEAD, Leaving, Request, Sender, Sent, Source, guid_of_head};

/// The part of a whole stream that is written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    /// Start (object, byte offset); earlier parts are left out.
    pub(super) at: Option<(u64, u64)>,
    /// Last place (object, byte offset), without an END record; `None`: all, with the END record.
    pub(super) last: Option<(u64, u64)>,
}

impl Span {
    /// The events of the walk that belong to it.
    pub(super) fn of<'a>(self, walk: Traversal<'a>) -> impl Iterator<Item = Result<Event>> + use<'a> {
        let walk = if let Some(at) = self.at { walk.starting_at(at) } else { walk };
        walk.map_while(move |event| match (event, self.last) {
            (Ok(event), Some(last)) => event.up_to(last).map(Ok),
            (event, _) => Some(event),
        })
    }
}

/// The source of a token's stream in this pool.
#[derive(Clone, Debug)]
pub struct Resumption {
    /// The snapshot under its present name, or the file system or volume whose head is sent.
    pub snapshot: String,
    /// The source that the stream builds upon.
    pub from: Option<Source>,
    /// The blocks that it leaves out.
    leaving: Option<Leaving>,
}

/// Whether two lists hold the same guids.
fn same(one: Option<&[u64]>, other: Option<&[u64]>) -> bool {
    let set = |guids: Option<&[u64]>| guids.map(|guids| guids.iter().copied().collect::<BTreeSet<u64>>());
    set(one) == set(other)
}

/// The error that the source of a stream is not in this pool.
pub(super) fn source_is_gone(guid: Guid) -> Error {
    Error::NoDataset(format!("incremental source {:#x}", guid.0))
}

impl Sender<'_> {
    /// The snapshot of a token and its incremental source, by their guids: in the file system that the token names, or below
    /// it.
    ///
    /// # Errors
    /// [`Error::NoDataset`] with the name of the missing dataset; [`Error::Unsupported`].
    pub fn resumption(&self, token: &ResumeToken) -> Result<Resumption> {
        let fs = token.toname.split('@').next().unwrap_or(&token.toname);
        let found = match token.toname.ends_with(HEAD) {
            true => self.head_by_guid(fs, token.toguid)?,
            false => self.by_guid(fs, token.toguid, false, &|_| Ok(true))?.map(|info| info.name),
        };
        let name = found.ok_or_else(|| Error::NoDataset(token.toname.clone()))?;
        let snapshot = self.to_be_sent(&name)?;
        let is_earlier = |info: &DatasetInfo| match self.check_earlier(&snapshot, &Source::of(info)) {
            Err(Error::NotEarlier(_)) => Ok(false),
            checked => checked.and_then(|()| {
                let lacks = self.pool.redaction_of(info)?;
                Ok(same(lacks.as_deref(), token.completes.as_deref()))
            }),
        };
        let from = match token.fromguid {
            Guid(0) => None,
            guid => {
                let found = self.by_guid(fs, guid, true, &is_earlier)?;
                Some(Source::of(&found.ok_or_else(|| source_is_gone(guid))?))
            }
        };
        let leaving = self.leaving_of(&snapshot, token)?;
        Ok(Resumption { snapshot: name, from, leaving })
    }

    /// The blocks that the stream of a token leaves out of `snapshot`, by one of the redaction bookmarks; `None` if the
    /// snapshot itself lacks just those.
    fn leaving_of(&self, snapshot: &DatasetInfo, token: &ResumeToken) -> Result<Option<Leaving>> {
        let wanted = token.redacted_by.as_deref();
        if same(self.pool.redaction_of(snapshot)?.as_deref(), wanted) {
            return Ok(None);
        }
        let fs = snapshot.name.split('@').next().unwrap_or(&snapshot.name);
        for mark in self.pool.bookmarks(fs)? {
            if mark.phys.guid == snapshot.phys.guid
                && let Some((list, header)) = self.pool.redaction_list(&mark)?
                && header.progress.is_none()
                && same(Some(&header.snaps), wanted)
            {
                return Ok(Some(Leaving { name: mark.name, list, guids: header.snaps }));
            }
        }
        Err(Error::NoDataset(format!("redaction bookmark of {}", snapshot.name)))
    }

    /// The file system or volume whose head gave a stream with this guid, if the head is unchanged: `fs`, or any in the
    /// pool.
    fn head_by_guid(&self, fs: &str, guid: Guid) -> Result<Option<String>> {
        for (top, depth) in [(fs, Some(0)), (&self.pool.name(), None)] {
            let list = match self.pool.list(top, depth, false) {
                Err(Error::NoDataset(_)) => continue,
                list => list?,
            };
            if let Some(info) = list.into_iter().find(|info| guid_of_head(info) == guid) {
                return Ok(Some(info.name));
            }
        }
        Ok(None)
    }

    /// The first snapshot (or bookmark) with this guid that `fits`: of `fs`, below it, or anywhere in the pool. One that
    /// was received elsewhere in this pool has the same guid as the one it was sent from, and another txg.
    fn by_guid(
        &self,
        fs: &str,
        guid: Guid,
        marks: bool,
        fits: &dyn Fn(&DatasetInfo) -> Result<bool>,
    ) -> Result<Option<DatasetInfo>> {
        for top in [fs, &self.pool.name()] {
            let list = match self.pool.list(top, None, true) {
                Err(Error::NoDataset(_)) => continue,
                list => list?,
            };
            for info in list {
                if info.is_snapshot() && info.phys.guid == guid && fits(&info)? {
                    return Ok(Some(info));
                }
                if marks && !info.is_snapshot() {
                    for mark in self.pool.bookmarks(&info.name)? {
                        if mark.phys.guid == guid && fits(&mark)? {
                            return Ok(Some(mark));
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Writes the rest of the token's stream. Returns its bytes and reports them to `progress`.
    ///
    /// # Errors
    /// As [`Sender::resumption`] and [`Sender::send`].
    pub fn send_resumed(
        &self,
        token: &ResumeToken,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let Resumption { snapshot, from, leaving } = self.resumption(token)?;
        let (leaving, at) = (leaving.as_ref(), Some((token.object, token.offset)));
        let request = Request { leaving, at, ..Request::new(&snapshot, from.as_ref(), token.flags) };
        self.send_request(&request, out, progress)
    }

    /// Estimated bytes of [`Sender::send_resumed`].
    ///
    /// # Errors
    /// As [`Sender::resumption`].
    pub fn resumed_size(&self, token: &ResumeToken) -> Result<u64> {
        let Resumption { snapshot, from, leaving } = self.resumption(token)?;
        let (leaving, at) = (leaving.as_ref(), Some((token.object, token.offset)));
        self.send_size(&Request { leaving, at, ..Request::new(&snapshot, from.as_ref(), token.flags) })
    }
}
