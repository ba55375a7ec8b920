//! One record, compressed or decompressed: chooses the algorithm.
//!
//! From:   `storage`'s write pipeline, which decides the limit and what to do when a record does not fit.
//! To:     the modules of the algorithms, each of which owns its framing.
//! Source: docs/format/02-blocks-checksums-compression.md §4.2, §5.

use format::Compression;
use format::compression::CompressionSetting;

use crate::{CodecError, Engine, gzip, lz4, lzjb, zle, zstd};

/// Compresses the record `src` into `dst` with ZFS's framing; returns the bytes used.
///
/// `dst.len()` is the limit: `None` means that the result does not fit there (what `dst` then holds is
/// unspecified), or that `setting` compresses nothing (`Off`, `Empty`, `Inherit`). The property value `On`
/// depends on the pool's features, so callers resolve it; here it counts as LZ4. The same input gives the
/// same bytes, whatever the thread compressed before.
#[must_use]
pub fn compress(setting: CompressionSetting, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    compress_by(Engine::Libdeflate, setting, src, dst)
}

/// As [`compress`]; `engine` compresses with gzip, or libdeflate does if the program does not have that engine.
#[must_use]
pub fn compress_by(engine: Engine, setting: CompressionSetting, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    debug_assert_ne!(setting.algorithm, Compression::On, "callers resolve `on`");
    match setting.algorithm {
        Compression::Inherit | Compression::Off | Compression::Empty => None,
        Compression::Lzjb => lzjb::compress(src, dst),
        Compression::Gzip(level) => engine.compress(level, src, dst),
        Compression::Zle => zle::compress(src, dst),
        Compression::On | Compression::Lz4 => lz4::compress(src, dst),
        Compression::Zstd => zstd::compress(setting.zstd_level, src, dst),
    }
}

/// Fills `dst`, a block's logical size, from the payload `src`, which may carry padding after its end.
///
/// With [`Compression::Off`] the payload is the block.
///
/// # Errors
/// [`CodecError`] when `src` does not decode to exactly `dst.len()` bytes; `dst` is then unspecified.
/// Any input ends in a value: no panic, and no memory beyond `dst` and the thread's contexts.
pub fn decompress(kind: Compression, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    match kind {
        Compression::Off => {
            let block = src.get(..dst.len()).ok_or(CodecError::Truncated { kind, available: src.len() })?;
            dst.copy_from_slice(block);
            Ok(())
        }
        Compression::Lzjb => lzjb::decompress(src, dst),
        Compression::Gzip(_) => gzip::decompress(kind, src, dst),
        Compression::Zle => zle::decompress(src, dst),
        Compression::Lz4 => lz4::decompress(src, dst),
        Compression::Zstd => zstd::decompress(src, dst),
        Compression::Inherit | Compression::On | Compression::Empty => Err(CodecError::NotStored(kind)),
    }
}

#[cfg(test)]
mod tests {
    use format::compression::ZstdLevel;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn settings() -> Vec<CompressionSetting> {
        let plain = [Compression::Lzjb, Compression::Zle, Compression::Lz4];
        let mut all: Vec<_> = plain.into_iter().map(CompressionSetting::plain).collect();
        all.extend((1..=9).map(|level| CompressionSetting::plain(Compression::Gzip(level))));
        let levels = [ZstdLevel::Default, ZstdLevel::Level(1), ZstdLevel::Level(9), ZstdLevel::Fast(5)];
        all.extend(levels.map(CompressionSetting::zstd));
        all
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
    }

    /// The block that the vectors of §5.5 decode to.
    fn vector_block() -> Vec<u8> {
        let mut block = vec![0; 1024];
        block[..10].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        block[500] = 0xff;
        block
    }

