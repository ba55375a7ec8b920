//! Labels: places of all data outside the copy-on-write tree on a leaf vdev.
//!
//! From:   the size of a device.
//! To:     `storage`, which reads and writes the regions and fills in their checksums (`codec`).
//! Source: docs/format/01-labels-uberblock.md §1, §2, §5, §8.

use alloc::vec::Vec;

use crate::{Corrupt, NvList, Txg};

/// Bytes of a label.
pub const SIZE: u64 = 256 << 10;
/// Copies of the label on a leaf: two at each end.
pub const COPIES: usize = 4;
/// Bytes before the allocatable area: two labels and the boot area. DVA offset 0 lies here.
pub const DATA_START: u64 = 4 << 20;
/// First byte of the boot area, which reaches to [`DATA_START`].
pub const BOOT_START: u64 = 512 << 10;
/// Bytes of the boot area.
pub const BOOT_SIZE: u64 = DATA_START - BOOT_START;
/// Bytes after the allocatable area: two labels.
pub const DATA_END: u64 = 2 * SIZE;
/// Smallest device that OpenZFS takes, in bytes.
pub const MIN_DEVICE: u64 = 64 << 20;
/// Bytes of the embedded checksum at the end of each region.
pub const TRAILER: usize = 40;

/// A part of a label with an embedded checksum (but `PAD1`) in its last [`TRAILER`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Byte offset in the label.
    pub offset: u64,
    /// Bytes, trailer included.
    pub len: usize,
}

/// Blank space that belongs to disk labels and boot loaders: never written.
pub const PAD1: Region = Region { offset: 0, len: 0x2000 };
/// The boot environment.
pub const BOOT_ENV: Region = Region { offset: 0x2000, len: 0x2000 };
/// The config nvlist.
pub const PHYS: Region = Region { offset: 0x4000, len: 0x1c000 };
/// The uberblock ring.
pub const RING: Region = Region { offset: 0x20000, len: 0x20000 };
/// Most bytes of the packed config nvlist.
pub const PHYS_NVLIST_MAX: usize = PHYS.len - TRAILER;

const _: () = assert!(RING.offset + RING.len as u64 == SIZE && PHYS.offset + PHYS.len as u64 == RING.offset);

impl Region {
    /// The region's bytes in a whole label.
    ///
    /// # Panics
    /// If `label` is not [`SIZE`] bytes long.
    #[must_use]
    pub fn of(self, label: &[u8]) -> &[u8] {
        assert_eq!(label.len() as u64, SIZE, "a label is 256 KiB");
        &label[self.offset as usize..][..self.len]
    }

    /// The region's bytes in a whole label, to be changed.
    ///
    /// # Panics
    /// As [`Region::of`].
    #[must_use]
    pub fn of_mut(self, label: &mut [u8]) -> &mut [u8] {
        assert_eq!(label.len() as u64, SIZE, "a label is 256 KiB");
        &mut label[self.offset as usize..][..self.len]
    }
}

/// Bytes of a device that are used: whole multiples of the label size.
#[must_use]
pub const fn used_size(device_size: u64) -> u64 {
    device_size - device_size % SIZE
}

/// Byte offsets of the four labels; `None` when the device has no room for labels and data.
#[must_use]
pub const fn offsets(device_size: u64) -> Option<[u64; COPIES]> {
    let end = used_size(device_size);
    if end <= DATA_START + DATA_END { None } else { Some([0, SIZE, end - 2 * SIZE, end - SIZE]) }
}

/// Allocatable bytes of a leaf on a device of `device_size` bytes.
#[must_use]
pub const fn asize_of(device_size: u64) -> u64 {
    used_size(device_size).saturating_sub(DATA_START + DATA_END)
}

/// log2 bytes of an uberblock slot, by the ashift of the top-level vdev.
#[must_use]
pub const fn uberblock_shift(ashift: u32) -> u32 {
    if ashift < 10 {
        10
    } else if ashift > 13 {
        13
    } else {
        ashift
    }
}

/// Slots in a ring.
#[must_use]
pub const fn uberblock_count(ashift: u32) -> u64 {
    (RING.len >> uberblock_shift(ashift)) as u64
}

/// The slot for the uberblock of `txg`. With multihost on the last slot is kept for heartbeats.
#[must_use]
pub const fn uberblock_slot(txg: Txg, ashift: u32, multihost: bool) -> u64 {
    txg.0 % (uberblock_count(ashift) - multihost as u64)
}

/// Byte offset on the device of an uberblock slot in the label at `label_offset`; also its verifier.
#[must_use]
pub const fn uberblock_offset(label_offset: u64, slot: u64, ashift: u32) -> u64 {
    label_offset + RING.offset + (slot << uberblock_shift(ashift))
}

