//! Resume tokens: the progress of an interrupted receive, as a word for the sender.
//!
//! From:   the attributes of a dataset that holds part of a stream.
//! To:     `zfs send -t`.
//! Source: docs/format/09-send-stream.md §6.

use std::fmt;

use codec::RunningFletcher4;
use format::stream::REDACT_SNAPS;
use format::{ByteOrder, Guid, NvList, NvValue};

/// Largest list in a token that is unpacked, in bytes.
const LIST_MAX: usize = 1 << 20;

/// Guids of the snapshots by which the source of the stream is redacted.
const BOOK_REDACT_SNAPS: &str = "book_redact_snaps";

/// The reason why a token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No version, sum, size and list.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// A version from the future.
    #[error("resume token is corrupt (invalid version)")]
    Version,
    /// The sum is of something else.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// Its contents cannot be unpacked.
    #[error("resume token is corrupt (decompression failed)")]
    Packed,
    /// The list lacks required entries.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List,
}

/// Features that a stream may use and its receiver must support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// `-L`: blocks above 128 KiB stay whole.
    pub large_blocks: bool,
    /// `-e`: blocks that lie in their pointer are sent in this form.
    pub embedded: bool,
    /// `-c`: data as it lies on disk.
    pub compressed: bool,
    /// `-w`: encrypted datasets as they lie on disk, without their keys; others with all of the above.
    pub raw: bool,
}

/// A place in the stream of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// The object that comes next.
    pub object: u64,
    /// Byte offset in it.
    pub offset: u64,
    /// Bytes of the stream that were used.
    pub bytes: u64,
    /// The snapshot that is sent.
    pub toguid: Guid,
    /// Its name where it was sent.
    pub toname: String,
    /// Guid of the incremental source; 0 for a full stream.
    pub fromguid: Guid,
    /// How the stream is written.
    pub flags: SendFlags,
    /// Guids of the snapshots by which the stream is redacted; `None`: it leaves nothing out.
    pub redacted_by: Option<Vec<u64>>,
    /// Guids of the snapshots by which its source is redacted; `None`: the source has all its blocks.
    pub completes: Option<Vec<u64>>,
}

impl ResumeToken {
    /// The list inside.
    #[must_use]
    pub fn to_list(&self) -> NvList {
        let mut list = NvList::new();
        if self.fromguid.0 != 0 {
            list.insert("fromguid", self.fromguid.0);
        }
        list.insert("object", self.object);
        list.insert("offset", self.offset);
        list.insert("bytes", self.bytes);
        list.insert("toguid", self.toguid.0);
        list.insert("toname", self.toname.as_str());
        for (name, on) in [
            ("largeblockok", self.flags.large_blocks),
            ("embedok", self.flags.embedded),
            ("compressok", self.flags.compressed),
            ("rawok", self.flags.raw),
        ] {
            if on {
                list.insert(name, NvValue::Boolean);
            }
        }
        for (name, guids) in [(REDACT_SNAPS, &self.redacted_by), (BOOK_REDACT_SNAPS, &self.completes)] {
            if let Some(guids) = guids {
                list.insert(name, NvValue::Uint64Array(guids.clone()));
            }
        }
        list
    }

