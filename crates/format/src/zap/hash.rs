//! The ZAP hash: CRC-64 (ECMA-182, reflected) over the key, seeded with the object's salt.
//!
//! From:   a key and the salt of its object.
//! To:     leaf choice, bucket choice and iteration order; all use the **top** bits.
//! Source: docs/format/04-zap.md §1.

/// Significant (top) bits of a hash, unless the ZAP has [`HASH64`](super::fat::HASH64).
pub const BITS: u32 = 28;
/// Significant bits with [`HASH64`](super::fat::HASH64).
pub const BITS_LONG: u32 = 48;

const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

fn crc64(salt: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(salt, |crc, &byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// Keeps the top `bits` of `hash`: the form that is stored and compared.
#[must_use]
pub const fn truncate(hash: u64, bits: u32) -> u64 {
    hash & !(u64::MAX >> bits)
}

/// Hash of a (normalised) string key, given without its NUL; `bits` is [`BITS`] or [`BITS_LONG`].
#[must_use]
pub fn hash_bytes(salt: u64, key: &[u8], bits: u32) -> u64 {
    truncate(crc64(salt, key), bits)
}

/// Hash of a `uint64` key; `bits` is [`BITS`] or [`BITS_LONG`].
#[must_use]
pub fn hash_words(salt: u64, key: &[u64], bits: u32) -> u64 {
    truncate(key.iter().fold(salt, |crc, word| crc64(crc, &word.to_le_bytes())), bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_ecma_182() {
        assert_eq!(TABLE[1], 0xb32e_4cbe_03a7_5f6f);
        assert_eq!(TABLE[2], 0xf484_3657_a840_a05b);
        assert_eq!(TABLE[128], POLYNOMIAL);
        assert_eq!(TABLE[255], 0xe0ad_a173_6467_3f59);
    }

    #[test]
    fn known_keys_hash_to_known_values() {
        assert_eq!(hash_bytes(1, b"hello", BITS), 0x0cd7_7f50_0000_0000);
        assert_eq!(hash_bytes(1, b"hello", BITS_LONG), 0x0cd7_7f5a_063e_0000);
        assert_eq!(hash_bytes(63187, b"config", BITS), 0x070a_1690_0000_0000);
        assert_eq!(hash_bytes(63187, b"config", BITS_LONG), 0x070a_169c_e2dd_0000);
        assert_eq!(hash_bytes(63187, b"root_dataset", BITS), 0x0f6c_85a0_0000_0000);
        assert_eq!(hash_bytes(0xdead_beef_cafe_f00d, b"a", BITS), 0x132e_8080_0000_0000);
        assert_eq!(hash_words(1, &[0x1122_3344_5566_7788], BITS_LONG), 0xb4f1_2cac_3338_0000);
    }
}
