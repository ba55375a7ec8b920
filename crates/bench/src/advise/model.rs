//! Predicted speed of writes and reads on a target, with the bottleneck.
//!
//! From:   what a configuration takes for each byte of the files: bytes on the disks, processor time.
//! To:     rates with a bottleneck.
//!
//! For each byte of the files, written or read in a steady stream:
//!
//! ```text
//! disk      raw bytes / what all disks together take or give
//! processor (codec time + engine time) / free cores
//! network   1 / its rate
//! seconds = the longest of the three, and OVERLAP of what the other two take: no two of them overlap in full
//! engine time = Engine::byte + Engine::stored · bytes on the disks + Engine::file · files
//! ```
//!
//! Free cores: the pool has as many threads as there are cores, and the system treats them and the threads of other
//! work as equals: cores · cores / (cores + busy). What the others lose by that is for the choice to weigh.
//!
//! A burst: writers are not held up until so much is unwritten that each write is delayed longer than it takes to come in
//! ([`knee_bytes`]). Data beyond that comes in as fast as it is stored.

use serde::{Deserialize, Serialize};

use crate::limit::TELLING;
use crate::{BurstRates, Limit, knee_bytes};

/// Percent of the dirty limit from which on writers are delayed (`zfs_delay_min_dirty_percent`).
const DELAY_FROM: u64 = 60;
/// Bytes of one write of a client.
const WRITE: u64 = 128 << 10;
/// Of the times of disk, processor and network, the longest counts whole, and this part of the shorter ones is added.
pub(crate) const OVERLAP: f64 = 0.15;

/// No disk takes less time for a byte.
const DEVICE_MIN: f64 = 0.02e-9;

/// The target system. Rates in bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Cores.
    pub cores: u32,
    /// Cores that other work keeps busy.
    pub busy_cores: f64,
    /// The write rate of all disks together, parity and copies included; `None` if it is not known.
    pub disk_write: Option<f64>,
    /// The read rate of all disks together.
    pub disk_read: Option<f64>,
    /// The first was measured here, not given.
    pub disk_write_measured: bool,
    /// The second was.
    pub disk_read_measured: bool,
    /// The rate of the network, if the data comes and goes over one.
    pub network: Option<f64>,
    /// `zfs_dirty_data_max`, bytes.
    pub dirty_max: Option<u64>,
    /// Processor time of writing, besides the codec.
    pub engine_write: Engine,
    /// The same of reading.
    pub engine_read: Engine,
}

/// Processor seconds of everything but the codec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// For each byte of the files: copying, bookkeeping.
    pub byte: f64,
    /// Seconds for each byte on the disks: to write it or to read it.
    pub stored: f64,
    /// For each file: making or finding it.
    pub file: f64,
}

impl Engine {
    /// For a byte of the files of which `stored` are on the disks, with so many files for each byte.
    fn seconds(&self, stored: f64, files: f64) -> f64 {
        self.byte + self.stored * stored + self.file * files
    }
}

/// A stream of data of the files.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes of the files per second.
    pub bytes_per_second: f64,
    /// The bottleneck.
    pub bottleneck: Limit,
}

/// The bytes that come in before writers are held up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Bytes of the files; `None` if writers are never held up.
    pub bytes: Option<f64>,
    /// All of the data, or none of it, comes faster than the disks take it: its mean rate and what holds it up.
    pub whole: Flow,
}

/// The cost of one byte of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Bytes on all disks that are written.
    pub raw: f64,
    /// Bytes that are read back.
    pub psize: f64,
    /// Processor seconds of the codec.
    pub compress: f64,
    /// Processor seconds of the codec.
    pub decompress: f64,
    /// Files.
    pub files: f64,
}

impl Target {
    /// Cores that the pool may use.
    #[must_use]
    pub fn free_cores(&self) -> f64 {
        let cores = f64::from(self.cores);
        let busy = self.busy_cores.clamp(0.0, cores);
        cores * cores / (cores + busy).max(1e-9)
    }

