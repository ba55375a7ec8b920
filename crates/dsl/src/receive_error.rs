//! Why a stream cannot be received.

use std::io;

use format::{Corrupt, Guid};

/// Why a stream cannot be received. The pool is unchanged then.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// There is no stream at all.
    #[error("failed to read from stream")]
    Empty,
    /// It could not be read.
    #[error("failed to read from stream: {0}")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("invalid stream (bad magic number)")]
    Magic,
    /// It ends too early.
    #[error("incomplete stream")]
    Truncated,
    /// It was damaged on its way.
    #[error("checksum mismatch")]
    Checksum,
    /// A record that no OpenZFS sends.
    #[error("invalid stream ({0})")]
    Corrupt(#[from] Corrupt),
    /// Records that do not fit together.
    #[error("invalid stream ({0})")]
    Invalid(&'static str),
    /// A compressed block that does not decompress.
    #[error("invalid stream ({0})")]
    Codec(#[from] codec::CodecError),
    /// An increment without `-L` onto a snapshot that was received with it: it cannot say which blocks are large.
    #[error("incremental send stream requires -L (--large-block), to match previous receive.")]
    LargeBlocks,
    /// A raw stream brings other keys than the dataset has.
    #[error("encryption key does not match existing key")]
    OtherKeys,
    /// It is not known which initialisation vectors the source of a raw increment has, here or where it was sent.
    #[error("IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.")]
    NoIvSet,
    /// The source of a raw increment was not received raw.
    #[error(
        "IV set guid mismatch. See the 'zfs receive' man page section\n \
         discussing the limitations of raw encrypted send streams."
    )]
    OtherIvSet,
    /// A full stream in the place of a dataset, and one of the two is encrypted.
    #[error(
        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one \
         with an encrypted one"
    )]
    ForcedEncrypted,
    /// Blocks in pointers go into a dataset that is encrypted here.
    #[error("incompatible embedded data stream feature with encrypted receive.")]
    EmbedsEncrypted,
    /// An increment onto a redacted snapshot that does not bring what is missing there.
    #[error("invalid backup stream")]
    OtherRedaction,
    /// The stream needs a feature that the pool has not enabled.
    #[error("pool must be upgraded to receive this stream.\nfeature {0} is not enabled in this pool")]
    Feature(&'static str),
    /// A stream that this build cannot receive, and why.
    #[error("not supported: {0}")]
    Unsupported(&'static str),
    /// The destination of a full stream is there already.
    #[error("destination '{0}' exists\nmust specify -F to overwrite it")]
    Exists(String),
    /// The destination of a full stream has snapshots.
    #[error("destination has snapshots (eg. {0})\nmust destroy them to overwrite it")]
    HasSnapshots(String),
    /// The root dataset of a pool must be a file system.
    #[error("destination {0} is the root dataset\ncannot overwrite with a ZVOL")]
    RootVolume(String),
    /// The destination of an incremental stream is missing.
    #[error("destination '{0}' does not exist")]
    Missing(String),
    /// The destination changed since its newest snapshot.
    #[error("destination {0} has been modified\nsince most recent snapshot")]
    Modified(String),
    /// The newest snapshot is not the source of the stream.
    #[error("most recent snapshot of {0} does not\nmatch incremental source")]
    NotSource(String),
    /// A resumed stream without a partial receive.
    #[error("destination '{0}' has no partially received state to resume")]
    NothingToResume(String),
    /// A resumed stream that does not start where the partial receive ended.
    #[error("this stream does not continue what '{0}' holds of one")]
    OtherResume(String),
    /// A new stream while a partial receive waits to be resumed.
    #[error("destination {0} contains\npartially-complete state from \"zfs receive -s\".")]
    Partial(String),
    /// A stream that is to heal, of another snapshot.
    #[error("stream is not compatible with the data in the pool: it is of another snapshot than '{0}'")]
    OtherSnapshot(String),
    /// A stream that is to heal brings a damaged block in other pieces than it lies on disk.
    #[error(
        "stream is not compatible with the data in the pool: blocks of {here} bytes in pieces of {sent} \
         (zfs send -L keeps them whole)"
    )]
    OtherBlockSize {
        /// Size of the damaged block, in bytes.
        here: u64,
        /// Size of the record, in bytes.
        sent: u64,
    },
    /// No snapshot here is the origin of the clone.
    #[error("local origin for clone {name} does not exist")]
    NoOrigin {
        /// The clone.
        name: String,
        /// The origin's guid.
        guid: Guid,
    },
}
