//! Send streams: sending, receiving, resuming, replication packages, and healing from a stream.
//!
//! From:   `cli`, which names the snapshots and hands over a pipe or a file.
//! To:     `pool`: datasets are read and written through transactions, and put in place by jobs of its sync thread.
#![forbid(unsafe_code)]

mod receive;
mod send;

pub use receive::{
    Arrived, Change as TreeChange, Destination, Healing, Incoming, Received, Receiver, Receiving, Replica,
    holds_of, is_key_root_of, parent_snapshot_of, properties_of, snapshot_properties_of,
};
pub use send::{
    Leaving, Package, Request as SendRequest, Resumption, Saved, Sender, Sent, Source as SendSource, Told,
};
