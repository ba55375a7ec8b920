//! The encrypted pool that OpenZFS made: its keys open, and every block of every dataset is authentic.

use std::path::Path;
use std::process::Command;

use codec::crypt::{Content, CryptError, DatasetKeys, WrappingKey, indirect_mac};
use format::blkptr::{self, Block};
use format::dnode::SLOT;
use format::{BlockPtr, ByteOrder, Compression, Dnode, ObjectType, Objset};
use pool::props::DatasetKind;
use pool::{Error, KeyError, KeyObject, Options, Pool};
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
    object.user_key.wrapping(key.as_bytes()).unwrap()
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
            self.keys.open(Content::Dnodes(LE), &sealing, &block.mac(), &mut raw).unwrap();
            let mut at = 0;
            while at < raw.len() {
                let dnode = Dnode::decode(&raw[at..], LE).unwrap();
                at += dnode.as_ref().map_or(1, |dnode| dnode.slots.into()) * SLOT;
                dnode.iter().for_each(|dnode| self.dnode(dnode));
            }
            assert_eq!(self.keys.seal(Content::Dnodes(LE), &sealing, &mut raw), Ok(block.mac()));
            assert_eq!(raw, before, "sealed again it is the same");
        } else {
            self.keys.open(Content::Whole, &sealing, &block.mac(), &mut raw).unwrap();
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
        let Some(encryption) = pool.encryption(&info).unwrap() else { continue };
        if info.kind == DatasetKind::Bookmark {
            continue;
        }
        let object = encryption.object;
        let wrapping = wrapping(keys[&encryption.root].as_str().unwrap(), &object);
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
fn a_wrong_key_is_reported_at_once() {
    let (dir, _) = golden();
    let pool = import(dir.path());
    let info = pool.reading().info("gcrypt/secret").unwrap();
    let object = pool.encryption(&info).unwrap().unwrap().object;
    let error = wrapping("incorrect horse", &object).unwrap(&object.wrapped).unwrap_err();
    assert_eq!(error, CryptError::Unauthentic);
}

#[test]
fn a_key_is_loaded_for_its_root_and_unloaded_when_it_is_unused() {
    let (dir, _) = golden();
    let pool = import(dir.path());
    let info = |name: &str| pool.reading().info(name).unwrap();
    let status = |name: &str| {
        let property = pool::props::dataset::parse("keystatus").unwrap();
        match pool.property(&info(name), property).unwrap() {
            Some((pool::props::Value::Number(number), _)) => number,
            other => panic!("{other:?}"),
        }
    };
    let key = |name: &str, given: &str| {
        pool.encryption(&info(name)).unwrap().unwrap().object.user_key.wrapping(given.as_bytes()).unwrap()
    };
    let load = |name: &str, given: &str, dry| pool.load_key(&info(name), key("gcrypt/secret", given), dry);

    let locked = pool.open("gcrypt/secret/inherits").err().unwrap();
    assert!(matches!(locked, Error::Key(KeyError::NotLoaded(_))), "{locked}");
    assert!(matches!(load("gcrypt", "correct horse", false), Err(Error::Key(KeyError::NotEncrypted(_)))));
    let inherits = load("gcrypt/secret/inherits", "correct horse", false);
    assert!(matches!(inherits, Err(Error::Key(KeyError::NotRoot { root, .. })) if root == "gcrypt/secret"));
    assert!(matches!(load("gcrypt/secret", "wrong horse", false), Err(Error::Key(KeyError::Wrong(_)))));
    load("gcrypt/secret", "correct horse", true).unwrap();
    assert_eq!(status("gcrypt/secret"), 1, "a dry run loads nothing");
    load("gcrypt/secret", "correct horse", false).unwrap();
    assert!(matches!(
        load("gcrypt/secret", "correct horse", false),
        Err(Error::Key(KeyError::AlreadyLoaded(_)))
    ));
    assert_eq!(["gcrypt/secret", "gcrypt/secret/inherits", "gcrypt/secret/own"].map(status), [2, 2, 1]);

    let open = pool.open("gcrypt/secret/inherits").unwrap();
    assert!(matches!(pool.unload_key(&info("gcrypt/secret")), Err(Error::DatasetBusy(_))));
    drop(open);
    pool.unload_key(&info("gcrypt/secret")).unwrap();
    assert!(matches!(pool.unload_key(&info("gcrypt/secret")), Err(Error::Key(KeyError::NotLoaded(_)))));
    assert!(pool.open("gcrypt/secret/inherits").is_err(), "and nothing is read any more");
}
