//! Permission rules of POSIX as Linux applies them, as pure functions.
//!
//! From:   a [`Caller`] and the [`Protection`] of the nodes of a call.
//! To:     `demand.rs`, which loads these values.
//! Source: path_resolution(7), acl(5), capabilities(7), chmod(2), chown(2), utimensat(2), xattr(7). Root stands for the
//!         capabilities DAC_OVERRIDE, FOWNER, CHOWN, FSETID, MKNOD, SYS_ADMIN, SETFCAP and LINUX_IMMUTABLE.
//!         `tests/permission.rs` compares the answers with those of the kernel.

use format::acl::{PosixAcl, PosixTag};

use super::caller::Caller;
use super::spaces::{self, Space};
use crate::{Error, FileKind, Protection, Result};

/// Set-user-id.
pub const SETUID: u32 = 0o4000;
/// Set-group-id. On a directory: new nodes in it get its group.
pub const SETGID: u32 = 0o2000;
/// On a directory: only owners remove names.
const STICKY: u32 = 0o1000;
const GROUP: u32 = 0o070;
const GROUP_EXECUTE: u32 = 0o010;
const ANY_EXECUTE: u32 = 0o111;

/// The access that a caller wants to a node: a set of the three permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Read a file, list a directory.
    pub const READ: Access = Access(4);
    /// Write a file, change the entries of a directory.
    pub const WRITE: Access = Access(2);
    /// Run a file, look up names in a directory.
    pub const EXECUTE: Access = Access(1);
    /// Change the entries of a directory: this takes both.
    pub const CHANGE_NAMES: Access = Access(2 | 1);

    /// The set with these bits of 7.
    #[must_use]
    pub const fn of_bits(bits: u32) -> Access {
        Access(bits & 7)
    }

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    const fn within(self, granted: u32) -> bool {
        self.0 & !granted == 0
    }
}

/// Whether an ACL grants `wanted` to a caller that is not the owner.
fn acl_allows(acl: &PosixAcl, gid: u32, caller: &Caller, wanted: Access) -> bool {
    let perm_of =
        |tag| acl.entries().iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.perm));
    let mask = perm_of(PosixTag::Mask).unwrap_or(7);
    if let Some(perm) = perm_of(PosixTag::User(caller.uid)) {
        return wanted.within(perm & mask);
    }
    let mut is_member = false;
    for entry in acl.entries() {
        let group = match entry.tag {
            PosixTag::GroupObj => gid,
            PosixTag::Group(group) => group,
            _ => continue,
        };
        if caller.is_in(group) {
            is_member = true;
            // One group that grants all of it is enough; the mask then limits the result.
            if wanted.within(u32::from(entry.perm)) {
                return wanted.within(mask);
            }
        }
    }
    !is_member && wanted.within(perm_of(PosixTag::Other).unwrap_or(0))
}

/// Whether mode and ACL grant `wanted`. Capabilities of the caller do not count.
fn bits_allow(node: &Protection, caller: &Caller, wanted: Access) -> bool {
    if caller.uid == node.uid {
        return wanted.within(node.mode >> 6 & 7);
    }
    // If the group bits of the mode (the mask of the ACL) are empty, Linux ignores the ACL.
    if let Some(acl) = node.acl.as_ref().filter(|acl| !acl.entries().is_empty() && node.mode & GROUP != 0) {
        return acl_allows(acl, node.gid, caller, wanted);
    }
    let (group, other) = (node.mode >> 3 & 7, node.mode & 7);
    // Groups are read only if the result depends on them.
    let differ = (group ^ other) & wanted.0 != 0;
    wanted.within(if differ && caller.is_in(node.gid) { group } else { other })
}

/// Refuses an access that mode, ACL and capabilities do not grant.
///
/// # Errors
/// [`Error::Denied`].
pub fn check_access(node: &Protection, caller: &Caller, wanted: Access) -> Result<()> {
    let overrides = || {
        let is_run = wanted.0 & Access::EXECUTE.0 != 0 && node.kind != FileKind::Directory;
        caller.is_root() && (!is_run || node.mode & ANY_EXECUTE != 0)
    };
    if bits_allow(node, caller, wanted) || overrides() { Ok(()) } else { Err(Error::Denied) }
}

