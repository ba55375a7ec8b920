//! A mirror one of whose devices fails, lags behind or is not there: the pool goes on, and remembers what the device missed.

use std::sync::Arc;

use dmu::{NewObject, zap};
use format::config::{VdevConfig, VdevKind};
use format::{ObjectId, ObjectType};
use pool::{CreateSpec, Hold, NewFilesystem, Options, Pool, check};
use storage::host::{CrashPolicy, Disk, Fault, Host, Script, ScriptedDisk};

const SIZE: u64 = 96 << 20;
const LEN: usize = 200_000;

fn options() -> Options {
    Options { io_threads: 0, workers: 1, txg_timeout: 3600, host: Host::seeded(1, 0), ..Options::default() }
}

fn created(script: &Script) -> Pool {
    let options = options();
    let disks: Vec<_> =
        (0..2).map(|n| Arc::new(script.disk(format!("disk{n}"), SIZE)) as Arc<dyn Disk>).collect();
    let master: pool::Initialise = Arc::new(|objset, tx, new| {
        let master = objset.create_object_at(tx, ObjectId(1), NewObject::plain(ObjectType::MASTER_NODE));
        zap::create(&master, tx, new.host.entropy.u64(), 0)
    });
    let plain = NewFilesystem::plain(&options.host);
    let spec = CreateSpec { ashift: Some(9), sides: 2, ..CreateSpec::new("tank", disks, plain, master) };
    Pool::create(spec, options).unwrap()
}

fn content(n: u64) -> Vec<u8> {
    (0..LEN as u64).map(|i| (i.wrapping_mul(n * 2 + 1) >> 3) as u8).collect()
}

fn write(pool: &Pool, n: u64) -> ObjectId {
    let dataset = pool.open("tank").unwrap();
    let tx = dataset.begin(Hold::write(LEN as u64)).unwrap();
    let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(16 << 10);
    let object = dataset.objset().create_object(&tx, new).unwrap();
    object.write(&tx, 0, &content(n)).unwrap();
    object.id()
}

fn read(pool: &Pool, id: ObjectId) -> Vec<u8> {
    let mut found = vec![0; LEN];
    let dataset = pool.open("tank").unwrap();
    dataset.objset().object(id).unwrap().read(0, &mut found).unwrap();
    found
}

fn imported(disks: impl IntoIterator<Item = ScriptedDisk>) -> Pool {
    let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    Pool::import_disks(disks, options()).unwrap()
}
