//! The simulated machine: pools on scripted disks, a model that runs beside them, and power cuts at every write.
//!
//! From:   a seed.
//! To:     tests. Nothing else imports this crate.
//!
//! A [`Story`] is a sequence of changes to one file system. Everything that it needs from the machine (disks, time,
//! randomness) follows from its seed. The pool is opened *stepwise*: the calls alone decide where a txg ends. So the seed
//! replays a failure. A power cut is named by the number of the first disk operation that it prevents.
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