    /// Part of the cores that other work keeps busy.
    #[must_use]
    pub fn busy_part(&self) -> f64 {
        (self.busy_cores / f64::from(self.cores.max(1))).clamp(0.0, 1.0)
    }

    /// Whether the rate of writing or of reading is still to be measured.
    pub(crate) fn is_partly_unknown(&self) -> bool {
        self.disk_write.is_none() || self.disk_read.is_none()
    }

    /// A steady stream of writes.
    #[must_use]
    pub fn write(&self, load: &Load) -> Flow {
        let processor = (load.compress + self.engine_write.seconds(load.raw, load.files)) / self.free_cores();
        self.flow(self.disk_write.map(|rate| load.raw / rate), processor)
    }

    /// A steady stream of reads from cold caches, by as many readers as there are cores.
    #[must_use]
    pub fn read(&self, load: &Load) -> Flow {
        let processor =
            (load.decompress + self.engine_read.seconds(load.psize, load.files)) / self.free_cores();
        self.flow(self.disk_read.map(|rate| load.psize / rate), processor)
    }

    /// Seconds a byte that the disks must have taken where a stream took `seconds` a byte and the processor `processor`:
    /// what [`Target::write`] makes of it is the stream again. Next to nothing if the processor alone explains it.
    pub(crate) fn device_seconds(seconds: f64, processor: f64) -> f64 {
        match seconds >= processor * (1.0 + OVERLAP) {
            true => seconds - OVERLAP * processor,
            false => ((seconds - processor) / OVERLAP).max(DEVICE_MIN),
        }
    }

    fn flow(&self, device: Option<f64>, processor: f64) -> Flow {
        let works = [
            (device.unwrap_or(0.0), Limit::Device),
            (processor, Limit::Cpu),
            (self.network.map_or(0.0, |rate| 1.0 / rate), Limit::Network),
        ];
        let all: f64 = works.iter().map(|(seconds, _)| seconds).sum();
        let (longest, bottleneck) =
            works.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are three");
        Flow { bytes_per_second: 1.0 / (longest + OVERLAP * (all - longest)).max(1e-12), bottleneck }
    }

    /// The rates of a writer of `total` bytes whose data is stored at the rate `steady`; `None` without a dirty limit.
    #[must_use]
    pub fn burst(&self, total: f64, steady: Flow) -> Option<Burst> {
        // Without a network the data comes from memory, as fast as the engine copies it.
        let incoming = self.network.unwrap_or(self.free_cores() / self.engine_write.byte.max(1e-12));
        let drain = steady.bytes_per_second;
        let knee = knee_bytes(self.dirty_max?, DELAY_FROM, WRITE, incoming, drain);
        let Some(knee) = knee.filter(|_| incoming > drain * TELLING).map(|bytes| bytes as f64) else {
            return Some(Burst { bytes: None, whole: steady });
        };
        let seconds = total.min(knee) / incoming + (total - knee).max(0.0) / drain;
        let mean = total / seconds.max(1e-12);
        let source = if self.network.is_some() { Limit::Network } else { Limit::Cpu };
        let rates = BurstRates { total, knee, mean, drain };
        let bottleneck = Limit::of_burst(&rates, source, steady.bottleneck);
        Some(Burst { bytes: Some(knee), whole: Flow { bytes_per_second: mean, bottleneck } })
    }

    /// Cores that keep the disks busy while they write: `None` if their rate is not known.
    #[must_use]
    pub fn cores_to_fill(&self, load: &Load) -> Option<f64> {
        Some(cores_to_fill(
            self.disk_write?,
            1.0 / load.raw.max(1e-12),
            1.0 / (load.compress + self.engine_write.seconds(load.raw, load.files)).max(1e-12),
        ))
    }
}

