//! The implementations on this machine and their speed: every compression and checksum on one core, over the sample.
//!
//! From:   `codec`, called as the write and read pipelines call it.
//! To:     records for `cenote engines`. A quick measurement: a few tenths of a second each, ten seconds in all.

use std::hint::black_box;
use std::time::{Duration, Instant};

use codec::{About, Engine, Salt};
use format::compression::{CompressionSetting, ZstdLevel};
use format::{ChecksumKind, Compression};
use serde::{Deserialize, Serialize};

use crate::{Result, sample};

const RECORD: usize = 128 << 10;
/// Of the sample, an even part.
const RECORDS_MAX: usize = 48;
/// For compressing all records, and for decompressing them.
const BUDGET: Duration = Duration::from_millis(200);

/// One way to compress or to sum up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Implementation {
    /// Value of the property `compression` or `checksum`.
    pub name: String,
    /// The library: for gzip, as `gzip_engine` names it; `cenote` for our own code.
    pub engine: String,
    /// Library and version.
    pub library: String,
    /// Features of the processor that it uses; empty for plain code.
    pub cpu: String,
    /// Millions of bytes a second and core: compressing, or the checksum.
    pub encode_mb_s: f64,
    /// Decompressing.
    pub decode_mb_s: Option<f64>,
    /// Of the sample, under the rule that an eighth must be saved.
    pub ratio: Option<f64>,
}

/// All there are, and engines that there might be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engines {
    /// The values of `compression`.
    pub compressions: Vec<Implementation>,
    /// The values of `checksum`.
    pub checksums: Vec<Implementation>,
    /// Engines for gzip that this build or machine does not have.
    pub absent: Vec<String>,
}

/// Measures everything.
///
/// # Errors
/// This build has no sample.
pub fn engines() -> Result<Engines> {
    let records = records()?;
    let compressions = rows().into_iter().filter_map(|(name, setting, engine)| {
        let about = match setting.algorithm {
            Compression::Gzip(_) => engine.about()?,
            algorithm => About::compression(algorithm)?,
        };
        Some(compression(name, setting, engine, about, &records))
    });
    let kinds = [
        ("fletcher2", ChecksumKind::Fletcher2),
        ("fletcher4", ChecksumKind::Fletcher4),
        ("sha256", ChecksumKind::Sha256),
        ("sha512", ChecksumKind::Sha512),
        ("skein", ChecksumKind::Skein),
        ("edonr", ChecksumKind::Edonr),
        ("blake3", ChecksumKind::Blake3),
    ];
    let checksums = kinds
        .into_iter()
        .filter_map(|(name, kind)| Some(checksum(name, kind, About::checksum(kind)?, &records)));
    let absent = Engine::ALL.into_iter().filter(|engine| !engine.is_here()).map(|e| e.name().to_owned());
    Ok(Engines {
        compressions: compressions.collect(),
        checksums: checksums.collect(),
        absent: absent.collect(),
    })
}

fn rows() -> Vec<(String, CompressionSetting, Engine)> {
    let plain =
        |name: &str, algorithm| (name.to_owned(), CompressionSetting::plain(algorithm), Engine::Libdeflate);
    let mut rows = vec![
        plain("lzjb", Compression::Lzjb),
        plain("zle", Compression::Zle),
        plain("lz4", Compression::Lz4),
    ];
    for level in [1, 6, 9] {
        let setting = CompressionSetting::plain(Compression::Gzip(level));
        rows.extend(Engine::ALL.map(|engine| (format!("gzip-{level}"), setting, engine)));
    }
    let zstd = [
        ("zstd-fast-1", ZstdLevel::Fast(1)),
        ("zstd-1", ZstdLevel::Level(1)),
        ("zstd-3", ZstdLevel::Level(3)),
        ("zstd-9", ZstdLevel::Level(9)),
    ];
    rows.extend(
        zstd.map(|(name, level)| (name.to_owned(), CompressionSetting::zstd(level), Engine::Libdeflate)),
    );
    rows
}

