//! The four checksum words that a block pointer holds of its block.
//!
//! From:   a block's bytes as they lie on disk (PSIZE bytes, padding included).
//! To:     `storage`, which stores the words or compares them.
//! Source: docs/format/02-blocks-checksums-compression.md §3.

use format::{ByteOrder, Checksum, ChecksumKind};
use sha2::{Digest, Sha256, Sha512_256};

use crate::{edonr, fletcher, skein};

/// A pool's 32-byte checksum salt, with what the salted algorithms derive from it.
#[derive(Clone)]
pub struct Salt {
    bytes: [u8; 32],
    skein: skein::State,
    edonr: edonr::State,
}

impl Salt {
    /// The salt of a pool, as its MOS holds it.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Salt {
        Salt { bytes, skein: skein::keyed(&bytes), edonr: edonr::keyed(&bytes) }
    }

    /// The salt for pools that have none: zeros. Salted checksums that are computed with it match no block.
    #[must_use]
    pub fn none() -> Salt {
        Salt::new([0; 32])
    }

    /// The 32 bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.bytes
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Salt").field(&self.bytes).finish()
    }
}

/// The checksum of a block written in little-endian order: [`checksum_of`] with [`ByteOrder::Little`].
#[must_use]
pub fn checksum(kind: ChecksumKind, data: &[u8], salt: &Salt) -> Checksum {
    checksum_of(kind, data, salt, ByteOrder::Little)
}

/// The checksum of a block that a machine of byte order `order` wrote, as numbers.
///
/// `data` is a multiple of 512 bytes (fletcher ignores what follows the last whole word). Kinds that are
/// embedded in their blocks give the words of their algorithm over `data` as it is; `On` is fletcher4;
/// kinds that verify nothing (`Off`, `Inherit`, `NoParity`) give zeros.
#[must_use]
pub fn checksum_of(kind: ChecksumKind, data: &[u8], salt: &Salt, order: ByteOrder) -> Checksum {
    match kind {
        ChecksumKind::Inherit | ChecksumKind::Off | ChecksumKind::NoParity => Checksum::default(),
        ChecksumKind::Fletcher2 | ChecksumKind::Zilog => fletcher::fletcher2(data, order),
        ChecksumKind::On | ChecksumKind::Fletcher4 | ChecksumKind::Zilog2 => fletcher::fletcher4(data, order),
        // The digest's words are numbers from the start, so the writer's order does not matter.
        ChecksumKind::Sha256 | ChecksumKind::Label | ChecksumKind::GangHeader => sha256(data),
        ChecksumKind::Sha512 => words(&Sha512_256::digest(data).into(), order),
        ChecksumKind::Skein => words(&skein::digest(salt.skein, data), order),
        ChecksumKind::Edonr => {
            let digest = edonr::digest(salt.edonr, data);
            words(digest.first_chunk().expect("32 of 64 bytes"), order)
        }
        ChecksumKind::Blake3 => words(blake3::keyed_hash(&salt.bytes, data).as_bytes(), order),
    }
}

pub(crate) fn sha256(data: &[u8]) -> Checksum {
    words(&Sha256::digest(data).into(), ByteOrder::Big)
}