/// The slots of a ring, given its bytes.
pub fn uberblock_slots(ring: &[u8], ashift: u32) -> impl Iterator<Item = &[u8]> {
    ring.chunks_exact(1 << uberblock_shift(ashift))
}

/// The region [`PHYS`] with this config, its trailer still zero; `None` when the config is too long.
#[must_use]
pub fn encode_phys(config: &NvList) -> Option<Vec<u8>> {
    let mut raw = config.to_xdr();
    if raw.len() > PHYS_NVLIST_MAX {
        return None;
    }
    raw.resize(PHYS.len, 0);
    Some(raw)
}

/// The config in the region [`PHYS`].
///
/// # Errors
/// [`Corrupt`] for a short region or a bad list.
pub fn decode_phys(raw: &[u8]) -> Result<NvList, Corrupt> {
    let nvlist = raw.get(..PHYS_NVLIST_MAX).ok_or(Corrupt::new("label config length", raw.len() as u64))?;
    NvList::decode(nvlist)
}

/// log2 bytes of a metaslab for a new top-level vdev of `asize` allocatable bytes.
#[must_use]
pub const fn metaslab_shift(asize: u64) -> u32 {
    const DEFAULT: u32 = 29;
    const LARGEST: u32 = 34;
    const fn high_bit(x: u64) -> u32 {
        64 - x.leading_zeros()
    }
    let count = asize >> DEFAULT;
    let shift = if count < 16 {
        high_bit(asize / 16)
    } else if count > 200 {
        high_bit(asize / 200)
    } else {
        DEFAULT
    };
    if shift < 24 {
        24
    } else if shift <= LARGEST {
        shift
    } else if asize >> LARGEST > 1 << 17 {
        high_bit(asize >> 17)
    } else {
        LARGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn metaslab_sizes_are_those_of_real_pools() {
        for (asize, shift, count) in [(263_716_864, 24, 15), (776_994_816, 26, 11), (1_054_867_456, 26, 15)] {
            assert_eq!(metaslab_shift(asize), shift);
            assert_eq!(asize >> shift, count);
        }
        assert_eq!(metaslab_shift(1 << 40), 33);
        assert_eq!(metaslab_shift(16 << 29), 29);
        assert_eq!(metaslab_shift(1 << 50), 34);
        assert_eq!(metaslab_shift(1 << 60), 44);
        assert_eq!(metaslab_shift(0), 24);
    }

    #[test]
    fn labels_lie_at_both_ends_of_the_whole_quarter_mebibytes() {
        let size = 100_000_000;
        assert_eq!(used_size(size), 381 * SIZE);
        assert_eq!(offsets(size), Some([0, SIZE, 379 * SIZE, 380 * SIZE]));
        assert_eq!(asize_of(67_108_864), 62_390_272);
        assert_eq!(offsets(4 << 20), None);
        assert_eq!(asize_of(1000), 0);
    }

    #[test]
    fn slots_follow_the_ashift() {
        assert_eq!([9, 10, 11, 12, 13, 16].map(uberblock_count), [128, 128, 64, 32, 16, 16]);
        assert_eq!(uberblock_slot(Txg(127), 9, false), 127);
        assert_eq!(uberblock_slot(Txg(127), 9, true), 0);
        assert_eq!(uberblock_offset(SIZE, 3, 12), SIZE + 0x20000 + 3 * 4096);
        assert_eq!(uberblock_slots(&[0; RING.len], 12).count(), 32);
    }

    #[test]
    fn regions_cut_the_label_without_gaps() {
        let mut label = alloc::vec![0; SIZE as usize];
        let len: usize = [PAD1, BOOT_ENV, PHYS, RING].map(|region| region.of(&label).len()).iter().sum();
        assert_eq!(len as u64, SIZE);
        PHYS.of_mut(&mut label)[0] = 1;
        assert_eq!(label[0x4000], 1);
    }

    #[test]
    fn a_config_too_long_for_a_label_is_not_encoded() {
        let mut config = NvList::new();
        config.insert("comment", "x".repeat(PHYS_NVLIST_MAX).as_str());
        assert_eq!(encode_phys(&config), None);
        config.insert("comment", "short");
        let raw = encode_phys(&config).unwrap();
        assert_eq!(raw.len(), PHYS.len);
        assert_eq!(decode_phys(&raw), Ok(config));
    }

    proptest! {
        #[test]
        fn metaslab_shifts_stay_in_bounds_and_never_panic(asize in any::<u64>(), drop in 0u32..64) {
            let shift = metaslab_shift(asize >> drop);
            prop_assert!((24..64).contains(&shift));
        }
    }
}
