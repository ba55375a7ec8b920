//! Mounts a dataset of a pool image by hand: `mount IMAGE DATASET DIR`. Ends, and exports the pool, when it is
//! unmounted (`umount DIR`).

use std::path::Path;
use std::sync::Arc;

use fuse::MountOptions;
use pool::{Options, Pool};
use storage::host::{Access, Disk, FileDisk};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().collect();
    let [_, image, dataset, dir, flags @ ..] = args.as_slice() else {
        return Err("usage: mount IMAGE DATASET DIR [nowriteback]".into());
    };
    let disk: Arc<dyn Disk> =
        Arc::new(FileDisk::open(Path::new(image), Access::ReadWrite { exclusive: true })?);
    let pool = Pool::import_disks(vec![disk], Options::default())?;
    {
        let fs = zpl::Filesystem::open(pool.open(dataset)?)?;
        let writeback = !flags.iter().any(|flag| flag == "nowriteback");
        let options = MountOptions { source: dataset.clone(), writeback, ..MountOptions::default() };
        let mounted = fuse::mount(fs, Path::new(dir), &options)?;
        println!("{dataset} is mounted on {}", mounted.point().display());
        mounted.wait();
    }
    pool.export()?;
    Ok(())
}
