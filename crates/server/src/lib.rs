//! One process per imported pool: it owns the pool, its mounts and its control socket.
//!
//! From:   `cli`, which starts it, gives it the front ends and asks it to carry out command lines ([`Commands`] is how it
//!         does that).
//! To:     `pool`, the front ends ([`FrontEnds`]), and clients in other processes, which speak through [`client`].
//! The reasons are in docs/decisions/0007-server-and-clients.md.
#![forbid(unsafe_code)]

mod beneath;
pub mod client;
mod elsewhere;
mod error;
mod exports;
mod figures;
mod front_ends;
mod live;
mod log;
pub mod messages;
pub mod mountinfo;
mod mounts;
mod notify;
mod plan;
mod points;
pub mod runtime;
mod secrets;
mod serve;
mod shares;
pub mod start;
mod system_shares;
pub mod visitors;
pub mod wire;

pub use client::Client;
pub use error::{ClientError, Closed, ServeError};
pub use exports::{ExportError, Exported, Told as ExportTold};
pub use figures::{Counters, Figures, Halted, LeafCounters, MemberFigures, Silence};
pub use front_ends::FrontEnds;
pub use live::Live;
pub use mounts::{BeginError, Change, Exchanged, Kind, MountError, Report, Unmounted};
pub use plan::{Overrides, Told, is_mounted_with_all};
pub use runtime::Runtime;
pub use secrets::keep_secrets;
pub use serve::{Commands, Serve, Stdio, serve};
pub use shares::{HeldShares, PROPERTY as SHARE_PROPERTY, ShareError, ShareTold};
pub use system_shares::Protocol;
