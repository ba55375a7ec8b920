//! Places of blocks in the trees of a pool, and their order.

use std::fmt;
use std::sync::Arc;

use format::ObjectId;
use format::bptree::Mark;
use format::dnode::SLOTS_PER_BLOCK;

use super::{Owner, Root};

/// Where a block hangs.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) root: Arc<Root>,
    /// Object; 0 for the meta-dnode's own tree.
    pub object: ObjectId,
    /// Level in the object's tree; 0 for data.
    pub level: u8,
    /// Number of the block in its level.
    pub blkid: u64,
    /// log2 of the blocks of level 0 below it.
    pub(super) shift: u32,
}

/// [`Place::shift`] of an objset's root block: all of the meta-dnode's blocks are below it.
pub(super) const ROOT_SHIFT: u32 = 126;
/// The place of the blocks of dnodes, before the special objects of an objset.
const AFTER_DNODES: u128 = 1 << 100;
/// The objset's special objects in their order: what projects, groups and users use.
pub(super) const SPECIAL: [ObjectId; 3] =
    [ObjectId(u64::MAX - 2), ObjectId(u64::MAX - 1), ObjectId(u64::MAX)];

/// How much of a subtree is before a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    All,
    /// The block itself, and perhaps some below it.
    Itself,
    /// Everything below the block, but not the block.
    Below,
    Nothing,
}

impl Place {
    /// The root block of an objset.
    pub(super) fn root(root: Arc<Root>) -> Place {
        Place { root, object: ObjectId(0), level: 0, blkid: 0, shift: ROOT_SHIFT }
    }

    /// The mark behind which a walk in the tree of `root` meets this block of level 0 next; `None` for the very first.
    pub fn before(root: Arc<Root>, object: ObjectId, blkid: u64) -> Option<Place> {
        let at = |object, blkid| Some(Place { root, object: ObjectId(object), level: 0, blkid, shift: 0 });
        match (object.0, blkid) {
            (0, 0) => None,
            // The last object of the block of dnodes before.
            (0, _) => at(blkid.saturating_mul(SLOTS_PER_BLOCK as u64) - 1, u64::MAX),
            // The block of dnodes that holds the first object.
            (1, 0) => at(0, 0),
            (object, 0) => at(object - 1, u64::MAX),
            (object, blkid) => at(object, blkid - 1),
        }
    }

    /// Object and block of level 0 before which the walk had visited everything when it reached this place: the form in
    /// which OpenZFS keeps the progress of a scan. `None` for the special objects of an objset, for which that form has
    /// no place.
    pub fn met_before(&self) -> Option<(ObjectId, u64)> {
        let (first, _) = self.span();
        match self.blkid {
            _ if self.is_root() => Some((ObjectId(0), 0)),
            _ if SPECIAL.contains(&self.object) => None,
            // A spill block comes after all others of its object.
            u64::MAX => Some((ObjectId(self.object.0 + 1), 0)),
            _ => Some((self.object, u64::try_from(first).unwrap_or(u64::MAX))),
        }
    }

    /// Whose block it is.
    pub fn owner(&self) -> Owner {
        self.root.owner
    }

    /// The objset's root block.
    pub fn is_root(&self) -> bool {
        self.shift == ROOT_SHIFT
    }

    /// Whether it is a block of dnodes, or leads to some.
    fn is_meta(&self) -> bool {
        self.object == ObjectId(0)
    }

    /// First and last block of level 0 at or below.
    fn span(&self) -> (u128, u128) {
        let first = u128::from(self.blkid).checked_shl(self.shift).unwrap_or(0);
        (first, first.saturating_add((1u128 << self.shift) - 1))
    }

    /// The part of this subtree that comes before or at `mark`, the last block that was returned.
    pub(super) fn seen(&self, mark: &Place) -> Behind {
        let (first, last) = self.span();
        let (at, depth) = match (self.is_meta(), mark.is_meta()) {
            (true, false) => (dnode_block(mark.object), 0),
            (false, true) => {
                return if dnode_block(self.object) < mark.span().0 { Behind::All } else { Behind::Nothing };
            }
            (false, false) if self.object != mark.object => {
                return if self.object < mark.object { Behind::All } else { Behind::Nothing };
            }
            _ => (mark.span().0, mark.shift),
        };
        if last < at {
            Behind::All
        } else if first <= at && self.shift >= depth {
            Behind::Itself
        } else {
            Behind::Nothing
        }
    }

    /// The part of this subtree that was freed, of a destroyed dataset.
    pub(super) fn freed(&self) -> Behind {
        let Some(mark) = self.root.freed.filter(|_| !self.is_root()) else { return Behind::Nothing };
        let (first, last) = self.span();
        let is_all = match (self.is_meta(), mark.object.0) {
            (true, 0) if self.level == 0 && first == u128::from(mark.blkid) => return Behind::Below,
            (true, 0) => last < u128::from(mark.blkid),
            (true, _) => last < dnode_block(mark.object),
            // The objects of a block of dnodes go before the block.
            (false, 0) => dnode_block(self.object) <= u128::from(mark.blkid),
            (false, _) if self.object == mark.object => last < u128::from(mark.blkid),
            (false, _) => self.object < mark.object,
        };
        if is_all { Behind::All } else { Behind::Nothing }
    }

    /// The mark that means: everything before this place was freed, but neither it nor the blocks below. `None` for the
    /// first place.
    pub fn freed_so_far(&self) -> Option<Mark> {
        let (first, _) = self.span();
        let blkid = u64::try_from(first).unwrap_or(u64::MAX);
        if self.is_root() {
            return self.root.freed;
        }
        if !self.is_meta() {
            return Some(Mark { object: self.object, blkid });
        }
        // A mark at a dnode block would mean that its objects are freed.
        let object = blkid.saturating_mul(SLOTS_PER_BLOCK as u64);
        (object > 0).then_some(Mark { object: ObjectId(object), blkid: 0 })
    }

    /// The mark that means: everything before this block of level 0 and everything below it was freed, but not the block
    /// itself.
    pub fn freed_up_to(&self) -> Mark {
        Mark { object: self.object, blkid: self.blkid }
    }
}

/// The block of dnodes that holds its object's.
fn dnode_block(object: ObjectId) -> u128 {
    match SPECIAL.iter().position(|special| *special == object) {
        Some(at) => AFTER_DNODES + at as u128,
        None => u128::from(object.0) / SLOTS_PER_BLOCK as u128,
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} object {} level {} block {}", self.root.name, self.object, self.level, self.blkid)
    }
}

/// A block by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// 0 for the dnodes of the objset.
    pub object: ObjectId,
    /// -1 for the objset's root block.
    pub level: i64,
    /// Number of the block in its level.
    pub blkid: u64,
}

impl Place {
    /// The same, as error logs name it.
    pub fn target(&self) -> Target {
        let level = if self.is_root() { -1 } else { i64::from(self.level) };
        Target { object: self.object, level, blkid: self.blkid }
    }

    /// Whether it is `target` or leads there, in a tree whose blocks point to `1 << fanout_shift` others.
    pub(super) fn leads_to(&self, target: &Target, fanout_shift: u32) -> bool {
        if self.is_root() || *target == self.target() {
            return true;
        }
        if target.level < 0 {
            return false;
        }
        if self.object != target.object {
            let (first, last) = self.span();
            return self.is_meta()
                && (first..=last).contains(&(u128::from(target.object.0) / SLOTS_PER_BLOCK as u128));
        }
        let above = i64::from(self.level) - target.level;
        above > 0 && target.blkid.checked_shr(fanout_shift * above as u32).unwrap_or(0) == self.blkid
    }
}
