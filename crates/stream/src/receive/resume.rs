//! Resumable receives: the stored state of an interrupted receive, and its token for the sender.
//!
//! Source: docs/format/09-send-stream.md §6, 06-mos-dsl.md §3.

use format::stream::{Begin, REDACT_FROM_SNAPS, REDACT_SNAPS, feature};
use format::{NvList, ObjectId};

use pool::{Error, Place, Progress, ReceiveError, Result};

use super::Receiver;

/// The progress of a receive is stored after each such number of bytes, in case the machine stops.
pub(super) const NOTED_EVERY: u64 = 64 << 20;

impl Receiver<'_> {
    /// The partial receive that the stream `begin` resumes: its target, directory, dataset and progress.
    pub(super) fn resumed(
        &self,
        (begin, list): (&Begin, &NvList),
        fs: &str,
        force: bool,
    ) -> Result<(Place, (ObjectId, ObjectId), Progress)> {
        let mos = self.pool.reading();
        let info = mos.info(fs)?;
        let Some(partial) = mos.partial(info.dir_id)? else {
            return Err(ReceiveError::NothingToResume(fs.to_owned()).into());
        };
        let token = &partial.token;
        let at = (list.get_u64("resume_object"), list.get_u64("resume_offset"));
        let same = token.toguid == begin.toguid
            && token.fromguid == begin.fromguid
            && at == (Some(token.object), Some(token.offset))
            && token.redacted_by.as_deref() == list.get_u64s(REDACT_SNAPS)
            && token.completes.as_deref() == list.get_u64s(REDACT_FROM_SNAPS);
        let sent = |bit| begin.features & bit != 0;
        let allowed = (token.flags.large_blocks || !sent(feature::LARGE_BLOCKS))
            && (token.flags.embedded || !sent(feature::EMBED_DATA))
            && (token.flags.compressed || !sent(feature::COMPRESSED))
            && token.flags.raw == sent(feature::RAW);
        if !same || !allowed {
            return Err(ReceiveError::OtherResume(fs.to_owned()).into());
        }
        let dir = mos.dir(partial.dir)?;
        if self.pool.is_open(dir.head_dataset) {
            // It is being received.
            return Err(Error::DatasetBusy(fs.to_owned()));
        }
        let place = match (partial.dir == info.dir_id, begin.fromguid.0) {
            (true, _) => Place::New,
            (false, 0) => Place::Replace,
            (false, _) => Place::Onto(mos.snapshot_name(dir.origin)?),
        };
        // The end of the stream would be refused. The data received so far is kept for another try.
        let is_beside = partial.dir != info.dir_id;
        let is_other = info.phys.prev_snap != mos.dataset(dir.head_dataset)?.prev_snap;
        if is_beside && !force && (is_other || mos.is_modified(&info.phys)?) {
            return Err(ReceiveError::Modified(fs.to_owned()).into());
        }
        let progress = Progress { object: token.object, offset: token.offset, bytes: token.bytes };
        Ok((place, (partial.dir, dir.head_dataset), progress))
    }
}
