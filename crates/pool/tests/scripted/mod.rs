//! A pool on scripted disks, and files in it, for tests of disks that fail, hang or are missing.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use dmu::{NewObject, zap};
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Hold, Layout, NewFilesystem, NewTop, Options, Pool};
use storage::host::{Disk, Host, Script, ScriptedDisk};

/// Bytes of a disk.
pub const SIZE: u64 = 96 << 20;
/// Bytes of a file.
pub const LEN: u64 = 200_000;

/// Options with which a txg ends only when a test asks for it.
pub fn options() -> Options {
    Options { io_threads: 2, workers: 1, txg_timeout: 3600, host: Host::seeded(1, 0), ..Options::default() }
}

/// The pool `tank` on `count` disks of `script`: each for itself, or all in one mirror or raidz vdev.
pub fn created(script: &Script, layout: Layout, count: usize, options: Options) -> Pool {
    let disks = (0..count).map(|n| Arc::new(script.disk(format!("disk{n}"), SIZE)) as Arc<dyn Disk>);
    created_on(disks.collect(), layout, options)
}

/// As [`created`], on these disks.
pub fn created_on(disks: Vec<Arc<dyn Disk>>, layout: Layout, options: Options) -> Pool {
    let tops = match layout {
        Layout::Single => disks.into_iter().map(|disk| NewTop::new(layout, vec![disk])).collect(),
        layout => vec![NewTop::new(layout, disks)],
    };
    let master: pool::Initialise = Arc::new(|objset, tx, new| {
        let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)
    });
    let plain = NewFilesystem::plain(&options.host);
    let spec = CreateSpec { tops, ashift: Some(9), ..CreateSpec::new("tank", Vec::new(), plain, master) };
    Pool::create(spec, options).unwrap()
}

/// The pool that these disks hold.
pub fn imported(disks: impl IntoIterator<Item = ScriptedDisk>, options: Options) -> Pool {
    let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    Pool::import_disks(disks, options).unwrap()
}

/// The content that [`write`] writes into its `n`th file.
pub fn content(n: u64) -> Vec<u8> {
    (0..LEN).map(|i| (i.wrapping_mul(n * 2 + 1) >> 3) as u8).collect()
}

/// Writes a file, in memory.
pub fn write(pool: &Pool, n: u64) -> pool::Result<ObjectId> {
    let dataset = pool.open("tank")?;
    let tx = dataset.begin(Hold::write(LEN))?;
    let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(16 << 10);
    let object = dataset.objset().create_object(&tx, new)?;
    object.write(&tx, 0, &content(n))?;
    Ok(object.id())
}

/// Reads a file that [`write`] made.
pub fn read(pool: &Pool, id: ObjectId) -> Vec<u8> {
    let mut found = vec![0; LEN as usize];
    let dataset = pool.open("tank").unwrap();
    dataset.objset().object(id).unwrap().read(0, &mut found).unwrap();
    found
}
