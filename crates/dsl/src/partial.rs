//! Partial receives: their state in the ZAP of the dataset that holds them.
//!
//! Source: docs/format/09-send-stream.md §8.

use dmu::zap;
use format::{Guid, ObjectId};

use crate::mos::Mos;
use crate::{Result, ResumeToken, SendFlags, redaction, tree};

/// Name of the temporary dataset during a receive into an existing one.
pub const WORKING: &str = "%recv";

/// A partial receive that can be resumed.
pub struct Partial {
    /// The directory of the dataset that holds it.
    pub dir: ObjectId,
    /// How far it got.
    pub token: ResumeToken,
}

/// The partial receive for the head of `dir`: into the head itself, or into its temporary dataset.
pub fn partial(mos: &Mos, dir: ObjectId) -> Result<Option<Partial>> {
    for dir in [tree::child(mos, dir, WORKING)?, Some(dir)].into_iter().flatten() {
        let head = mos.dir(dir)?.head_dataset;
        let object = mos.object(head)?;
        if object.object_type() != format::ObjectType::ZAP_METADATA {
            continue;
        }
        let number = |key: &str| zap::lookup_u64(&object, key.as_bytes());
        let Some(toguid) = number(resume::TOGUID)? else { continue };
        let is_set = |key: &str| -> Result<bool> { Ok(zap::lookup(&object, key.as_bytes())?.is_some()) };
        let toname = zap::lookup(&object, resume::TONAME.as_bytes())?;
        let toname = toname.as_ref().and_then(|name| name.as_text()).unwrap_or_default().to_owned();
        let token = ResumeToken {
            object: number(resume::OBJECT)?.unwrap_or(0),
            offset: number(resume::OFFSET)?.unwrap_or(0),
            bytes: number(resume::BYTES)?.unwrap_or(0),
            toguid: Guid(toguid),
            toname,
            fromguid: Guid(number(resume::FROMGUID)?.unwrap_or(0)),
            flags: SendFlags {
                large_blocks: is_set(resume::LARGE_BLOCKS)?,
                embedded: is_set(resume::EMBEDDED)?,
                compressed: is_set(resume::COMPRESSED)?,
                raw: is_set(resume::RAW)?,
            },
            redacted_by: redaction::of(mos, head)?,
            completes: zap::lookup(&object, resume::COMPLETES.as_bytes())?.map(|guids| guids.to_u64s()),
        };
        return Ok(Some(Partial { dir, token }));
    }
    Ok(None)
}

/// Keys of the state of a partial receive, in the ZAP of the dataset that holds it.
pub mod resume {
    /// Guid of the snapshot that an incremental stream starts from. Full streams have none.
    pub const FROMGUID: &str = "com.delphix:resume_fromguid";
    /// Guid of the snapshot that the stream makes.
    pub const TOGUID: &str = "com.delphix:resume_toguid";
    /// Name of that snapshot at the sender, with its dataset.
    pub const TONAME: &str = "com.delphix:resume_toname";
    /// The last object that was received.
    pub const OBJECT: &str = "com.delphix:resume_object";
    /// The offset in that object at which the receive continues, in bytes.
    pub const OFFSET: &str = "com.delphix:resume_offset";
    /// Bytes of the stream that were received.
    pub const BYTES: &str = "com.delphix:resume_bytes";
    /// Present if the stream may hold blocks over 128 KiB.
    pub const LARGE_BLOCKS: &str = "com.delphix:resume_largeblockok";
    /// Present if the stream may hold blocks whose data is in the block pointer.
    pub const EMBEDDED: &str = "com.delphix:resume_embedok";
    /// Present if the stream holds blocks compressed as on disk.
    pub const COMPRESSED: &str = "com.delphix:resume_compressok";
    /// Present if the stream holds encrypted blocks as on disk.
    pub const RAW: &str = "com.datto:resume_rawok";
    /// Guids of the snapshots that the source of the stream is redacted by.
    pub const COMPLETES: &str = "com.delphix:resume_redact_book_snaps";
    /// All these keys, to remove the record of a partial receive.
    pub const ALL: [&str; 11] =
        [FROMGUID, TOGUID, TONAME, OBJECT, OFFSET, BYTES, LARGE_BLOCKS, EMBEDDED, COMPRESSED, RAW, COMPLETES];
}
