//! The simulated machine: pools on scripted disks, a model that runs beside them, and power cuts at every write.
//!
//! From:   a seed.
//! To:     tests. Nothing else imports this room.
//!
//! A [`Story`] is a sequence of changes to one file system. Everything it needs from the machine (disks, time,
//! randomness) follows from its seed, and the pool is opened *stepwise*: txg borders follow from the calls alone.
//! So a failure is replayed by its seed, and a cut by the number of the disk operation before which it fell.
#![forbid(unsafe_code)]

pub mod changing;
mod cuts;
pub mod forge;
mod machine;
mod model;
mod random;
pub mod reading;
mod story;
mod tree;

pub use cuts::{Cuts, seeds};
pub use machine::Machine;
pub use model::Model;
pub use story::{Mark, Story};
pub use tree::{Entry, Tree, What};
