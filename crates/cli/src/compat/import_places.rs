//! Messages about the places that `zpool import -d` names.
//!
//! From:   files, devices and folders that the user named, and copies of devices that were found.
//! To:     lines on standard error. OpenZFS is silent about them, so those about folders and missing files are only for people.

use std::fs::File;
use std::path::Path;

use format::config::PoolState;
use pool::known::KnownPool;
use pool::{DeviceCopy, Found, backing_file};

use crate::messages::{Action, Failure, plain};
use crate::open::NotOpen;
use crate::out::Console;

/// Says in one line why no pool can be imported from a place. Returns whether it cannot be read, or is a file without a pool.
pub(super) fn explain(place: &Path, known: &[KnownPool], destroyed: bool, console: &mut Console) -> bool {
    let cannot =
        |source| plain(format!("cenote: {}", NotOpen::NoPlace { place: place.to_path_buf(), source }));
    let metadata = match std::fs::metadata(backing_file(place)) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            console.explain(&cannot(error));
            return false;
        }
        Err(error) => {
            console.remark(&cannot(error));
            return true;
        }
    };
    let opened = match metadata.is_dir() {
        true => std::fs::read_dir(place).map(|_| ()),
        false => File::open(backing_file(place)).map(|_| ()),
    };
    if let Err(error) = opened {
        console.remark(&cannot(error));
        return true;
    }
    let found = pool::discover(&[place.to_path_buf()]);
    if !found.is_empty() {
        found.iter().for_each(|pool| left_out(pool, known, destroyed, console));
        let damaged = if metadata.is_dir() { 0 } else { pool::damaged_labels(place) };
        if damaged > 0 {
            let shown = place.display();
            console.note(&format!("cenote: {damaged} of the 4 labels of '{shown}' are damaged: 'cenote check {shown}' looks at the rest"));
        }
        return false;
    }
    if metadata.is_dir() {
        console.explain(&format!("cenote: no file in '{}' holds a pool", place.display()));
        return false;
    }
    console.remark(&format!("cenote: {}", NotOpen::no_pool(place)));
    true
}

/// Tells people why a pool that was found is not among those that could be imported.
fn left_out(pool: &Found, known: &[KnownPool], destroyed: bool, console: &mut Console) {
    let name = &pool.config.name;
    if known.iter().any(|known| known.guid == pool.config.pool_guid) {
        console.explain(&format!("cenote: '{name}' is imported already"));
    } else if pool.config.state == PoolState::Destroyed && !destroyed {
        console.explain(&format!("cenote: '{name}' was destroyed: 'zpool import -D' lists it"));
    }
}

/// Names two copies of one device, and says which one is used.
pub(super) fn tell(copy: &DeviceCopy, console: &mut Console) {
    let DeviceCopy { used, left_out, is_doubtful } = copy;
    let (used, left_out) = (used.display(), left_out.display());
    console.note(&match is_doubtful {
        true => format!(
            "cenote: '{left_out}' and '{used}' are copies of one device: name only one of them with -d"
        ),
        false => format!("cenote: '{left_out}' and '{used}' are copies of one device: '{used}' is used"),
    });
}

/// Names all copies of devices of a pool that is to be imported.
///
/// # Errors
/// It is unknown which one of two copies is meant.
pub(super) fn choose(found: &Found, action: Action, console: &mut Console) -> Result<(), Failure> {
    if let Some(copy) = found.copies.iter().find(|copy| copy.is_doubtful) {
        let failure = action.failed(NotOpen::Copies(copy.clone()));
        return Err(failure.hint("name only one of them with -d"));
    }
    found.copies.iter().for_each(|copy| tell(copy, console));
    Ok(())
}