/// Whether the caller counts as the owner of a node.
fn owns(node: &Protection, caller: &Caller) -> bool {
    caller.is_root() || caller.uid == node.uid
}

/// Refuses a caller that is not the owner of a node.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn check_owner(node: &Protection, caller: &Caller) -> Result<()> {
    if owns(node, caller) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Refuses what only root may do.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn check_root(caller: &Caller) -> Result<()> {
    if caller.is_root() { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Refuses to take the name of `victim` out of `dir`.
///
/// # Errors
/// [`Error::Denied`]; [`Error::NotPermitted`] if the sticky bit of the directory forbids it.
pub fn check_removal(dir: &Protection, victim: &Protection, caller: &Caller) -> Result<()> {
    check_access(dir, caller, Access::CHANGE_NAMES)?;
    match dir.mode & STICKY != 0 && caller.uid != dir.uid {
        true => check_owner(victim, caller),
        false => Ok(()),
    }
}

/// Refuses to make a node of this kind in `dir`.
///
/// # Errors
/// [`Error::Denied`]; [`Error::NotPermitted`] for a device.
pub fn check_creation(dir: &Protection, kind: FileKind, caller: &Caller) -> Result<()> {
    check_access(dir, caller, Access::CHANGE_NAMES)?;
    if kind.is_device() { check_root(caller) } else { Ok(()) }
}

/// Refuses to give a node this owner or group.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn check_new_owner(node: &Protection, uid: Option<u32>, gid: Option<u32>, caller: &Caller) -> Result<()> {
    let may_give = uid.is_none_or(|uid| caller.uid == node.uid && uid == node.uid);
    let may_regroup = gid.is_none_or(|gid| caller.uid == node.uid && (gid == node.gid || caller.is_in(gid)));
    if caller.is_root() || may_give && may_regroup { Ok(()) } else { Err(Error::NotPermitted) }
}

/// The mode after a `chmod` to `mode`: only members of the group (`gid`, the new group if it changes too) may set the setgid
/// bit.
#[must_use]
pub fn mode_after_chmod(mode: u32, gid: u32, caller: &Caller) -> u32 {
    if mode & SETGID != 0 && !caller.is_root() && !caller.is_in(gid) { mode & !SETGID } else { mode }
}

/// Refuses to set times. `now`: all times are set to the present moment, which needs only write permission.
///
/// # Errors
/// [`Error::Denied`], [`Error::NotPermitted`].
pub fn check_times(node: &Protection, now: bool, caller: &Caller) -> Result<()> {
    if now && !owns(node, caller) {
        check_access(node, caller, Access::WRITE)
    } else {
        check_owner(node, caller)
    }
}

/// The mode of a new file in `dir`, whose group the file may inherit. Only members of that group may make it both setgid and
/// group-executable. The kernel does the same for its own file systems.
#[must_use]
pub fn mode_in(dir: &Protection, kind: FileKind, mode: u32, caller: &Caller) -> u32 {
    let runs_as_group = mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
    let is_foreign = dir.mode & SETGID != 0 && !caller.is_root() && !caller.is_in(dir.gid);
    if kind != FileKind::Directory && runs_as_group && is_foreign { mode & !SETGID } else { mode }
}

/// The mode of a file after a change of contents or owner by `caller`. Set-id bits are dropped, so that the new contents do
/// not run with the rights of the file's owner or group.
#[must_use]
pub fn mode_after_change(node: &Protection, caller: &Caller) -> u32 {
    let is_member = caller.is_root() || caller.is_in(node.gid);
    let setgid = if node.mode & GROUP_EXECUTE != 0 || !is_member { SETGID } else { 0 };
    if node.kind == FileKind::Directory { node.mode } else { node.mode & !(SETUID | setgid) }
}

/// The use that a caller makes of an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrUse {
    /// Reads the value.
    Read,
    /// Sets it.
    Set,
    /// Removes it.
    Remove,
}