/// Four words from the bytes of a digest.
fn words(digest: &[u8; 32], order: ByteOrder) -> Checksum {
    Checksum([0, 1, 2, 3].map(|i| order.word(digest, i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salt() -> Salt {
        Salt::new(std::array::from_fn(|i| i as u8))
    }

    fn a() -> Vec<u8> {
        (0..512).map(|i| i as u8).collect()
    }

    fn b() -> Vec<u8> {
        (0..4096).map(|i| (7 * i + (i >> 8)) as u8).collect()
    }

    #[test]
    fn names_of_checksums_are_those_of_openzfs() {
        use ChecksumKind::*;
        let vectors = [
            (
                Fletcher2,
                a(),
                [0xefcfaf8f6f4f2f00, 0xf0d0b09070503000, 0x4a38261401efdd00, 0xdac8b6a492806d80],
            ),
            (
                Fletcher4,
                a(),
                [0x00000040c03fbf00, 0x00000da342e27500, 0x000214fa7f828a80, 0x003d9765c9f3c980],
            ),
            (Sha256, a(), [0x110009dcee21620b, 0x166f3abfecb5eff7, 0xa873be729d1c2d53, 0x822e7acc5f34eb9b]),
            (Sha512, a(), [0x6cf5b1411d91141d, 0x0ea8ddb86fa627f0, 0x991896779c0da9d7, 0x3bdc08f7e9f3faed]),
            (Skein, a(), [0xdf06b17bad515284, 0xc1074e6c80f80357, 0x0564949cf231e28f, 0x3b30efa65148a406]),
            (Edonr, a(), [0x86f009c293823406, 0x1787f335116ef352, 0x616de2d3955eb1e1, 0x0f0e3039494fa11f]),
            (Blake3, a(), [0x68e5f03a15d32d73, 0x2e2d8e52a9e2d91f, 0xb6eb0668176e2d68, 0x95bf9be2259b6c22]),
            (
                Fletcher2,
                b(),
                [0xffffffffffffff80, 0xffffffffffffff80, 0xca8a5e3bfd88c7c0, 0xf74799c7c7c3a3c0],
            ),
            (
                Fletcher4,
                b(),
                [0x000001fffffffe00, 0x0003ffee1c778f00, 0x055664326c278200, 0x587334b373c10f80],
            ),
            (Sha256, b(), [0xd24ac44c83cce842, 0xb67a82d2f77bcbe5, 0xe41dbd555605c928, 0x32d609e29c5a997c]),
            (Sha512, b(), [0x375f65261f36fc69, 0x78056a45f59b8fd3, 0xb26a0175aad0a87e, 0x65e359856c4e2962]),
            (Skein, b(), [0x0ee74f1f1d7170fd, 0x6e0189ca4c8ff228, 0x3dc785d74dded32c, 0x0c1ddeb1cec47841]),
            (Edonr, b(), [0x714113e045f0f3eb, 0x5df5dfd73cc0f656, 0x6d2dc26998d89971, 0xbee2a45256461a16]),
            (Blake3, b(), [0xf42039dff3a071e2, 0x79c41427695ba9cc, 0xc674abc65b255ed7, 0xe0ec765ed46ab19b]),
        ];
        for (kind, data, words) in vectors {
            assert_eq!(checksum(kind, &data, &salt()), Checksum(words), "{kind:?} of {}", data.len());
        }
    }

    #[test]
    fn fletcher_swaps_the_words_of_a_foreign_block() {
        let foreign = |kind| checksum_of(kind, &a(), &salt(), ByteOrder::Big);
        assert_eq!(
            foreign(ChecksumKind::Fletcher2),
            Checksum([0x0f2f4f6f8fafcfe0, 0x1030507090b0d0e0, 0xcfe1f406182a3b70, 0x60728496a8bacbf0])
        );
        assert_eq!(
            foreign(ChecksumKind::Fletcher4),
            Checksum([0x0000003f3fc04080, 0x00000d4262c315c0, 0x000204948f886b00, 0x003b7e5b56b441e0])
        );
    }

    #[test]
    fn raw_digests_of_a_foreign_block_are_swapped_and_sha256_is_not() {
        for kind in ChecksumKind::ALL {
            let native = checksum(kind, &b(), &salt());
            let foreign = checksum_of(kind, &b(), &salt(), ByteOrder::Big);
            match kind {
                ChecksumKind::Sha512 | ChecksumKind::Skein | ChecksumKind::Edonr | ChecksumKind::Blake3 => {
                    assert_eq!(foreign.0, native.0.map(u64::swap_bytes), "{kind:?}");
                }
                ChecksumKind::Sha256 | ChecksumKind::Label | ChecksumKind::GangHeader => {
                    assert_eq!(foreign, native);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_salt_enters_exactly_the_salted_kinds() {
        for kind in ChecksumKind::ALL {
            let differs = checksum(kind, &a(), &salt()) != checksum(kind, &a(), &Salt::none());
            assert_eq!(differs, kind.is_salted(), "{kind:?}");
        }
    }

    #[test]
    fn checksum_kinds_that_verify_nothing_give_zeros() {
        for kind in [ChecksumKind::Off, ChecksumKind::Inherit, ChecksumKind::NoParity] {
            assert_eq!(checksum(kind, &a(), &salt()), Checksum::default());
        }
    }

    #[test]
    fn every_length_has_its_checksum() {
        let data = vec![0x5a; 700];
        for kind in ChecksumKind::ALL {
            for len in 0..700 {
                let _ = checksum(kind, &data[..len], &salt());
            }
        }
    }
}
