//! A MOS in memory, for tests of what is kept in it.

use std::sync::Arc;

use dmu::{Objset, Tx};
use format::objset::{ObjsetType, SIZE_V3};
use format::{ObjectId, ObjectType, Txg};
use storage::host::Host;
use storage::{Options, Storage, Vdevs};

use crate::mos::{DIRECTORY, Mos};

/// An empty MOS that nobody writes, and a transaction on it.
pub fn mos() -> (Mos, Tx) {
    let options = Options {
        cache_bytes: 0,
        free_bytes: 0,
        io_threads: 0,
        workers: 1,
        gzip_engine: None,
        slow_io: std::time::Duration::MAX,
    };
    let storage = Arc::new(Storage::new(Vdevs::new(Vec::new()), options));
    let objset = Objset::create(storage, Arc::default(), ObjsetType::Meta, 0, SIZE_V3);
    let (mos, tx) = (Mos::new(objset, Host::seeded(1, 0), 5000), Tx::new(Txg(4)));
    let made = mos.create_zap(&tx, ObjectType::OBJECT_DIRECTORY, 0).expect("made");
    assert_eq!(made.id(), DIRECTORY);
    assert_eq!(made.id(), ObjectId(1));
    (mos, tx)
}
