//! Access control lists: the NFSv4 ones of every file, and POSIX ones kept as extended attributes.
//!
//! From:   the attributes `DACL_COUNT` and `DACL_ACES`; xattrs `system.posix_acl_access` and `…_default`.
//! To:     `zpl`.
//! Source: docs/format/07-zpl-sa.md §4.2.

use alloc::vec::Vec;

use crate::mode::{S_IFDIR, S_IFMT, pflags};
use crate::{ByteOrder, Corrupt};

/// ACE type: allow.
pub const ALLOW: u16 = 0;
/// ACE type: deny.
pub const DENY: u16 = 1;
/// ACE flags: the owner.
pub const OWNER: u16 = 0x1000;
/// ACE flags: the id is a group's.
pub const IDENTIFIER_GROUP: u16 = 0x40;
/// ACE flags: the owning group.
pub const GROUP: u16 = 0x2000 | IDENTIFIER_GROUP;
/// ACE flags: everyone.
pub const EVERYONE: u16 = 0x4000;

/// The flags that name the subject.
const WHO: u16 = 0x7000 | IDENTIFIER_GROUP;
/// Types of ACEs with two GUIDs after the id.
const OBJECT_TYPES: core::ops::RangeInclusive<u16> = 5..=8;
const LE: ByteOrder = ByteOrder::Little;

const READ: u32 = 0x1;
const WRITE: u32 = 0x2 | 0x4;
const DELETE_CHILD: u32 = 0x40;
const EXECUTE: u32 = 0x20;
const OWNER_ALWAYS: u32 = 0x1e_0198;
const ALWAYS: u32 = 0x12_0088;

/// An access control entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ace {
    /// [`ALLOW`], [`DENY`], 2 audit, 3 alarm; 5–8 for object ACEs.
    pub kind: u16,
    /// Inheritance flags and the kind of subject: [`OWNER`], [`GROUP`], [`EVERYONE`], else a user's or group's id.
    pub flags: u16,
    /// The permissions that the entry allows or denies.
    pub mask: u32,
    /// FUID of the user or group, unless the flags name an abstract one.
    pub id: Option<u64>,
    /// The two GUIDs of an object ACE.
    pub object: Option<[u8; 32]>,
}

impl Ace {
    pub(crate) const fn is_abstract(flags: u16) -> bool {
        matches!(flags & WHO, OWNER | GROUP | EVERYONE)
    }

    /// Bytes on disk of an ACE with this type and these flags.
    fn size(kind: u16, flags: u16) -> usize {
        if OBJECT_TYPES.contains(&kind) {
            48
        } else if Ace::is_abstract(flags) {
            8
        } else {
            16
        }
    }

    const fn new(kind: u16, flags: u16, mask: u32) -> Ace {
        Ace { kind, flags, mask, id: None, object: None }
    }
}

/// Decodes all of `raw` as ACEs.
///
/// # Errors
/// [`Corrupt`] when the last one is cut off.
pub fn decode_all(raw: &[u8], order: ByteOrder) -> Result<Vec<Ace>, Corrupt> {
    let mut aces = Vec::new();
    let mut rest = raw;
    while !rest.is_empty() {
        let short = Corrupt::new("ACE length", rest.len() as u64);
        if rest.len() < 8 {
            return Err(short);
        }
        let (kind, flags) = (order.u16(rest, 0), order.u16(rest, 2));
        let (ace, after) = rest.split_at_checked(Ace::size(kind, flags)).ok_or(short)?;
        aces.push(Ace {
            kind,
            flags,
            mask: order.u32(ace, 4),
            id: (ace.len() > 8).then(|| order.u64(ace, 8)),
            object: ace.get(16..48).and_then(|guids| guids.try_into().ok()),
        });
        rest = after;
    }
    Ok(aces)
}

/// Decodes `DACL_ACES`, of which `DACL_COUNT` says how many there are.
///
/// # Errors
/// [`Corrupt`] when there are not that many.
pub fn decode(raw: &[u8], count: u64, order: ByteOrder) -> Result<Vec<Ace>, Corrupt> {
    let aces = decode_all(raw, order)?;
    if aces.len() as u64 != count {
        return Err(Corrupt::new("number of ACEs", count));
    }
    Ok(aces)
}

