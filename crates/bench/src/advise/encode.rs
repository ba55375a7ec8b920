//! Encoding one piece of a file in every configuration: its size and the time of its codec.
//!
//! From:   pieces that [`super::material`] reads.
//! To:     [`super::estimate`], which adds them up.
//!
//! The sizes are those of the write pipeline itself (`storage::Encoding`): zeros become holes, a record that
//! compression does not shrink by an eighth is stored uncompressed, 112 bytes fit into the pointer, and everything else
//! fills whole sectors. A file of one record has a block of its own size in steps of 512 bytes. The last record of a
//! longer file is as long as the others, filled up with zeros.

use std::sync::Arc;

use codec::Salt;
use format::compression::CompressionSetting;
use format::{ChecksumKind, Compression};
use rustix::time::{ClockId, clock_gettime};
use storage::{Deflate, Encoded, Encoding, Guard, GzipEngine, Recipe, Record};

use super::dedup::Stored;
use super::layout::Layout;

/// Steps of the size of a file with one block.
const SECTOR: u64 = 512;

/// From more sectors on, one of them is less than what compression must save anyhow.
const SHORT_SECTORS: u64 = 8;

/// A piece of a file: of the whole file if that is shorter than the piece.
pub(crate) struct Piece {
    /// Bytes of the file, in which it begins on a border of records.
    pub(crate) file_size: u64,
    /// The bytes, zeros where the file has holes.
    pub(crate) bytes: Vec<u8>,
    /// Parts that are no holes, as ranges of `bytes`.
    pub(crate) data: Vec<std::ops::Range<usize>>,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) compression: CompressionSetting,
    pub(crate) recordsize: u64,
}

/// The space and time that a piece takes in one configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// Bytes of all its records, holes and what the last one is filled up with included.
    pub(crate) padded: u64,
    /// Bytes of records before compression, holes left out.
    pub(crate) lsize: u64,
    /// Bytes after it, in whole sectors.
    pub(crate) psize: u64,
    /// Bytes that `used` counts.
    pub(crate) used: u64,
    /// Bytes on all disks.
    pub(crate) raw: u64,
    /// Records that are no holes.
    pub(crate) records: u64,
    /// Bytes before and after compression where sectors count for nothing: of short files those that they have and those
    /// that the codec makes, of others `lsize` and `psize`.
    pub(crate) bare: u64,
    pub(crate) tight: u64,
    /// Processor time of compressing and checksumming, in seconds.
    pub(crate) compress: f64,
    /// Processor time of decompressing and checksumming, in seconds.
    pub(crate) decompress: f64,
}

/// Encodes pieces in all configurations.
pub(crate) struct Encoder {
    pub(crate) settings: Vec<Setting>,
    pub(crate) ashift: u32,
    pub(crate) layout: Layout,
    deflate: Deflate,
}

impl Encoder {
    pub(crate) fn new(settings: Vec<Setting>, ashift: u32, layout: Layout) -> Encoder {
        Encoder { settings, ashift, layout, deflate: Deflate::default() }
    }

    /// The outcomes of each of `pieces`, in the order of the settings. One setting works on all of them before the next
    /// one begins: a codec finds its tables in the processor's caches, as it does in a pool, where it works alone.
    pub(crate) fn encode(&self, pieces: &[Piece]) -> Vec<Vec<Outcome>> {
        let mut outcomes = vec![Vec::with_capacity(self.settings.len()); pieces.len()];
        let mut cut: Option<(u64, Vec<Vec<Record>>)> = None;
        for setting in &self.settings {
            let recordsize = setting.recordsize;
            if cut.as_ref().is_none_or(|(of, _)| *of != recordsize) {
                cut = Some((recordsize, pieces.iter().map(|piece| records(piece, recordsize)).collect()));
            }
            let (_, records) = cut.as_ref().expect("it was just cut");
            let made = self.outcomes(setting.compression, records);
            for ((piece, made), outcomes) in pieces.iter().zip(made).zip(&mut outcomes) {
                outcomes.push(self.of_piece(piece, *setting, made));
            }
        }
        outcomes
    }

