//! Notes of changes of extended attributes for the intent log.
//!
//! Attributes stored in the node have a record type of their own, which needs the feature `zilsaxattr`. Attributes stored in
//! files use the records of files. Source: docs/format/08-zil.md §3.

use dmu::Object;
use format::zil::{Body, CreateKind, Write};
use format::znode::Znode;
use format::{BlockPtr, ObjectId};
use pool::Tx;
use pool::zil::Note;

use crate::log::{created, set_attr};
use crate::{Filesystem, SetAttr};

/// A change of one node's extended attributes, in the order it was made.
#[derive(Default)]
pub(crate) struct Told {
    notes: Vec<Note>,
    /// Some of it lies in the node itself.
    in_node: bool,
    /// Some of it lies in files: names changed.
    in_files: bool,
    /// There is a change that no record can express.
    untold: bool,
}

impl Told {
    fn done(&mut self, body: Body) {
        self.notes.push(Note::Done(Box::new(body)));
    }

    /// In the node itself, `name` has this value, or is gone.
    pub(crate) fn in_node(&mut self, id: ObjectId, name: &[u8], value: Option<&[u8]>) {
        self.in_node = true;
        // A record without a value means a removed attribute.
        self.untold |= value.is_some_and(<[u8]>::is_empty);
        self.done(Body::SetSaXattr { object: id, name: name.to_vec(), value: value.map(<[u8]>::to_vec) });
    }

    /// The hidden directory of `owner` was made.
    pub(crate) fn directory(&mut self, owner: ObjectId, dir: &Object, znode: &Znode) {
        self.in_files = true;
        let mut body = created(owner, b"", dir, znode);
        if let Body::Create(create) = &mut body {
            create.kind = CreateKind::XattrDir;
        }
        self.done(body);
    }

    /// A file was made there, with its content.
    pub(crate) fn file(&mut self, dir: ObjectId, name: &[u8], file: &Object, znode: &Znode, value: &[u8]) {
        self.in_files = true;
        self.done(created(dir, name, file, znode));
        self.content(file.id(), value);
    }

    /// The contents of such a file were written again. The data is noted at once: the file may be removed before the log is
    /// written, and records in between depend on its contents.
    pub(crate) fn content(&mut self, file: ObjectId, value: &[u8]) {
        self.in_files = true;
        if value.is_empty() {
            return;
        }
        self.done(Body::Write(Write {
            object: file,
            offset: 0,
            length: value.len() as u64,
            block_offset: 0,
            ptr: BlockPtr::HOLE,
            data: Some(value.to_vec()),
        }));
    }

    /// A file was taken away there.
    pub(crate) fn removed(&mut self, dir: ObjectId, name: &[u8]) {
        self.in_files = true;
        self.done(Body::Remove { dir, name: name.to_vec(), is_dir: false });
    }

    /// The mode of the node went with an ACL.
    pub(crate) fn mode(&mut self, id: ObjectId, znode: &Znode) {
        let set = SetAttr { mode: Some((znode.mode & 0o7777) as u32), ..SetAttr::default() };
        self.done(set_attr(id, &set, znode));
    }
}

impl Filesystem {
    /// Extended attributes of `owner` changed.
    pub(crate) fn note_xattrs(&self, tx: &Tx, owner: ObjectId, znode: &Znode, told: Told) {
        let dataset = &self.inner.dataset;
        if znode.links == 0 {
            return;
        }
        if told.untold || told.in_node && !dataset.logs_sa_xattrs() {
            return self.note_unlogged(tx);
        }
        // A record of only one of name and contents would replay an attribute that never existed.
        let of = (!told.in_files).then_some(owner);
        told.notes.into_iter().for_each(|note| dataset.note(tx, of, || note));
    }
}
