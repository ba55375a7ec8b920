//! The OpenZFS on-disk format as values: bytes ⇄ values, nothing else.
//!
//! Pure `core` + `alloc`: no I/O, no clock, no threads. Every decoder is total: any bytes give a value or
//! a [`Corrupt`]. Sizes and offsets come back in **bytes**, whatever unit the disk uses.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod blkptr;
pub mod checksum;
pub mod compression;
mod corrupt;
mod ids;
pub mod object_type;
mod order;

pub use blkptr::BlockPtr;
pub use checksum::{Checksum, ChecksumKind};
pub use compression::Compression;
pub use corrupt::Corrupt;
pub use ids::{Guid, ObjectId, Txg, VdevId};
pub use object_type::ObjectType;
pub use order::ByteOrder;

/// Bytes of a format sector: the unit of sizes and offsets in block pointers.
pub const SECTOR: u64 = 512;
/// log2 of [`SECTOR`].
pub const SECTOR_SHIFT: u32 = 9;
/// Largest logical block, in bytes (16 MiB).
pub const MAX_BLOCK: u64 = 16 << 20;