    /// A record of a dataset with `dedup`, which holds no block in a pointer.
    pub(crate) fn stored(&self, compression: CompressionSetting, record: &Record) -> Stored {
        let recipe = Recipe { embed: false, checksum: ChecksumKind::Sha256, ..self.recipe(compression) };
        let salt = Salt::none();
        let encoding = Encoding { recipe, deflate: &self.deflate, salt: &salt, guard: Guard::default() };
        let encoded = encoding.encode(record);
        let Outcome { used, raw, .. } =
            self.sizes(std::slice::from_ref(record), std::slice::from_ref(&encoded));
        let (psize, compression, word) = match &encoded {
            Encoded::Stored { payload, compression, .. } => {
                let checksum = codec::checksum(ChecksumKind::Sha256, payload.bytes(), &salt);
                (payload.bytes().len(), *compression, checksum.0[0])
            }
            _ => (0, Compression::Off, 0),
        };
        let (used, asize) = (used as u32, raw as u32);
        Stored { used, asize, word, lsize: record.len() as u32, psize: psize as u32, compression }
    }

    fn recipe(&self, compression: CompressionSetting) -> Recipe {
        Recipe {
            compression,
            gzip_engine: GzipEngine::DEFAULT,
            checksum: ChecksumKind::Fletcher4,
            min_alloc: 1 << self.ashift,
            embed: true,
            protection: None,
        }
    }

    /// `outcome`, corrected for the lengths of the piece and its file.
    fn of_piece(&self, piece: &Piece, setting: Setting, outcome: Outcome) -> Outcome {
        let Setting { compression, recordsize } = setting;
        let padded = padded_bytes(piece.file_size, piece.bytes.len() as u64, recordsize);
        let mut outcome = Outcome { padded, bare: outcome.lsize, tight: outcome.psize, ..outcome };
        let is_short = piece.file_size <= recordsize.min(SHORT_SECTORS << self.ashift);
        if is_short && !piece.data.is_empty() {
            let mut room = vec![0; piece.bytes.len()];
            let made = codec::compress(compression, &piece.bytes, &mut room);
            outcome.bare = piece.bytes.len() as u64;
            outcome.tight = made.map_or(outcome.bare, |bytes| bytes as u64);
        }
        outcome
    }

    /// The outcomes of the records of each piece: first all are encoded, then all are decoded.
    fn outcomes(&self, compression: CompressionSetting, pieces: &[Vec<Record>]) -> Vec<Outcome> {
        let salt = Salt::none();
        let recipe = self.recipe(compression);
        let encoding = Encoding { recipe, deflate: &self.deflate, salt: &salt, guard: Guard::default() };
        let mut encoded = Vec::with_capacity(pieces.len());
        for records in pieces {
            let started = processor_seconds();
            let of_piece: Vec<Encoded> = records.iter().map(|record| encoding.encode(record)).collect();
            encoded.push((of_piece, processor_seconds() - started));
        }
        let mut back = Vec::new();
        let both = pieces.iter().zip(encoded);
        both.map(|(records, (encoded, compress))| {
            let decompress = decode(records, &encoded, &mut back);
            Outcome { compress, decompress, ..self.sizes(records, &encoded) }
        })
        .collect()
    }

    fn sizes(&self, records: &[Record], encoded: &[Encoded]) -> Outcome {
        let mut outcome = Outcome::default();
        for (record, encoded) in records.iter().zip(encoded) {
            let lsize = record.len() as u64;
            match encoded {
                Encoded::Hole => continue,
                Encoded::Embedded { .. } | Encoded::Refused(_) => {}
                Encoded::Stored { payload, .. } => {
                    // As they are, records fill whole sectors on the disk though their size does not.
                    let psize = payload.bytes().len() as u64;
                    outcome.psize += psize;
                    outcome.used += self.layout.used_bytes(psize, self.ashift);
                    outcome.raw += self.layout.raw_bytes(psize, self.ashift);
                }
            }
            outcome.lsize += lsize;
            outcome.records += 1;
        }
        outcome
    }
}

