//! File systems that are shown in folders of others while they are copied.

use std::collections::HashMap;

use format::ObjectId;
use zpl::Filesystem;

/// A file system that is read, with its number from 1 on.
pub type Numbered = (u64, Filesystem);

/// A folder: the number of its file system and its object.
pub type Place = (u64, ObjectId);

/// File systems that are shown in folders of others.
#[derive(Default)]
pub struct Shown {
    /// In the place of a folder.
    over: HashMap<Place, Numbered>,
    /// In a folder, under a name that nothing has there.
    added: HashMap<Place, Vec<(Vec<u8>, Numbered)>>,
}

impl Shown {
    /// The dataset that is shown in the place of a folder.
    pub fn over(&self, number: u64, id: ObjectId) -> Option<&Numbered> {
        self.over.get(&(number, id))
    }

    /// The datasets that are shown in a folder besides its entries.
    pub fn added(&self, number: u64, id: ObjectId) -> &[(Vec<u8>, Numbered)] {
        self.added.get(&(number, id)).map_or(&[], Vec::as_slice)
    }

    /// Whether the file system of this number is shown somewhere.
    pub fn has(&self, number: u64) -> bool {
        let added = self.added.values().flatten().map(|(_, shown)| shown);
        self.over.values().chain(added).any(|(other, _)| *other == number)
    }

    /// The dataset that is shown in a folder under the name `name`.
    pub fn added_as(&self, place: Place, name: &[u8]) -> Option<&Numbered> {
        let (_, shown) = self.added(place.0, place.1).iter().find(|(other, _)| other == name)?;
        Some(shown)
    }

    /// Shows a file system in the place of a folder.
    pub fn show_over(&mut self, place: Place, child: Numbered) {
        self.over.insert(place, child);
    }

    /// Shows a file system in a folder that has nothing of this name.
    pub fn add(&mut self, place: Place, name: &[u8], child: Numbered) {
        self.added.entry(place).or_default().push((name.to_vec(), child));
    }
}
