//! Bookmarks: the txg and guid of a snapshot, kept as a starting point for sends.
//!
//! From:   values (arrays of `u64`) of the ZAP at `com.delphix:bookmarks` of a head dataset.
//! To:     `pool`.
//! Source: docs/format/06-mos-dsl.md §11.

use alloc::vec::Vec;

use crate::{Corrupt, Guid, ObjectId, Txg};

/// `flags`: the bytes freed before the next snapshot are kept.
pub const HAS_FBN: u64 = 1;
/// `flags`: the snapshot still exists.
pub const SNAPSHOT_EXISTS: u64 = 2;

/// Numbers of words on disk: the first form, and that of feature `bookmark_v2`.
const WORDS: [usize; 2] = [3, 12];

/// A bookmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bookmark {
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Txg that created the snapshot.
    pub creation_txg: Txg,
    /// Seconds since 1970.
    pub creation_time: u64,
    /// The fields of the longer form.
    pub v2: Option<BookmarkV2>,
}

/// The second part of a bookmark (feature `bookmark_v2`). Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BookmarkV2 {
    /// Redaction list; object 0 for none.
    pub redaction: ObjectId,
    /// [`HAS_FBN`] | [`SNAPSHOT_EXISTS`].
    pub flags: u64,
    /// Referenced by the snapshot.
    pub referenced_bytes: u64,
    /// The same before parity and copies.
    pub compressed_bytes: u64,
    /// The same before compression.
    pub uncompressed_bytes: u64,
    /// Freed between the snapshot and the one after it.
    pub freed_before_next_bytes: u64,
    /// The same before parity and copies.
    pub freed_compressed_bytes: u64,
    /// The same before compression.
    pub freed_uncompressed_bytes: u64,
    /// IV set of an encrypted snapshot; 0 for none.
    pub ivset_guid: Guid,
}

impl Bookmark {
    /// From the integers of the ZAP value.
    ///
    /// # Errors
    /// [`Corrupt`] when there are neither 3 nor 12 of them.
    pub fn decode(words: &[u64]) -> Result<Bookmark, Corrupt> {
        if !WORDS.contains(&words.len()) {
            return Err(Corrupt::new("words of a bookmark", words.len() as u64));
        }
        Ok(Bookmark {
            guid: Guid(words[0]),
            creation_txg: Txg(words[1]),
            creation_time: words[2],
            v2: (words.len() == WORDS[1]).then(|| BookmarkV2 {
                redaction: ObjectId(words[3]),
                flags: words[4],
                referenced_bytes: words[5],
                compressed_bytes: words[6],
                uncompressed_bytes: words[7],
                freed_before_next_bytes: words[8],
                freed_compressed_bytes: words[9],
                freed_uncompressed_bytes: words[10],
                ivset_guid: Guid(words[11]),
            }),
        })
    }

    /// The integers of the ZAP value.
    #[must_use]
    pub fn encode(&self) -> Vec<u64> {
        let mut words = Vec::from([self.guid.0, self.creation_txg.0, self.creation_time]);
        if let Some(v2) = &self.v2 {
            words.extend([
                v2.redaction.0,
                v2.flags,
                v2.referenced_bytes,
                v2.compressed_bytes,
                v2.uncompressed_bytes,
                v2.freed_before_next_bytes,
                v2.freed_compressed_bytes,
                v2.freed_uncompressed_bytes,
                v2.ivset_guid.0,
            ]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_words_survive_a_round_trip_or_are_refused(words in proptest::collection::vec(any::<u64>(), 0..14)) {
            match Bookmark::decode(&words) {
                Ok(bookmark) => prop_assert_eq!(bookmark.encode(), words),
                Err(corrupt) => prop_assert_eq!(corrupt.value, words.len() as u64),
            }
        }
    }

    #[test]
    fn the_form_follows_from_the_number_of_words() {
        assert_eq!(Bookmark::decode(&[1, 2, 3]).unwrap().v2, None);
        assert!(Bookmark::decode(&[0; 12]).unwrap().v2.is_some());
    }
}
