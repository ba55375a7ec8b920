//! Bodies for `codec`: payloads in, a block or an error out; and what we compress comes back.

use codec::{Engine, decompress};
use format::Compression;
use format::compression::{CompressionSetting, ZstdLevel};

/// Largest logical size tried: a default record. Larger ones only make the fuzzer slow.
const SECTORS_MAX: usize = 256;

/// Input: logical size in sectors, minus one (two bytes, little-endian), then the payload.
fn payload(kind: Compression, data: &[u8]) {
    if let Some((head, payload)) = data.split_first_chunk::<2>() {
        let sectors = usize::from(u16::from_le_bytes(*head)) % SECTORS_MAX + 1;
        let _ = decompress(kind, payload, &mut vec![0; sectors * 512]);
    }
}

/// The input of [`payload`] for a real block, if it is of a size that is tried.
pub(crate) fn seed(lsize: usize, payload: &[u8]) -> Option<Vec<u8>> {
    let sectors = lsize / 512;
    (1..=SECTORS_MAX).contains(&sectors).then(|| [&(sectors as u16 - 1).to_le_bytes()[..], payload].concat())
}

pub fn lzjb(data: &[u8]) {
    payload(Compression::Lzjb, data);
}

pub fn lz4(data: &[u8]) {
    payload(Compression::Lz4, data);
}

pub fn zle(data: &[u8]) {
    payload(Compression::Zle, data);
}

pub fn gzip(data: &[u8]) {
    payload(Compression::Gzip(6), data);
}

pub fn zstd(data: &[u8]) {
    payload(Compression::Zstd, data);
}

/// Input: which setting (one byte), then a record. A record that fits decompresses to the same bytes, for every gzip engine.
pub fn compress(data: &[u8]) {
    let Some((&which, record)) = data.split_first() else { return };
    let plain =
        [Compression::Lzjb, Compression::Zle, Compression::Lz4, Compression::Gzip(1), Compression::Gzip(9)];
    let zstd = [ZstdLevel::Level(1), ZstdLevel::Level(9), ZstdLevel::Fast(10)];
    let mut settings: Vec<_> =
        plain.map(CompressionSetting::plain).into_iter().chain(zstd.map(CompressionSetting::zstd)).collect();
    let (ours, igzip) = (settings.len(), [1, 6, 9]);
    settings.extend(igzip.map(|level| CompressionSetting::plain(Compression::Gzip(level))));
    let chosen = usize::from(which) % settings.len();
    let setting = settings[chosen];
    let engine = if chosen < ours { Engine::Libdeflate } else { Engine::Isal };
    let mut record = record.to_vec();
    record.resize(record.len().next_multiple_of(512).max(512), 0);
    let mut packed = vec![0; record.len()];
    if let Some(size) = codec::compress_by(engine, setting, &record, &mut packed) {
        let mut back = vec![0xa5; record.len()];
        decompress(setting.algorithm, &packed[..size], &mut back).expect("what we compressed is sound");
        assert_eq!(back, record, "what we compressed came back different");
    }
}
