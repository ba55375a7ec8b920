//! Flushes: all devices at the same time.
//!
//! From:   `pool`, at the end of a txg, and after writes to intent logs.
//! To:     the leaves. Files and devices of the machine are flushed on several threads, so that the slowest one decides how long it takes;
//!         others one after another, in the order of the tree.

use crate::leaf::Leaf;
use crate::{Storage, WriteError};

/// A leaf with the id of its top-level vdev, and what its flush came to if it was flushed already.
type Flushed<'a> = (u32, &'a Leaf, Option<Result<(), WriteError>>);

impl Storage {
    /// Makes everything written so far durable on every disk. Where a device refuses, this waits until a retry succeeds.
    ///
    /// # Errors
    /// The first device that refused, where refused operations do not wait.
    pub fn flush(&self) -> Result<(), WriteError> {
        let all = self.vdevs().tops().iter().map(|top| top.id);
        for (vdev, leaf, mut flushed) in self.flush_together(all) {
            // The result that is there counts for the first attempt alone.
            let mut flush = || flushed.take().unwrap_or_else(|| leaf.flush_or_say());
            self.suspension.attempt(|| self.tree.write(vdev, leaf, &mut flush))?;
        }
        Ok(())
    }

    /// Makes all writes to these top-level vdevs durable.
    ///
    /// # Errors
    /// The first device that refused.
    pub fn flush_log(&self, vdevs: impl IntoIterator<Item = u32>) -> Result<(), WriteError> {
        for (vdev, leaf, flushed) in self.flush_together(vdevs) {
            self.tree.write(vdev, leaf, || flushed.unwrap_or_else(|| leaf.flush_or_say()))?;
        }
        Ok(())
    }

    /// The leaves of these top-level vdevs that take writes, flushed where several can be at the same time.
    fn flush_together(&self, vdevs: impl IntoIterator<Item = u32>) -> Vec<Flushed<'_>> {
        let tops = self.vdevs().tops();
        let has_device = |leaf: &&Leaf| leaf.distributed().is_none();
        let leaves =
            |vdev: u32| tops[vdev as usize].written().filter(has_device).map(move |leaf| (vdev, leaf, None));
        let mut all: Vec<Flushed<'_>> = vdevs.into_iter().flat_map(leaves).collect();
        if all.len() < 2 || !all.iter().all(|(_, leaf, _)| leaf.backing().is_some()) {
            return all;
        }
        // Threads of its own: those that read may all be waiting for a device that does not answer.
        std::thread::scope(|scope| {
            let (own, others) = all.split_first_mut().expect("there are two or more");
            for (_, leaf, flushed) in others {
                let leaf = *leaf;
                let flush = move || *flushed = Some(leaf.flush_or_say());
                // If no thread can be started, the caller sees that the leaf is not flushed.
                let _ = std::thread::Builder::new().name("cenote-flush".into()).spawn_scoped(scope, flush);
            }
            own.2 = Some(own.1.flush_or_say());
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use super::*;
    use crate::allocator::Class;
    use crate::host::{Access, FileDisk};
    use crate::vdev::TopVdev;
    use crate::{Options, Shape, Vdevs};

    #[test]
    fn files_are_flushed_together_and_one_that_was_cut_is_left_out_of_its_mirror() {
        let folder = tempfile::tempdir().expect("a folder");
        let files: Vec<File> = (0..4)
            .map(|n| {
                let file = File::create(folder.path().join(n.to_string())).expect("a file");
                file.set_len(16 << 20).expect("long");
                file
            })
            .collect();
        let open = |n: usize| {
            let access = Access::ReadWrite { exclusive: true };
            let disk = FileDisk::open(&folder.path().join(n.to_string()), access).expect("opened");
            Some(Leaf::new(n as u64 + 1, Arc::new(disk)))
        };
        let mirror = |id: u32, sides: std::ops::Range<usize>| TopVdev {
            id,
            guid: 1,
            ashift: 9,
            asize: 8 << 20,
            metaslab_shift: 20,
            class: Class::Normal,
            shape: Shape::Mirror(sides.map(open).collect()),
        };
        let vdevs = Vdevs::new(vec![mirror(0, 0..2), mirror(1, 2..4)]);
        let storage = Storage::new(vdevs, Options::of_tests());
        let failed = || -> Vec<bool> {
            let tops = storage.vdevs().tops();
            tops.iter().flat_map(TopVdev::leaves).map(|leaf| leaf.health.has_failed()).collect()
        };
        let flushed = storage.flush_together([1]);
        assert_eq!(flushed.len(), 2);
        assert!(flushed.iter().all(|(_, _, flushed)| matches!(flushed, Some(Ok(())))), "{flushed:?}");
        storage.flush().expect("all files are whole");
        assert_eq!(failed(), [false; 4]);
        // The flush of a file that was cut is refused.
        files[2].set_len(1 << 20).expect("cut");
        storage.flush().expect("the other side has everything");
        assert_eq!(failed(), [false, false, true, false]);
        storage.flush_log([0, 1]).expect("what is left is whole");
        files[3].set_len(1 << 20).expect("cut");
        storage.flush_log([0]).expect("the other mirror is not asked");
        storage.flush_log([1]).expect_err("no side is left");
    }
}
