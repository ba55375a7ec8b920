//! The values of directory entries.

use super::S_IFMT;
use crate::{Corrupt, ObjectId};

/// The value of a directory entry: an object and, as a hint, its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dirent {
    /// `d_type`: the type bits of the mode, shifted by 12; 0 when unknown.
    pub kind: u8,
    /// The object.
    pub object: ObjectId,
}

impl Dirent {
    /// The entry for an object of this mode.
    #[must_use]
    pub const fn new(mode: u64, object: ObjectId) -> Dirent {
        Dirent { kind: ((mode & S_IFMT) >> 12) as u8, object }
    }

    /// From a ZAP value.
    ///
    /// # Errors
    /// [`Corrupt`] for object 0.
    pub const fn decode(value: u64) -> Result<Dirent, Corrupt> {
        let object = value & ((1 << 48) - 1);
        if object == 0 {
            return Err(Corrupt::new("directory entry", value));
        }
        Ok(Dirent { kind: (value >> 60) as u8, object: ObjectId(object) })
    }

    /// The ZAP value.
    ///
    /// # Panics
    /// If the object's number needs more than 48 bits.
    #[must_use]
    pub fn encode(self) -> u64 {
        assert!(self.object.0 >> 48 == 0, "object numbers have 48 bits");
        assert!(self.kind < 16, "types of directory entries have 4 bits");
        u64::from(self.kind) << 60 | self.object.0
    }
}
