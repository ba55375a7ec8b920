//! Sending a partial receive as a stream that ends where the receive was interrupted (`zfs send -S`).
//!
//! From:   a dataset marked inconsistent: a new one, or the clone `%recv` of its target.
//! To:     a receiver that keeps it (`receive -s`); a sender with the whole snapshot sends it the rest.
//! Source: docs/format/09-send-stream.md §6.

use std::io::Write;
use std::sync::Arc;

use format::stream::{Begin, feature};
use format::{Guid, Txg};

use pool::{Dataset, DatasetInfo, Error, ReceiveError, Result, ResumeToken};

use super::redaction::Redaction;
use super::resume::{Span, source_is_gone};
use super::{Sender, Sent, Source, Subject};

/// A partial receive and its token, both as of one txg. While this holds it open, this process can neither resume nor abort
/// it; a server that has the pool can.
pub struct Saved {
    /// The target file system or volume.
    pub name: String,
    /// How far it got.
    pub token: ResumeToken,
    /// The source that its stream builds upon.
    pub from: Option<Source>,
    begin: Begin,
    dataset: Arc<Dataset>,
}

impl Saved {
    fn since(&self) -> Txg {
        self.from.as_ref().map_or(Txg(0), |from| from.txg)
    }

    /// Blocks missing in the dataset are left out already.
    fn redaction(&self) -> Redaction {
        let (by, from) = (self.token.redacted_by.clone(), self.token.completes.clone());
        Redaction { by, from, ..Redaction::default() }
    }

    /// It ends with the last record that was noted; a sender with the whole snapshot sends what follows.
    const fn span(&self) -> Span {
        Span { at: None, last: Some((self.token.object, self.token.offset)) }
    }
}

impl Sender<'_> {
    /// Opens the partial receive into `fs`.
    ///
    /// # Errors
    /// [`ReceiveError::NothingToResume`]; [`Error::DatasetBusy`] while this process receives or sends it;
    /// [`Error::NoDataset`] when there is no `fs`, or with the name of what the stream builds upon; [`Error::Unsupported`].
    pub fn saved(&self, fs: &str) -> Result<Saved> {
        let (info, mut to, token) = {
            let mos = self.pool.reading();
            let info = mos.info(fs)?;
            let nothing = || ReceiveError::NothingToResume(fs.to_owned());
            let partial = match info.is_snapshot() || info.is_bookmark() {
                true => None,
                false => mos.partial(info.dir_id)?,
            };
            let partial = partial.ok_or_else(nothing)?;
            let dir = mos.dir(partial.dir)?;
            let (dir_id, id) = (partial.dir, dir.head_dataset);
            let to = DatasetInfo { dir_id, id, phys: mos.dataset(id)?, dir, ..info.clone() };
            (info, to, partial.token)
        };
        if token.flags.raw {
            return Err(Error::Unsupported("sending the beginning of a raw stream".into()));
        }
        if self.pool.is_open(to.id) {
            return Err(Error::DatasetBusy(fs.to_owned()));
        }
        let dataset = self.pool.open_info(&to)?;
        let from = match token.fromguid {
            Guid(0) => None,
            // The received data are all blocks born after the origin snapshot of its dataset.
            guid => {
                let begun = self.source_at(to.phys.prev_snap)?;
                Some(begun).filter(|from| from.guid == guid).ok_or_else(|| source_is_gone(guid)).map(Some)?
            }
        };
        to.phys.creation_txg = Txg(u64::MAX);
        if let Some(from) = &from {
            self.check_earlier(&to, from)?;
        }
        // It represents the future snapshot. Its target shows whether that is a snapshot of a clone.
        to.phys.guid = token.toguid;
        (to.name, to.dir_id) = (token.toname.clone(), info.dir_id);
        let mut begin = self.begin_of(&to, from.as_ref(), token.flags, token.redacted_by.is_some())?;
        if token.flags.large_blocks {
            // The rest of the stream may have them, even if none has arrived yet.
            begin.features |= feature::LARGE_BLOCKS;
        }
        Ok(Saved { name: info.name, token, from, begin, dataset })
    }

    /// Writes it. Returns the bytes and reports them to `progress`.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn send_saved(
        &self,
        saved: &Saved,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let subject = Subject {
            name: &saved.name,
            open: &saved.dataset,
            begin: saved.begin.clone(),
            since: saved.since(),
            span: saved.span(),
            key_data: None,
            redaction: saved.redaction(),
        };
        self.write_stream(subject, out, progress)
    }

    /// Estimated bytes of [`Sender::send_saved`].
    ///
    /// # Errors
    /// A block that cannot be read.
    pub fn saved_size(&self, saved: &Saved) -> Result<u64> {
        self.size_of((&saved.dataset, saved.since()), saved.span(), saved.token.flags, saved.redaction())
    }
}
