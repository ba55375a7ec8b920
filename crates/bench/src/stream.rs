//! Whole files as streams, beside the same data record by record.
//!
//! From:   the source, and the compressions that were measured.
//! To:     a [`Stream`] for each that has a program of its own: gzip and zstd.
//!
//! A stream finds repetitions across records and never pads; a pool stores zeros for nothing, rounds each record up to
//! sectors, and keeps one as it is that shrinks by less than an eighth. So either may come out smaller. Holes are in
//! neither: they may be too long to wait for.

use std::io::Write;

use flate2::write::GzEncoder;
use format::compression::CompressionSetting;
use pool::props::Value;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use crate::plan::compression_value;
use crate::source::Contents;
use crate::{Error, Result, Run, Source, Stream, Watch};

/// Bytes compressed at once.
const STEP: u64 = 1 << 20;
/// A record that does not get smaller by this part is stored as it is.
const LEAST_SAVING: u64 = 8;

/// A writer that counts bytes and forgets them.
#[derive(Default)]
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

enum Encoder {
    Gzip(Box<GzEncoder<Count>>),
    Zstd(Box<CCtx<'static>>, u64),
}

impl Encoder {
    /// The encoder for a compression's word, and the name of its program.
    fn of(word: &str) -> Option<(Encoder, String)> {
        let level = |family: &str, usual: u32| match word.strip_prefix(family)? {
            "" => Some(usual),
            rest => rest.strip_prefix('-')?.parse().ok(),
        };
        if let Some(level) = level("gzip", 6) {
            let encoder = GzEncoder::new(Count::default(), flate2::Compression::new(level.min(9)));
            return Some((Encoder::Gzip(Box::new(encoder)), format!("gzip -{level}")));
        }
        let level = level("zstd", 3)?;
        let mut context = CCtx::create();
        context.set_parameter(CParameter::CompressionLevel(i32::try_from(level).ok()?)).ok()?;
        Some((Encoder::Zstd(Box::new(context), 0), format!("zstd -{level}")))
    }

    fn add(&mut self, bytes: &[u8]) {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes).expect("counting does not fail"),
            Encoder::Zstd(context, count) => {
                let mut input = InBuffer::around(bytes);
                let mut space = vec![0; CCtx::out_size()];
                while input.pos() < bytes.len() {
                    let mut out = OutBuffer::around(&mut space[..]);
                    context.compress_stream(&mut out, &mut input).expect("any bytes can be compressed");
                    *count += out.pos() as u64;
                }
            }
        }
    }

    /// Bytes of the whole stream.
    fn end(self) -> u64 {
        match self {
            Encoder::Gzip(encoder) => encoder.finish().expect("counting does not fail").0,
            Encoder::Zstd(mut context, mut count) => loop {
                let mut space = vec![0; CCtx::out_size()];
                let mut out = OutBuffer::around(&mut space[..]);
                let left = context.end_stream(&mut out).expect("a stream can be ended");
                count += out.pos() as u64;
                if left == 0 {
                    return count;
                }
            },
        }
    }
}

/// Streams for each compression and record size among `runs` that has a program of its own.
///
/// # Errors
/// Those of the source; [`Error::Interrupted`].
pub(crate) fn compare(source: &Source, runs: &[Run], watch: &dyn Watch) -> Result<Vec<Stream>> {
    let mut streams: Vec<Stream> = Vec::new();
    for run in runs.iter().filter(|run| run.against.is_none()) {
        let known = |s: &Stream| (s.compression.as_str(), s.recordsize) == (&run.compression, run.recordsize);
        let Some((_, method)) = Encoder::of(&run.compression) else { continue };
        if streams.iter().any(known) {
            continue;
        }
        let Value::Number(value) = compression_value(&run.compression)? else { continue };
        let Ok(setting) = CompressionSetting::from_property(value) else { continue };
        let mut stream = Stream {
            method,
            compression: run.compression.clone(),
            recordsize: run.recordsize,
            ..Stream::default()
        };
        for contents in source.entries().iter().filter_map(|entry| entry.contents.as_ref()) {
            add(&mut stream, setting, contents, watch)?;
        }
        streams.push(stream);
    }
    Ok(streams)
}

fn add(
    stream: &mut Stream,
    setting: CompressionSetting,
    contents: &Contents,
    watch: &dyn Watch,
) -> Result<()> {
    let reader = contents.reader()?;
    let (mut encoder, _) = Encoder::of(&stream.compression).expect("it was asked before");
    let mut packed = vec![0; stream.recordsize as usize];
    let step = STEP.max(stream.recordsize);
    stream.logical_bytes += contents.size;
    let mut at = 0;
    for part in contents.parts(stream.recordsize, step) {
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        stream.zero_bytes += part.start - at;
        at = part.end;
        let Some(data) = reader.record(part.start, (part.end - part.start) as usize)? else { continue };
        encoder.add(&data);
        for record in data.chunks(stream.recordsize as usize) {
            if codec::is_zero(record) {
                stream.zero_bytes += record.len() as u64;
                continue;
            }
            let limit = record.len() - record.len() / LEAST_SAVING as usize;
            let bytes = codec::compress(setting, record, &mut packed[..limit]);
            stream.record_bytes += bytes.unwrap_or(record.len()) as u64;
        }
    }
    stream.zero_bytes += contents.size - at;
    stream.stream_bytes += encoder.end();
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Deaf;

    #[test]
    fn a_stream_gains_from_what_lies_further_back_and_records_from_zeros() {
        let dir = tempfile::tempdir().unwrap();
        // Noise that repeats after 20 KB: within the window of gzip, beyond records of 16 KB.
        let mut seed = 1u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let block: Vec<u8> = (0..20_000).map(|_| noise()).collect();
        std::fs::write(dir.path().join("noise"), block.repeat(20)).unwrap();
        std::fs::write(dir.path().join("zeros"), vec![0; 500_000]).unwrap();
        let source_of = |folder: &std::path::Path| Source::scan(&[folder.to_owned()]).unwrap();
        let run = |compression: &str| Run {
            compression: compression.into(),
            recordsize: 16 << 10,
            ..Run::default()
        };
        // A hole that would take days.
        let hole = std::fs::File::create(dir.path().join("hole")).unwrap();
        let hole_bytes = hole.set_len(1 << 42).map_or(0, |()| 1 << 42);
        let source = match source_of(dir.path()) {
            source if source.bytes() < 1 << 40 => source,
            _ => return, // The file system does not tell where its holes are.
        };
        let streams =
            compare(&source, &[run("off"), run("gzip"), run("zstd-3"), run("gzip")], &Deaf).unwrap();
        let methods: Vec<_> = streams.iter().map(|stream| stream.method.as_str()).collect();
        assert_eq!(methods, ["gzip -6", "zstd -3"]);
        for stream in streams {
            let all = (900_000 + hole_bytes, 500_000 + hole_bytes);
            assert_eq!((stream.logical_bytes, stream.zero_bytes), all, "{stream:?}");
            assert!(stream.stream_bytes < 60_000 && stream.record_bytes == 400_000, "{stream:?}");
        }
    }
}
