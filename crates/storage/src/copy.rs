//! Copies the data of a vdev that is being removed to another vdev.
//!
//! From:   `pool`, which has chosen the place and knows no checksums of what lies there.
//! To:     the write pipeline.
//! Source: docs/format/12-auxiliary-vdevs.md §5.5.
//!
//! Where two sides of a mirror differ, the copy cannot know which one is right. So each side of the new place gets the
//! data of one side of the old place, and both versions are kept.

use format::blkptr::Dva;

use crate::vdev::TopVdev;
use crate::{Leaf, Payload, Purpose, ReadError, WriteError, Writer};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;

impl Writer<'_> {
    /// Copies `len` bytes from `from` to `to`; the offsets are those of places on top-level vdevs without parity.
    ///
    /// # Errors
    /// [`WriteError::Read`] where no side of the old place can be read; a device that refuses to be written.
    pub fn copy(&mut self, from: Dva, to: Dva, len: u64) -> Result<(), WriteError> {
        let vdevs = self.vdevs();
        let (source, target) = (vdevs.top_of(&from)?, vdevs.top_of(&to)?);
        let written: Vec<usize> = target.written_leaves()?.map(|(side, _)| side).collect();
        let sides = sides_of(source);
        let mut done = 0;
        while done < len {
            let take = (len - done).min(PIECE);
            let mut read: Vec<Option<Payload>> = vec![None; sides.len()];
            for side in &written {
                let first = side % sides.len().max(1);
                let payload = read_side(&sides, first, from.offset + done, take, &mut read)?;
                self.put_on((to.vdev.0, *side), to.offset + done, payload)?;
            }
            done += take;
        }
        Ok(())
    }
}

/// The sides of a vdev from which to read: those that have all data, or all sides if there is none.
fn sides_of(top: &TopVdev) -> Vec<&Leaf> {
    let is_whole = |leaf: &&Leaf| !leaf.health.has_failed() && leaf.health.missing().is_empty();
    let whole: Vec<&Leaf> = top.leaves().filter(is_whole).collect();
    if whole.is_empty() { top.leaves().collect() } else { whole }
}

/// `len` bytes at `offset` from side `first`, or from the next one that can be read. The bytes read are kept in `read`.
fn read_side(
    sides: &[&Leaf],
    first: usize,
    offset: u64,
    len: u64,
    read: &mut [Option<Payload>],
) -> Result<Payload, ReadError> {
    let mut failure = None;
    for side in (first..sides.len()).chain(0..first) {
        if let Some(known) = &read[side] {
            return Ok(known.clone());
        }
        let mut bytes = vec![0; len as usize];
        match sides[side].read(Purpose::AsyncRead, offset, &mut bytes) {
            Ok(()) => {
                let payload = Payload::from(bytes);
                read[side] = Some(payload.clone());
                return Ok(payload);
            }
            Err(error) => failure = Some(error),
        }
    }
    let nowhere = Dva { offset, asize: len, ..Dva::default() };
    Err(failure.unwrap_or(ReadError::OutOfRange { dva: nowhere }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use format::VdevId;
    use format::label::DATA_START;

    use super::*;
    use crate::allocator::Class;
    use crate::host::{Disk, Fault, ScriptedDisk};
    use crate::{Options, Shape, Storage, Vdevs};

    #[test]
    fn each_side_of_the_new_place_gets_what_one_side_of_the_old_one_has() {
        let disks: Vec<ScriptedDisk> = (0..5).map(|_| ScriptedDisk::new(16 << 20)).collect();
        let leaf = |n: usize| Some(Leaf::new(n as u64 + 1, Arc::new(disks[n].clone())));
        let top = |id, sides: std::ops::Range<usize>| TopVdev {
            id,
            guid: 1,
            ashift: 9,
            asize: 8 << 20,
            metaslab_shift: 20,
            class: Class::Normal,
            shape: Shape::Mirror(sides.map(leaf).collect()),
        };
        let storage = Storage::new(Vdevs::new(vec![top(0, 0..2), top(1, 2..5)]), Options::of_tests());
        let (len, target) = (PIECE + 512, 3 << 20);
        for (n, disk) in disks.iter().take(2).enumerate() {
            let bytes = vec![n as u8 + 1; len as usize];
            disk.write_at(&[std::io::IoSlice::new(&bytes)], DATA_START + 512).expect("written");
        }
        let place = |vdev, offset| Dva { vdev: VdevId(vdev), offset, asize: len, gang: false };
        let found = || -> Vec<u8> {
            let mut writer = Writer::new(&storage, format::Txg(1));
            writer.copy(place(0, 512), place(1, target), len).expect("copied");
            writer.drain().expect("written");
            let read = |disk: &ScriptedDisk| {
                let mut found = vec![0; len as usize];
                disk.read_at(&mut found, DATA_START + target).expect("read");
                assert!(found.iter().all(|byte| *byte == found[0]));
                found[0]
            };
            disks[2..].iter().map(read).collect()
        };
        assert_eq!(found(), [1, 2, 1]);
        // A side that cannot be read is left out.
        disks[0].inject(Fault::Vanish { from_op: 0 });
        assert_eq!(found(), [2, 2, 2]);
        disks[1].inject(Fault::Vanish { from_op: 0 });
        let refused = Writer::new(&storage, format::Txg(1)).copy(place(0, 512), place(1, target), len);
        assert!(matches!(refused, Err(WriteError::Read(_))), "{refused:?}");
    }
}
