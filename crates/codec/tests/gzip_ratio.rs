//! gzip-n saves as much as zlib's level n, although libdeflate's levels differ from zlib's.

use std::fs;
use std::path::Path;

use flate2::{Compress, FlushCompress, Status};
use format::Compression;
use format::compression::CompressionSetting;

/// The files of the sample that are different enough, and the most of each: the test is to take a second.
const FILES: [&str; 4] = ["gc_2mass_k.fits", "libcrypto.so.3", "nt-head.nsq", "src-ext4.tar"];
const FILE_LEN_MAX: usize = 1 << 20;

fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/corpus/{name}.zst"));
    let packed = fs::read(path).expect("the sample is in the repository");
    let mut data = vec![0; 8 << 20];
    let len = zstd_safe::decompress(data.as_mut_slice(), &packed).expect("a whole frame");
    data.truncate(len.min(FILE_LEN_MAX));
    data
}

fn stored_bytes(
    data: &[u8],
    record: usize,
    mut compress: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
) -> usize {
    let mut packed = vec![0; record - record / 8];
    data.chunks_exact(record).map(|record| compress(record, &mut packed).unwrap_or(record.len())).sum()
}

#[test]
fn gzip_is_nowhere_a_hundredth_larger_than_zlib() {
    for name in FILES {
        let data = sample(name);
        for record in [16 << 10, 128 << 10] {
            for level in [1, 2, 3, 4, 6, 9] {
                let setting = CompressionSetting::plain(Compression::Gzip(level));
                let ours = stored_bytes(&data, record, |src, dst| codec::compress(setting, src, dst));
                let mut deflate = Compress::new(flate2::Compression::new(level.into()), true);
                let theirs = stored_bytes(&data, record, |src, dst| {
                    deflate.reset();
                    let status = deflate.compress(src, dst, FlushCompress::Finish);
                    matches!(status, Ok(Status::StreamEnd)).then(|| deflate.total_out() as usize)
                });
                assert!(
                    theirs * 100 >= ours * 99,
                    "gzip-{level} of {name}, records of {record}: {ours} bytes, zlib {theirs}"
                );
            }
        }
    }
}