    /// Reads a token.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn parse(text: &str) -> Result<ResumeToken, TokenError> {
        let mut parts = text.trim().splitn(4, '-');
        let mut part = || parts.next().ok_or(TokenError::Format);
        let version = part()?.parse::<u32>().map_err(|_| TokenError::Format)?;
        if version != 1 {
            return Err(TokenError::Version);
        }
        let hex = |word: &str| u64::from_str_radix(word, 16).map_err(|_| TokenError::Format);
        let (sum, len) = (hex(part()?)?, hex(part()?)? as usize);
        let packed = unhex(part()?).ok_or(TokenError::Format)?;
        if sum != sum_of(&packed) {
            return Err(TokenError::Checksum);
        }
        if len > LIST_MAX {
            return Err(TokenError::Format);
        }
        let raw = codec::unzlib(&packed, len).map_err(|_| TokenError::Packed)?;
        ResumeToken::from_list(&NvList::decode(&raw).map_err(|_| TokenError::List)?).ok_or(TokenError::List)
    }

    /// The contents of a list; `None` if it lacks required entries.
    #[must_use]
    pub fn from_list(list: &NvList) -> Option<ResumeToken> {
        Some(ResumeToken {
            object: list.get_u64("object")?,
            offset: list.get_u64("offset")?,
            bytes: list.get_u64("bytes")?,
            toguid: Guid(list.get_u64("toguid")?),
            toname: list.get_str("toname")?.to_owned(),
            fromguid: Guid(list.get_u64("fromguid").unwrap_or(0)),
            flags: SendFlags {
                large_blocks: list.contains("largeblockok"),
                embedded: list.contains("embedok"),
                compressed: list.contains("compressok"),
                raw: list.contains("rawok"),
            },
            redacted_by: list.get_u64s(REDACT_SNAPS).map(<[u64]>::to_vec),
            completes: list.get_u64s(BOOK_REDACT_SNAPS).map(<[u64]>::to_vec),
        })
    }
}

impl fmt::Display for ResumeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.to_list().to_native();
        let packed = codec::zlib(&raw);
        write!(f, "1-{:x}-{:x}-", sum_of(&packed), raw.len())?;
        packed.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// First word of the checksum of whole words.
fn sum_of(packed: &[u8]) -> u64 {
    let mut sum = RunningFletcher4::new(ByteOrder::Little);
    sum.add(packed);
    sum.sum().0[0]
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let digit = |byte: u8| (byte as char).to_digit(16);
            Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of fixtures/golden/gresume, made by OpenZFS 2.1.11.
    const GOLDEN: &str = "1-9cc3349e7-b8-789c636064000310a500c4ec50360710e72765a52697303008439460caa7a515a7963\
                          0c001489e0d493ea9b224b51848ff58c088557f497e7a69660a0303e792ef3f041e4f7ba08124cf0996cf4\
                          bcc4d6560482f4a2d2ecd4dd52f2e4a762886da050072c61903";

    #[test]
    fn the_token_of_openzfs_is_read_and_one_of_ours_says_the_same() {
        let token = ResumeToken::parse(GOLDEN).unwrap();
        assert_eq!((token.object, token.offset, token.bytes), (19, 0, 106_744));
        assert_eq!((token.toguid, token.fromguid), (Guid(0xe096_e310_f8f7_a409), Guid(0)));
        assert_eq!((token.toname.as_str(), token.flags), ("gresume/src@s", SendFlags::default()));
        let flags = SendFlags { large_blocks: true, embedded: false, compressed: true, raw: true };
        let (redacted_by, completes) = (Some(vec![1, 2]), Some(vec![u64::MAX]));
        for token in
            [token.clone(), ResumeToken { fromguid: Guid(7), flags, redacted_by, completes, ..token }]
        {
            assert_eq!(ResumeToken::parse(&token.to_string()), Ok(token));
        }
    }

    #[test]
    fn an_invalid_token_is_refused() {
        let parse = |text: &str| ResumeToken::parse(text).unwrap_err();
        assert_eq!(parse(""), TokenError::Format);
        assert_eq!(parse("1-2-3"), TokenError::Format);
        assert_eq!(parse(&GOLDEN.replacen('1', "2", 1)), TokenError::Version);
        assert_eq!(parse(&GOLDEN.replacen("9cc", "9cd", 1)), TokenError::Checksum);
        assert_eq!(parse(&GOLDEN.replacen("-b8-", "-b7-", 1)), TokenError::Packed);
        assert_eq!(parse(&GOLDEN.replacen("-b8-", "-ffffffffff-", 1)), TokenError::Format);
        assert_eq!(parse(&GOLDEN[..GOLDEN.len() - 1]), TokenError::Format);
        assert_eq!(parse("1-0-0-"), TokenError::Packed);
    }
}