/// Processor seconds of decoding all stored records into `back`.
fn decode(records: &[Record], encoded: &[Encoded], back: &mut Vec<u8>) -> f64 {
    let salt = Salt::none();
    let started = processor_seconds();
    for (record, encoded) in records.iter().zip(encoded) {
        if let Encoded::Stored { payload, compression, .. } = encoded {
            std::hint::black_box(codec::checksum(ChecksumKind::Fletcher4, payload.bytes(), &salt));
            if *compression != Compression::Off {
                back.resize(record.len(), 0);
                let done = codec::decompress(*compression, payload.bytes(), back);
                assert!(done.is_ok(), "what was compressed decompresses");
            }
        }
    }
    processor_seconds() - started
}

/// Bytes of the records that `len` bytes of a file fill, from a border of records on.
pub(crate) fn padded_bytes(file_size: u64, len: u64, recordsize: u64) -> u64 {
    len.next_multiple_of(if file_size <= recordsize { SECTOR } else { recordsize })
}

/// The records of `piece` that hold data.
pub(crate) fn records(piece: &Piece, recordsize: u64) -> Vec<Record> {
    if piece.file_size <= recordsize {
        let mut block = piece.bytes.clone();
        block.resize(padded_bytes(piece.file_size, piece.file_size, recordsize) as usize, 0);
        return if piece.data.is_empty() { vec![] } else { vec![Arc::new(block)] };
    }
    let recordsize = recordsize as usize;
    let holds_data = |at: usize| piece.data.iter().any(|data| data.start < at + recordsize && at < data.end);
    let starts = (0..piece.bytes.len()).step_by(recordsize).filter(|at| holds_data(*at));
    starts
        .map(|at| {
            let mut record = piece.bytes[at..piece.bytes.len().min(at + recordsize)].to_vec();
            record.resize(recordsize, 0);
            Arc::new(record)
        })
        .collect()
}

/// Processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(file_size: u64, bytes: Vec<u8>) -> Piece {
        let data = std::iter::once(0..bytes.len()).collect();
        Piece { file_size, bytes, data }
    }

    fn outcome(compression: Compression, recordsize: u64, piece: &Piece) -> Outcome {
        let setting = Setting { compression: CompressionSetting::plain(compression), recordsize };
        let encoder = Encoder::new(vec![setting], 12, Layout::Stripe);
        encoder.encode(std::slice::from_ref(piece))[0][0]
    }

    #[test]
    fn a_short_file_has_a_block_of_its_own_size_and_a_long_one_is_padded() {
        let short = outcome(Compression::Off, 128 << 10, &piece(5000, vec![7; 5000]));
        assert_eq!((short.lsize, short.psize, short.used), (5120, 5120, 8192));
        let long = outcome(Compression::Off, 4096, &piece(5000, vec![7; 5000]));
        assert_eq!((long.lsize, long.psize, long.records), (8192, 8192, 2));
    }

    #[test]
    fn zeros_are_holes_unless_compression_is_off_and_little_fits_in_the_pointer() {
        let zeros = piece(1 << 20, vec![0; 1 << 20]);
        assert_eq!(outcome(Compression::Lz4, 128 << 10, &zeros).records, 0);
        assert_eq!(outcome(Compression::Off, 128 << 10, &zeros).psize, 1 << 20);
        let tiny = outcome(Compression::Lz4, 128 << 10, &piece(4000, vec![b'x'; 4000]));
        assert_eq!((tiny.lsize, tiny.psize, tiny.records), (4096, 0, 1));
    }

    #[test]
    fn holes_of_the_file_are_nothing_at_all() {
        let mut sparse = piece(1 << 20, vec![0; 1 << 20]);
        sparse.data = std::iter::once(200_000..200_001).collect();
        assert_eq!(outcome(Compression::Off, 128 << 10, &sparse).lsize, 128 << 10);
        sparse.data.clear();
        assert_eq!(outcome(Compression::Off, 1 << 20, &sparse).records, 0);
    }
}
