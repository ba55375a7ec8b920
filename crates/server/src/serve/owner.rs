//! Pools of root that lie in files of another user, who can put anything into them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use pool::Found;

use crate::plan::Overrides;

/// The other user who owns a file of root's pool, and so can put any contents into it.
pub(super) fn other_owner(found: &Found) -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let files = found.devices.values().filter_map(|path| fs::metadata(pool::backing_file(path)).ok());
    files.filter(|file| file.is_file()).map(|file| file.uid()).find(|owner| *owner != 0)
}

/// The log line about a pool in files of another user; `None` if the mount options settle the question.
pub(super) fn distrust(name: &str, owner: u32, given: Option<Overrides>) -> Option<String> {
    let given = given.unwrap_or_default();
    (given.setuid.is_none() || given.devices.is_none()).then(|| {
        format!(
            "'{name}' lies in files of user {owner}: set-id bits and devices in it have no effect \
             (mount options 'suid' and 'dev' change that)"
        )
    })
}
