//! The file type in `mode`, and the bits of the attribute `FLAGS`.
//!
//! Source: docs/format/07-zpl-sa.md §4.

#[allow(missing_docs, reason = "the names are those of the format")]
pub mod pflags;

/// Bits of the file type in `mode`.
pub const S_IFMT: u64 = 0o170_000;
/// Type: directory.
pub const S_IFDIR: u64 = 0o040_000;
/// Type: regular file.
pub const S_IFREG: u64 = 0o100_000;
/// Type: symbolic link.
pub const S_IFLNK: u64 = 0o120_000;
/// Type: character device.
pub const S_IFCHR: u64 = 0o020_000;
/// Type: block device.
pub const S_IFBLK: u64 = 0o060_000;
/// Type: fifo.
pub const S_IFIFO: u64 = 0o010_000;
/// Type: socket.
pub const S_IFSOCK: u64 = 0o140_000;
