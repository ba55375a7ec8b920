//! The living pool: labels, import and export, the MOS, transaction groups, space maps on disk, features, and
//! the dataset layer.
//!
//! From:   `stream`, `zpl`, `cli` and `bench`, which open pools and change datasets within transactions.
//! To:     `dmu` and `storage`. Only this room knows which txg is durable.
#![forbid(unsafe_code)]

mod api;
mod aux_vdevs;
mod bpobj;
mod bptree;
pub mod check;
mod create;
mod dataset;
mod delegation;
mod devices;
mod discover;
mod dsl;
mod error;
mod events;
mod features;
mod found_state;
mod guid;
mod history;
mod import;
pub mod known;
pub mod labels;
mod lease;
mod leases;
mod members;
mod mos;
mod new_names;
mod new_vdevs;
mod open;
mod options;
mod own_snapshots;
mod pool;
pub mod private;
pub mod props;
mod reading;
mod receive_error;
mod receiving;
mod redundancy;
mod rewind;
mod roots;
mod scan_state;
mod scrub;
mod scrubber;
mod sizes;
mod snapshots;
mod space_maps;
mod suspend;
mod sync;
mod throttle;
mod token;
mod tree_change;
pub mod tune;
mod tune_error;
mod tx;
mod vdev_props;
pub mod version;
mod walk;
mod watch;
pub mod zil;

pub use aux_vdevs::{AuxKind, AuxVdev};
pub use create::CreateSpec;
pub use dataset::{Dataset, Settings, SnapDir, SyncMode};
pub use delegation::Grant;
pub use discover::{Found, discover, partitions_of, why_no_pool};
pub use dsl::create::{Initialise, NewFilesystem};
pub use dsl::lookup::{DatasetInfo, Partial};
pub use dsl::receive::{Place, Progress, Working};
pub use dsl::received::{PropertyRefusal, ReceiveOptions};
pub use error::{Error, Result};
pub use events::Happened;
pub use features::FeatureState;
pub use history::Event;
pub use import::{open_disk, parse_guid};
pub use lease::{AwaitedLease, Lease};
pub use new_names::check as check_new_name;
pub use new_vdevs::{Layout, NewTop};
pub use options::Options;
pub use own_snapshots::{SnapshotEntry, SnapshotKey};
pub use pool::{Info, Pool};
pub use scrub::{Births, ScanStatus};
pub use scrubber::DataError;
pub use storage::host::{backing_file, holders_of};

pub use found_state::FoundState;
pub use rewind::Rewind;

pub use devices::Member;
pub use reading::Reading;
pub use receive_error::ReceiveError;
pub use storage::FailMode;
pub use suspend::{SuspensionWatch, Trouble};
pub use sync::checksum_feature;
pub use token::{ResumeToken, SendFlags, TokenError};
pub use tx::{Begun, Hold, Patience, Reach, Tx, Wait};
pub use watch::{DeviceWatch, Noticed, Silent};
