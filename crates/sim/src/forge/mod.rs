//! Pools in which any byte can be changed while all checksums stay right.
//!
//! From:   the image of a pool on one device.
//! To:     tests and fuzz targets. A reader finds nothing wrong with the checksums, so a changed byte reaches the decoder of
//!         the block that it is in.
//!
//! [`Source`] is the pool, parsed once: every block that can be reached from the newest uberblock. A [`Forgery`] is a set
//! of changes to the contents of its blocks. [`Forgery::seal`] compresses the changed blocks again, computes their
//! checksums, puts those into the pointers of the blocks above, and continues up to the uberblocks of all labels.

mod damage;
mod disk;
mod entries;
mod sample;
mod source;

use std::collections::BTreeMap;

use format::blkptr::{self, Block, Dva};
use format::compression::CompressionSetting;
use format::nvlist::NvList;
use format::{BlockPtr, ByteOrder, Compression, label};

pub use damage::{damage, damage_by};
pub use disk::PatchedDisk;
pub use entries::damage_entries_by;
pub use sample::{crafted, sample};
pub use source::{Place, Source};

use source::{DATA_START, Holder, Node};

const LE: ByteOrder = ByteOrder::Little;
/// Where new blocks are put is a multiple of this, in bytes: whole sectors of any `ashift`.
const ALIGNMENT: u64 = 64 << 10;

/// Bytes that replace those of the image from an offset on.
pub type Patches = BTreeMap<u64, Vec<u8>>;

/// Changes to a pool.
#[derive(Clone)]
pub struct Forgery<'a> {
    source: &'a Source,
    contents: BTreeMap<usize, Vec<u8>>,
    patches: Patches,
    /// Blocks that no longer fit in their places are written below this offset of the vdev.
    free_below: u64,
}

impl<'a> Forgery<'a> {
    /// No change yet.
    #[must_use]
    pub fn of(source: &'a Source) -> Forgery<'a> {
        let free_below = source.vdev_size;
        Forgery { source, contents: BTreeMap::new(), patches: Patches::new(), free_below }
    }

    /// The content of a block, uncompressed, with the changes made so far.
    #[must_use]
    pub fn content(&self, block: usize) -> &[u8] {
        self.contents.get(&block).unwrap_or(&self.source.blocks[block].content)
    }

    /// Changes the uncompressed content of a block. Pointers in it to other changed blocks are set later, by
    /// [`Forgery::seal`].
    pub fn edit(&mut self, block: usize, change: impl FnOnce(&mut [u8])) -> &mut Self {
        let content = self.contents.entry(block).or_insert_with(|| self.source.blocks[block].content.clone());
        change(content);
        self
    }

    /// Changes the bytes of a dnode.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn edit_dnode(&mut self, objset: u64, object: u64, change: impl FnOnce(&mut [u8])) -> &mut Self {
        let (block, range) = self.source.dnode(objset, object).expect("the object exists");
        self.edit(block, |content| change(&mut content[range]))
    }

