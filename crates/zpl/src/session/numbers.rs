//! Numbers of nodes, as programs and protocols see them. A mount or export has one number space, so an object of a
//! snapshot must not be called what the head's is.
//!
//! The numbers of `.zfs` and what is made up in it are those that OpenZFS shows on Linux: they count down from 2^48, where
//! no object is. Objects of a snapshot have the number of its place among the open ones in the bits above.

use crate::{ObjectId, SnapshotKey};

/// Objects are below this.
const OBJECT_BITS: u32 = 48;
const OBJECT_MASK: u64 = (1 << OBJECT_BITS) - 1;
/// `.zfs`.
const CONTROL: u64 = OBJECT_MASK;
/// `.zfs/shares`.
const SHARES: u64 = OBJECT_MASK - 1;
/// `.zfs/snapshot`.
const SNAPSHOTS: u64 = OBJECT_MASK - 2;
/// The root of a snapshot is this minus the number of its dataset in the MOS ...
const ROOTS: u64 = OBJECT_MASK - 3;
/// ... which is less than this.
const DATASETS: u64 = 1 << 32;

/// Above the bits of the object: a link is shown in place of that directory.
const LINKS: u64 = (1 << (63 - OBJECT_BITS)) - 1;

/// The place of an open snapshot. Numbers of nodes stay positive for programs that take them for signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// How many there are: 0 is the mounted file system, the last number is that of [`Node::Link`].
    pub const COUNT: u16 = (1 << (63 - OBJECT_BITS)) - 2;

    /// The `attempt`th choice for a snapshot, dataset `id`, so that its files have the same numbers each time, as a rule.
    #[must_use]
    pub fn choice(id: ObjectId, attempt: u16) -> Slot {
        let count = u64::from(Slot::COUNT);
        Slot(1 + ((id.0 % count + u64::from(attempt)) % count) as u16)
    }
}

/// What is made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// `.zfs`
    Control,
    /// `.zfs/shares`, which is empty.
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
}

impl Folder {
    /// What it is called.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Folder::Control => CONTROL,
            Folder::Shares => SHARES,
            Folder::Snapshots => SNAPSHOTS,
        }
    }
}

/// Whose node a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The mounted file system's.
    Head,
    /// One that is made up.
    Folder(Folder),
    /// The root of the snapshot that is this dataset.
    Root(ObjectId),
    /// An object of the snapshot at this place.
    Within(Slot),
    /// The link that is shown in place of this directory of the mounted file system.
    Link(ObjectId),
}

impl Node {
    /// Whose node `number` means.
    #[must_use]
    pub fn of(number: u64) -> Node {
        match (number >> OBJECT_BITS, number & OBJECT_MASK) {
            (0, CONTROL) => Node::Folder(Folder::Control),
            (0, SHARES) => Node::Folder(Folder::Shares),
            (0, SNAPSHOTS) => Node::Folder(Folder::Snapshots),
            (0, number) if number > ROOTS - DATASETS => Node::Root(ObjectId(ROOTS - number)),
            (0, _) => Node::Head,
            (LINKS, number) => Node::Link(ObjectId(number)),
            (slot, _) => Node::Within(Slot(slot as u16)),
        }
    }
}

/// Whether a number means no stored object.
#[must_use]
pub fn is_made_up(number: u64) -> bool {
    matches!(Node::of(number), Node::Folder(_) | Node::Link(_))
}

/// The number of the link that is shown in place of a directory.
#[must_use]
pub fn link_for(dir: ObjectId) -> u64 {
    LINKS << OBJECT_BITS | dir.0
}

/// Whether a file of a mounted dataset, by its inode number, is a link that its session shows and that is stored nowhere.
#[must_use]
pub fn is_shown_link(number: u64) -> bool {
    matches!(Node::of(number), Node::Link(_))
}

/// What the root of a snapshot is called; `None` for a dataset whose number no pool has.
#[must_use]
pub fn root_of(dataset: ObjectId) -> Option<u64> {
    (dataset.0 < DATASETS).then_some(ROOTS - dataset.0)
}

/// What the objects of one file system are called.
#[derive(Debug)]
pub struct Numbers {
    /// Above the bits of the object.
    above: u64,
    root: u64,
    /// Tells generations apart: a place may be that of another snapshot later.
    salt: u64,
}

impl Numbers {
    /// Those of the file system itself: object numbers, but for the root, which the protocol calls `root`.
    #[must_use]
    pub const fn of_head(root: u64) -> Numbers {
        Numbers { above: 0, root, salt: 0 }
    }

    /// Those of an open snapshot.
    #[must_use]
    pub fn of_snapshot(key: SnapshotKey, root: u64, slot: Slot) -> Numbers {
        Numbers { above: u64::from(slot.0) << OBJECT_BITS, root, salt: key.guid.0 }
    }

    /// The object called `number`; `None` for the root.
    #[must_use]
    pub fn object(&self, number: u64) -> Option<ObjectId> {
        (number != self.root).then_some(ObjectId(number & OBJECT_MASK))
    }

    /// What object `id` is called, unless it is the root.
    #[must_use]
    pub fn of(&self, id: ObjectId) -> u64 {
        self.above | id.0
    }

    /// What the root is called.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// What programs see as the number of the root, which is object `id`.
    #[must_use]
    pub fn shown_root(&self, id: ObjectId) -> u64 {
        if self.above == 0 { id.0 } else { self.root }
    }

    /// What is added to generations: a place may be that of another snapshot later.
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_whose_it_was_given_to() {
        for folder in [Folder::Control, Folder::Shares, Folder::Snapshots] {
            assert_eq!(Node::of(folder.number()), Node::Folder(folder));
        }
        for id in [1, 54, DATASETS - 1].map(ObjectId) {
            let root = root_of(id).unwrap();
            assert_eq!(Node::of(root), Node::Root(id));
            assert_ne!(root, Folder::Snapshots.number());
            let key = SnapshotKey { id, guid: format::Guid(7) };
            for slot in [Slot::choice(id, 0), Slot::choice(id, Slot::COUNT - 1)] {
                let numbers = Numbers::of_snapshot(key, root, slot);
                assert_eq!(numbers.object(root), None);
                for object in [ObjectId(34), ObjectId(OBJECT_MASK)] {
                    let ino = numbers.of(object);
                    assert_eq!(Node::of(ino), Node::Within(slot));
                    assert_eq!(numbers.object(ino), Some(object));
                    assert!(ino < 1 << 63);
                }
            }
        }
        assert_eq!(root_of(ObjectId(DATASETS)), None);
        assert_eq!(Node::of(link_for(ObjectId(34))), Node::Link(ObjectId(34)));
        assert!(is_shown_link(link_for(ObjectId(34))) && !is_shown_link(34));
        assert_eq!([1, 34, 1 << 40].map(Node::of), [Node::Head; 3]);
    }

    #[test]
    fn every_place_is_a_choice() {
        let id = ObjectId(123_456_789);
        let mut all: Vec<_> = (0..Slot::COUNT).map(|attempt| Slot::choice(id, attempt).0).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=Slot::COUNT));
    }
}