/// The bytes of `DACL_ACES`, little-endian.
#[must_use]
pub fn encode(aces: &[Ace]) -> Vec<u8> {
    let mut raw = Vec::new();
    for ace in aces {
        raw.extend(ace.kind.to_le_bytes());
        raw.extend(ace.flags.to_le_bytes());
        raw.extend(ace.mask.to_le_bytes());
        let size = Ace::size(ace.kind, ace.flags);
        if size > 8 {
            raw.extend(ace.id.unwrap_or(0).to_le_bytes());
        }
        if size > 16 {
            raw.extend(ace.object.unwrap_or_default());
        }
    }
    raw
}

/// Turns ACEs from order `from` into the other one, in place; the last one as far as it goes.
pub(crate) fn swap(mut raw: &mut [u8], from: ByteOrder) {
    while raw.len() >= 8 {
        let size = Ace::size(from.u16(raw, 0), from.u16(raw, 2)).min(raw.len());
        let (ace, rest) = raw.split_at_mut(size);
        ace[..2].reverse();
        ace[2..4].reverse();
        ace[4..8].reverse();
        if let Some(id) = ace.get_mut(8..16) {
            id.reverse();
        }
        raw = rest;
    }
}

/// As [`swap`] for the ACEs of version 0: two words (id, mask) and two halves (flags, type).
pub(crate) fn swap_old(raw: &mut [u8]) {
    for ace in raw.chunks_exact_mut(12) {
        let (words, halves) = ace.split_at_mut(8);
        words.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        halves.chunks_exact_mut(2).for_each(<[u8]>::reverse);
    }
}

/// The trivial ACL: it grants exactly the permissions of `mode` (with its type bits), as chmod writes it. (On create,
/// OpenZFS on Linux gives all types the directory's DELETE_CHILD with their write bits; it has no effect there.)
#[must_use]
pub fn trivial(mode: u64) -> Vec<Ace> {
    let write = if mode & S_IFMT == S_IFDIR { WRITE | DELETE_CHILD } else { WRITE };
    let masks = [READ, write, EXECUTE];
    let of = |shift: u32| {
        let granted = [4, 2, 1].map(|bit| mode >> shift & bit != 0);
        masks.iter().zip(granted).filter(|(_, granted)| *granted).fold(0, |mask, (bits, _)| mask | bits)
    };
    let (owner, group, other) = (of(6), of(3), of(0));
    let exceptions = [
        Ace::new(ALLOW, OWNER, owner & !group & other),
        Ace::new(DENY, OWNER, !owner & (group | other)),
        Ace::new(DENY, GROUP, !group & other),
    ];
    let rules = [
        Ace::new(ALLOW, OWNER, OWNER_ALWAYS | owner),
        Ace::new(ALLOW, GROUP, ALWAYS | group),
        Ace::new(ALLOW, EVERYONE, ALWAYS | other),
    ];
    exceptions.into_iter().filter(|ace| ace.mask != 0).chain(rules).collect()
}

/// The flags of [`pflags`] that go with the trivial ACL of `mode`.
#[must_use]
pub const fn hints(mode: u64) -> u64 {
    let directory = if mode & S_IFMT == S_IFDIR { pflags::ACL_AUTO_INHERIT } else { 0 };
    let execute = if mode & 0o111 == 0o111 { pflags::NO_EXECS_DENIED } else { 0 };
    pflags::ACL_TRIVIAL | directory | execute
}

/// The subject of a POSIX ACL entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PosixTag {
    /// The owner.
    UserObj,
    /// A user, by id.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group, by id.
    Group(u32),
    /// The mask: the maximal permissions of named users and all groups.
    Mask,
    /// Everyone else.
    Other,
}

/// An entry of a POSIX ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixEntry {
    /// Who.
    pub tag: PosixTag,
    /// rwx, as 4 | 2 | 1.
    pub perm: u8,
}

/// A valid POSIX ACL, in the form that Linux passes through xattrs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PosixAcl {
    entries: Vec<PosixEntry>,
}

const POSIX_VERSION: u32 = 2;
const UNUSED_ID: u32 = u32::MAX;