    /// Compressible data of several textures, from a seed.
    fn sample(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let mut data: Vec<u8> = Vec::with_capacity(len + 256);
        while data.len() < len {
            let run = next() % 200 + 1;
            match next() % 4 {
                0 => data.extend((0..run).map(|_| next() as u8)),
                1 => data.extend(std::iter::repeat_n(0, run)),
                2 => data.extend(std::iter::repeat_n(next() as u8, run)),
                _ => {
                    let back = next() % 3000 + 1;
                    for _ in 0..run {
                        data.push(data.len().checked_sub(back).map_or(7, |at| data[at]));
                    }
                }
            }
        }
        data.truncate(len);
        data
    }

    #[test]
    fn vectors_of_openzfs_decode_with_and_without_padding() {
        let lzjb = "000102030405060708f8090a00fc01fc42fc42fc42fc42f7fc42fc426042ff601cfc1bfc42fc420ffc42fc42fc42fc42";
        let vectors = [
            (Compression::Lzjb, format!("{lzjb}{}", "00".repeat(38))),
            (Compression::Zle, "090102030405060708090affffa900ffffffca".into()),
            (
                Compression::Lz4,
                "00000020bf0102030405060708090a000100ffd71fffea01ffd70f02000a500000000000".into(),
            ),
            (Compression::Gzip(6), "789c63646266616563e7e0e46218052304fc1f68078c82410300e8c80137".into()),
            (
                Compression::Zstd,
                "0000001c0300290b0000bd0000680102030405060708090a00ff000200074085cd55e005".into(),
            ),
            (
                Compression::Zstd,
                "0000001c6700290b0000bd0000680102030405060708090a00ff000200074085cd55e005".into(),
            ),
        ];
        for (kind, text) in vectors {
            let mut payload = hex(&text);
            for _ in 0..2 {
                let mut block = vec![0xaa; 1024];
                assert_eq!(decompress(kind, &payload, &mut block), Ok(()), "{kind:?}");
                assert_eq!(block, vector_block(), "{kind:?}");
                payload.resize(4096, 0);
            }
        }
    }

    #[test]
    fn every_algorithm_and_level_gives_back_what_it_took() {
        let mut every = settings();
        every.extend((1..=19).map(|n| CompressionSetting::zstd(ZstdLevel::Level(n))));
        let fast = (1..=10).chain((20..=100).step_by(10)).chain([500, 1000]);
        every.extend(fast.map(|n| CompressionSetting::zstd(ZstdLevel::Fast(n))));
        let block = sample(1, 40_000);
        let mut dst = vec![0; 50_000];
        let mut back = vec![0; block.len()];
        for setting in every {
            let used = compress(setting, &block, &mut dst).expect("a larger buffer fits");
            assert!(used < block.len(), "{setting:?}");
            decompress(setting.algorithm, &dst[..used], &mut back).expect("own payload");
            assert_eq!(back, block, "{setting:?}");
        }
    }

    #[test]
    fn settings_that_store_raw_compress_nothing() {
        for algorithm in [Compression::Inherit, Compression::Off, Compression::Empty] {
            assert_eq!(compress(CompressionSetting::plain(algorithm), &[0; 512], &mut [0; 512]), None);
        }
    }

    #[test]
    fn property_values_are_not_decoders() {
        for kind in [Compression::Inherit, Compression::On, Compression::Empty] {
            assert_eq!(decompress(kind, &[0; 64], &mut [0; 512]), Err(CodecError::NotStored(kind)));
        }
    }

    #[test]
    fn a_raw_block_is_copied_and_a_short_one_is_refused() {
        let block = sample(3, 512);
        let mut back = vec![0; 512];
        assert_eq!(decompress(Compression::Off, &block, &mut back), Ok(()));
        assert_eq!(back, block);
        assert!(decompress(Compression::Off, &block[..511], &mut back).is_err());
    }

    #[test]
    fn earlier_records_do_not_change_the_output() {
        let (block, other) = (sample(5, 20_000), sample(6, 90_000));
        for setting in settings() {
            let (mut first, mut second) = (vec![0; 30_000], vec![0; 30_000]);
            let used = compress(setting, &block, &mut first);
            for between in settings() {
                let _ = compress(between, &other, &mut vec![0; 100_000]);
            }
            assert_eq!(compress(setting, &block, &mut second), used);
            assert_eq!(first, second, "{setting:?}");
        }
    }

