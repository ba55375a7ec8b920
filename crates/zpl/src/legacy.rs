//! Nodes of file systems before version 5: their attributes are a znode in the bonus.
//!
//! From:   objects whose bonus is of type ZNODE, also those that an upgrade to version 5 left as they were.
//! To:     `attributes`.
//! Source: docs/format/07-zpl-sa.md §4.3.

use std::sync::Arc;

use dmu::{Object, Tx};
use format::znode::{Dacl, LEGACY_TARGET_MAX, LegacyZnode, S_IFLNK, S_IFMT, Znode, pflags};
use format::{ByteOrder, acl};

use crate::{Error, Result};

/// First version whose directory entries hold the type of what they name.
pub(crate) const ENTRY_TYPES: u64 = 2;
/// First version with FUIDs: ACEs have 64-bit ids, and nodes the flags of an archive.
pub(crate) const FUIDS: u64 = 3;
/// First version with space accounting and quotas of users.
pub(crate) const USER_SPACE: u64 = 4;
/// First version with system attributes.
pub(crate) const SYSTEM_ATTRIBUTES: u64 = 5;

/// Flags that file systems of this version do not support.
const fn unknown_flags(version: u64) -> u64 {
    let projects = pflags::PROJID | pflags::PROJINHERIT;
    if version < FUIDS { pflags::ARCHIVE | pflags::AV_MODIFIED | projects } else { projects }
}

/// Converts `znode` to a legacy znode.
fn reduced(version: u64, znode: &Znode) -> Result<Znode> {
    if znode.dxattr.is_some() || znode.projid.is_some_and(|project| project != 0) {
        return Err(Error::Unsupported("system attributes in a node from before version 5"));
    }
    Ok(Znode { flags: znode.flags & !unknown_flags(version), ..znode.clone() })
}

/// The bonus of a new node in a file system of this version.
pub(crate) fn encode_new(version: u64, znode: &Znode) -> Result<Vec<u8>> {
    let acl_version = u16::from(version >= FUIDS);
    let new = LegacyZnode::new(&reduced(version, znode)?, acl_version);
    Ok(new.map_err(|_| Error::Unsupported("an ACL that does not fit into a legacy znode"))?.encode())
}

/// The attributes in `bonus`, the bonus of `object`.
pub(crate) fn load(object: &Object, bonus: &[u8]) -> Result<Znode> {
    let LegacyZnode { mut znode, acl, .. } =
        LegacyZnode::decode(bonus, ByteOrder::Little).map_err(Error::damaged(object.id()))?;
    if znode.mode & S_IFMT == S_IFLNK && znode.symlink.is_none() {
        let mut target = vec![0; znode.size.min(object.block_size()) as usize];
        object.read(0, &mut target)?;
        znode.symlink = Some(target);
    }
    // An ACL that cannot be read stays as it is; a change of it is refused.
    if let Ok(Some(aces)) = acl.entries() {
        znode.dacl = Some(Dacl { count: aces.len() as u64, aces: acl::encode(&aces) });
    }
    Ok(znode)
}

/// Stores the attributes of `object`.
pub(crate) fn store(version: u64, object: &Arc<Object>, tx: &Tx, znode: &Znode) -> Result<()> {
    let bonus = object.with_bonus(|_, raw| raw.to_vec());
    let old = LegacyZnode::decode(&bonus, ByteOrder::Little).map_err(Error::damaged(object.id()))?;
    let new = old.with(&reduced(version, znode)?);
    let new = new.map_err(|_| Error::Unsupported("a change of an ACL that is not in its legacy znode"))?;
    object.set_bonus(tx, new.encode());
    Ok(())
}

/// Whether the target of a symbolic link goes into the first block of a legacy node.
pub(crate) const fn is_long(target: &[u8]) -> bool {
    target.len() > LEGACY_TARGET_MAX
}
