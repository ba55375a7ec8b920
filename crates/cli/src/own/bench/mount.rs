//! Datasets as folders, for programs that are to be timed on them.

use std::path::Path;
use std::sync::Arc;

use bench::{Mount, Mounter};
use front::{MountOptions, Mounted};
use zpl::Filesystem;

use crate::front_ends::MOUNTER;

/// Mounts in this process: when it ends, so does the mount.
#[derive(Debug)]
pub struct Here;

struct Shown(Arc<dyn Mounted>);

impl Mounter for Here {
    fn mount(&self, fs: Filesystem, at: &Path) -> Result<Box<dyn Mount>, String> {
        let options = MountOptions { source: "cenote-bench".to_owned(), ..MountOptions::default() };
        let mounted = MOUNTER.mount(fs, at, &options).map_err(|error| error.to_string())?;
        Ok(Box::new(Shown(mounted)))
    }
}

impl Mount for Shown {
    fn take_down(self: Box<Self>) -> Result<(), String> {
        self.0.unmount(true).map_err(|error| error.to_string())
    }
}
