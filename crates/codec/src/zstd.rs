//! Zstandard with ZFS's framing: length, level and version, then a frame without magic number.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5, §5.3.

use std::cell::RefCell;

use format::Compression;
use format::compression::ZstdLevel;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat};

use crate::{CodecError, entropy, lz4};

const KIND: Compression = Compression::Zstd;
const HEADER: usize = 8;
/// The library version in the header, 1.5.7; decoders look only at its zero top byte.
const VERSION: u32 = 10507;
/// The early abort is for levels that cost more than trying twice, on records worth the trial.
const ABORT_MIN_LEVEL: i32 = 3;
const ABORT_MIN_BYTES: usize = 128 << 10;

/// A compression context and the level it is set to.
struct Encoder {
    context: CCtx<'static>,
    level: i32,
}

impl Encoder {
    fn new(level: i32) -> Encoder {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::CompressionLevel(level),
        ] {
            context.set_parameter(parameter).expect("zstd knows these parameters and clamps levels");
        }
        Encoder { context, level }
    }

    fn compress(&mut self, level: i32, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        if self.level != level {
            self.context.set_parameter(CParameter::CompressionLevel(level)).expect("zstd clamps levels");
            self.level = level;
        }
        self.context.compress2(dst, src).ok()
    }
}

/// The contexts that a thread keeps: one for records, and one for the trials of the early abort.
struct Encoders {
    record: Option<Encoder>,
    trial: Option<Encoder>,
}

thread_local! {
    static ENCODERS: RefCell<Encoders> = const { RefCell::new(Encoders { record: None, trial: None }) };
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(crate) fn compress(level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let native = level.native();
    let (header, body) = dst.split_first_chunk_mut::<HEADER>()?;
    ENCODERS.with_borrow_mut(|encoders| {
        if native >= ABORT_MIN_LEVEL && src.len() >= ABORT_MIN_BYTES && !worth_it(encoders, src, body) {
            return None;
        }
        let encoder = encoders.record.get_or_insert_with(|| Encoder::new(native));
        let used = encoder.compress(native, src, body)?;
        let level_byte = match level {
            ZstdLevel::Default => ZstdLevel::Level(3).to_disk(),
            named => named.to_disk(),
        } as u32;
        header[..4].copy_from_slice(&u32::try_from(used).ok()?.to_be_bytes());
        header[4..].copy_from_slice(&(level_byte << 24 | VERSION).to_be_bytes());
        Some(HEADER + used)
    })
}

/// Whether LZ4 or zstd-1 saves an eighth of `src`; if neither does, a slow level rarely pays.
///
/// Two cheap tests come first. If the bytes are unevenly frequent, the entropy coder of zstd-1 is sure to save an eighth;
/// then LZ4 is tried on the beginning. At worst they cost the time of a record that does not fit.
fn worth_it(encoders: &mut Encoders, src: &[u8], scratch: &mut [u8]) -> bool {
    let save_an_eighth = |len: usize| len - len / 8;
    let mut lz4_fits = |src: &[u8]| {
        let limit = save_an_eighth(src.len()).min(scratch.len());
        lz4::fits(src, &mut scratch[..limit])
    };
    if entropy::sampled(src) < ABORT_SURE || lz4_fits(&src[..src.len() / 8]) || lz4_fits(src) {
        return true;
    }
    let limit = save_an_eighth(src.len()).min(scratch.len());
    encoders.trial.get_or_insert_with(|| Encoder::new(1)).compress(1, src, &mut scratch[..limit]).is_some()
}

/// Entropy, in 1/256 bits per byte, below which no trial is needed. 7 bits per byte save an eighth; this is 6.5.
const ABORT_SURE: u64 = 6 * 256 + 128;

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let truncated = CodecError::Truncated { kind: KIND, available: src.len() };
    let (header, body) = src.split_first_chunk::<HEADER>().ok_or(truncated)?;
    let [n0, n1, n2, n3, first, second, _, last] = *header;
    // The version's top byte is zero and follows the level; some big-endian writers put the level last.
    let level = match (first, second) {
        (0, _) => last,
        (level, 0) => level,
        _ => return Err(CodecError::Malformed { kind: KIND, what: "no version in the header" }),
    };
    if level == 0 || ZstdLevel::from_disk(level.into()).is_err() {
        return Err(CodecError::Malformed { kind: KIND, what: "the level in the header does not exist" });
    }
    let body = body.get(..u32::from_be_bytes([n0, n1, n2, n3]) as usize).ok_or(truncated)?;
    let found = DECODER
        .with_borrow_mut(|slot| {
            let decoder = slot.get_or_insert_with(|| {
                let mut context = DCtx::create();
                context
                    .set_parameter(DParameter::Format(FrameFormat::Magicless))
                    .expect("zstd knows this parameter");
                context
            });
            decoder.decompress(dst, body)
        })
        .map_err(|_| CodecError::Malformed { kind: KIND, what: "not a zstd frame of this size" })?;
    if found != dst.len() {
        return Err(CodecError::WrongSize { kind: KIND, expected: dst.len(), found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_length_level_and_version() {
        let block = [7; 4096];
        let mut dst = [0; 4096];
        for (level, byte) in [
            (ZstdLevel::Default, 3),
            (ZstdLevel::Level(19), 19),
            (ZstdLevel::Fast(1), 103),
            (ZstdLevel::Fast(1000), 123),
        ] {
            let used = compress(level, &block, &mut dst).expect("compressible");
            assert_eq!(dst[..4], ((used - HEADER) as u32).to_be_bytes());
            assert_eq!(dst[4..8], [byte, 0, 0x29, 0x0b]);
        }
    }

    #[test]
    fn a_header_of_either_writer_is_read() {
        let mut dst = [0; 4096];
        let used = compress(ZstdLevel::Level(5), &[7; 4096], &mut dst).expect("compressible");
        for version_and_level in [[5, 0, 0x28, 0xa5], [0, 0x28, 0xa5, 5], [123, 0, 0x29, 0x0b]] {
            dst[4..8].copy_from_slice(&version_and_level);
            let mut back = [0; 4096];
            assert_eq!(decompress(&dst[..used], &mut back), Ok(()));
            assert_eq!(back, [7; 4096]);
        }
        for nonsense in [[0, 0, 0x28, 0xa5], [20, 0, 0x29, 0x0b], [5, 1, 0x29, 0x0b], [0, 0x29, 0x0b, 124]] {
            dst[4..8].copy_from_slice(&nonsense);
            assert!(decompress(&dst[..used], &mut [0; 4096]).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn noise_is_given_up_and_text_is_not() {
        let mut state = 1u64;
        let mut noise = vec![0u8; ABORT_MIN_BYTES];
        for word in noise.as_chunks_mut::<8>().0 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *word = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes();
        }
        let mut dst = vec![0; 2 * ABORT_MIN_BYTES];
        assert_eq!(compress(ZstdLevel::Level(3), &noise, &mut dst), None, "aborted although there is room");
        assert!(compress(ZstdLevel::Level(1), &noise, &mut dst).is_some(), "level 1 is its own trial");
        assert!(compress(ZstdLevel::Level(3), &noise[1..], &mut dst).is_some(), "too small for trials");
        noise[..ABORT_MIN_BYTES / 4].fill(b'x');
        assert!(compress(ZstdLevel::Level(3), &noise, &mut dst).is_some());
    }
}
