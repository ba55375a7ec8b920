//! How fast the disks here are, and what the engine costs besides its codecs.
//!
//! A pool in a nameless temporary file takes some of the data uncompressed and gives it back, timed exactly as `cenote
//! bench` does. First a little, so that a slow disk does not take long, then more where that was fast.

use std::path::Path;

use super::model::Target;
use crate::source::Source;
use crate::{Event, Place, Plan, Result, Watch};

/// Bytes of the first try, and of the second.
const LITTLE: usize = 16 << 20;
const MUCH: usize = 192 << 20;
/// The second one is for disks that take the first one in this time.
const FAST_SECONDS: f64 = 0.15;
/// What the engine costs where nothing was measured, in seconds per byte: copying, checksums, bookkeeping of cenote on a
/// core of today (docs/performance.md).
pub(crate) const ENGINE_WRITE: f64 = 0.6e-9;
pub(crate) const ENGINE_READ: f64 = 0.3e-9;

/// Measures with `data`, repeated as often as needed, in `folder`; puts what it finds into `target`.
///
/// # Errors
/// There is no room or no permission; the caller stopped it.
pub(crate) fn measure(folder: &Path, data: &[Vec<u8>], target: &mut Target, watch: &dyn Watch) -> Result<()> {
    let plan = Plan {
        compressions: vec!["off".to_owned()],
        place: Place::Folder(folder.to_owned()),
        memory_bytes: Some(u64::MAX),
        ..Plan::usual()
    };
    let quiet = Quiet(watch);
    let once = |bytes: usize| -> Result<crate::Run> {
        let mut source = Source::of_memory(filled(data, bytes));
        let report = crate::run(&plan, &mut source, &quiet)?;
        Ok(report.runs.into_iter().next().expect("one configuration is measured"))
    };
    let mut run = once(LITTLE)?;
    if run.write_seconds + run.read_seconds < FAST_SECONDS {
        run = once(MUCH)?;
    }
    let bytes = run.logical_bytes as f64;
    target.disk_write.get_or_insert(run.write_rate());
    target.disk_read.get_or_insert(run.read_rate());
    target.engine_write = run.write_cpu_seconds / bytes;
    target.engine_read = run.read_cpu_seconds / bytes;
    target.disk_measured = true;
    Ok(())
}

/// Files of together `bytes` bytes, made of `data` over and over.
fn filled(data: &[Vec<u8>], bytes: usize) -> Vec<(String, Vec<u8>)> {
    const FILE: usize = 8 << 20;
    let mut files = Vec::new();
    let mut pieces = data.iter().filter(|piece| !piece.is_empty()).cycle();
    for number in 0..bytes.div_ceil(FILE) {
        let mut file = Vec::with_capacity(FILE);
        while file.len() < FILE {
            let Some(piece) = pieces.next() else { return files };
            file.extend_from_slice(&piece[..piece.len().min(FILE - file.len())]);
        }
        files.push((format!("{number}"), file));
    }
    files
}

/// Passes on the wish to stop, and nothing else.
struct Quiet<'a>(&'a dyn Watch);

impl Watch for Quiet<'_> {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        self.0.stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_rate_and_nothing_is_left_in_it() {
        struct Deaf;
        impl Watch for Deaf {
            fn event(&self, _: Event<'_>) {}
            fn stopped(&self) -> bool {
                false
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let mut target = Target {
            cores: 2,
            busy_cores: 0.0,
            disk_write: None,
            disk_read: Some(5.0),
            disk_measured: false,
            network: None,
            dirty_max: None,
            engine_write: 0.0,
            engine_read: 0.0,
        };
        measure(dir.path(), &[vec![3; 100_000]], &mut target, &Deaf).unwrap();
        assert!(
            target.disk_write.unwrap() > 1e6 && target.disk_read == Some(5.0) && target.engine_write > 0.0
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
