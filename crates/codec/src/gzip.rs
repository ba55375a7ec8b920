//! gzip-1 to gzip-9: one zlib stream, by libdeflate; other engines: [`crate::deflate`].
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5; RFC 1950.

use std::cell::RefCell;

use format::Compression;
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::{CodecError, entropy};

/// libdeflate's level for each of gzip-1 to gzip-9: the fastest whose ratio is on no file of the corpus, at records of 16K
/// to 1M, more than 1 % below that of zlib (`examples/zlib_ratios.rs`), except the two below.
const LEVELS: [u8; 9] = [3, 4, 4, 6, 5, 6, 7, 8, 8];

/// gzip-1 to gzip-3 are zlib's fast method, which is better than libdeflate's on noise: it takes far matches
/// of three bytes, which save little each. For such records libdeflate weighs every match, at this level.
const NOISE_GZIP_MAX: u8 = 3;
const NOISE_LEVEL: u8 = 10;
const NOISE_SLOT: usize = LEVELS.len();
/// Noise with a lower entropy, in 1/256 bits per byte, is worth compressing: the frequencies of its bytes alone save
/// space.
const NOISE_ENTROPY_MAX: u64 = 7 * 256 + 128;

/// Large records of few letters (a dark CCD frame) have many matches to choose from: the level of gzip-3 looks
/// at too few of them, that of gzip-4 at enough.
const CROWDED_GZIP: u8 = 3;
const CROWDED_INSTEAD: u8 = 4;
const CROWDED_LEN_MIN: usize = 512 << 10;
const CROWDED_ENTROPY_MAX: u64 = 3 * 256 + 230;

thread_local! {
    /// One compressor per gzip level and one for noise, made when first used.
    static COMPRESSORS: RefCell<[Option<Compressor>; NOISE_SLOT + 1]> =
        const { RefCell::new([const { None }; NOISE_SLOT + 1]) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// # Panics
/// If `level` is not 1 to 9: `format` makes no other.
pub(crate) fn compress(level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    assert!((1..=9).contains(&level), "gzip has levels 1 to 9");
    let crowded =
        level == CROWDED_GZIP && src.len() >= CROWDED_LEN_MIN && entropy::sampled(src) < CROWDED_ENTROPY_MAX;
    let used = deflate(usize::from(if crowded { CROWDED_INSTEAD } else { level } - 1), src, dst);
    let saves_little = used.unwrap_or(dst.len()) > src.len() / 4 * 3;
    if level <= NOISE_GZIP_MAX && saves_little && entropy::sampled(src) < NOISE_ENTROPY_MAX {
        return deflate(NOISE_SLOT, src, dst);
    }
    used
}

fn deflate(slot: usize, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let compressor = compressors[slot].get_or_insert_with(|| {
            let native = *LEVELS.get(slot).unwrap_or(&NOISE_LEVEL);
            Compressor::new(CompressionLvl::new(native.into()).expect("libdeflate has levels 0 to 12"))
        });
        compressor.zlib_compress(src, dst).ok()
    })
}

/// A zlib stream of any bytes, even if it is longer than they are: for texts such as resume tokens, not for records.
#[must_use]
pub fn zlib(src: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut packed = vec![0; compressor.zlib_compress_bound(src.len())];
    let len = compressor.zlib_compress(src, &mut packed).expect("as much room as it may take");
    packed.truncate(len);
    packed
}

/// Decompresses the output of [`zlib`] into `len` bytes.
///
/// # Errors
/// [`CodecError`] when it is something else, or of another length.
pub fn unzlib(src: &[u8], len: usize) -> Result<Vec<u8>, CodecError> {
    let mut raw = vec![0; len];
    decompress(Compression::Gzip(6), src, &mut raw)?;
    Ok(raw)
}

pub(crate) fn decompress(kind: Compression, src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let expected = dst.len();
    let found = DECOMPRESSOR
        .with_borrow_mut(|slot| slot.get_or_insert_with(Decompressor::new).zlib_decompress(src, dst))
        .map_err(|error| match error {
            DecompressionError::BadData => CodecError::Malformed { kind, what: "not a zlib stream" },
            DecompressionError::InsufficientSpace => {
                CodecError::Malformed { kind, what: "the zlib stream is longer than the block" }
            }
        })?;
    if found != expected {
        return Err(CodecError::WrongSize { kind, expected, found });
    }
    Ok(())
}
