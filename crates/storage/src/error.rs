//! What can go wrong between a pointer and its bytes.

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
    /// The block is encrypted, and whoever reads it has no key.
    #[error("the key of the dataset is not loaded")]
    NoKey,
    /// The bytes match their checksum, but are not those that a holder of the key wrote.
    #[error("the block is not authentic: somebody without the key changed it, or it is damaged")]
    Unauthentic,
    /// A structure inside is impossible.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// The pool uses something that this build does not read.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
}

/// Why a write could not be made safe.
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
    /// The layout is readable only.
    #[error("not supported: writing to a {0} vdev")]
    Unsupported(&'static str),
}

fn list(dvas: &[Dva]) -> String {
    let places: Vec<_> = dvas.iter().map(|d| format!("{}:{:#x}:{:#x}", d.vdev, d.offset, d.asize)).collect();
    places.join(", ")
}

fn paths(devices: &[PathBuf]) -> String {
    let paths: Vec<_> = devices.iter().map(|path| format!("'{}'", path.display())).collect();
    paths.join(" and ")
}