    /// Changes the bonus of a dnode.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn edit_bonus(&mut self, objset: u64, object: u64, change: impl FnOnce(&mut [u8])) -> &mut Self {
        self.edit_dnode(objset, object, |raw| {
            let at = source::bonus_at(raw);
            change(&mut raw[at..]);
        })
    }

    /// Replaces each occurrence of `old` in a block by `new`, which is as long. Returns how often.
    ///
    /// # Panics
    /// If it is not as long.
    pub fn replace_in(&mut self, block: usize, old: &[u8], new: &[u8]) -> usize {
        assert_eq!(old.len(), new.len(), "the content keeps its layout");
        let content = self.content(block);
        let found: Vec<usize> = (0..content.len().saturating_sub(old.len() - 1))
            .filter(|at| content[*at..].starts_with(old))
            .collect();
        if !found.is_empty() {
            self.edit(block, |content| {
                found.iter().for_each(|at| content[*at..*at + new.len()].copy_from_slice(new));
            });
        }
        found.len()
    }

    /// Writes a new block at a free place, uncompressed. The rest of its pointer is that of `like`.
    pub fn add(&mut self, content: &[u8], like: Block) -> BlockPtr {
        let dvas =
            [self.free_place(content.len() as u64, like.dvas[0]), Dva::decode(0, 0), Dva::decode(0, 0)];
        let len = content.len() as u64;
        let mut new = Block { dvas, lsize: len, psize: len, compression: Compression::Off, ..like };
        new.checksum = codec::checksum(new.checksum_kind, content, &self.source.salt);
        self.patches.insert(new.dvas[0].offset + DATA_START, content.to_vec());
        BlockPtr::Block(new)
    }

    fn free_place(&mut self, len: u64, like: Dva) -> Dva {
        self.free_below = (self.free_below - len) / ALIGNMENT * ALIGNMENT;
        Dva { offset: self.free_below, asize: len, ..like }
    }

    /// Changes the configuration in all four labels.
    ///
    /// # Panics
    /// If a label cannot be read, or the new list does not fit.
    pub fn edit_labels(&mut self, change: impl Fn(&mut NvList)) -> &mut Self {
        for offset in label::offsets(self.source.image.len() as u64).expect("the image has labels") {
            let at = offset + label::PHYS.offset;
            let raw = &self.source.image[at as usize..at as usize + label::PHYS.len];
            let mut list = label::decode_phys(raw).expect("the label is sound");
            change(&mut list);
            let mut raw = label::encode_phys(&list).expect("the list fits");
            codec::embedded::seal(&mut raw, [at, 0, 0, 0]);
            self.patches.insert(at, raw);
        }
        self
    }

    /// Makes all checksums right. Returns the bytes to be written over the image.
    #[must_use]
    pub fn seal(mut self) -> Patches {
        for &block in &self.source.children_first {
            if let Some(content) = self.contents.get(&block).cloned() {
                let ptr = self.store(block, &content).encode(LE);
                for holder in &self.source.blocks[block].holders {
                    self.hold(*holder, &ptr);
                }
            }
        }
        self.patches
    }

    /// Writes the pointer to a changed block into the block or the uberblocks that hold it.
    fn hold(&mut self, holder: Holder, ptr: &[u8; blkptr::SIZE]) {
        match holder {
            Holder::Block { block, at } => {
                self.edit(block, |content| content[at..at + blkptr::SIZE].copy_from_slice(ptr));
            }
            Holder::Uberblocks => {
                for slot in &self.source.uberblocks {
                    let mut raw = self.source.image[slot.clone()].to_vec();
                    let root = source::ROOT_AT;
                    raw[root..root + blkptr::SIZE].copy_from_slice(ptr);
                    codec::embedded::seal(&mut raw, [slot.start as u64, 0, 0, 0]);
                    self.patches.insert(slot.start as u64, raw);
                }
            }
        }
    }

    /// Writes a changed block where it was if it still fits there, else uncompressed at a new place.
    fn store(&mut self, block: usize, content: &[u8]) -> BlockPtr {
        let Node { ptr: old, embedded, .. } = &self.source.blocks[block];
        if *embedded {
            return self.add(content, *old);
        }
        let mut bytes = vec![0; old.psize as usize];
        let fits = match old.compression {
            Compression::Off => {
                bytes.copy_from_slice(content);
                true
            }
            algorithm => {
                let setting = CompressionSetting { algorithm, ..CompressionSetting::LZ4 };
                codec::compress(setting, content, &mut bytes).is_some()
            }
        };
        if !fits {
            return self.add(content, *old);
        }
        let mut new = *old;
        new.checksum = codec::checksum(old.checksum_kind, &bytes, &self.source.salt);
        for dva in new.copies() {
            self.patches.insert(dva.offset + DATA_START, bytes.clone());
        }
        BlockPtr::Block(new)
    }
}

/// The image with the patches written over it.
#[must_use]
pub fn apply(image: &[u8], patches: &Patches) -> Vec<u8> {
    let mut image = image.to_vec();
    for (offset, bytes) in patches {
        image[*offset as usize..*offset as usize + bytes.len()].copy_from_slice(bytes);
    }
    image
}
