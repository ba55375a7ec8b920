//! Errors of reading and writing blocks.

use std::io;
use std::path::PathBuf;

use format::Corrupt;
use format::blkptr::Dva;

/// Why a block could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Every copy was read; none matched the checksum in the parent.
    #[error("no copy of the block matches its checksum (tried {})", list(.tried))]
    NoGoodCopy {
        /// The copies that were read.
        tried: Vec<Dva>,
    },
    /// The device refused; the data may well be intact.
    #[error("cannot read '{}' at byte {offset}: {source}", .path.display())]
    Device {
        /// The device.
        path: PathBuf,
        /// Byte offset on it.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// The block can be read, because what these devices hold of it follows from the others.
    #[error("what {} holds of it is damaged or cannot be read; it was computed from the other devices", paths(.devices))]
    DamagedColumns {
        /// The devices.
        devices: Vec<PathBuf>,
    },
    /// The pointer names a vdev or range that the pool does not have.
    #[error("block pointer leads outside the pool: vdev {} offset {:#x} size {:#x}", .dva.vdev, .dva.offset, .dva.asize)]
    OutOfRange {
        /// The place named.
        dva: Dva,
    },
    /// The bytes match their checksum but do not decode.
    #[error("block does not decompress: {0}")]
    Codec(#[from] codec::CodecError),
    /// The block is encrypted, and its key is not loaded.
    #[error("the key of the dataset is not loaded")]
    NoKey,
    /// The bytes match their checksum, but are not those that a holder of the key wrote.
    #[error("the block is not authentic: somebody without the key changed it, or it is damaged")]
    Unauthentic,
    /// A structure inside is impossible.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Too few devices of a top-level vdev are there.
    #[error("devices of vdev {vdev} are missing")]
    Missing {
        /// Its id.
        vdev: u32,
    },
    /// The pointer leads to a vdev that was removed.
    #[error("vdev {vdev}, on which the block is, was removed")]
    Removed {
        /// Its id.
        vdev: u32,
    },
    /// The pool uses a structure that this build does not read.
    #[error("not supported: {0}")]
    Unsupported(NotYet),
}

/// A part of the format that this build does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotYet {
    /// Blocks that are left out of a redacted dataset.
    #[error("redacted data")]
    Redacted,
    /// Blocks on such a vdev.
    #[error("{0}")]
    Layout(Layout),
}

/// Layouts of vdevs that this build does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Layout {
    /// Parity that is spread over all devices, with spare space on each.
    #[error("draid")]
    Draid,
    /// A number of devices and parity that do not go together.
    #[error("a raidz vdev that cannot be")]
    ImpossibleRaidz,
    /// A mirror whose sides are not single devices.
    #[error("a mirror of vdevs of several devices")]
    NestedMirror,
}

/// Why nothing is written to a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// Too few of its devices are there.
    #[error("missing")]
    Missing,
    /// It was removed.
    #[error("removed")]
    Removed,
    /// Its layout is not known.
    #[error("{0}")]
    Layout(Layout),
}

/// Why a write could not be made durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The device refused.
    #[error("cannot write '{}' at byte {offset}: {source}", .path.display())]
    Device {
        /// The device.
        path: PathBuf,
        /// Byte offset on it.
        offset: u64,
        /// The system's reason.
        source: io::Error,
    },
    /// No free segment is large enough.
    #[error("out of space")]
    NoSpace,
    /// A space map or indirect block needed for the write could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Nothing is written to this top-level vdev.
    #[error("vdev {vdev} cannot be written: it is {why}")]
    Unwritable {
        /// Its id.
        vdev: u32,
        /// Why.
        why: Unwritable,
    },
}

fn list(dvas: &[Dva]) -> String {
    let places: Vec<_> = dvas.iter().map(|d| format!("{}:{:#x}:{:#x}", d.vdev, d.offset, d.asize)).collect();
    places.join(", ")
}

fn paths(devices: &[PathBuf]) -> String {
    let paths: Vec<_> = devices.iter().map(|path| format!("'{}'", path.display())).collect();
    paths.join(" and ")
}