/// Refuses the use of the extended attribute `name` of a node.
///
/// # Errors
/// [`Error::Denied`]; [`Error::NotPermitted`]; [`Error::NoXattr`] if reading must not reveal whether the attribute
/// exists.
pub fn check_xattr(node: &Protection, name: &[u8], how: XattrUse, caller: &Caller) -> Result<()> {
    let hidden = || if how == XattrUse::Read { Error::NoXattr } else { Error::NotPermitted };
    match spaces::space_of(name) {
        Some(Space::Trusted) => caller.is_root().then_some(()).ok_or_else(hidden),
        // Reading a label or an ACL is like reading a mode.
        Some(Space::Security | Space::Acl) if how == XattrUse::Read => Ok(()),
        Some(Space::Security) => check_root(caller),
        Some(Space::Acl) if name == spaces::DEFAULT_ACL && node.kind != FileKind::Directory => {
            // Only directories have default ACLs, so there is none to remove.
            if how == XattrUse::Remove { Ok(()) } else { Err(Error::Denied) }
        }
        Some(Space::Acl) => check_owner(node, caller),
        Some(Space::User) | None => {
            if !matches!(node.kind, FileKind::Regular | FileKind::Directory) {
                return Err(hidden());
            }
            let is_sticky = node.kind == FileKind::Directory && node.mode & STICKY != 0;
            if is_sticky && how != XattrUse::Read {
                check_owner(node, caller)?;
            }
            let wanted = if how == XattrUse::Read { Access::READ } else { Access::WRITE };
            check_access(node, caller, wanted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::acl::PosixEntry;

    fn node(kind: FileKind, mode: u32, uid: u32, gid: u32) -> Protection {
        Protection { kind, mode, uid, gid, acl: None }
    }

    fn file(mode: u32) -> Protection {
        node(FileKind::Regular, mode, 10, 20)
    }

    fn granted(node: &Protection, caller: &Caller) -> u32 {
        [4, 2, 1].into_iter().filter(|bit| check_access(node, caller, Access(*bit)).is_ok()).sum()
    }

    #[test]
    fn the_first_class_that_a_caller_is_in_decides() {
        let (owner, member) = (Caller::new(10, 20, &[]), Caller::new(11, 5, &[20]));
        let other = Caller::new(12, 5, &[6]);
        for mode in 0..0o1000 {
            let node = file(mode);
            assert_eq!(granted(&node, &owner), mode >> 6);
            assert_eq!(granted(&node, &member), mode >> 3 & 7);
            assert_eq!(granted(&node, &other), mode & 7);
            let runs = u32::from(mode & 0o111 != 0);
            assert_eq!(granted(&node, &Caller::root()), 6 + if mode >> 6 & 1 == 1 { 1 } else { runs });
            let dir = node_dir(mode);
            assert_eq!(granted(&dir, &Caller::root()), 7);
        }
    }

    fn node_dir(mode: u32) -> Protection {
        node(FileKind::Directory, mode, 10, 20)
    }

    #[test]
    fn an_acl_names_users_and_groups_within_its_mask() {
        let entries = [
            (PosixTag::UserObj, 7),
            (PosixTag::User(30), 6),
            (PosixTag::GroupObj, 4),
            (PosixTag::Group(40), 7),
            (PosixTag::Mask, 5),
            (PosixTag::Other, 1),
        ];
        let acl = PosixAcl::new(entries.map(|(tag, perm)| PosixEntry { tag, perm }).to_vec()).unwrap();
        let node = Protection { acl: Some(acl), ..file(0o751) };
        assert_eq!(granted(&node, &Caller::new(10, 1, &[])), 7, "the owner");
        assert_eq!(granted(&node, &Caller::new(30, 1, &[40])), 4, "a user by name: no group counts");
        assert_eq!(granted(&node, &Caller::new(31, 20, &[])), 4);
        assert_eq!(granted(&node, &Caller::new(31, 20, &[40])), 5, "one group that grants it is enough");
        assert_eq!(granted(&node, &Caller::new(31, 1, &[])), 1);
        // As in Linux, an empty mask turns the ACL off, and a named user counts as any other user.
        assert_eq!(granted(&Protection { mode: 0o701, ..node }, &Caller::new(30, 1, &[])), 1);
    }

    #[test]
    fn in_sticky_directories_only_owners_remove_names() {
        let dir = node(FileKind::Directory, 0o1777, 1, 1);
        let victim = file(0o666);
        assert!(check_removal(&dir, &victim, &Caller::new(10, 9, &[])).is_ok(), "its owner");
        assert!(check_removal(&dir, &victim, &Caller::new(1, 9, &[])).is_ok(), "the directory's owner");
        assert!(check_removal(&dir, &victim, &Caller::root()).is_ok());
        let refused = check_removal(&dir, &victim, &Caller::new(11, 20, &[]));
        assert!(matches!(refused, Err(Error::NotPermitted)));
        let plain = Protection { mode: 0o755, ..dir };
        assert!(matches!(check_removal(&plain, &victim, &Caller::new(10, 9, &[])), Err(Error::Denied)));
    }

    #[test]
    fn only_group_members_make_setgid_programs_with_an_inherited_group() {
        let dir = node(FileKind::Directory, 0o2777, 1, 7);
        let mode = |caller| mode_in(&dir, FileKind::Regular, 0o2775, caller);
        assert_eq!((mode(&Caller::new(10, 20, &[])), mode(&Caller::new(10, 20, &[7]))), (0o775, 0o2775));
        assert_eq!(mode_in(&dir, FileKind::Regular, 0o2764, &Caller::new(10, 20, &[])), 0o2764);
    }

    #[test]
    fn owners_may_set_groups_that_they_are_in_and_root_may_set_all() {
        let (node, owner) = (file(0o644), Caller::new(10, 20, &[21]));
        let may = |uid, gid, caller: &Caller| check_new_owner(&node, uid, gid, caller).is_ok();
        assert!(may(None, Some(21), &owner) && may(Some(10), Some(20), &owner));
        assert!(!may(Some(11), None, &owner) && !may(None, Some(22), &owner));
        assert!(!may(None, Some(20), &Caller::new(11, 20, &[])), "a member does not own it");
        assert!(may(Some(1), Some(1), &Caller::root()));
        assert_eq!(mode_after_chmod(0o2755, 9, &owner), 0o755);
        assert_eq!(mode_after_chmod(0o2755, 21, &owner), 0o2755);
    }

    #[test]
    fn a_change_drops_set_id_bits() {
        let (member, other) = (Caller::new(11, 20, &[]), Caller::new(12, 9, &[]));
        let after = |mode, caller| mode_after_change(&file(mode), caller);
        assert_eq!(
            (after(0o6755, &member), after(0o6745, &member), after(0o6745, &other)),
            (0o755, 0o2745, 0o745)
        );
        assert_eq!(mode_after_change(&node_dir(0o6755), &other), 0o6755);
    }

    #[test]
    fn each_space_of_xattrs_has_a_rule() {
        let (owner, reader) = (Caller::new(10, 20, &[]), Caller::new(11, 5, &[]));
        let may = |node: &Protection, name: &[u8], how, caller: &Caller| check_xattr(node, name, how, caller);
        let file = file(0o644);
        assert!(may(&file, b"user.a", XattrUse::Read, &reader).is_ok());
        assert!(matches!(may(&file, b"user.a", XattrUse::Set, &reader), Err(Error::Denied)));
        assert!(matches!(may(&file, b"trusted.a", XattrUse::Read, &owner), Err(Error::NoXattr)));
        assert!(matches!(may(&file, b"trusted.a", XattrUse::Set, &owner), Err(Error::NotPermitted)));
        assert!(may(&file, b"security.a", XattrUse::Read, &reader).is_ok());
        assert!(may(&file, b"security.a", XattrUse::Set, &owner).is_err());
        assert!(may(&file, spaces::ACCESS_ACL, XattrUse::Set, &owner).is_ok());
        assert!(may(&file, spaces::ACCESS_ACL, XattrUse::Set, &reader).is_err());
        assert!(matches!(may(&file, spaces::DEFAULT_ACL, XattrUse::Set, &owner), Err(Error::Denied)));
        let fifo = node(FileKind::Fifo, 0o666, 10, 20);
        assert!(matches!(may(&fifo, b"user.a", XattrUse::Read, &owner), Err(Error::NoXattr)));
        let sticky = node(FileKind::Directory, 0o1777, 10, 20);
        assert!(matches!(may(&sticky, b"user.a", XattrUse::Set, &reader), Err(Error::NotPermitted)));
    }
}
