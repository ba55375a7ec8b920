//! Every gzip engine: zlib reads its bytes, they keep to their size limit, and they depend only on the record.

use std::fs;
use std::path::Path;

use codec::Engine;
use flate2::{Decompress, FlushDecompress, Status};
use format::Compression;
use format::compression::CompressionSetting;
use proptest::collection::vec;
use proptest::prelude::*;

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/corpus/{name}.zst"));
    let packed = fs::read(path).expect("the sample is in the repository");
    let mut data = vec![0; 8 << 20];
    let len = zstd_safe::decompress(data.as_mut_slice(), &packed).expect("a whole frame");
    data.truncate(len.min(1 << 20));
    data
}

fn pack(engine: Engine, level: u8, record: &[u8], dst: &mut [u8]) -> Option<usize> {
    codec::compress_by(engine, CompressionSetting::plain(Compression::Gzip(level)), record, dst)
}

/// Decompresses a stream with zlib: the whole of it, with its checksum.
fn zlib(stream: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len + 1];
    let mut inflate = Decompress::new(true);
    let status = inflate.decompress(stream, &mut out, FlushDecompress::Finish).ok()?;
    let whole = status == Status::StreamEnd && inflate.total_in() == stream.len() as u64;
    out.truncate(inflate.total_out() as usize);
    whole.then_some(out)
}

fn every() -> impl Iterator<Item = (Engine, u8)> {
    Engine::ALL.into_iter().flat_map(|engine| (1..=9).map(move |level| (engine, level)))
}

#[test]
fn zlib_reads_what_every_engine_makes_of_real_records() {
    for name in ["reads-hiseq-head.fastq", "libcrypto.so.3", "nt-head.nsq", "hadoop-yarn-head.jar"] {
        let data = sample(name);
        for (engine, level) in every() {
            for len in [512, 16 << 10, 128 << 10, data.len()] {
                let record = &data[..len];
                let mut packed = vec![0; len - len / 8];
                let Some(used) = pack(engine, level, record, &mut packed) else { continue };
                assert_eq!(packed[0], 0x78, "a zlib header: deflate with a window of 32K");
                assert_eq!(
                    zlib(&packed[..used], len).as_deref(),
                    Some(record),
                    "{name} {engine} {level} {len}"
                );
                // On disk padding follows, and libdeflate is who reads it.
                packed[used..].fill(0);
                let mut back = vec![0xee; len];
                assert_eq!(codec::decompress(Compression::Gzip(level), &packed, &mut back), Ok(()));
                assert!(back == record, "{name} {engine} {level} {len}");
            }
        }
    }
}

#[test]
fn a_saving_below_an_eighth_does_not_fit() {
    let mut state = 88_172_645_463_325_252u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let noise: Vec<u8> = (0..128 << 10).map(|_| byte()).collect();
    for (engine, level) in every() {
        assert_eq!(pack(engine, level, &noise, &mut vec![0; noise.len() / 8 * 7]), None, "{engine} {level}");
    }
}

#[test]
fn the_limit_is_never_passed_and_what_came_before_changes_no_byte() {
    let (data, other) = (sample("reads-hiseq-head.fastq"), sample("nt-head.nsq"));
    let record = &data[..100_000];
    for (engine, level) in every() {
        let mut first = vec![0; record.len()];
        let used = pack(engine, level, record, &mut first).expect("text is compressible");
        for (engine, level) in every() {
            let _ = pack(engine, level, &other[..64 << 10], &mut vec![0; 64 << 10]);
        }
        let mut second = vec![0xaa; record.len()];
        assert_eq!(pack(engine, level, record, &mut second), Some(used));
        assert!(first[..used] == second[..used], "{engine} {level}");
        for limit in [0, 1, 2, 5, 6, 7, 100, used / 2, used - 1] {
            let mut guarded = vec![0xcd; limit + 64];
            assert_eq!(pack(engine, level, record, &mut guarded[..limit]), None, "{engine} {level} {limit}");
            assert!(guarded[limit..].iter().all(|byte| *byte == 0xcd), "{engine} {level} wrote past {limit}");
        }
        assert_eq!(pack(engine, level, record, &mut second[..used + 64]), Some(used), "{engine} {level}");
    }
}

#[test]
fn igzip_gives_up_a_fifth_of_the_ratio_at_most() {
    if !Engine::Isal.is_here() {
        eprintln!("igzip is not in this build, skipped");
        return;
    }
    for name in ["reads-hiseq-head.fastq", "libcrypto.so.3", "nt-head.nsq", "src-ext4.tar"] {
        let data = sample(name);
        let stored = |engine| -> usize {
            let mut packed = vec![0; 128 << 10];
            data.chunks_exact(128 << 10).map(|r| pack(engine, 6, r, &mut packed).unwrap_or(r.len())).sum()
        };
        let (theirs, igzip) = (stored(Engine::Libdeflate), stored(Engine::Isal));
        assert!(igzip * 80 <= theirs * 100, "{name}: {igzip} bytes, libdeflate {theirs}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn zlib_reads_what_every_engine_makes_of_any_record(
        which in 0usize..18, piece in vec(any::<u8>(), 1..400), times in 1usize..300, cut in 0usize..400,
    ) {
        let (engine, level) = every().nth(which).expect("18 of them");
        let mut record = piece.repeat(times);
        record.truncate(record.len() - cut.min(record.len() - 1));
        let mut packed = vec![0; record.len() + record.len() / 8 + 600];
        let used = pack(engine, level, &record, &mut packed).expect("roomy");
        prop_assert_eq!(zlib(&packed[..used], record.len()), Some(record));
    }
}
