//! The OpenZFS on-disk format as values: bytes ⇄ values, nothing else.
//!
//! Pure `core` + `alloc`: no I/O, no clock, no threads. Every decoder is total: any bytes give a value or
//! a [`Corrupt`]. Sizes and offsets come back in **bytes**, whatever unit the disk uses.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod acl;
pub mod blkptr;
pub mod bookmark;
pub mod bpobj;
pub mod bptree;
pub mod brt;
pub mod checksum;
pub mod compression;
pub mod config;
mod corrupt;
pub mod crypt;
pub mod ddt;
pub mod ddt_log;
pub mod deadlist;
pub mod dnode;
pub mod dsl_dataset;
pub mod dsl_dir;
pub mod features;
pub mod history;
mod ids;
pub mod l2arc;
pub mod label;
mod mode;
pub mod nvlist;
pub mod object_type;
pub mod objset;
mod order;
pub mod owner;
pub mod rebuild;
pub mod redaction;
pub mod sa;
pub mod scan;
pub mod space_map;
pub mod stream;
pub mod swap;
pub mod uberblock;
pub mod zap;
pub mod zil;
pub mod znode;

pub use blkptr::BlockPtr;
pub use checksum::{Checksum, ChecksumKind};
pub use compression::Compression;
pub use corrupt::Corrupt;
pub use dnode::Dnode;
pub use ids::{Guid, ObjectId, Txg, VdevId};
pub use nvlist::{NvList, NvValue};
pub use object_type::ObjectType;
pub use objset::Objset;
pub use order::ByteOrder;
pub use uberblock::Uberblock;

/// Bytes of a format sector: the unit of sizes and offsets in block pointers.
pub const SECTOR: u64 = 512;
/// log2 of [`SECTOR`].
pub const SECTOR_SHIFT: u32 = 9;
/// Largest logical block, in bytes (16 MiB).
pub const MAX_BLOCK: u64 = 16 << 20;
