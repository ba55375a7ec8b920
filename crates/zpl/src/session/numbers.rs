//! Numbers of nodes, as programs and protocols see them. A mount or export has one number space. So an object of a snapshot,
//! or of another file system that is shown in the mount, must not have the number of an object of the head.
//!
//! The numbers of `.zfs` and of the nodes in it that no dataset stores are those that OpenZFS shows on Linux: they
//! count down from 2^48, where no object is. Objects of a snapshot, or of another file system, have the number of its
//! place in the bits above.

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
/// `.zfs/volume`. No snapshot is dataset 0.
const VOLUMES: u64 = ROOTS;
/// The root of a snapshot is this minus the number of its dataset in the MOS ...
const ROOTS: u64 = OBJECT_MASK - 3;
/// ... which is less than this.
const DATASETS: u64 = 1 << 32;
/// The file of a volume is this minus the number of its dataset in the MOS.
const FILES: u64 = ROOTS - DATASETS;

/// Added to the number of a directory: the link that is shown in its place. Objects that a link can stand for are below
/// this.
const LINK: u64 = 1 << (OBJECT_BITS - 1);

/// The place of an open snapshot, or of another file system that is shown in the mount. Numbers of nodes stay positive for
/// programs that take them for signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// How many there are: 0 is the mounted file system.
    pub const COUNT: u16 = (1 << (63 - OBJECT_BITS)) - 1;

    /// The `attempt`th choice for dataset `id`, so that its files have the same numbers each time, as a rule.
    #[must_use]
    pub fn choice(id: ObjectId, attempt: u16) -> Slot {
        let count = u64::from(Slot::COUNT);
        Slot(1 + ((id.0 % count + u64::from(attempt)) % count) as u16)
    }
}

/// A folder of `.zfs`: it is not stored in the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// `.zfs`
    Control,
    /// `.zfs/shares`, which is empty.
    Shares,
    /// `.zfs/snapshot`
    Snapshots,
    /// `.zfs/volume`, which only mounts have.
    Volumes,
}

impl Folder {
    /// The inode number of the folder.
    #[must_use]
    pub fn number(self) -> u64 {
        match self {
            Folder::Control => CONTROL,
            Folder::Shares => SHARES,
            Folder::Snapshots => SNAPSHOTS,
            Folder::Volumes => VOLUMES,
        }
    }
}

/// The owner of the node of a number, as the file system sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// The file system's own.
    Head,
    /// One that is made up.
    Folder(Folder),
    /// The root of the snapshot that is this dataset.
    Root(ObjectId),
    /// The file of the volume that is this dataset.
    Volume(ObjectId),
    /// An object of the snapshot, or of the other file system, at this place.
    Within(Slot),
    /// The link that is shown in place of this directory of the file system.
    Link(ObjectId),
}

impl Node {
    /// Decodes the bits of the object number.
    fn of(low: u64) -> Node {
        match low {
            CONTROL => Node::Folder(Folder::Control),
            SHARES => Node::Folder(Folder::Shares),
            SNAPSHOTS => Node::Folder(Folder::Snapshots),
            VOLUMES => Node::Folder(Folder::Volumes),
            low if low > FILES => Node::Root(ObjectId(ROOTS - low)),
            low if low > FILES - DATASETS => Node::Volume(ObjectId(FILES - low)),
            low if low >= LINK => Node::Link(ObjectId(low - LINK)),
            _ => Node::Head,
        }
    }
}

/// Whether an object of a file system is called by a number that is made up.
#[must_use]
pub fn is_made_up(id: ObjectId) -> bool {
    matches!(Node::of(id.0 & OBJECT_MASK), Node::Folder(_) | Node::Volume(_) | Node::Link(_))
}

/// The number of the link that is shown in place of a directory, before [`Numbers::of`]; `None` for one whose number no
/// pool has.
#[must_use]
pub fn link_for(dir: ObjectId) -> Option<ObjectId> {
    (dir.0 < LINK).then_some(ObjectId(LINK + dir.0))
}

/// Whether a file of a mounted dataset, by its inode number, is a link that its session shows and that is stored nowhere.
#[must_use]
pub fn is_shown_link(number: u64) -> bool {
    matches!(Node::of(number & OBJECT_MASK), Node::Link(_))
}

/// The number of the root of a snapshot, before [`Numbers::of`]; `None` for a dataset whose number no pool has.
#[must_use]
pub fn root_of(dataset: ObjectId) -> Option<ObjectId> {
    (dataset.0 < DATASETS).then_some(ObjectId(ROOTS - dataset.0))
}

