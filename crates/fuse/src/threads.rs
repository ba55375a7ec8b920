//! How many threads serve a mount.

use front::MountOptions;

use crate::permits::SPARE;

/// Threads for each core, besides the spare ones: a request may wait for a disk or for the next txg.
const THREADS_PER_CORE: usize = 4;
const THREADS_MIN: usize = 8;
const THREADS_MAX: usize = 64;

/// Threads that serve a mount with these options.
pub(crate) fn thread_count(options: &MountOptions) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match options.threads {
        0 => (cores * THREADS_PER_CORE).clamp(THREADS_MIN, THREADS_MAX) + SPARE,
        // One thread may wait for the kernel to write back pages that another thread serves.
        count => count.max(2),
    }
}
