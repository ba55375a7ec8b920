//! One row of a measurement: compression, record size, threads, amount.

use std::path::PathBuf;

use pool::props::number::nice;

/// The word in place of a compression where there is no pool.
pub(crate) const NO_POOL: &str = "-";
/// The dataset in a command of which only the user knows it.
pub(crate) const SOME_DATASET: &str = "POOL/DATASET";
/// More threads than any machine has cores.
pub const THREADS_MAX: u32 = 4096;

/// One row of the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// A value of the property `compression`, and for gzip, behind `@`, who makes its bytes: `gzip-1@isal`.
    pub compression: String,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Threads that write, compress and read; fewer than the machine has cores hold it to that many cores.
    pub threads: u32,
    /// Bytes to write, of the source or of several copies of it; all of it once if `None`.
    pub total_bytes: Option<u64>,
    /// Instead of a pool: the same work in this folder of another file system.
    pub against: Option<PathBuf>,
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = nice(self.recordsize);
        match &self.against {
            None => write!(f, "{}, recordsize {size}, threads {}", self.compression, self.threads)?,
            Some(folder) => write!(f, "'{}', threads {}", folder.display(), self.threads)?,
        }
        match self.total_bytes {
            Some(bytes) => write!(f, ", {} in all", nice(bytes)),
            None => Ok(()),
        }
    }
}

/// Cores that this process may use.
pub(crate) fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}
