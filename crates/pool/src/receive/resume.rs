//! A receive that was cut off and may go on: what is kept of it, and the token that its sender needs.
//!
//! Source: docs/format/09-send-stream.md §6, 06-mos-dsl.md §3.

use format::stream::{Begin, feature};
use format::{NvList, ObjectId};

use super::ReceiveError;
use crate::dsl::lookup;
use crate::dsl::receive::{Place, Progress};
use crate::pool::Pool;
use crate::{Error, Result, ResumeToken};

/// Bytes of a stream after which it is noted how far it got, should the machine stop.
pub(super) const NOTED_EVERY: u64 = 64 << 20;

impl Pool {
    /// The token of what was received in part for `fs`; `None` if there is no such thing.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn resume_token(&self, fs: &str) -> Result<Option<ResumeToken>> {
        let _shared = self.shared();
        match lookup::info(&self.inner, fs) {
            Ok(info) => Ok(lookup::partial(&self.inner.mos, info.dir_id)?.map(|partial| partial.token)),
            Err(Error::NoDataset(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives up what was received in part for `fs`; `false` if there is no such thing.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::DatasetBusy`].
    pub fn abort_receive(&self, fs: &str) -> Result<bool> {
        let name = fs.to_owned();
        self.run(move |syncing| syncing.abort_receive(&name))
    }

    /// What the resumed stream `begin` goes on with: which place, the directory and dataset, and how far it got.
    pub(super) fn resumed(
        &self,
        (begin, list): (&Begin, &NvList),
        fs: &str,
        force: bool,
    ) -> Result<(Place, (ObjectId, ObjectId), Progress)> {
        let _shared = self.shared();
        let mos = &self.inner.mos;
        let info = lookup::info(&self.inner, fs)?;
        let Some(partial) = lookup::partial(mos, info.dir_id)? else {
            return Err(ReceiveError::NothingToResume(fs.to_owned()).into());
        };
        let token = &partial.token;
        let at = (list.get_u64("resume_object"), list.get_u64("resume_offset"));
        let same = token.toguid == begin.toguid
            && token.fromguid == begin.fromguid
            && at == (Some(token.object), Some(token.offset));
        let sent = |bit| begin.features & bit != 0;
        let allowed = (token.flags.large_blocks || !sent(feature::LARGE_BLOCKS))
            && (token.flags.embedded || !sent(feature::EMBED_DATA))
            && (token.flags.compressed || !sent(feature::COMPRESSED));
        if !same || !allowed {
            return Err(ReceiveError::OtherResume(fs.to_owned()).into());
        }
        let dir = mos.dir(partial.dir)?;
        if self.inner.datasets().get(&dir.head_dataset).is_some_and(|open| open.strong_count() > 0) {
            // It is being received.
            return Err(Error::DatasetBusy(fs.to_owned()));
        }
        let place = match (partial.dir == info.dir_id, begin.fromguid.0) {
            (true, _) => Place::New,
            (false, 0) => Place::Replace,
            (false, _) => Place::Onto(lookup::snapshot_name(&self.inner, dir.origin)?),
        };
        // The end of the stream would be refused. What arrived so far is kept for another try.
        let is_beside = partial.dir != info.dir_id;
        let is_other = info.phys.prev_snap != mos.dataset(dir.head_dataset)?.prev_snap;
        if is_beside && !force && (is_other || lookup::is_modified(&self.inner, &info.phys)?) {
            return Err(ReceiveError::Modified(fs.to_owned()).into());
        }
        let progress = Progress { object: token.object, offset: token.offset, bytes: token.bytes };
        Ok((place, (partial.dir, dir.head_dataset), progress))
    }
}
