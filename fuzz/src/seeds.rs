//! Real structures out of a pool image, as inputs for the targets: fuzzing starts from what OpenZFS writes.
//!
//! Follows block pointers from the newest uberblock of label 0 through everything below. It trusts nothing and
//! skips what it cannot read; checksums are not looked at.

use std::collections::{BTreeMap, BTreeSet};

use codec::decompress;
use format::object_type::SwapClass;
use format::zap::{self, ZapKind};
use format::{BlockPtr, ByteOrder, Compression, Dnode, NvList, ObjectType, blkptr, dnode};

use crate::codecs;

/// Inputs kept per target, and their largest length in bytes: more of the same teaches a fuzzer nothing.
const PER_TARGET: usize = 48;
const LONGEST: usize = 128 << 10;

const LABEL_CONFIG: std::ops::Range<usize> = 16 << 10..128 << 10;
const UBERBLOCKS: std::ops::Range<usize> = 128 << 10..256 << 10;
const UBERBLOCK_MAGIC: u64 = 0x00ba_b10c;
const UBERBLOCK_ROOT: usize = 0x28;
const DATA_START: u64 = 4 << 20;
const DATASET_BLKPTR: usize = 0x80;
/// What the target `sa` takes for "project and ACL".
const SA_LAYOUT_OF_FILES: u8 = 0b11;

/// Inputs by target.
#[derive(Default)]
pub struct Seeds {
    inputs: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
    visited: BTreeSet<u64>,
}

impl Seeds {
    /// The inputs of one target, in a fixed order.
    pub fn of(&self, target: &str) -> impl Iterator<Item = &[u8]> {
        self.inputs.get(target).into_iter().flatten().map(Vec::as_slice)
    }