/// The number of cores that compress as fast as the disks take the output. `disk_rate` and `core_rate` are in bytes per
/// second; the latter counts bytes of the files.
#[must_use]
pub fn cores_to_fill(disk_rate: f64, ratio: f64, core_rate: f64) -> f64 {
    disk_rate * ratio / core_rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        Target {
            cores: 4,
            busy_cores: 0.0,
            disk_write: Some(200e6),
            disk_read: Some(200e6),
            disk_write_measured: false,
            disk_read_measured: false,
            network: None,
            dirty_max: None,
            engine_write: Engine { byte: 0.2e-9, stored: 0.3e-9, file: 2e-5 },
            engine_read: Engine { byte: 0.1e-9, stored: 0.2e-9, file: 1e-5 },
        }
    }

    /// An algorithm that halves the data at `rate` on one core.
    fn load(rate: f64) -> Load {
        Load { raw: 0.5, psize: 0.5, compress: 1.0 / rate, decompress: 0.1 / rate, files: 0.0 }
    }

    #[test]
    fn each_bottleneck_is_named() {
        let slow_disk = target().write(&load(500e6));
        assert_eq!(slow_disk.bottleneck, Limit::Device);
        assert!((350e6..=400e6).contains(&slow_disk.bytes_per_second), "{slow_disk:?}");
        assert_eq!(target().write(&load(20e6)).bottleneck, Limit::Cpu);
        let fast_disk = Target { disk_write: Some(3e9), ..target() };
        assert_eq!(fast_disk.write(&load(500e6)).bottleneck, Limit::Cpu);
        let network = Target { network: Some(100e6), ..fast_disk };
        assert_eq!(network.write(&load(500e6)).bottleneck, Limit::Network);
        assert_eq!(network.read(&load(500e6)).bottleneck, Limit::Network);
    }

    #[test]
    fn decompression_gives_a_slow_disk_the_ratio_more() {
        let read =
            target().read(&Load { raw: 0.667, psize: 0.667, compress: 1e-9, decompress: 0.2e-9, files: 0.0 });
        assert!((280e6..300e6).contains(&read.bytes_per_second), "{read:?}");
    }

    #[test]
    fn busy_cores_slow_the_codec() {
        let busy = Target { busy_cores: 3.0, disk_write: None, ..target() };
        let idle = Target { busy_cores: 0.0, ..busy.clone() };
        assert!(busy.write(&load(100e6)).bytes_per_second < 0.65 * idle.write(&load(100e6)).bytes_per_second);
        assert_eq!(Target { busy_cores: 4.0, ..busy }.free_cores(), 2.0);
    }

    #[test]
    fn the_dirty_limit_of_s1_lets_14_gb_of_video_through() {
        // 16 GB of dirty data, a network of 600 MB/s, a disk of 200 MB/s, video that does not compress.
        let nas = Target { network: Some(600e6), dirty_max: Some(16_000_000_000), ..target() };
        let video = Load { raw: 1.0, psize: 1.0, compress: 0.5e-9, decompress: 0.0, files: 0.0 };
        let steady = Flow { bytes_per_second: 200e6, bottleneck: Limit::Device };
        let knee = nas.burst(70e9, steady).unwrap().bytes.unwrap();
        assert!((12e9..16.1e9).contains(&knee), "{knee}");
        let rates: Vec<f64> = [5e9, 20e9, 70e9, 700e9]
            .map(|total| nas.burst(total, steady).unwrap().whole.bytes_per_second)
            .to_vec();
        assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]), "{rates:?}");
        assert_eq!(nas.burst(5e9, steady).unwrap().whole.bottleneck, Limit::Network);
        assert_eq!(nas.burst(70e9, steady).unwrap().whole.bottleneck, Limit::DirtyLimit);
        assert_eq!(nas.burst(10e12, steady).unwrap().whole.bottleneck, Limit::Device);
        assert!(target().burst(1e9, target().write(&video)).is_none());
    }

    #[test]
    fn the_disks_of_s4_need_about_eight_cores() {
        // 179 GB in 191 s on 4 cores; 950 MB/s of disks; ratio 1.68.
        let cores = cores_to_fill(950e6, 1.68, 179e9 / 191.0 / 4.0);
        assert!((6.5..8.5).contains(&cores), "{cores}");
    }
}
