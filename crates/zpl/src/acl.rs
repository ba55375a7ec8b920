//! POSIX ACLs beside the mode: one follows when the other changes.
//!
//! They are stored as extended attributes. The NFSv4 ACL of the node always equals the mode.
//! Source: docs/format/07-zpl-sa.md §4.2.

use format::acl::{PosixAcl, PosixEntry, PosixTag};
use format::znode::{S_IFMT, Znode};

use crate::{Error, Result};

/// Extended attribute with the access ACL, which refines the mode.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";

/// Extended attribute with the default ACL of a directory, which new nodes inherit.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Mode and ACLs that a new node inherits from its directory's default ACL. The node gets only permissions that both `mode`
/// and the ACL grant. It gets no access ACL if the mode expresses all of it.
pub(crate) fn inherit(default: &[u8], mode: u64) -> Result<(u64, Option<Vec<u8>>)> {
    let acl = PosixAcl::decode(default).map_err(|_| Error::Invalid)?;
    let has_mask = acl.entries().iter().any(|entry| entry.tag == PosixTag::Mask);
    let cut = acl.entries().iter().map(|entry| {
        let shift = match entry.tag {
            PosixTag::UserObj => 6,
            PosixTag::Mask => 3,
            PosixTag::GroupObj if !has_mask => 3,
            PosixTag::Other => 0,
            _ => return *entry,
        };
        PosixEntry { perm: entry.perm & (mode >> shift & 7) as u8, ..*entry }
    });
    let acl = PosixAcl::new(cut.collect()).map_err(|_| Error::Invalid)?;
    let mode = acl.permissions().map_or(mode, |permissions| mode & !0o777 | permissions);
    Ok((mode, (!acl.is_trivial()).then(|| acl.encode())))
}

/// The ACL in `value` after a `chmod` to `mode`.
pub(crate) fn after_chmod(value: &[u8], mode: u64) -> Result<Vec<u8>> {
    let acl = PosixAcl::decode(value).map_err(|_| Error::Invalid)?;
    let has_mask = acl.entries().iter().any(|entry| entry.tag == PosixTag::Mask);
    let perm = |shift: u32| (mode >> shift & 7) as u8;
    let changed = acl.entries().iter().map(|entry| PosixEntry {
        perm: match entry.tag {
            PosixTag::UserObj => perm(6),
            PosixTag::Mask => perm(3),
            PosixTag::GroupObj if !has_mask => perm(3),
            PosixTag::Other => perm(0),
            _ => entry.perm,
        },
        ..*entry
    });
    Ok(PosixAcl::new(changed.collect()).map_err(|_| Error::Invalid)?.encode())
}

/// Gives `znode` the mode that matches the ACL in `value`. `true` if the mode expresses the whole ACL, so that the ACL need
/// not be stored.
pub(crate) fn apply(value: &[u8], znode: &mut Znode) -> Result<bool> {
    let acl = PosixAcl::decode(value).map_err(|_| Error::Invalid)?;
    if let Some(permissions) = acl.permissions() {
        znode.mode = znode.mode & (S_IFMT | 0o7000) | permissions;
        znode.set_trivial_acl();
    }
    Ok(acl.is_trivial())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(perms: &[(PosixTag, u8)]) -> Vec<u8> {
        let entries = perms.iter().map(|&(tag, perm)| PosixEntry { tag, perm }).collect();
        PosixAcl::new(entries).unwrap().encode()
    }

    #[test]
    fn chmod_changes_the_mask_and_not_the_group() {
        use PosixTag::{GroupObj, Mask, Other, User, UserObj};
        let before = acl(&[(UserObj, 7), (User(5), 6), (GroupObj, 5), (Mask, 7), (Other, 4)]);
        let after = acl(&[(UserObj, 6), (User(5), 6), (GroupObj, 5), (Mask, 4), (Other, 0)]);
        assert_eq!(after_chmod(&before, 0o640).unwrap(), after);
    }

    #[test]
    fn a_new_node_gets_what_both_the_default_acl_and_the_mode_grant() {
        use PosixTag::{GroupObj, Mask, Other, User, UserObj};
        let default = acl(&[(UserObj, 7), (User(5), 7), (GroupObj, 5), (Mask, 7), (Other, 5)]);
        let own = acl(&[(UserObj, 6), (User(5), 7), (GroupObj, 5), (Mask, 6), (Other, 4)]);
        assert_eq!(inherit(&default, 0o666).unwrap(), (0o664, Some(own)));
        let plain = acl(&[(UserObj, 7), (GroupObj, 5), (Other, 0)]);
        assert_eq!(inherit(&plain, 0o2777).unwrap(), (0o2750, None));
    }

    #[test]
    fn an_acl_gives_the_mode_its_permissions() {
        use PosixTag::{GroupObj, Mask, Other, User, UserObj};
        let mut znode = Znode { mode: 0o104_644, ..Znode::default() };
        let long = acl(&[(UserObj, 7), (User(5), 6), (GroupObj, 5), (Mask, 6), (Other, 1)]);
        assert!(!apply(&long, &mut znode).unwrap());
        assert_eq!(znode.mode, 0o104_761);
        assert!(apply(&acl(&[(UserObj, 6), (GroupObj, 4), (Other, 4)]), &mut znode).unwrap());
        assert_eq!(znode.mode, 0o104_644);
        assert!(apply(b"nonsense", &mut znode).is_err());
    }
}
