//! The open pool: labels, import and export, the MOS, transaction groups, space maps on disk, features, and
//! the dataset layer.
//!
//! From:   `stream`, `zpl`, `cli` and `bench`, which open pools and change datasets within transactions.
//! To:     `dmu` and `storage`. Only this crate knows which txg is durable.
#![forbid(unsafe_code)]

mod accounts;
mod add;
mod apart;
mod api;
mod aux_disks;
mod aux_vdevs;
pub mod brt;
pub mod checkpoint;
mod checkpoints;
mod cloning;
mod command;
mod create;
mod dataset;
pub mod ddt;
mod deferred;
mod delegation;
mod device_errors;
mod devices;
mod discover;
mod distributed;
mod dsl_lock;
mod elsewhere;
mod encryption;
mod evacuation;
mod events;
mod expand;
mod expansion;
mod found_state;
mod guid;
mod held_lists;
mod import;
mod jobs;
pub mod known;
pub mod label_faults;
pub mod labels;
mod lease;
mod leases;
pub mod log;
mod marks;
mod members;
mod moved;
mod multihost;
mod named_places;
#[cfg(test)]
mod new_names;
mod new_vdevs;
mod obsolete;
mod open;
mod open_datasets;
mod opened;
mod options;
mod own_snapshots;
mod own_volumes;
mod pool;
pub mod private;
mod reading;
mod rebuild;
mod receiving;
mod redaction;
mod redundancy;
mod reflow;
mod remove;
mod replacement;
mod reports;
mod rewind;
pub mod roots;
pub mod scan_state;
pub mod scrubber;
mod shape;
mod sharing;
mod snapshots;
pub mod space_maps;
mod spares;
mod split;
mod state;
mod suspend;
mod sync;
mod tables;
#[cfg(test)]
mod tangles;
mod terms;
#[cfg(test)]
mod testing;
mod throttle;
mod treater;
mod tree_change;
pub mod tune;
mod tx;
mod unused;
mod vdev_props;
mod volumes;
mod watch;
mod widen;
pub mod zil;

pub use codec::crypt::{CryptError, WrappingKey};
pub use dsl::KeyError;
pub use dsl::change_key::KeyChange;
pub use dsl::keys::{KeyObject, UserKey};
pub use dsl::new_encryption::{NewEncryption, OwnKey, Wanted};
pub use dsl::{
    Error, FeatureState, NotExpanded, NotWritten, ReceiveError, Result, ResumeToken, SendFlags, TokenError,
    props, version,
};
pub(crate) use dsl::{bpobj, bptree, error, features, history, keys, mos, sizes};
pub use encryption::Encryption;

pub use add::NewDevices;
pub use apart::Apart;
pub use aux_vdevs::{AuxKind, AuxVdev};
pub use brt::Clones;
pub use checkpoint::Checkpoint;
pub use create::CreateSpec;
pub use ddt::{Figures, Forecast};
pub use discover::{DeviceCopy, Found, discover, parse_guid, partitions_of};
pub use dsl::delegation::Grant;
pub use dsl::info::DatasetInfo;
pub use dsl::livelist::Rules as LivelistRules;
pub use dsl::new_head::{Initialise, NewFilesystem};
pub use dsl::new_names::check as check_new_name;
pub use dsl::opening::Opening;
pub use dsl::partial::Partial;
pub use dsl::receive::{Place, Progress, Working};
pub use dsl::received::{PropertyRefusal, ReceiveOptions};
pub use dsl::room::Reach;
pub use dsl::settings::{Settings, SnapDir, SyncMode, checksum_feature};
pub use events::Happened;
pub use history::Event;
pub use lease::{AwaitedLease, Lease};
pub use named_places::{damaged_labels, why_no_pool};
pub use new_vdevs::{DraidLayout, Layout, NewTop};
pub use opened::open_disk;
pub use options::{MissingLogs, Options, Pace};
pub use own_snapshots::{SnapshotEntry, SnapshotKey};
pub use pool::Pool;
pub use storage::host::{backing_file, holders_of};
pub use unused::{Course, Order, Treated, Treatment};

pub use found_state::FoundState;
pub use rewind::Rewind;

pub use evacuation::Stage as RemovalStage;
pub use expansion::Expansion;
pub use members::Member;
pub use moved::Removal;
pub use obsolete::Obsolete;
pub use reading::Reading;
pub use rebuild::Step as RebuildStep;
pub use redaction::RedactionEntries;
pub use sharing::{Dedup, Prune};
pub use split::SplitOff;
pub use state::{Dataset, Info, Inner, Syncing};
pub use storage::FailMode;
pub use storage::interrupt;
pub use suspend::{SuspensionWatch, Trouble};
pub use tree_change::Joined;
pub use tx::{Begun, Hold, Patience, Tx, Wait};
pub use volumes::{VOLUME_BLOCK, default_volume_block};
pub use watch::{DeviceWatch, Noticed, Silent, SlowSync};
