//! Decoding records of an intent log: attributes of nodes, and data.
//!
//! Source: docs/format/08-zil.md.

use format::zil::{self, Attrs, Write, xat};
use format::znode::pflags;
use format::{BlockPtr, Corrupt};
use pool::Dataset;

use crate::{Error, Result};

/// Data and offset of a write. A record that points at a block stands for the whole block.
pub(crate) fn logged_data(dataset: &Dataset, write: &Write) -> Result<(u64, Vec<u8>)> {
    let damaged = |what| Err(Error::damaged(write.object)(Corrupt::new(what, write.length)));
    write.offset.checked_add(write.length).ok_or(Error::FileTooBig)?;
    match (&write.data, &write.ptr) {
        (Some(data), _) => Ok((write.offset, data.clone())),
        (None, BlockPtr::Hole(_)) if write.length > zil::BLOCK_MAX as u64 => {
            damaged("length of zeros in a log record")
        }
        (None, BlockPtr::Hole(_)) => Ok((write.offset, vec![0; write.length as usize])),
        // The data may be embedded in the block pointer.
        (None, ptr) if write.length <= ptr.lsize() => {
            let start = block_start(write.offset, write.length, ptr.lsize());
            Ok((start, dataset.read_log_data(ptr)?.to_vec()))
        }
        (None, _) => damaged("length of data that a log record points to"),
    }
}

/// Start of the block of `lsize` bytes at which a record of `length` bytes at `offset` points. The whole block was written.
fn block_start(offset: u64, length: u64, lsize: u64) -> u64 {
    if length < lsize { offset - offset % lsize } else { offset }
}

/// A node's flags after an attribute block is applied.
pub(crate) fn flags_with(mut flags: u64, attrs: &Attrs) -> u64 {
    const PAIRS: [(u32, u64); 15] = [
        (xat::ARCHIVE, pflags::ARCHIVE),
        (xat::SYSTEM, pflags::SYSTEM),
        (xat::READONLY, pflags::READONLY),
        (xat::HIDDEN, pflags::HIDDEN),
        (xat::NOUNLINK, pflags::NOUNLINK),
        (xat::IMMUTABLE, pflags::IMMUTABLE),
        (xat::APPENDONLY, pflags::APPENDONLY),
        (xat::NODUMP, pflags::NODUMP),
        (xat::OPAQUE, pflags::OPAQUE),
        (xat::AV_QUARANTINED, pflags::AV_QUARANTINED),
        (xat::AV_MODIFIED, pflags::AV_MODIFIED),
        (xat::REPARSE, pflags::REPARSE),
        (xat::OFFLINE, pflags::OFFLINE),
        (xat::SPARSE, pflags::SPARSE),
        (xat::PROJINHERIT, pflags::PROJINHERIT),
    ];
    for (bit, flag) in PAIRS {
        if attrs.wanted[0] & bit != 0 {
            flags = flags & !flag | if attrs.values & u64::from(bit) != 0 { flag } else { 0 };
        }
    }
    flags
}

/// The project that an attribute block sets.
pub(crate) fn projid_of(attrs: &Attrs) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&attrs.scanstamp[..8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_block_changes_the_flags_it_names() {
        let attrs = Attrs {
            wanted: [xat::READONLY | xat::HIDDEN, 0, 0],
            values: xat::HIDDEN.into(),
            scanstamp: [5; 32],
            ..Attrs::default()
        };
        assert_eq!(flags_with(pflags::READONLY | pflags::ARCHIVE, &attrs), pflags::HIDDEN | pflags::ARCHIVE);
        assert_eq!(projid_of(&attrs), 0x0505_0505_0505_0505);
    }
}
