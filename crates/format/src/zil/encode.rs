//! Records → bytes.

use alloc::vec::Vec;

use super::record::{
    Acl, Attrs, Body, Create, CreateKind, LoggedNode, NewAcl, Record, Rename, RenameKind, SetAttr, Write,
    kind,
};
use super::{RECORD_HEADER, mask};
use crate::ByteOrder;
use crate::znode::Time;

impl Record {
    /// The bytes of the record, a multiple of 8.
    ///
    /// # Panics
    /// If fields contradict each other: attributes announced in a mask that are not there, data of another length.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut out = Builder { raw: alloc::vec![0; RECORD_HEADER], order };
        let kind = out.body(&self.body) | if self.ignore_case { kind::IGNORE_CASE } else { 0 };
        let mut raw = out.raw;
        raw.resize(raw.len().next_multiple_of(8), 0);
        let len = raw.len() as u64;
        for (at, word) in [kind, len, self.txg.0, self.seq].into_iter().enumerate() {
            order.put_u64(&mut raw, at * 8, word);
        }
        raw
    }
}

struct Builder {
    raw: Vec<u8>,
    order: ByteOrder,
}

impl Builder {
    fn u64(&mut self, value: u64) {
        let at = self.raw.len();
        self.raw.resize(at + 8, 0);
        self.order.put_u64(&mut self.raw, at, value);
    }

    fn words(&mut self, words: &[u64]) {
        words.iter().for_each(|&word| self.u64(word));
    }

    fn u32(&mut self, value: u32) {
        let at = self.raw.len();
        self.raw.resize(at + 4, 0);
        self.order.put_u32(&mut self.raw, at, value);
    }

    fn time(&mut self, time: Time) {
        self.words(&[time.secs as u64, time.nanos]);
    }

    fn new_node(&mut self, node: &LoggedNode) {
        let (id, slots) = (node.object.0, node.slots);
        assert!((1..=32).contains(&slots) && id < 1 << 48, "an object has a number and slots");
        self.u64(id | (u64::from(slots) - 1) << 56);
        self.words(&[node.mode, node.uid, node.gid, node.generation]);
        self.time(node.crtime);
        self.u64(node.rdev);
    }

    fn string(&mut self, text: &[u8]) {
        assert!(!text.contains(&0), "names have no zero byte");
        self.raw.extend_from_slice(text);
        self.raw.push(0);
    }

    fn strings(&mut self, texts: &[Vec<u8>]) {
        texts.iter().for_each(|text| self.string(text));
    }

    /// Appends the body; returns the record's type.
    fn body(&mut self, body: &Body) -> u64 {
        match body {
            Body::Create(create) => self.create(create),
            Body::Remove { dir, name, is_dir } => {
                self.u64(dir.0);
                self.string(name);
                if *is_dir { kind::RMDIR } else { kind::REMOVE }
            }
            Body::Link { dir, object, name } => {
                self.words(&[dir.0, object.0]);
                self.string(name);
                kind::LINK
            }
            Body::Rename(rename) => self.rename(rename),
            Body::Write(write) => self.write(write),
            Body::Extend { object, offset, length } => {
                self.words(&[object.0, *offset, *length, 0]);
                self.raw.resize(super::WRITE_HEADER, 0);
                kind::WRITE2
            }
            Body::Truncate { object, offset, length } => {
                self.words(&[object.0, *offset, *length]);
                kind::TRUNCATE
            }
            Body::SetAttr(set) => self.set_attr(set),
            Body::AclV0 { object, aces } => {
                assert!(aces.len().is_multiple_of(8), "old entries have 8 bytes");
                self.words(&[object.0, aces.len() as u64 / 8]);
                self.raw.extend_from_slice(aces);
                kind::ACL_V0
            }
            Body::Acl(acl) => self.acl(acl),
            Body::SetSaXattr { object, name, value } => {
                let value = value.as_deref().unwrap_or_default();
                self.words(&[object.0, value.len() as u64]);
                self.string(name);
                self.raw.extend_from_slice(value);
                kind::SETSAXATTR
            }
            Body::CloneRange(clone) => {
                let count = clone.ptrs.len() as u64;
                self.words(&[clone.object.0, clone.offset, clone.length, clone.block_size, count]);
                for ptr in &clone.ptrs {
                    self.raw.extend_from_slice(&ptr.encode(self.order));
                }
                kind::CLONE_RANGE
            }
        }
    }