/// Whole records of every file of the sample, evenly.
fn records() -> Result<Vec<Vec<u8>>> {
    let files = sample::files()?;
    let all: Vec<&[u8]> = files.iter().flat_map(|(_, data)| data.chunks_exact(RECORD)).collect();
    let step = all.len().div_ceil(RECORDS_MAX);
    Ok(all.into_iter().step_by(step).map(<[u8]>::to_vec).collect())
}

/// Bytes a second, in millions, of `run` on one item after the other, as often as the budget allows, but on each
/// once.
fn rate<T>(items: &[T], mut run: impl FnMut(&T) -> usize) -> f64 {
    let (mut bytes, mut best) = (0usize, 0f64);
    let all = Instant::now();
    loop {
        let started = Instant::now();
        let mut done = 0;
        for item in items {
            done += run(item);
        }
        bytes += done;
        best = best.max(done as f64 / started.elapsed().as_secs_f64().max(1e-9) / 1e6);
        if all.elapsed() >= BUDGET || bytes == 0 {
            return best;
        }
    }
}

fn compression(
    name: String,
    setting: CompressionSetting,
    engine: Engine,
    about: About,
    records: &[Vec<u8>],
) -> Implementation {
    let mut out = vec![0; RECORD - RECORD / 8];
    let mut pack = |record: &Vec<u8>| {
        let used = codec::compress_by(engine, setting, record, &mut out)?;
        Some(out[..used].to_vec())
    };
    let packed: Vec<Option<Vec<u8>>> = records.iter().map(&mut pack).collect();
    let encode = rate(records, |record| {
        black_box(codec::compress_by(engine, setting, record, &mut out));
        record.len()
    });
    let blocks: Vec<&Vec<u8>> = packed.iter().flatten().collect();
    let mut back = vec![0; RECORD];
    let decode = rate(&blocks, |block| {
        black_box(codec::decompress(setting.algorithm, block, &mut back).is_ok());
        RECORD
    });
    let stored: usize = packed.iter().map(|block| block.as_ref().map_or(RECORD, Vec::len)).sum();
    Implementation {
        name,
        engine: match setting.algorithm {
            Compression::Gzip(_) => engine.name().to_owned(),
            _ => word(&about.library),
        },
        library: about.library,
        cpu: about.cpu.to_owned(),
        encode_mb_s: encode,
        decode_mb_s: (!blocks.is_empty()).then_some(decode),
        ratio: Some((records.len() * RECORD) as f64 / stored as f64),
    }
}

fn checksum(name: &str, kind: ChecksumKind, about: About, records: &[Vec<u8>]) -> Implementation {
    let salt = Salt::new([7; 32]);
    let encode = rate(records, |record| {
        black_box(codec::checksum(kind, record, &salt));
        record.len()
    });
    Implementation {
        name: name.to_owned(),
        engine: word(&about.library),
        library: about.library,
        cpu: about.cpu.to_owned(),
        encode_mb_s: encode,
        decode_mb_s: None,
        ratio: None,
    }
}

/// The name of a library without its version.
fn word(library: &str) -> String {
    library.split_whitespace().next().unwrap_or_default().to_lowercase()
}

#[cfg(all(test, feature = "sample"))]
mod tests {
    use super::*;

    #[test]
    fn every_implementation_has_a_rate_and_gzip_has_one_for_each_engine() {
        let engines = engines().expect("the sample is in this build");
        let gzip = engines.compressions.iter().filter(|row| row.name == "gzip-6");
        let here = Engine::ALL.into_iter().filter(|engine| engine.is_here());
        assert!(gzip.map(|row| row.engine.as_str()).eq(here.map(Engine::name)));
        assert_eq!(engines.checksums.len(), 7);
        for row in engines.compressions.iter().chain(&engines.checksums) {
            assert!(row.encode_mb_s > 0.0 && !row.library.is_empty(), "{row:?}");
        }
        let ratio =
            |name: &str| engines.compressions.iter().find(|row| row.name == name).and_then(|r| r.ratio);
        assert!(ratio("gzip-9") > ratio("lz4"));
    }
}
