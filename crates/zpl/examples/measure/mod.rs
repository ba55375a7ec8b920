//! Parts that the measuring examples share: clocks, and the same files written and read.

mod limited;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use format::ObjectId;
use pool::{Options, Pool};
use storage::host::Access;
use zpl::{FileKind, Filesystem, NewNode};

pub use limited::{Limits, open};

/// Bytes in a record.
pub const RECORD: usize = 128 << 10;

/// The time that something took.
#[derive(Clone, Copy)]
pub struct Took {
    pub seconds: f64,
    /// Of this process, over all threads.
    pub cpu_seconds: f64,
    /// Of the cores' time, what went to other processes.
    pub others: f64,
}

impl Took {
    pub const FOREVER: Took = Took { seconds: f64::MAX, cpu_seconds: f64::MAX, others: 0.0 };

    /// The shorter of both times, and the shorter of both processor times.
    pub fn best(self, other: Took) -> Took {
        let (quick, cpu) = (self.seconds <= other.seconds, self.cpu_seconds.min(other.cpu_seconds));
        Took { cpu_seconds: cpu, ..if quick { self } else { other } }
    }
}

/// Since when something runs.
pub struct Clock {
    started: Instant,
    cpu: f64,
    busy: f64,
}

/// Seconds that this process computed, and that all did.
pub fn cpu_seconds() -> (f64, f64) {
    let own = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let own = own.tv_sec as f64 + own.tv_nsec as f64 / 1e9;
    let stat = std::fs::read_to_string("/proc/stat").expect("the kernel tells");
    let ticks: Vec<f64> =
        stat.lines().next().unwrap_or_default().split_whitespace().skip(1).flat_map(str::parse).collect();
    // user, nice, system, (idle, waiting,) interrupts, soft interrupts, stolen
    (own, [0, 1, 2, 5, 6, 7].iter().filter_map(|&i| ticks.get(i)).sum::<f64>() / 100.0)
}

impl Clock {
    pub fn start() -> Clock {
        let (cpu, busy) = cpu_seconds();
        Clock { started: Instant::now(), cpu, busy }
    }

    pub fn took(&self) -> Took {
        let seconds = self.started.elapsed().as_secs_f64();
        let (cpu, busy) = cpu_seconds();
        let cpu_seconds = cpu - self.cpu;
        let others = (busy - self.busy - cpu_seconds).max(0.0) / (seconds * cores() as f64);
        Took { seconds, cpu_seconds, others }
    }
}

pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Writes these files, whole records at a time, until they are durable.
pub fn write(pool: &Pool, files: &[Vec<u8>]) -> (Took, Vec<ObjectId>) {
    let fs = Filesystem::open(pool.open("engine").expect("the root exists")).expect("it is a file system");
    let clock = Clock::start();
    let mut ids = Vec::new();
    for (i, data) in files.iter().enumerate() {
        let new = NewNode::new(FileKind::Regular, 0o644);
        let id = fs.create(fs.root(), format!("file{i}").as_bytes(), &new).expect("created");
        for (n, record) in data.chunks(RECORD).enumerate() {
            let mut buffer = fs.record_buffer(record.len());
            buffer.copy_from_slice(record);
            fs.write_record(id, (n * RECORD) as u64, buffer).expect("written");
        }
        ids.push(id);
    }
    pool.sync().expect("durable");
    (clock.took(), ids)
}

/// Imports `paths`, devices of the given limits, with cold caches, to read only.
pub fn import(paths: &[PathBuf], limits: Option<Limits>, options: Options) -> Pool {
    let open = |path: &PathBuf| {
        let disk = limited::open(path, Access::ReadOnly, limits);
        disk.flush().expect("flushed");
        disk.drop_cache();
        disk
    };
    Pool::import_disks(paths.iter().map(open).collect(), Options { read_only: true, ..options })
        .expect("imports")
}

/// Reads all of these files with `readers` threads.
pub fn read(pool: &Pool, ids: &[ObjectId], readers: usize) -> Took {
    let fs = Filesystem::open(pool.open("engine").expect("the root exists")).expect("a file system");
    let clock = Clock::start();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..readers {
            scope.spawn(|| {
                while let Some(id) = ids.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut bytes = 0;
                    for piece in fs.read_records(*id).expect("opens") {
                        bytes += piece.expect("reads").data().map_or(0, <[u8]>::len);
                    }
                    assert!(bytes > 0, "every file has contents");
                }
            });
        }
    });
    clock.took()
}
