//! Attributes in the records of an intent log, as a node has them.
//!
//! Source: docs/format/08-zil.md.

use format::zil::{Attrs, xat};
use format::znode::pflags;

/// A node's flags with those that an attribute block sets.
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