impl PosixAcl {
    /// Decodes and validates an xattr's value. A value without entries means "no ACL".
    ///
    /// # Errors
    /// [`Corrupt`] for another version, an unknown tag, or entries that are out of order, twice or missing.
    pub fn decode(raw: &[u8]) -> Result<PosixAcl, Corrupt> {
        if raw.len() < 4 || raw.len() % 8 != 4 {
            return Err(Corrupt::new("POSIX ACL length", raw.len() as u64));
        }
        if LE.u32(raw, 0) != POSIX_VERSION {
            return Err(Corrupt::new("POSIX ACL version", LE.u32(raw, 0).into()));
        }
        let mut entries = Vec::new();
        for entry in raw[4..].chunks_exact(8) {
            let (tag, perm, id) = (LE.u16(entry, 0), LE.u16(entry, 2), LE.u32(entry, 4));
            let tag = match tag {
                1 => PosixTag::UserObj,
                2 => PosixTag::User(id),
                4 => PosixTag::GroupObj,
                8 => PosixTag::Group(id),
                0x10 => PosixTag::Mask,
                0x20 => PosixTag::Other,
                _ => return Err(Corrupt::new("POSIX ACL tag", tag.into())),
            };
            if perm > 7 {
                return Err(Corrupt::new("POSIX ACL permissions", perm.into()));
            }
            entries.push(PosixEntry { tag, perm: perm as u8 });
        }
        PosixAcl::new(entries)
    }

