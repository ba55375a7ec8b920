//! The progress of a scrub or resilver, as stored in the MOS (06 §1.5).
//!
//! From:   `scrub`, which writes it; OpenZFS, which may have left one in the middle.
//! To:     imports, which judge it; the first sync after one, which has a foreign scrub begin anew.

use dmu::{Tx, zap};
use format::ObjectType;
use format::scan::Scan;
use format::zap::Value;

use crate::mos::{DIRECTORY, Mos};
use crate::{Error, Result};

/// The scan state's key in the object directory.
const KEY: &str = "scan";

/// The scan state on disk.
///
/// # Errors
/// It cannot be read.
pub fn read(mos: &Mos) -> Result<Option<Scan>> {
    let Some(value) = zap::lookup(&*mos.object(DIRECTORY)?, KEY.as_bytes())? else { return Ok(None) };
    Scan::from_words(&value.to_u64s()).map(Some).map_err(Error::corrupt(DIRECTORY))
}

/// Writes the scan state.
///
/// # Errors
/// The object directory cannot be read.
pub fn write(mos: &Mos, tx: &Tx, scan: &Scan) -> Result<()> {
    mos.set_directory(tx, KEY, &Value::from_u64s(&scan.to_words()))
}

/// For the first sync after an import: restarts an unfinished scrub or resilver. From now on, datasets may be created and
/// destroyed without an update of its queue.
pub(crate) fn restart_foreign(mos: &Mos, tx: &Tx) -> Result<()> {
    let under_way = |scan: &Scan| scan.is_scrubbing() || scan.is_resilvering();
    let Some(scan) = read(mos)?.filter(under_way) else { return Ok(()) };
    let mut again = scan.restarted();
    let waiting = match scan.queue.0 {
        0 => true,
        _ => zap::count(&*mos.object(scan.queue)?)? > 0,
    };
    if again == scan && !waiting {
        return Ok(());
    }
    if scan.queue.0 != 0 {
        mos.free(tx, scan.queue)?;
    }
    again.queue = mos.create_zap(tx, ObjectType::SCAN_QUEUE, 0)?.id();
    write(mos, tx, &again)
}
