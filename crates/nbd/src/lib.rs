//! Volumes as network block devices: the NBD protocol on Unix sockets and on TCP.
//!
//! From:   clients (QEMU, nbdkit's tools, the kernel's nbd), on sockets that `server` has this crate listen on.
//! To:     calls of [`zpl::Volume`]. This crate translates and does not decide.
//!
//! Fixed newstyle negotiation, structured replies, block status, trim, zeros, forced writes, flush; several connections to
//! one volume see each other's writes. A client can do no harm beyond the volume: its memory here, its connections and its
//! time for the negotiation are limited, and invalid input ends only its own connection.
//!
//! Source: the NBD protocol, <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
#![forbid(unsafe_code)]

mod connection;
mod context;
mod export;
mod listener;
mod negotiation;
mod protocol;
mod queue;
mod reply;
mod server;
mod stream;
mod tls;

pub use export::Export;
pub use front::{Address, AddressError, Opener, StartError};
pub use listener::Serving;
pub use server::{Nbd, PORT};
pub use tls::{Tls, TlsError};