/// The number of the file of a volume, before [`Numbers::of`]; `None` for a dataset whose number no pool has.
#[must_use]
pub fn file_of(dataset: ObjectId) -> Option<ObjectId> {
    (dataset.0 < DATASETS).then_some(ObjectId(FILES - dataset.0))
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

    /// The numbers of an open snapshot whose root has the number `root`.
    #[must_use]
    pub fn of_snapshot(key: SnapshotKey, root: u64, slot: Slot) -> Numbers {
        Numbers { above: u64::from(slot.0) << OBJECT_BITS, root, salt: key.guid.0 }
    }

    /// Those of another file system with the root `root`, which is shown in the mount.
    #[must_use]
    pub fn of_tree(key: SnapshotKey, root: ObjectId, slot: Slot) -> Numbers {
        let above = u64::from(slot.0) << OBJECT_BITS;
        Numbers { above, root: above | root.0, salt: key.guid.0 }
    }

    /// The node with the number `number`, as the file system of these numbers sees it.
    #[must_use]
    pub fn node(&self, number: u64) -> Node {
        if number & !OBJECT_MASK == self.above {
            Node::of(number & OBJECT_MASK)
        } else {
            Node::Within(Slot((number >> OBJECT_BITS) as u16))
        }
    }

    /// The place of the file system among those of the mount; `None` for the mounted one.
    #[must_use]
    pub fn slot(&self) -> Option<Slot> {
        (self.above != 0).then_some(Slot((self.above >> OBJECT_BITS) as u16))
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

    /// The number of the root.
    #[must_use]
    pub fn root(&self) -> u64 {
        self.root
    }

    /// The inode number that programs see of the root, which is object `id`.
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

    fn slots(id: ObjectId) -> [Slot; 2] {
        [Slot::choice(id, 0), Slot::choice(id, Slot::COUNT - 1)]
    }

    fn check(numbers: &Numbers, id: ObjectId) {
        let called = |id: ObjectId| numbers.of(id);
        for folder in [Folder::Control, Folder::Shares, Folder::Snapshots, Folder::Volumes] {
            assert_eq!(numbers.node(called(ObjectId(folder.number()))), Node::Folder(folder));
        }
        let root = called(root_of(id).unwrap());
        assert_eq!(numbers.node(root), Node::Root(id));
        assert_eq!(numbers.node(called(file_of(id).unwrap())), Node::Volume(id));
        let link = called(link_for(id).unwrap());
        assert_eq!(numbers.node(link), Node::Link(id));
        assert!(is_shown_link(link) && !is_shown_link(called(id)) && !is_shown_link(root));
        for object in [1, 34, 1 << 40].map(ObjectId) {
            assert_eq!(numbers.node(called(object)), Node::Head);
            assert_eq!(numbers.object(called(object)), (called(object) != numbers.root()).then_some(object));
            assert!(called(object) < 1 << 63);
        }
        assert_eq!((numbers.object(numbers.root()), numbers.node(numbers.root())), (None, Node::Head));
    }

    #[test]
    fn every_number_leads_back_to_the_node_that_has_it() {
        for id in [1, 54, DATASETS - 1].map(ObjectId) {
            let key = SnapshotKey { id, guid: format::Guid(7) };
            let head = Numbers::of_head(1);
            check(&head, id);
            for slot in slots(id) {
                let tree = Numbers::of_tree(key, ObjectId(34), slot);
                check(&tree, id);
                assert_eq!((head.slot(), tree.slot()), (None, Some(slot)));
                assert_eq!(head.node(tree.root()), Node::Within(slot));
                let other = Slot(if slot.0 == 9 { 10 } else { 9 });
                for above in [&head, &tree] {
                    let root = above.of(root_of(id).unwrap());
                    let snapshot = Numbers::of_snapshot(key, root, other);
                    assert_eq!((snapshot.object(root), above.node(root)), (None, Node::Root(id)));
                    for object in [ObjectId(34), ObjectId(OBJECT_MASK)] {
                        let ino = snapshot.of(object);
                        assert_eq!(above.node(ino), Node::Within(other));
                        assert_eq!(snapshot.object(ino), Some(object));
                        assert!(ino < 1 << 63);
                    }
                }
            }
        }
        assert_eq!((root_of(ObjectId(DATASETS)), link_for(ObjectId(LINK))), (None, None));
    }

    #[test]
    fn every_slot_is_tried() {
        let id = ObjectId(123_456_789);
        let mut all: Vec<_> = (0..Slot::COUNT).map(|attempt| Slot::choice(id, attempt).0).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..=Slot::COUNT));
    }
}