    fn create(&mut self, create: &Create) -> u64 {
        self.u64(create.dir.0);
        self.new_node(&create.node);
        if let Some(acl) = &create.acl {
            self.acl_head(acl);
        }
        if let Some(attrs) = &create.attrs {
            self.attrs(attrs);
        }
        let mut domains = super::decode::domains_of(create.node.uid, create.node.gid);
        if let Some(acl) = &create.acl {
            self.acl_body(acl);
            domains = acl.domain_count;
        }
        assert_eq!(domains, create.domains.len() as u64, "domains are counted");
        self.strings(&create.domains);
        self.string(&create.name);
        if let Some(target) = &create.target {
            self.string(target);
        }
        match (create.kind, create.acl.is_some(), create.attrs.is_some()) {
            (CreateKind::File, false, false) => kind::CREATE,
            (CreateKind::File, true, false) => kind::CREATE_ACL,
            (CreateKind::File, false, true) => kind::CREATE_ATTR,
            (CreateKind::File, true, true) => kind::CREATE_ACL_ATTR,
            (CreateKind::Dir, false, false) => kind::MKDIR,
            (CreateKind::Dir, true, false) => kind::MKDIR_ACL,
            (CreateKind::Dir, false, true) => kind::MKDIR_ATTR,
            (CreateKind::Dir, true, true) => kind::MKDIR_ACL_ATTR,
            (CreateKind::XattrDir, false, false) => kind::MKXATTR,
            (CreateKind::Symlink, false, false) => kind::SYMLINK,
            _ => panic!("only files and directories are made with an ACL or attributes"),
        }
    }

    fn rename(&mut self, rename: &Rename) -> u64 {
        self.words(&[rename.from_dir.0, rename.to_dir.0]);
        let kind = match &rename.kind {
            RenameKind::Replace => kind::RENAME,
            RenameKind::Exchange => kind::RENAME_EXCHANGE,
            RenameKind::Whiteout(node) => {
                self.new_node(node);
                kind::RENAME_WHITEOUT
            }
        };
        self.string(&rename.from);
        self.string(&rename.to);
        kind
    }

    fn acl(&mut self, acl: &Acl) -> u64 {
        assert_eq!(acl.acl.domain_count, acl.domains.len() as u64, "domains are counted");
        self.u64(acl.object.0);
        self.acl_head(&acl.acl);
        self.acl_body(&acl.acl);
        self.strings(&acl.domains);
        kind::ACL
    }

    fn acl_head(&mut self, acl: &NewAcl) {
        let (fuids, bytes) = (acl.fuids.len() as u64, acl.aces.len() as u64);
        self.words(&[acl.count, acl.domain_count, fuids, bytes, acl.flags]);
    }

    fn acl_body(&mut self, acl: &NewAcl) {
        let end = self.raw.len() + acl.aces.len().next_multiple_of(8);
        self.raw.extend_from_slice(&acl.aces);
        self.raw.resize(end, 0);
        self.words(&acl.fuids);
    }

    fn attrs(&mut self, attrs: &Attrs) {
        self.u32(3);
        attrs.wanted.iter().for_each(|&word| self.u32(word));
        self.u64(attrs.values);
        self.time(attrs.crtime);
        self.raw.extend_from_slice(&attrs.scanstamp);
    }

    fn write(&mut self, write: &Write) -> u64 {
        self.words(&[write.object.0, write.offset, write.length, write.block_offset]);
        self.raw.extend_from_slice(&write.ptr.encode(self.order));
        if let Some(data) = &write.data {
            assert!(!data.is_empty() && data.len() as u64 == write.length, "the record holds its data");
            self.raw.extend_from_slice(data);
        }
        kind::WRITE
    }

    fn set_attr(&mut self, set: &SetAttr) -> u64 {
        self.words(&[set.object.0, set.mask, set.mode, set.uid, set.gid, set.size]);
        self.time(set.atime);
        self.time(set.mtime);
        assert_eq!(set.attrs.is_some(), set.mask & mask::XVATTR != 0, "the mask announces the attributes");
        if let Some(attrs) = &set.attrs {
            self.attrs(attrs);
        }
        self.strings(&set.domains);
        kind::SETATTR
    }
}
