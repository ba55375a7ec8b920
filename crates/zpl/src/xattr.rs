//! Extended attributes: stored in the node's own attributes if they fit, otherwise as files in a hidden directory.
//!
//! Source: docs/format/07-zpl-sa.md §6.

use std::sync::Arc;

use dmu::{Object, Tx, zap};
use format::znode::{Dirent, S_IFDIR, S_IFREG, Znode, pflags};
use format::{Corrupt, NvList, NvValue, ObjectId};
use pool::Hold;

use crate::attributes::is_legacy;
use crate::create::{NewDnode, assign_project, fresh};
use crate::dir::NAME_MAX;
use crate::fs::NAME_COST;
use crate::node::{count_change, modified};
use crate::stat::is_kind;
use crate::xattr_log::Told;
use crate::{Error, FileKind, Filesystem, NewNode, Result, SetAttr, acl};

/// Largest value kept in the node's own attributes, and the largest list of all of them, in bytes.
const SA_VALUE_MAX: usize = 32 << 10;
const SA_LIST_MAX: usize = u16::MAX as usize;
/// Largest value that can be set (the limit of Linux), and that is read.
const VALUE_MAX: usize = 64 << 10;
const READ_MAX: u64 = 16 << 20;
const SECTOR: usize = 512;
/// Name spaces of Linux. FreeBSD stores names of its user name space without any.
const SPACES: [&[u8]; 5] = [b"user.", b"system.", b"security.", b"trusted.", b"freebsd:"];

/// How [`Filesystem::xattr_set`] treats an existing or missing value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    Either,
    /// `XATTR_CREATE`.
    Create,
    /// `XATTR_REPLACE`.
    Replace,
}

/// The node that gets an extended attribute.
struct Owner<'a> {
    object: &'a Object,
    znode: &'a mut Znode,
    /// Its directory of extended attributes, if it has one.
    dir: Option<Arc<Object>>,
}

/// Where a node's extended attributes are.
struct Xattrs {
    list: NvList,
    dir: Option<Arc<Object>>,
}

impl Xattrs {
    fn in_list(&self, name: &[u8]) -> Option<&[u8]> {
        match self.list.get(name)? {
            NvValue::ByteArray(value) | NvValue::Uint8Array(value) => Some(value),
            _ => None,
        }
    }

    /// The file that holds the value.
    fn file(&self, name: &[u8]) -> Result<Option<ObjectId>> {
        let Some(dir) = &self.dir else { return Ok(None) };
        match zap::lookup_u64(dir, name)? {
            None => Ok(None),
            Some(value) => Ok(Some(Dirent::decode(value).map_err(Error::damaged(dir.id()))?.object)),
        }
    }

    /// The name under which the attribute that users call `name` is stored.
    fn stored<'a>(&self, name: &'a [u8]) -> Result<Option<&'a [u8]>> {
        let bare = name.strip_prefix(b"user.").filter(|bare| shown(bare) != **bare);
        for candidate in [Some(name), bare].into_iter().flatten() {
            if self.list.contains(candidate) || self.file(candidate)?.is_some() {
                return Ok(Some(candidate));
            }
        }
        Ok(None)
    }
}

/// The name as Linux shows it.
fn shown(stored: &[u8]) -> Vec<u8> {
    if SPACES.iter().any(|space| stored.starts_with(space)) {
        stored.to_vec()
    } else {
        [b"user.", stored].concat()
    }
}

impl Filesystem {
    fn xattrs(&self, id: ObjectId, znode: &Znode) -> Result<Xattrs> {
        let list = match &znode.dxattr {
            Some(packed) if !packed.is_empty() => NvList::decode(packed).map_err(Error::damaged(id))?,
            _ => NvList::new(),
        };
        let dir = match znode.xattr {
            Some(dir) if dir.0 != 0 => Some(self.directory(dir)?),
            _ => None,
        };
        Ok(Xattrs { list, dir })
    }

    /// Reads the file `id` of an xattr directory. It needs no lock of its own, because it changes only under the lock of its
    /// node.
    fn xattr_value(&self, id: ObjectId) -> Result<Vec<u8>> {
        let object = self.inner.objset.object(id)?;
        let znode = self.inner.attributes.load(&object)?;
        if !is_kind(&znode, FileKind::Regular) {
            return Err(Error::damaged(id)(Corrupt::new("mode of an extended attribute", znode.mode)));
        }
        if znode.size > READ_MAX {
            return Err(Error::XattrTooBig);
        }
        let mut value = vec![0; znode.size as usize];
        object.read(0, &mut value)?;
        Ok(value)
    }

