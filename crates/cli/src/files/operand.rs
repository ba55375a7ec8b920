//! A file or folder in a pool as it was written on a command line: as a place, or as a path in a mount.

use std::ffi::OsStr;
use std::path::Path;

use crate::around::Surroundings;
use crate::client;
use crate::place::{Place, PlaceError, PoolPath};

/// An operand as it was written, and the place that it names.
#[derive(Debug)]
pub struct Operand {
    pub place: PoolPath,
    shown: String,
}

impl Operand {
    /// Reads a word; `None` if it is a path outside of all mounted datasets.
    ///
    /// # Errors
    /// An operand that is no valid place.
    pub fn read(word: &str, around: &Surroundings) -> Result<Option<Operand>, PlaceError> {
        let inside = |path: &Path| {
            let place = client::place_of(&around.path(path), around)?;
            match Place::parse(OsStr::new(&place)) {
                Ok(Place::InPool(place)) => Some(place),
                _ => None,
            }
        };
        Ok(match Place::parse(OsStr::new(word))? {
            Place::InPool(place) => Some(Operand { shown: place.to_string(), place }),
            Place::Local(path) => inside(&path).map(|place| Operand { place, shown: word.to_owned() }),
        })
    }

    /// The path of `below` under the operand, in the words of the user; `.` is the operand itself.
    pub fn shown(&self, below: &[u8]) -> String {
        if below == b"." {
            return self.shown.clone();
        }
        let slash = if self.shown.ends_with('/') { "" } else { "/" };
        format!("{}{slash}{}", self.shown, String::from_utf8_lossy(below))
    }
}