    /// All inputs.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &BTreeSet<Vec<u8>>)> {
        self.inputs.iter().map(|(target, inputs)| (*target, inputs))
    }

    fn keep(&mut self, target: &'static str, input: Vec<u8>) {
        let kept = self.inputs.entry(target).or_default();
        if kept.len() < PER_TARGET && input.len() <= LONGEST {
            kept.insert(input);
        }
    }

    /// An input for a target that takes the byte order first: these are all little-endian.
    fn keep_little(&mut self, target: &'static str, raw: &[u8]) {
        self.keep(target, [&[0], raw].concat());
    }

    /// Takes what the image of a pool's only device holds.
    pub fn add_image(&mut self, image: &[u8]) {
        self.visited.clear();
        if let Some(label) = image.get(LABEL_CONFIG)
            && let Ok((_, len)) = NvList::decode_prefix(label)
        {
            for target in ["nvlist_xdr", "config", "label"] {
                self.keep(target, label[..len].to_vec());
            }
        }
        self.keep_log_blocks(image);
        let word = |at: usize| ByteOrder::Little.u64(image, at);
        let newest = UBERBLOCKS
            .step_by(1 << 10)
            .filter(|&at| at + 1024 <= image.len() && word(at) == UBERBLOCK_MAGIC)
            .max_by_key(|&at| word(at + 16));
        if let Some(at) = newest {
            self.keep("uberblock", image[at..at + 1024].to_vec());
            self.follow(image, &image[at + UBERBLOCK_ROOT..]);
        }
    }

    /// Takes pieces of a send stream.
    pub fn add_stream(&mut self, stream: &[u8]) {
        for len in [4 << 10, 32 << 10, LONGEST - 1] {
            self.keep_little("stream", &stream[..stream.len().min(len)]);
        }
    }

    /// Log blocks lie wherever there was room: every unit of the image that begins like one.
    fn keep_log_blocks(&mut self, image: &[u8]) {
        const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
        for block in image[DATA_START as usize..].chunks_exact(format::zil::BLOCK_MIN) {
            if ByteOrder::Little.u64(block, format::zil::TRAILER_AT) == MAGIC {
                self.keep_little("zil", block);
                self.keep_little("zil", &block[format::zil::CHAIN_SIZE..]);
            }
        }
    }

    fn follow(&mut self, image: &[u8], raw: &[u8]) {
        let Some(raw) = raw.get(..blkptr::SIZE) else { return };
        let Ok(ptr) = BlockPtr::decode(raw, ByteOrder::Little) else { return };
        let (kind, level, compression, payload, lsize) = match &ptr {
            BlockPtr::Hole(_) => return,
            BlockPtr::Embedded(e) => {
                (e.object_type, e.level, e.compression, &e.payload[..e.psize.into()], e.lsize)
            }
            BlockPtr::Block(b) => {
                let at = (b.dvas[0].offset + DATA_START) as usize;
                let Some(payload) = image.get(at..at + b.psize as usize) else { return };
                if b.dvas[0].vdev.0 != 0 || !self.visited.insert(b.dvas[0].offset) {
                    return;
                }
                (b.object_type, b.level, b.compression, payload, b.lsize)
            }
        };
        self.keep_little("blkptr", raw);
        let mut block = vec![0; lsize as usize];
        if decompress(compression, payload, &mut block).is_err() {
            return;
        }
        let codec = match compression {
            Compression::Lzjb => "lzjb",
            Compression::Lz4 => "lz4",
            Compression::Zle => "zle",
            Compression::Gzip(_) => "gzip",
            Compression::Zstd => "zstd",
            _ => "",
        };
        if let (false, Some(input)) = (codec.is_empty(), codecs::seed(block.len(), payload)) {
            self.keep(codec, input);
        }
        self.keep("swap", [&[kind.0, 0, level.min(1)], &block[..]].concat());
        if level > 0 {
            block.chunks_exact(blkptr::SIZE).for_each(|ptr| self.follow(image, ptr));
        } else {
            self.leaf(image, kind, &block);
        }
    }

    /// A level 0 block of an object of type `kind`.
    fn leaf(&mut self, image: &[u8], kind: ObjectType, block: &[u8]) {
        match kind {
            ObjectType::DNODE => self.dnodes(image, block),
            ObjectType::OBJSET => {
                self.keep_little("objset", block);
                self.dnodes(image, &block[..dnode::SLOT]);
            }
            ObjectType::PACKED_NVLIST => {
                self.keep("nvlist_xdr", block.to_vec());
                self.keep("config", block.to_vec());
            }
            ObjectType::SPACE_MAP => self.keep_little("space_map", block),
            ObjectType::SPA_HISTORY => self.history(block),
            ObjectType::PLAIN_FILE_CONTENTS => self.keep("compress", [&[0], block].concat()),
            _ if kind.swap_class() == Some(SwapClass::Zap) => match zap::kind(block) {
                Ok((ZapKind::Micro, _)) => self.keep_little("zap_micro", block),
                Ok((ZapKind::Fat, _)) => self.keep_little("zap_fat_header", block),
                Ok((ZapKind::Leaf, _)) => self.keep("zap_leaf", block.to_vec()),
                Err(_) => {}
            },
            _ => {}
        }
    }

    /// The ring of history: records, each a length and a packed list.
    fn history(&mut self, block: &[u8]) {
        self.keep("history", block.to_vec());
        let mut rest = block;
        while let Some((len, next)) = rest.split_first_chunk::<8>() {
            let Some((record, next)) = next.split_at_checked(u64::from_le_bytes(*len) as usize) else {
                return;
            };
            if record.is_empty() {
                return;
            }
            self.keep("nvlist_native", record.to_vec());
            rest = next;
        }
    }

    fn dnodes(&mut self, image: &[u8], block: &[u8]) {
        let mut rest = block;
        while !rest.is_empty() {
            let found = Dnode::decode(rest, ByteOrder::Little).ok().flatten();
            let len = found.as_ref().map_or(dnode::SLOT, |dnode| usize::from(dnode.slots) * dnode::SLOT);
            let (raw, next) = rest.split_at(len);
            rest = next;
            let Some(dnode) = found else { continue };
            self.keep_little("dnode", raw);
            let bonus = match dnode.bonus_type {
                ObjectType::DSL_DIR => "dsl_dir",
                ObjectType::DSL_DATASET => "dsl_dataset",
                ObjectType::BPOBJ_HDR => "bpobj",
                ObjectType::SPACE_MAP_HEADER => "space_map_header",
                ObjectType::DEADLIST_HDR => "deadlist",
                ObjectType::ZNODE => "znode",
                _ => "",
            };
            if !bonus.is_empty() {
                self.keep_little(bonus, &dnode.bonus);
            }
            match dnode.bonus_type {
                ObjectType::SA => self.keep("sa", [&[SA_LAYOUT_OF_FILES], &dnode.bonus[..]].concat()),
                ObjectType::SPA_HISTORY_OFFSETS => self.keep("history", dnode.bonus.clone()),
                _ => {}
            }
            dnode.block_ptrs.iter().chain(&dnode.spill).for_each(|ptr| {
                self.follow(image, &ptr.encode(ByteOrder::Little));
            });
            if let (ObjectType::DSL_DATASET, Some(root)) =
                (dnode.bonus_type, dnode.bonus.get(DATASET_BLKPTR..))
            {
                self.follow(image, root);
            }
        }
    }
}