    /// An ACL of `entries`. There may be no entries.
    ///
    /// # Errors
    /// [`Corrupt`] when entries are out of order, twice or missing.
    pub fn new(entries: Vec<PosixEntry>) -> Result<PosixAcl, Corrupt> {
        let invalid = |what, index: usize| Err(Corrupt::new(what, index as u64));
        // The kernel wants the kinds in this order, but takes the ids of one kind in any order.
        let rank = |tag: PosixTag| match tag {
            PosixTag::UserObj => 0,
            PosixTag::User(_) => 1,
            PosixTag::GroupObj => 2,
            PosixTag::Group(_) => 3,
            PosixTag::Mask => 4,
            PosixTag::Other => 5,
        };
        for (i, pair) in entries.windows(2).enumerate() {
            let (a, b) = (rank(pair[0].tag), rank(pair[1].tag));
            if a > b || (a == b && !matches!(a, 1 | 3)) {
                return invalid("order of POSIX ACL entry", i + 1);
            }
        }
        if let Some(i) = entries
            .iter()
            .position(|e| matches!(e.tag, PosixTag::User(UNUSED_ID) | PosixTag::Group(UNUSED_ID)))
        {
            return invalid("id of POSIX ACL entry", i);
        }
        let has = |wanted| entries.iter().any(|entry| rank(entry.tag) == wanted);
        let complete = has(0) && has(2) && has(5) && (has(4) || !(has(1) || has(3)));
        if !entries.is_empty() && !complete {
            return invalid("number of POSIX ACL entries", entries.len());
        }
        Ok(PosixAcl { entries })
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[PosixEntry] {
        &self.entries
    }

    /// The xattr's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut raw = POSIX_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = match entry.tag {
                PosixTag::UserObj => (1u16, UNUSED_ID),
                PosixTag::User(id) => (2, id),
                PosixTag::GroupObj => (4, UNUSED_ID),
                PosixTag::Group(id) => (8, id),
                PosixTag::Mask => (0x10, UNUSED_ID),
                PosixTag::Other => (0x20, UNUSED_ID),
            };
            raw.extend(tag.to_le_bytes());
            raw.extend(u16::from(entry.perm).to_le_bytes());
            raw.extend(id.to_le_bytes());
        }
        raw
    }

    /// The nine permission bits that `mode` must have beside this ACL (the group's are the mask's);
    /// `None` without entries.
    #[must_use]
    pub fn permissions(&self) -> Option<u64> {
        let of = |tag| self.entries.iter().find(|entry| entry.tag == tag).map(|entry| u64::from(entry.perm));
        let group = of(PosixTag::Mask).or(of(PosixTag::GroupObj))?;
        Some(of(PosixTag::UserObj)? << 6 | group << 3 | of(PosixTag::Other)?)
    }

    /// Whether the permission bits of a mode express the whole ACL.
    #[must_use]
    pub fn is_trivial(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| matches!(entry.tag, PosixTag::UserObj | PosixTag::GroupObj | PosixTag::Other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn masks(mode: u64) -> Vec<(u16, u16, u32)> {
        trivial(mode).iter().map(|ace| (ace.kind, ace.flags, ace.mask)).collect()
    }

    #[test]
    fn modes_have_the_trivial_acls_of_openzfs() {
        let plain = |a, b, c| [(0, 0x1000, a), (0, 0x2040, b), (0, 0x4000, c)];
        assert_eq!(masks(0o100_644), plain(0x1e_019f, 0x12_0089, 0x12_0089));
        assert_eq!(masks(0o040_755), plain(0x1e_01ff, 0x12_00a9, 0x12_00a9));
        assert_eq!(masks(0o120_777), plain(0x1e_01bf, 0x12_00af, 0x12_00af));
        assert_eq!(encode(&trivial(0o100_644)).len(), 24);
    }

    #[test]
    fn odd_modes_need_exceptions_first() {
        assert_eq!(masks(0o100_604)[..2], [(0, 0x1000, 1), (1, 0x2040, 1)]);
        assert_eq!(masks(0o100_060)[..1], [(1, 0x1000, 7)]);
        assert_eq!(masks(0o100_407)[..3], [(0, 0x1000, 1), (1, 0x1000, 0x26), (1, 0x2040, 0x27)]);
    }

    #[test]
    fn hints_follow_the_mode() {
        assert_eq!(hints(0o040_755), 0x144);
        assert_eq!(hints(0o100_644), 0x4);
        assert_eq!(hints(0o120_777), 0x104);
    }

    #[test]
    fn a_count_that_is_wrong_is_corrupt() {
        let raw = encode(&trivial(0o100_644));
        assert_eq!(decode(&raw, 3, LE), Ok(trivial(0o100_644)));
        assert_eq!(decode(&raw, 4, LE), Err(Corrupt::new("number of ACEs", 4)));
        assert!(decode(&raw[..23], 3, LE).is_err());
    }

    #[test]
    fn posix_acls_must_be_whole_and_in_order() {
        let entry = |tag, perm| PosixEntry { tag, perm };
        let base = [entry(PosixTag::UserObj, 7), entry(PosixTag::GroupObj, 5), entry(PosixTag::Other, 4)];
        let acl = PosixAcl::new(base.to_vec()).unwrap();
        assert_eq!((acl.permissions(), acl.is_trivial()), (Some(0o754), true));
        let with_user = [base[0], entry(PosixTag::User(1000), 6), base[1], entry(PosixTag::Mask, 6), base[2]];
        let acl = PosixAcl::new(with_user.to_vec()).unwrap();
        assert_eq!((acl.permissions(), acl.is_trivial()), (Some(0o764), false));
        assert_eq!(PosixAcl::decode(&acl.encode()), Ok(acl));
        assert!(PosixAcl::new([base[0], with_user[1], base[1], base[2]].to_vec()).is_err());
        assert!(PosixAcl::new([base[1], base[0], base[2]].to_vec()).is_err());
        assert!(PosixAcl::new([base[0], base[0], base[1], base[2]].to_vec()).is_err());
        assert_eq!(PosixAcl::decode(&[2, 0, 0, 0]).unwrap().permissions(), None);
        assert!(PosixAcl::decode(&[1, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn any_aces_decode_or_are_refused(raw in proptest::collection::vec(any::<u8>(), 0..120), big: bool) {
            let order = if big { ByteOrder::Big } else { LE };
            if let Ok(aces) = decode_all(&raw, order) {
                prop_assert_eq!(decode_all(&encode(&aces), LE), Ok(aces));
            }
        }

        #[test]
        fn any_xattr_is_a_posix_acl_or_refused(
            tags in proptest::collection::vec((0u32..7, 0u8..9, any::<u32>()), 0..6), cut in 0usize..3,
        ) {
            let mut raw = 2u32.to_le_bytes().to_vec();
            for (tag, perm, id) in tags {
                raw.extend((1u16 << tag).to_le_bytes());
                raw.extend([perm, 0]);
                raw.extend(id.to_le_bytes());
            }
            raw.truncate(raw.len() - cut);
            if let Ok(acl) = PosixAcl::decode(&raw) {
                prop_assert_eq!(PosixAcl::decode(&acl.encode()), Ok(acl));
            }
        }
    }
}
