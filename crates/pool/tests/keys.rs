//! The encrypted pool that OpenZFS made: its keys open, and every block of every dataset is authentic.

use std::path::Path;
use std::process::Command;

use codec::crypt::{CryptError, DatasetKeys, WrappingKey, indirect_mac};
use format::blkptr::{self, Block};
use format::crypt::KeyFormat;
use format::dnode::SLOT;
use format::{BlockPtr, ByteOrder, Compression, Dnode, ObjectType, Objset};
use pool::props::DatasetKind;
use pool::{KeyObject, Options, Pool};
use serde_json::Value;

const LE: ByteOrder = ByteOrder::Little;

fn golden() -> (tempfile::TempDir, Value) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new(format!("{folder}/unpack")).arg("gcrypt").arg(dir.path()).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    let manifest =
        Command::new("zstd").args(["-dqc", &format!("{folder}/gcrypt.json.zst")]).output().unwrap();
    (dir, serde_json::from_slice(&manifest.stdout).unwrap())
}

fn import(dir: &Path) -> Pool {
    let found = pool::discover(&[dir.to_path_buf()]);
    Pool::import(&found[0], Options { read_only: true, ..Options::default() }).unwrap()
}

fn wrapping(key: &str, object: &KeyObject) -> WrappingKey {
    let user = object.user_key;
    match user.format {
        KeyFormat::Raw => WrappingKey::raw(key.as_bytes()),
        KeyFormat::Hex => WrappingKey::hex(key.as_bytes()),
        KeyFormat::Passphrase => WrappingKey::passphrase(key.as_bytes(), user.salt, user.iterations),
    }
    .unwrap()
}

/// Opens every block below a pointer and compares every authentication code.
struct Walk<'a> {
    pool: &'a Pool,
    keys: &'a DatasetKeys,
    /// Blocks that were sealed, blocks that were only authenticated, indirect blocks.
    seen: [usize; 3],
}

impl Walk<'_> {
    fn stored(&self, block: &Block) -> Vec<u8> {
        assert!(block.encrypted, "every block of an encrypted dataset has the bit: {block:?}");
        self.pool.storage().read_stored(block).unwrap()
    }

    fn expanded(block: &Block, raw: Vec<u8>) -> Vec<u8> {
        if block.compression == Compression::Off {
            return raw;
        }
        let mut out = vec![0; block.lsize as usize];
        codec::decompress(block.compression, &raw, &mut out).unwrap();
        out
    }

    fn objset(&mut self, block: &Block) {
        let raw = self.stored(block);
        let objset = Objset::decode(&raw, LE).unwrap();
        let macs = self.keys.objset_macs(&raw, LE).unwrap();
        assert_eq!(macs.portable, objset.portable_mac);
        assert_eq!(macs.local, objset.local_mac);
        let accounts = [&objset.user_used, &objset.group_used, &objset.project_used];
        for dnode in accounts.into_iter().flatten().chain([&objset.meta_dnode]) {
            self.dnode(dnode);
        }
    }

    fn dnode(&mut self, dnode: &Dnode) {
        for pointer in dnode.block_ptrs.iter().chain(&dnode.spill) {
            self.pointer(pointer);
        }
    }

    fn pointer(&mut self, pointer: &BlockPtr) {
        let BlockPtr::Block(block) = pointer else {
            assert!(pointer.is_hole(), "nothing is embedded in encrypted datasets");
            return;
        };
        let mut raw = self.stored(block);
        if block.level > 0 {
            let raw = Self::expanded(block, raw);
            assert_eq!(indirect_mac(&raw, LE, self.keys.mac_version()), block.mac());
            self.seen[2] += 1;
            for pointer in raw.chunks_exact(blkptr::SIZE) {
                self.pointer(&BlockPtr::decode(pointer, LE).unwrap());
            }
            return;
        }
        let Some(sealing) = block.sealing else {
            assert_eq!(self.keys.authenticate(&raw), block.mac(), "{block:?}");
            self.seen[1] += 1;
            return;
        };
        self.seen[0] += 1;
        if block.object_type == ObjectType::DNODE {
            let before = raw.clone();
            self.keys.open_dnodes(&sealing, &block.mac(), &mut raw, block.order).unwrap();
            let mut at = 0;
            while at < raw.len() {
                let dnode = Dnode::decode(&raw[at..], LE).unwrap();
                at += dnode.as_ref().map_or(1, |dnode| dnode.slots.into()) * SLOT;
                dnode.iter().for_each(|dnode| self.dnode(dnode));
            }
            assert_eq!(self.keys.seal_dnodes(&sealing, &mut raw, LE), Ok(block.mac()));
            assert_eq!(raw, before, "sealed again it is the same");
        } else {
            self.keys.open(&sealing, &block.mac(), &mut raw).unwrap();
            Self::expanded(block, raw);
        }
    }
}

#[test]
fn all_blocks_of_a_pool_of_openzfs_open_and_are_authentic() {
    let (dir, manifest) = golden();
    let pool = import(dir.path());
    let keys = manifest["keys"].as_object().unwrap();
    let (mut datasets, mut seen) = (0, [0; 3]);
    for info in pool.list("gcrypt", None, true).unwrap() {
        let Some(object) = pool.key_object(&info).unwrap() else { continue };
        if info.kind == DatasetKind::Bookmark {
            continue;
        }
        let root = info.name.split('@').next().unwrap();
        let root = keys.get(root).map_or("gcrypt/secret", |_| root);
        let wrapping = wrapping(keys[root].as_str().unwrap(), &object);
        let keys = wrapping.unwrap(&object.wrapped).unwrap();
        assert_eq!(wrapping.wrap(&keys, object.wrapped.iv), object.wrapped, "wrapped again it is the same");
        let BlockPtr::Block(block) = info.phys.bp else { panic!("{} is empty", info.name) };
        let mut walk = Walk { pool: &pool, keys: &keys, seen };
        walk.objset(&block);
        seen = walk.seen;
        datasets += 1;
    }
    assert_eq!((datasets, seen), (5, [214, 5, 30]), "datasets; blocks sealed, authenticated, indirect");
}

#[test]
fn a_wrong_key_is_told_at_once() {
    let (dir, _) = golden();
    let pool = import(dir.path());
    let info = pool.reading().info("gcrypt/secret").unwrap();
    let object = pool.key_object(&info).unwrap().unwrap();
    let error = wrapping("incorrect horse", &object).unwrap(&object.wrapped).unwrap_err();
    assert_eq!(error, CryptError::Unauthentic);
}
