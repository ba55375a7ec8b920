//! Handles, by which clients name files. A handle means the same file after a restart of the server.
//!
//! A client that invents a handle gets past the directories above the file, and no further: each call checks that the dataset
//! is exported to the client, the generation of the object, and the permissions of the user on it.

use zpl::session::Folder;
use zpl::{ObjectId, SnapshotKey};

use crate::status::Status;
use crate::xdr::Reader;

/// Bytes of a handle.
pub(crate) const SIZE: usize = 48;
/// Bytes that the protocol allows.
pub(crate) const MAX: usize = 64;
/// The first bytes: kind and version of the layout.
const MAGIC: u32 = 0x634e_4601;
/// Those that clients see.
const FOLDERS: [Folder; 3] = [Folder::Control, Folder::Shares, Folder::Snapshots];

/// The node of a handle within its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// An object of this number and generation.
    Object(ObjectId, u64),
    /// A folder of `.zfs`, which is not stored.
    Folder(Folder),
}

/// A handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    /// The guid of the dataset.
    pub(crate) dataset: u64,
    /// The snapshot of it, if it is one.
    pub(crate) snapshot: Option<SnapshotKey>,
    pub(crate) named: Named,
}

impl Handle {
    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let (kind, object, generation) = match self.named {
            Named::Object(id, generation) => (0, id.0, generation),
            Named::Folder(folder) => {
                let place = FOLDERS.iter().position(|known| *known == folder);
                (1 + place.expect("all folders are listed") as u32, 0, 0)
            }
        };
        let (id, guid) = self.snapshot.map_or((0, 0), |key| (key.id.0, key.guid.0));
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&kind.to_be_bytes());
        for (chunk, word) in bytes[8..].chunks_exact_mut(8).zip([self.dataset, id, guid, object, generation])
        {
            chunk.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Handle, Status> {
        let read = || {
            let mut reader = Reader::new(bytes);
            let kind = (reader.u32()?, reader.u32()?);
            let mut words = [0; 5];
            for word in &mut words {
                *word = reader.u64()?;
            }
            Ok::<_, crate::xdr::Garbage>((kind, words))
        };
        let ((magic, kind), [dataset, id, guid, object, generation]) =
            read().map_err(|_| Status::BADHANDLE)?;
        if magic != MAGIC || bytes.len() != SIZE {
            return Err(Status::BADHANDLE);
        }
        let named = match kind {
            0 => Named::Object(ObjectId(object), generation),
            _ => Named::Folder(*FOLDERS.get(kind as usize - 1).ok_or(Status::BADHANDLE)?),
        };
        let snapshot = (id != 0).then_some(SnapshotKey { id: ObjectId(id), guid: zpl::Guid(guid) });
        if snapshot.is_some() && matches!(named, Named::Folder(_)) {
            return Err(Status::BADHANDLE);
        }
        Ok(Handle { dataset, snapshot, named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_leads_back_to_its_object() {
        let key = SnapshotKey { id: ObjectId(77), guid: zpl::Guid(8) };
        for (snapshot, named) in [
            (None, Named::Object(ObjectId(34), 5)),
            (Some(key), Named::Object(ObjectId(34), u64::MAX)),
            (None, Named::Folder(Folder::Control)),
            (None, Named::Folder(Folder::Snapshots)),
        ] {
            let handle = Handle { dataset: u64::MAX - 1, snapshot, named };
            let bytes = handle.encode();
            assert_eq!(Handle::decode(&bytes), Ok(handle));
            for cut in 0..SIZE {
                assert_eq!(Handle::decode(&bytes[..cut]), Err(Status::BADHANDLE));
            }
        }
        assert_eq!(Handle::decode(&[0; SIZE]), Err(Status::BADHANDLE));
    }
}
