//! The machine of a measurement.

use std::collections::BTreeSet;
use std::path::Path;

use codec::{About, Engine};
use format::Compression;
use pool::props::number::nice_bytes;
use procfs::Current as _;
use serde::{Deserialize, Serialize};

use crate::configuration;

/// Facts about the machine for judging the figures. Unknown values are `unknown` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name and version of the system.
    pub os: String,
    /// Release of its kernel.
    pub kernel: String,
    /// Model of the processor.
    pub cpu: String,
    /// Processors.
    pub sockets: u32,
    /// Cores of each.
    pub cores: u32,
    /// The number of processors that the system schedules on.
    pub logical_cpus: u32,
    /// Main memory.
    pub memory_bytes: u64,
    /// The disk or file system under the pool.
    pub backing: String,
    /// Files that were measured.
    pub source_files: u64,
    /// Their data, without holes.
    pub source_bytes: u64,
    /// They were read into memory before anything was timed.
    pub source_in_memory: bool,
    /// Clock and governor of the processor, where the system has them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub clock: String,
    /// Implementations of the compressions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub codecs: String,
}

impl Machine {
    /// This machine, with data of so many files and bytes.
    pub(crate) fn with(
        backing: String,
        source_files: u64,
        source_bytes: u64,
        source_in_memory: bool,
    ) -> Machine {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        let os_release = text("/etc/os-release");
        let os_name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let cpus = procfs::CpuInfo::current().ok();
        let first = |name: &str| cpus.as_ref().and_then(|cpus| cpus.get_field(0, name).map(str::to_owned));
        let board = || Some(text("/sys/firmware/devicetree/base/model").trim_end_matches('\0').to_owned());
        let (sockets, cores, logical_cpus) = topology();
        Machine {
            os: os_name.map_or_else(unknown, |name| name.trim_matches(['"', '\'']).to_owned()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: first("model name").or_else(board).filter(|name| !name.is_empty()).unwrap_or_else(unknown),
            sockets,
            cores,
            logical_cpus,
            memory_bytes: procfs::Meminfo::current().map_or(0, |memory| memory.mem_total),
            backing,
            source_files,
            source_bytes,
            source_in_memory,
            clock: clock(first("cpu MHz")),
            codecs: codecs(),
        }
    }

    /// `1 thread`, `4 threads`: the number of hardware threads of the processors.
    #[must_use]
    pub(crate) fn threads(&self) -> String {
        format!("{} thread{}", self.logical_cpus, if self.logical_cpus == 1 { "" } else { "s" })
    }

    /// The machine in a few lines.
    #[must_use]
    pub fn lines(&self, version: &str) -> Vec<String> {
        let memory = nice_bytes(self.memory_bytes);
        let place =
            if self.source_in_memory { "read into memory first" } else { "read from disk while measuring" };
        let mut lines = vec![
            format!("cenote {version}, {}, kernel {}", self.os, self.kernel),
            format!(
                "{}, {}×{} core{} ({}), {memory} memory",
                self.cpu,
                self.sockets,
                self.cores,
                if self.sockets * self.cores == 1 { "" } else { "s" },
                self.threads()
            ),
            format!("backing: {}", self.backing),
            format!(
                "source: {} in {} {}, {place}",
                nice_bytes(self.source_bytes),
                self.source_files,
                if self.source_files == 1 { "file" } else { "files" }
            ),
        ];
        let more = [("clock", &self.clock), ("codecs", &self.codecs)];
        lines.extend(
            more.iter().filter(|(_, text)| !text.is_empty()).map(|(what, text)| format!("{what}: {text}")),
        );
        lines
    }
}

/// The compression libraries of this program, and the features of the processor that they use, so that figures can be
/// compared with those of other versions.
fn codecs() -> String {
    let with = |about: About| match about.cpu {
        "" => about.library,
        cpu => format!("{} with {cpu}", about.library),
    };
    let of = |algorithm| About::compression(algorithm).map_or_else(String::new, with);
    let gzip = Engine::ALL
        .into_iter()
        .filter_map(|engine| Some(format!("{} ({})", with(engine.about()?), engine.name())));
    let all = [
        ("lz4", of(Compression::Lz4)),
        ("zstd", of(Compression::Zstd)),
        ("gzip", gzip.collect::<Vec<_>>().join(" or ")),
        ("lzjb and zle", of(Compression::Lzjb)),
    ];
    all.map(|(name, made)| format!("{name}: {made}")).join("; ")
}

/// The clock as it was just now, and the policy behind it.
fn clock(mhz: Option<String>) -> String {
    let governor = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let mhz = mhz.and_then(|mhz| mhz.trim().parse::<f64>().ok()).map(|mhz| format!("{mhz:.0} MHz"));
    let governor = governor.ok().map(|governor| format!("governor {}", governor.trim()));
    [mhz, governor].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Sockets, cores of each, and all logical processors.
fn topology() -> (u32, u32, u32) {
    let number = |path: String| std::fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    let mut cores = BTreeSet::new();
    let mut logical = 0;
    let folders = std::fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
    for folder in folders {
        let name = folder.file_name().to_string_lossy().into_owned();
        if !name.strip_prefix("cpu").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
            continue;
        }
        let of = |what: &str| number(format!("/sys/devices/system/cpu/{name}/topology/{what}"));
        // A processor that is switched off has no topology.
        if let (Some(socket), Some(core)) = (of("physical_package_id"), of("core_id")) {
            cores.insert((socket, core));
            logical += 1;
        }
    }
    let sockets = cores.iter().map(|(socket, _)| socket).collect::<BTreeSet<_>>().len() as u32;
    match sockets {
        0 => (1, configuration::cores(), configuration::cores()),
        sockets => (sockets, cores.len() as u32 / sockets, logical),
    }
}

/// The file system and disk under `folder`: `ext4 on /dev/sda1 (model)`.
pub(crate) fn file_system(folder: &Path) -> String {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let mounts =
        procfs::process::Process::myself().and_then(|me| me.mountinfo()).map(|all| all.0).unwrap_or_default();
    // Of those at the same place the last one is on top.
    let under = mounts.iter().filter(|mount| folder.starts_with(&mount.mount_point));
    let Some(mount) = under.max_by_key(|mount| mount.mount_point.as_os_str().len()) else {
        return "unknown file system".to_owned();
    };
    let source = mount.mount_source.as_deref().unwrap_or("none");
    let model = disk_model(&mount.majmin).map_or(String::new(), |model| format!(" ({model})"));
    format!("{} on {source}{model}", mount.fs_type)
}

/// The model of a disk by the number of it or of a partition on it.
fn disk_model(majmin: &str) -> Option<String> {
    let folder = Path::new("/sys/dev/block").join(majmin).canonicalize().ok()?;
    let whole = if folder.join("partition").exists() { folder.parent()? } else { &folder };
    let read = |name: &str| std::fs::read_to_string(whole.join(name)).ok().map(|text| text.trim().to_owned());
    // Virtual disks have no model, and their claim to rotate or not means nothing.
    let model = read("device/model").filter(|model| !model.is_empty())?;
    let kind = if read("queue/rotational")? == "0" { "not rotating" } else { "rotating" };
    Some(format!("{model}, {kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_processor_and_a_file_system() {
        let (sockets, cores, logical) = topology();
        assert!(sockets >= 1 && cores >= 1 && logical >= 1);
        assert!(file_system(&std::env::temp_dir()).contains(" on "));
    }

    #[test]
    fn every_engine_of_this_build_is_among_the_codecs() {
        let codecs = codecs();
        for engine in Engine::ALL {
            let about = engine.about();
            assert_eq!(about.is_some(), codecs.contains(&format!("({})", engine.name())), "{codecs}");
            assert!(about.is_none_or(|about| codecs.contains(&about.library)), "{codecs}");
        }
        assert!(codecs.contains("zstd: zstd 1."), "{codecs}");
    }
}
