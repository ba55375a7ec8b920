//! A pool for unit tests.

use std::sync::Arc;

use storage::host::{Disk, ScriptedDisk};

use crate::{CreateSpec, NewFilesystem, Options, Pool};

/// A new pool on `disks`, with an empty file system.
pub(crate) fn made(disks: &[ScriptedDisk]) -> Pool {
    let options = Options::default();
    let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    let new = NewFilesystem::plain(&options.host);
    let spec =
        CreateSpec { ashift: Some(9), ..CreateSpec::new("tank", disks, new, Arc::new(|_, _, _| Ok(()))) };
    Pool::create(spec, options).expect("a pool")
}