    /// Names of all extended attributes of `id`.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn xattr_list(&self, id: ObjectId) -> Result<Vec<Vec<u8>>> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        let xattrs = self.xattrs(id, &znode)?;
        let mut names: Vec<Vec<u8>> = xattrs.list.iter().map(|(name, _)| shown(name)).collect();
        if let Some(dir) = &xattrs.dir {
            for entry in zap::entries(dir) {
                names.push(shown(&entry?.name));
            }
        }
        Ok(names)
    }

    /// The value of an extended attribute; `None` when there is none of that name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn xattr_get(&self, id: ObjectId, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        self.xattr_of(id, &znode, name)
    }

    /// As [`Filesystem::xattr_get`], for a node whose lock the caller holds.
    pub(crate) fn xattr_of(&self, id: ObjectId, znode: &Znode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if znode.dxattr.is_none() && znode.xattr.is_none() {
            return Ok(None);
        }
        let xattrs = self.xattrs(id, znode)?;
        let Some(name) = xattrs.stored(name)? else { return Ok(None) };
        match (xattrs.in_list(name), xattrs.file(name)?) {
            (Some(value), _) => Ok(Some(value.to_vec())),
            (None, Some(file)) => self.xattr_value(file).map(Some),
            (None, None) => Err(Error::damaged(id)(Corrupt::new("type of an extended attribute", 0))),
        }
    }

    /// Sets an extended attribute; in the node itself if the dataset has `xattr=sa` and it fits. A POSIX ACL also changes
    /// the mode, and is not stored if the mode expresses all of it.
    ///
    /// # Errors
    /// [`Error::Exists`] or [`Error::NoXattr`] if `mode` says so; [`Error::XattrTooBig`] above 64 KiB;
    /// [`Error::NotPermitted`] if the node's flags forbid it; [`Error::Invalid`] if the name or the ACL is invalid;
    /// [`Error::NoSpace`], [`Error::Quota`].
    pub fn xattr_set(&self, id: ObjectId, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let in_node = self.inner.dataset.settings().xattr_in_sa;
        self.changing(|| self.xattr_put(id, name, value, mode, in_node))
    }

    /// As [`Filesystem::xattr_set`]; `in_node`: in the node itself if it fits.
    pub(crate) fn xattr_put(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        in_node: bool,
    ) -> Result<()> {
        if name.is_empty() || name.contains(&0) {
            return Err(Error::Invalid);
        }
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if value.len() > VALUE_MAX {
            return Err(Error::XattrTooBig);
        }
        let _node = self.inner.nodes.write(id);
        let (object, mut znode) = self.node_for_change(id)?;
        self.check_attributes_change(&znode, pflags::IMMUTABLE | pflags::APPENDONLY)?;
        let mut xattrs = self.xattrs(id, &znode)?;
        let stored = xattrs.stored(name)?;
        match mode {
            XattrMode::Create if stored.is_some() => return Err(Error::Exists),
            XattrMode::Replace if stored.is_none() => return Err(Error::NoXattr),
            _ => {}
        }
        let mode_before = znode.mode;
        let superfluous = name == acl::ACCESS && acl::apply(value, &mut znode)?;
        let name = stored.unwrap_or(name);
        let old_file = xattrs.file(name)?.map(|file| self.inner.objset.object(file)).transpose()?;
        let was_listed = xattrs.list.remove(name).is_some();
        let mut listed = false;
        if !superfluous && in_node && !is_legacy(&object) && value.len() <= SA_VALUE_MAX {
            let mut list = xattrs.list.clone();
            list.insert(name, NvValue::ByteArray(value.to_vec()));
            let packed = list.to_xdr();
            if packed.len() <= SA_LIST_MAX {
                znode.dxattr = Some(packed);
                listed = true;
            }
        }
        if was_listed && !listed {
            znode.dxattr = Some(xattrs.list.to_xdr());
        }
        znode.ctime = self.now();
        count_change(&mut znode);
        let tx = self.begin(Hold::write(value.len() as u64 + 2 * NAME_COST))?;
        let mut told = Told::default();
        if znode.mode != mode_before {
            told.mode(id, &znode);
        }
        if listed || was_listed {
            told.in_node(id, name, listed.then_some(value));
        }
        if let Some(file) = old_file {
            self.drop_file(&tx, &xattrs, name, &file, &mut told)?;
        }
        if !listed && !superfluous {
            let owner = Owner { object: &object, znode: &mut znode, dir: xattrs.dir };
            self.add_file(&tx, owner, name, value, &mut told)?;
        }
        self.store(&object, &tx, &znode)?;
        self.note_xattrs(&tx, id, &znode, told);
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoXattr`]; [`Error::NotPermitted`].
    pub fn xattr_remove(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        self.changing(|| self.xattr_drop(id, name))
    }

    fn xattr_drop(&self, id: ObjectId, name: &[u8]) -> Result<()> {
        let _node = self.inner.nodes.write(id);
        let (object, mut znode) = self.node_for_change(id)?;
        self.check_attributes_change(&znode, pflags::IMMUTABLE | pflags::APPENDONLY)?;
        let mut xattrs = self.xattrs(id, &znode)?;
        let name = xattrs.stored(name)?.ok_or(Error::NoXattr)?;
        let file = xattrs.file(name)?.map(|file| self.inner.objset.object(file)).transpose()?;
        let mut told = Told::default();
        if xattrs.list.remove(name).is_some() {
            znode.dxattr = Some(xattrs.list.to_xdr());
            told.in_node(id, name, None);
        }
        znode.ctime = self.now();
        count_change(&mut znode);
        let tx = self.begin(Hold::free())?;
        if let Some(file) = file {
            self.drop_file(&tx, &xattrs, name, &file, &mut told)?;
        }
        self.store(&object, &tx, &znode)?;
        self.note_xattrs(&tx, id, &znode, told);
        Ok(())
    }

    /// Takes a file out of the xattr directory.
    fn drop_file(
        &self,
        tx: &Tx,
        xattrs: &Xattrs,
        name: &[u8],
        file: &Arc<Object>,
        told: &mut Told,
    ) -> Result<()> {
        let dir = xattrs.dir.as_ref().expect("a file was found in the directory");
        zap::remove(dir, tx, name)?;
        told.removed(dir.id(), name);
        let mut znode = self.inner.attributes.load(dir)?;
        znode.size = znode.size.saturating_sub(1);
        modified(&mut znode, self.now());
        self.store(dir, tx, &znode)?;
        self.inner.objset.free_object(tx, file);
        Ok(())
    }

    /// Adds a new file to the xattr directory of `owner`. Makes the directory if necessary.
    fn add_file(&self, tx: &Tx, owner: Owner<'_>, name: &[u8], value: &[u8], told: &mut Told) -> Result<()> {
        let Owner { object: owner, znode, dir } = owner;
        let (now, slots) = (self.now(), self.slots());
        let ids = [znode.uid, znode.gid];
        let finish = |new: &mut Znode, parent: &Znode| {
            new.flags |= pflags::XATTR;
            if self.has_projects() {
                assign_project(new, Some(parent));
            }
        };
        let (dir, mut dir_znode) = match dir {
            Some(dir) => {
                let znode = self.inner.attributes.load(&dir)?;
                (dir, znode)
            }
            None => {
                let mut new = fresh(S_IFDIR | 0o1777, ids, owner.id(), now);
                finish(&mut new, znode);
                let dnode = NewDnode { id: None, slots, block_size: SECTOR as u32 };
                let dir = self.new_object(tx, &mut new, dnode)?;
                zap::create(&dir, tx, self.inner.dataset.host().entropy.u64(), self.normflags())?;
                znode.xattr = Some(dir.id());
                told.directory(owner.id(), &dir, &new);
                (dir, new)
            }
        };
        let mut new = fresh(S_IFREG | 0o644, ids, dir.id(), now);
        finish(&mut new, &dir_znode);
        new.size = value.len() as u64;
        let block_size = value.len().max(1).next_multiple_of(SECTOR);
        let dnode = NewDnode { id: None, slots, block_size: block_size as u32 };
        let file = self.new_object(tx, &mut new, dnode)?;
        if !value.is_empty() {
            let mut block = value.to_vec();
            block.resize(block_size, 0);
            file.put_block(tx, 0, Arc::new(block));
        }
        zap::insert(&dir, tx, name, &self.entry(&new, file.id()))?;
        told.file(dir.id(), name, &file, &new, value);
        dir_znode.size = dir_znode.size.saturating_add(1);
        modified(&mut dir_znode, now);
        self.store(&dir, tx, &dir_znode)
    }

    /// Applies the umask of `new`, or the directory's default ACL, to the mode of a new node. Returns the ACLs for the node.
    pub(crate) fn inherited_acls(
        &self,
        dir: &Object,
        parent: &Znode,
        znode: &mut Znode,
        new: &NewNode,
    ) -> Result<Vec<(&'static [u8], Vec<u8>)>> {
        if new.kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let mut default = None;
        if self.inner.dataset.settings().posix_acl && (parent.dxattr.is_some() || parent.xattr.is_some()) {
            let xattrs = self.xattrs(dir.id(), parent)?;
            default = match (xattrs.in_list(acl::DEFAULT), xattrs.file(acl::DEFAULT)?) {
                (Some(value), _) => Some(value.to_vec()),
                (None, Some(file)) => Some(self.xattr_value(file)?),
                (None, None) => None,
            };
        }
        let Some(default) = default else {
            znode.mode &= !u64::from(new.umask & 0o777);
            znode.set_trivial_acl();
            return Ok(Vec::new());
        };
        let (mode, access) = acl::inherit(&default, znode.mode)?;
        znode.mode = mode;
        znode.set_trivial_acl();
        let mut acls: Vec<_> = access.into_iter().map(|access| (acl::ACCESS, access)).collect();
        if new.kind == FileKind::Directory {
            acls.push((acl::DEFAULT, default));
        }
        Ok(acls)
    }

    /// Stores the ACLs of a new node, with its attributes. Returns the note for the intent log that follows that of the
    /// node.
    pub(crate) fn keep_acls(
        &self,
        tx: &Tx,
        object: &Arc<Object>,
        znode: &mut Znode,
        acls: Vec<(&'static [u8], Vec<u8>)>,
    ) -> Result<Told> {
        let mut told = Told::default();
        if acls.is_empty() {
            return Ok(told);
        }
        let in_sa = self.inner.dataset.settings().xattr_in_sa && !is_legacy(object);
        let mut list = NvList::new();
        for (name, value) in acls {
            if in_sa {
                told.in_node(object.id(), name, Some(&value));
                list.insert(name, NvValue::ByteArray(value));
            } else {
                let dir = znode.xattr.map(|dir| self.directory(dir)).transpose()?;
                self.add_file(tx, Owner { object, znode, dir }, name, &value, &mut told)?;
            }
        }
        if in_sa {
            znode.dxattr = Some(list.to_xdr());
        }
        self.store(object, tx, znode).map(|()| told)
    }

    /// Removes setuid, setgid of group-executable files, and file capabilities. A write, a truncation or a change of owner
    /// by another user does this to a file.
    ///
    /// # Errors
    /// As [`Filesystem::setattr`].
    pub fn drop_privileges(&self, id: ObjectId) -> Result<()> {
        const CAPABILITY: &[u8] = b"security.capability";
        const SETUID: u32 = 0o4000;
        const SETGID: u32 = 0o2000;
        const GROUP_EXECUTE: u32 = 0o010;
        let stat = self.stat(id)?;
        if stat.kind == FileKind::Directory {
            return Ok(());
        }
        let setgid = if stat.mode & GROUP_EXECUTE != 0 { SETGID } else { 0 };
        let mode = stat.mode & !(SETUID | setgid);
        if mode != stat.mode {
            self.setattr(id, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
        }
        match self.xattr_get(id, CAPABILITY)? {
            Some(_) => self.xattr_remove(id, CAPABILITY),
            None => Ok(()),
        }
    }

    /// Updates the POSIX ACL for the new mode of `znode`. If the ACL is stored in a file, returns its new contents, which
    /// have the same length. If it is stored in the node, notes it for the intent log.
    pub(crate) fn acl_after_chmod(
        &self,
        object: &Object,
        znode: &mut Znode,
        told: &mut Told,
    ) -> Result<Option<(Arc<Object>, Vec<u8>)>> {
        if znode.dxattr.is_none() && znode.xattr.is_none() {
            return Ok(None);
        }
        let mut xattrs = self.xattrs(object.id(), znode)?;
        if let Some(value) = xattrs.in_list(acl::ACCESS) {
            let value = acl::after_chmod(value, znode.mode)?;
            told.in_node(object.id(), acl::ACCESS, Some(&value));
            xattrs.list.insert(acl::ACCESS, NvValue::ByteArray(value));
            znode.dxattr = Some(xattrs.list.to_xdr());
            return Ok(None);
        }
        let Some(file) = xattrs.file(acl::ACCESS)? else { return Ok(None) };
        let value = acl::after_chmod(&self.xattr_value(file)?, znode.mode)?;
        told.content(file, &value);
        Ok(Some((self.inner.objset.object(file)?, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_space_belong_to_users() {
        assert_eq!(shown(b"user.a"), b"user.a");
        assert_eq!(shown(b"security.selinux"), b"security.selinux");
        assert_eq!(shown(b"a"), b"user.a");
    }

    #[test]
    fn a_name_stored_without_its_space_is_found() {
        let mut list = NvList::new();
        list.insert(b"a", NvValue::ByteArray(vec![1]));
        let xattrs = Xattrs { list, dir: None };
        assert_eq!(xattrs.stored(b"user.a").unwrap(), Some(&b"a"[..]));
        assert_eq!(xattrs.stored(b"user.b").unwrap(), None);
        assert_eq!(xattrs.in_list(b"a"), Some(&[1][..]));
    }
}
