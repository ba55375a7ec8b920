//! The machine: disks, time and randomness as three traits, each with a real and a scripted form.
//!
//! From:   the operating system, or a test's script and seed.
//! To:     every crate above. No other code of cenote asks the machine for time, randomness or disks, so the same seed and
//!         the same calls give the same bytes.
//!
//! This is one of the two places where `unsafe` may live (STYLE.md).

mod aligned;
mod backing;
mod clock;
mod closable;
mod direct;
mod disk;
mod entropy;
mod file_disk;
mod hostid;
mod lock_holder;
mod partitions;
mod range_lock;
pub(crate) mod ring;
pub mod scripted;

use std::sync::Arc;

pub use backing::Backing;
pub use clock::{Clock, FixedClock, SteppedClock, SystemClock};
pub(crate) use closable::Closable;
pub use disk::{Before, Disk};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use file_disk::{Access, FileDisk, OpenError};
pub use hostid::hostid;
pub use lock_holder::{Holder, holders_of};
pub use partitions::{Partition, Table, TableError, backing_file, partition_of, partition_path, read_table};
pub use scripted::{CrashPolicy, Fault, Op, Script, ScriptedDisk};

/// Clock and entropy, passed to all code that needs them. Clones share both.
#[derive(Clone, Debug)]
pub struct Host {
    /// Wall and monotonic time.
    pub clock: Arc<dyn Clock>,
    /// Guids, salts, seeds.
    pub entropy: Arc<dyn Entropy>,
}

impl Host {
    /// The machine as it is.
    #[must_use]
    pub fn system() -> Host {
        Host { clock: Arc::new(SystemClock::default()), entropy: Arc::new(SystemEntropy) }
    }

    /// A machine whose clock starts at `start_secs` (Unix time), moves 1 ms per question, and whose
    /// randomness follows from `seed`: for tests.
    #[must_use]
    pub fn seeded(seed: u64, start_secs: u64) -> Host {
        Host { clock: Arc::new(SteppedClock::new(start_secs)), entropy: Arc::new(SeededEntropy::new(seed)) }
    }

    /// A machine whose wall clock stands still at `secs` and whose randomness follows from `seed`: for
    /// images that must come out the same twice (`SOURCE_DATE_EPOCH`).
    #[must_use]
    pub fn reproducible(seed: u64, secs: u64) -> Host {
        Host { clock: Arc::new(FixedClock::new(secs, 0)), entropy: Arc::new(SeededEntropy::new(seed)) }
    }
}
