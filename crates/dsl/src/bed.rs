//! Objsets on a scripted disk without a pool, for tests of what is kept in them.

use std::sync::Arc;
use std::time::Duration;

use dmu::{NewObject, Objset, Policy, Redundant, Space, SyncCtx, Tx};
use format::blkptr::{Block, Dva};
use format::compression::CompressionSetting;
use format::objset::{ObjsetType, SIZE_V3};
use format::{BlockPtr, ChecksumKind, ObjectType, Txg, VdevId};
use storage::allocator::{Class, Want};
use storage::host::{Host, ScriptedDisk, SeededEntropy};
use storage::{GzipEngine, Leaf, Options, Shape, Storage, TopVdev, Vdevs, WriteError, Writer};

use crate::mos::{DIRECTORY, Mos};

const TXG: Txg = Txg(4);
const SIZE: u64 = 64 << 20;

/// A device of one scripted disk.
pub fn storage() -> Arc<Storage> {
    let options = Options {
        cache_bytes: 64 << 20,
        free_bytes: 0,
        io_threads: 0,
        workers: 1,
        gzip_engine: None,
        slow_io: Duration::MAX,
        second: Default::default(),
    };
    let leaf = Leaf::new(7, Arc::new(ScriptedDisk::new(SIZE)));
    let shape = Shape::Disk(leaf);
    let asize = SIZE - (8 << 20);
    let top = TopVdev { id: 0, guid: 7, ashift: 9, asize, metaslab_shift: 24, class: Class::Normal, shape };
    Arc::new(Storage::new(Vdevs::new(vec![top]), options))
}

/// An empty MOS that no thread syncs, and a transaction on it.
pub fn mos() -> (Mos, Tx) {
    let objset = Objset::create(storage(), Arc::default(), ObjsetType::Meta, 0, SIZE_V3);
    let (mos, tx) = (Mos::new(objset, Host::seeded(1, 0), 5000), Tx::new(TXG));
    let made = mos.create_zap(&tx, ObjectType::OBJECT_DIRECTORY, 0).expect("made");
    assert_eq!(made.id(), DIRECTORY);
    (mos, tx)
}

/// Allocates from the start of the device on and frees nothing.
struct Next(u64);

impl Space for Next {
    fn allocate(&mut self, want: Want) -> Result<[Dva; 3], WriteError> {
        let Want { psize, copies, .. } = want;
        let mut next = || {
            let dva = Dva { vdev: VdevId(0), asize: psize, offset: self.0, gang: false };
            self.0 += psize;
            dva
        };
        Ok(std::array::from_fn(|copy| if copy < copies.into() { next() } else { Dva::default() }))
    }

    fn give_back(&mut self, _: Dva) {}

    fn born(&mut self, _: &BlockPtr) {}

    fn find_shared(&mut self, _: &Block, _: u8) -> dmu::Result<Option<Block>> {
        Ok(None)
    }

    fn takes_shared(&self, _: &Block, _: u8) -> bool {
        true
    }

    fn refer(&mut self, _: &Block, _: u8) -> dmu::Result<()> {
        Ok(())
    }

    fn killed(&mut self, _: &BlockPtr) -> dmu::Result<()> {
        Ok(())
    }
}

/// Writes objsets of both kinds with objects of many sizes, and returns their roots.
pub fn written() -> (Arc<Storage>, [BlockPtr; 2]) {
    let storage = storage();
    let mut space = Next(1 << 20);
    let roots = [ObjsetType::Meta, ObjsetType::Zfs].map(|kind| {
        let objset = Objset::create(storage.clone(), Arc::default(), kind, 0, SIZE_V3);
        fill(&objset, &Tx::new(TXG));
        write(&storage, &mut space, &objset)
    });
    (storage, roots)
}

fn fill(objset: &Objset, tx: &Tx) {
    for size in [512u32, 2048] {
        for n in (0..40u64).step_by(7) {
            let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(size);
            let object = objset.create_object(tx, new).expect("new");
            let data: Vec<u8> = (0..n * 700).map(|i| (i * n % 251) as u8).collect();
            object.write(tx, 0, &data).expect("written");
        }
    }
}

fn write(storage: &Storage, space: &mut Next, objset: &Objset) -> BlockPtr {
    let policy = Policy {
        compression: CompressionSetting::LZ4,
        metadata_compression: CompressionSetting::LZ4,
        gzip_engine: GzipEngine::DEFAULT,
        checksum: ChecksumKind::Fletcher4,
        copies: 1,
        dedup: None,
        redundant: Redundant::All,
        small_blocks: 0,
        embed: true,
        hole_birth: true,
        single: false,
        counts_sectors: false,
        secondary: Default::default(),
        encrypted: false,
    };
    let mut writer = Writer::new(storage, TXG);
    let io = objset.io();
    let mut ctx = SyncCtx {
        io,
        txg: TXG,
        space,
        writer: &mut writer,
        policy,
        mos_pass: 0,
        entropy: &SeededEntropy::new(1),
    };
    let synced = objset.sync(&mut ctx, objset.freeze()).expect("written");
    writer.finish().expect("written");
    synced.ptr
}
