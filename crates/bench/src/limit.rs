//! The bottleneck of reading or writing.
//!
//! From:   how much of each resource was in use, as measured or as a model says.
//! To:     the name of the scarce one, for each row of a report.

use serde::{Deserialize, Serialize};

/// A resource with at least this utilisation counts as the bottleneck.
const SCARCE: f64 = 0.80;
/// Below this utilisation no resource is the bottleneck: the time is latency.
const NOTABLE: f64 = 0.5;
/// Seconds that a write is delayed half-way between the first delay and the limit (`zfs_delay_scale`).
const DELAY_SCALE: f64 = 500e-6;
/// Part of the dirty limit at which a sync begins (`zfs_dirty_data_sync_percent`).
const SYNC_FROM: f64 = 0.2;
/// A writer counts as faster than the storage from this factor on.
pub(crate) const TELLING: f64 = 1.05;

/// The bottleneck of reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// All cores in use computed.
    #[serde(rename = "CPU")]
    Cpu,
    /// The device did what it can.
    #[serde(rename = "device")]
    Device,
    /// The source came over a network at its full rate.
    #[serde(rename = "network")]
    Network,
    /// A part of it fitted under the dirty limit and came in ahead of the device, the rest waited for it.
    #[serde(rename = "dirty limit")]
    DirtyLimit,
    /// Nothing was busy: one waits for another.
    #[serde(rename = "latency")]
    Latency,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Cpu => "CPU",
            Limit::Device => "device",
            Limit::Network => "network",
            Limit::DirtyLimit => "dirty limit",
            Limit::Latency => "latency",
        })
    }
}

/// How much of each resource is in use, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Of the cores that may be used.
    pub cpu: f64,
    /// Of what the device can do.
    pub device: f64,
    /// Of what the network can do.
    pub network: f64,
}

impl Limit {
    /// The bottleneck. Among several, the device and the network come before the CPU, because a CPU that waits for them may
    /// spin.
    #[must_use]
    pub fn of(used: Use) -> Limit {
        // How fast a network is was given, what a device can do may be only the most that was seen of it.
        let hardware = [(Limit::Network, used.network), (Limit::Device, used.device), (Limit::Cpu, used.cpu)];
        if let Some((limit, _)) = hardware.iter().find(|(_, share)| *share >= SCARCE) {
            return *limit;
        }
        let most = hardware.iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are three");
        if most.1 >= NOTABLE { most.0 } else { Limit::Latency }
    }

    /// The bottleneck of a writer until its last write is accepted. It is the source as long as all fits under the
    /// dirty limit, then the limit. Where so much is written that the beginning no longer tells, it is the bottleneck
    /// of the drain.
    #[must_use]
    pub fn of_burst(burst: &BurstRates, source: Limit, drain: Limit) -> Limit {
        match (burst.total <= burst.knee, burst.mean > burst.drain * TELLING) {
            (true, _) => source,
            (false, true) => Limit::DirtyLimit,
            (false, false) => drain,
        }
    }
}

/// A writer that runs ahead of what stores its data. Bytes, and bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstRates {
    /// Bytes that are written.
    pub total: f64,
    /// How much of it comes in before the writer is held up ([`knee_bytes`]).
    pub knee: f64,
    /// The writer's rate over all of it.
    pub mean: f64,
    /// How fast it is stored.
    pub drain: f64,
}

/// Bytes a writer can write before it is slowed down, in pieces of `record` bytes: it writes `source_rate` bytes a second,
/// the pool gets rid of `drain_rate` of them from the first sync on, and gathers `delay_percent` of `dirty_max` before it
/// delays writers. The data that it gathers above that delays each piece the longer. The delay is felt when it is longer
/// than the piece takes anyway. `None` if the pool keeps up.
///
/// Source: OpenZFS, zfs(4): zfs_dirty_data_sync_percent, zfs_delay_scale, "ZFS transaction delay".
#[must_use]
pub fn knee_bytes(
    dirty_max: u64,
    delay_percent: u64,
    record: u64,
    source_rate: f64,
    drain_rate: f64,
) -> Option<u64> {
    let gathers = source_rate - drain_rate;
    let (max, from) = (dirty_max as f64, delay_percent as f64 / 100.0);
    // The delay is DELAY_SCALE · (dirty − from) / (max − dirty).
    let felt = record as f64 / source_rate / DELAY_SCALE;
    let level = max * (from + (1.0 - from) * felt / (1.0 + felt));
    let first = (max * SYNC_FROM).min(level);
    (gathers > 0.0).then(|| (first + (level - first) * source_rate / gathers) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resource_has_its_name_when_it_is_scarce() {
        let use_of = |cpu, device, network| Limit::of(Use { cpu, device, network });
        // lz4 on a weak machine behind one disk; zstd-3 there; small totals over its network.
        assert_eq!(use_of(0.3, 0.95, 0.25), Limit::Device);
        assert_eq!(use_of(0.95, 0.27, 0.14), Limit::Cpu);
        assert_eq!(use_of(0.4, 0.5, 0.8), Limit::Network);
        assert_eq!(use_of(0.6, 0.3, 0.0), Limit::Cpu);
        assert_eq!(use_of(0.0, 0.0, 0.0), Limit::Latency);
    }

    #[test]
    fn a_writer_waits_for_its_source_then_for_the_limit_then_for_the_device() {
        let of = |total, mean| {
            let burst = BurstRates { total, knee: 14e9, mean, drain: 190.6e6 };
            Limit::of_burst(&burst, Limit::Network, Limit::Device)
        };
        // The published case: 5, 20 and 70 GB at 478, 262 and 191 MB/s.
        assert_eq!(
            [of(5e9, 478e6), of(20e9, 262e6), of(70e9, 191e6)],
            [Limit::Network, Limit::DirtyLimit, Limit::Device]
        );
    }

    /// The published case: a limit of 16 GB, of which writers are delayed from 60 % on, 600 MB/s from the network,
    /// 190.6 MB/s to the disk: published as "up to about 14 GB at full speed".
    #[test]
    fn the_knee_follows_from_the_dirty_limit_and_the_drain() {
        let knee = knee_bytes(16_000_000_000, 60, 128 << 10, 600e6, 190.6e6).unwrap() as f64;
        assert!((knee / 14e9 - 1.0).abs() < 0.15, "{knee}");
        assert_eq!(knee_bytes(1 << 30, 60, 128 << 10, 100e6, 200e6), None);
    }
}
