//! Why nothing was measured.

use std::io;
use std::path::PathBuf;

use pool::props::PropertyError;
use pool::props::number::nice_bytes;

use crate::configuration::THREADS_MAX;
use crate::rate::in_words;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a measurement ended early. Temporary files and datasets are gone then, unless it says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder to measure with cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file changed between being looked at and being read, or between two readings.
    #[error("'{}' changed while it was being measured", path.display())]
    Changed {
        /// Which one.
        path: PathBuf,
    },
    /// The files are all empty, or there are none.
    #[error("nothing to measure: '{}' holds no data", path.display())]
    NoData {
        /// The path that was named, or the first of several.
        path: PathBuf,
    },
    /// The sample is neither inside this program nor in a folder beside it.
    #[error(
        "nothing to measure: name files or folders (the sample that comes with cenote is not in '{}')",
        folder.display()
    )]
    NoSample {
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// There is no such data.
    #[error(
        "no such data: '{0}' (sample, sample/NAME, or KIND:SIZE with one of fastq, fasta, fits, source, tree, noise, zeros)"
    )]
    NoSuchData(String),
    /// A list of the plan is empty.
    #[error("nothing to measure: no {0} is given")]
    EmptyList(&'static str),
    /// A value that ZFS does not know.
    #[error("cannot measure {property}={value}: {source}")]
    Setting {
        /// `compression` or `recordsize`.
        property: &'static str,
        /// As given.
        value: String,
        /// What is wrong with it.
        source: PropertyError,
    },
    /// A rate that is too low to measure anything with.
    #[error("cannot measure with {what} {}: it must be at least {}", in_words(*rate), in_words(*least))]
    TooSlow {
        /// The kind of the disk: a disk that writes …
        what: &'static str,
        /// As given, in bytes a second.
        rate: u64,
        /// The least.
        least: u64,
    },
    /// The target that cannot be held to the rates of a device.
    #[error("--disk-write and --disk-read need a temporary pool, and do not work with {0}")]
    NotHeld(String),
    /// More threads than any machine has cores.
    #[error("cannot measure with {threads} threads: at most {THREADS_MAX}")]
    TooManyThreads {
        /// As given.
        threads: u32,
    },
    /// An amount that is too small to measure anything with.
    #[error("cannot measure with {what} of {}: it must be at least {}", nice_bytes(*value), nice_bytes(*least))]
    TooLittle {
        /// The resource.
        what: &'static str,
        /// As given, in bytes.
        value: u64,
        /// The least.
        least: u64,
    },
    /// An engine for gzip that there is not, or not here.
    #[error("cannot measure compression={word}: {reason}")]
    Engine {
        /// As given.
        word: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A total would take too many copies of a small source.
    #[error("{} are too little to write {} of them: more than a million files", nice_bytes(*bytes), nice_bytes(*total))]
    TooSmall {
        /// Bytes of the source.
        bytes: u64,
        /// Bytes asked for.
        total: u64,
    },
    /// The journal of a measurement cannot be used.
    #[error("cannot go on from '{}': {reason}", path.display())]
    Journal {
        /// Which one.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Another file system cannot do the work.
    #[error("cannot measure in '{}': {source}", folder.display())]
    Against {
        /// Where.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// An application's step failed.
    #[error("the step '{step}' failed ({configuration}): {reason}")]
    Step {
        /// Its name.
        step: String,
        /// The configuration that was being measured.
        configuration: String,
        /// Its last words, or how it ended.
        reason: String,
    },
    /// The dataset cannot be mounted.
    #[error("cannot mount the temporary dataset: {0}")]
    Mount(String),
    /// There is not enough room for what would be written.
    #[error("not enough space in '{place}': up to {} may be needed, {} are free", nice_bytes(*needed), nice_bytes(*free))]
    NoRoom {
        /// The folder or the pool.
        place: String,
        /// Bytes that the least compressed configuration may take.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The room that there was is gone.
    #[error("no space left in '{place}' ({configuration})")]
    Full {
        /// The folder or the pool.
        place: String,
        /// The configuration that was being measured.
        configuration: String,
    },
    /// The temporary pool cannot be made.
    #[error("cannot make a temporary pool in '{}': {source}", folder.display())]
    Temporary {
        /// Where.
        folder: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The pool failed.
    #[error("cannot {doing} ({configuration}): {source}")]
    Pool {
        /// The action, such as `write to 'tank'`.
        doing: String,
        /// The configuration that was being measured.
        configuration: String,
        /// Why.
        source: Box<pool::Error>,
    },
    /// The file system in the pool failed.
    #[error("cannot {doing} ({configuration}): {source}")]
    Filesystem {
        /// The action, such as `write 'a.txt'`.
        doing: String,
        /// The configuration that was being measured.
        configuration: String,
        /// Why.
        source: Box<zpl::Error>,
    },
    /// The pool is open, but does not support what the measurement needs.
    #[error("cannot measure in '{pool}': {reason}")]
    Unfit {
        /// The pool.
        pool: String,
        /// Why.
        reason: String,
    },
    /// The measurement ended, but its dataset is still there.
    #[error("cannot remove the temporary dataset '{dataset}': {source}")]
    LeftBehind {
        /// Its name.
        dataset: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Data that the advisor cannot look at.
    #[error("cannot give advice on '{}': it is {what}", path.display())]
    Unadvisable {
        /// Which one.
        path: PathBuf,
        /// The kind of the data.
        what: &'static str,
    },
    /// Nothing of the data could be read.
    #[error("cannot read {0}")]
    Unadvised(String),
    /// A table of published figures is not one.
    #[error("cannot use the table: {0}")]
    Table(String),
    /// The caller stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// The system's reason, without the name of a temporary file, which users do not know.
#[must_use]
pub fn system_reason(error: io::Error) -> io::Error {
    match error.to_string().split_once(" at path \"") {
        Some((reason, _)) => io::Error::new(error.kind(), reason.to_owned()),
        None => error,
    }
}

/// Whether the pool, or the disk under it, is full.
pub(crate) fn is_full(error: &pool::Error) -> bool {
    if let pool::Error::Stopped(why) = error {
        return is_full(why);
    }
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let system = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(system, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return true;
        }
        cause = error.source();
    }
    error.is_no_space()
}