    #[test]
    fn the_limit_is_exact_to_a_few_bytes_and_never_passed() {
        let block = sample(9, 9000);
        for setting in settings() {
            let mut dst = vec![0; 12_000];
            let used = compress(setting, &block, &mut dst).expect("roomy");
            for limit in [0, 1, 4, 5, 8, 9, 17, used / 2, used - 1] {
                assert_eq!(compress(setting, &block, &mut dst[..limit]), None, "{setting:?} {limit}");
            }
            let slack = used + 64;
            assert_eq!(compress(setting, &block, &mut dst[..slack]), Some(used), "{setting:?}");
        }
    }

    #[test]
    fn damaged_payloads_end_in_a_value() {
        let block = sample(11, 5000);
        for setting in settings() {
            let mut dst = vec![0; 8000];
            let used = compress(setting, &block, &mut dst).expect("roomy");
            let payload = &dst[..used];
            let mut back = vec![0; block.len()];
            for cut in (0..used).step_by(7) {
                let _ = decompress(setting.algorithm, &payload[..cut], &mut back);
            }
            for at in (0..used).step_by(3) {
                for flip in [0x01, 0x80, 0xff] {
                    let mut bad = payload.to_vec();
                    bad[at] ^= flip;
                    let _ = decompress(setting.algorithm, &bad, &mut back);
                }
            }
            // Another block size than the payload's is an error, not a partial block.
            for wrong in [0, 1, 511, block.len() - 1, block.len() + 1, 2 * block.len()] {
                let mut other = vec![0; wrong];
                let ends_early = matches!(setting.algorithm, Compression::Lzjb | Compression::Zle);
                let result = decompress(setting.algorithm, payload, &mut other);
                assert!(result.is_err() || ends_early && wrong < block.len(), "{setting:?} {wrong}");
            }
        }
    }

    fn any_kind() -> impl Strategy<Value = Compression> {
        prop_oneof![
            Just(Compression::Lzjb),
            Just(Compression::Zle),
            Just(Compression::Lz4),
            Just(Compression::Zstd),
            (1u8..=9).prop_map(Compression::Gzip),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_bytes_end_in_a_value(kind in any_kind(), src in vec(any::<u8>(), 0..600), len in 0usize..3000) {
            let mut dst = vec![0; len];
            let _ = decompress(kind, &src, &mut dst);
        }

        #[test]
        fn any_zstd_body_ends_in_a_value(mut src in vec(any::<u8>(), 8..600), len in 0usize..3000) {
            let body = src.len() as u32 - 8;
            src[..4].copy_from_slice(&body.to_be_bytes());
            src[4..8].copy_from_slice(&[3, 0, 0x29, 0x0b]);
            let _ = decompress(Compression::Zstd, &src, &mut vec![0; len]);
        }

        #[test]
        fn records_survive_a_round_trip(
            index in 0usize..16, seed in any::<u64>(), len in 1usize..70_000, padding in 0usize..600,
        ) {
            let setting = settings()[index % settings().len()];
            let block = sample(seed, len);
            let mut dst = vec![0; len + len / 8 + 600];
            let used = compress(setting, &block, &mut dst).expect("roomy");
            dst[used..].fill(0);
            let mut back = vec![0xee; len];
            prop_assert_eq!(decompress(setting.algorithm, &dst[..used + padding.min(dst.len() - used)], &mut back), Ok(()));
            prop_assert!(back == block);
        }

        #[test]
        fn noise_survives_a_round_trip(index in 0usize..16, block in vec(any::<u8>(), 1..5000)) {
            let setting = settings()[index % settings().len()];
            let mut dst = vec![0; block.len() + block.len() / 8 + 600];
            let used = compress(setting, &block, &mut dst).expect("roomy");
            let mut back = vec![0; block.len()];
            prop_assert_eq!(decompress(setting.algorithm, &dst[..used], &mut back), Ok(()));
            prop_assert!(back == block);
        }
    }
}
