//! File systems over NFS: version 3 of the protocol, and the MOUNT protocol, on one TCP port.
//!
//! From:   clients (the kernel's NFS client, libnfs), on the ports on which the server makes this crate listen.
//! To:     calls of [`zpl::Session`], which checks permissions. This crate translates and does not decide.
//!
//! A handle names dataset, object and generation, so it outlives the server. A client can do no harm beyond its rights: the
//! memory that it uses here, the number of connections and the time for a message are bounded. Invalid input is refused, or
//! ends only its own connection. There is no locking protocol: clients mount with `nolock`.
//!
//! Source: RFC 1813 (NFS version 3, MOUNT version 3), RFC 5531 (RPC version 2), RFC 4506 (XDR).
#![forbid(unsafe_code)]

mod about;
mod access;
mod activity;
mod answers;
mod attributes;
mod call;
mod caller;
mod connection;
mod contents;
mod export;
mod handle;
mod listener;
mod listing;
mod mount;
mod names;
mod node;
mod program;
mod record;
mod repeats;
mod rpc;
mod rules;
mod server;
mod status;
mod table;
mod xdr;

pub use export::{Export, HeldOff};
pub use listener::{PORT, Serving};
pub use rules::{Rules, RulesError};
pub use server::Nfs;
