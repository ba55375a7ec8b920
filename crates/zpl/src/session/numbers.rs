//! Numbers of nodes, as programs and protocols see them. A mount or export has one number space, so objects of snapshots
//! need other numbers than those of the head.
//!
//! The numbers of `.zfs` and its folders are those of OpenZFS on Linux: they count down from 2^48, above all object numbers.
//! Numbers of objects in a snapshot contain the slot of the open snapshot in the upper bits.

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
    /// Number of slots: 0 is the mounted file system, the last one is for [`Node::Link`].
    pub const COUNT: u16 = (1 << (63 - OBJECT_BITS)) - 2;

    /// Slot number `attempt` to try for the snapshot with dataset number `id`. So its files usually have the same numbers
    /// each time.
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

/// Whether a number does not belong to a stored object.
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

/// Number of the root of a snapshot; `None` for an impossible dataset number.
#[must_use]
pub fn root_of(dataset: ObjectId) -> Option<u64> {
    (dataset.0 < DATASETS).then_some(ROOTS - dataset.0)
}

/// Mapping of the objects of one file system to numbers.
#[derive(Debug)]
pub struct Numbers {
    /// Above the bits of the object.
    above: u64,
    root: u64,
    /// Added to generations, because a slot may be reused for another snapshot.
    salt: u64,
}

impl Numbers {
    /// The mapping of the file system itself: object numbers, except that the protocol has its own number `root` for the
    /// root.
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

    /// Number of object `id`, unless it is the root.
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

    /// Offset of generations, because a slot may be reused for another snapshot.
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.salt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_maps_back_to_its_node() {
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
    fn every_slot_is_tried() {
        let id = ObjectId(123_456_789);
        let mut all: Vec<_> = (0..Slot::COUNT).map(|attempt| Slot::choice(id, attempt).0).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=Slot::COUNT));
    }
}
