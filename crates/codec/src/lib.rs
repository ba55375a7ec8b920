//! Buffer → buffer: compression with ZFS's framing, checksums, and parity. This crate knows no pool, disk or thread.
//!
//! [`compress`] and [`decompress`] work on one record; an [`Engine`] is a library that compresses gzip; [`checksum`] fills a block pointer's four words;
//! [`embedded`] is the self-contained checksum of labels, uberblocks and gang headers; [`is_zero`] finds
//! holes; [`parity`] makes and uses the parity columns of raidz; [`crypt`] seals and opens blocks. Each thread keeps the contexts of
//! foreign libraries and uses them again, so a call allocates nothing.
#![deny(unsafe_code)]

mod about;
mod checksum;
pub mod crypt;
mod deflate;
mod edonr;
pub mod embedded;
mod entropy;
mod error;
mod fletcher;
mod galois;
mod gzip;
mod lz4;
mod lzjb;
pub mod parity;
mod record;
#[allow(unsafe_code, reason = "SIMD is one of the two places for unsafe code (ARCHITECTURE.md)")]
mod simd;
mod skein;
mod sums;
mod zero;
pub mod zilog;
mod zle;
mod zstd;

pub use about::About;
pub use checksum::{Salt, checksum, checksum_of};
pub use deflate::Engine;
pub use error::CodecError;
pub use fletcher::RunningFletcher4;
pub use gzip::{unzlib, zlib};
pub use record::{compress, compress_by, decompress};
pub use zero::is_zero;
