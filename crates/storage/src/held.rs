//! Blocks that the sync writes at its end: until then a later pass may change them in their places.
//!
//! From:   passes over the MOS, through [`crate::Storage::hold`].
//! To:     readers; and at the end the [`crate::Writer`].
//!
//! A pass replaces a block before readers have the new pointer to it, which they get when the pass ends. So the data of
//! the pass before can also be read, even when the block was freed.

use std::collections::BTreeMap;

use format::VdevId;
use format::blkptr::Dva;

use crate::Payload;
use crate::rank::{MutexHeld, RankedMutex};

/// A vdev, and an offset on it.
type Place = (u32, u64);

fn place(dva: Dva) -> Place {
    (dva.vdev.0, dva.offset)
}

/// A write that waits for the end of the sync.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// `None`: nothing, because the block was freed.
    pub(crate) payload: Option<Payload>,
    /// The data that an earlier pass was going to write there.
    pub(crate) before: Option<Payload>,
}

impl Held {
    fn last(self) -> Option<Payload> {
        self.payload.or(self.before)
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct HeldBlocks(RankedMutex<BTreeMap<Place, Held>>);

impl HeldBlocks {
    fn lock(&self) -> MutexHeld<'_, BTreeMap<Place, Held>> {
        self.0.lock()
    }

    /// From now on, `payload` is the data for `dva`.
    pub(crate) fn hold(&self, dva: Dva, payload: Payload) {
        let mut held = self.lock();
        let before = held.remove(&place(dva)).and_then(Held::last);
        held.insert(place(dva), Held { payload: Some(payload), before });
    }

    /// From now on nothing will be written for `dva`.
    pub(crate) fn release(&self, dva: Dva) {
        if let Some(held) = self.lock().get_mut(&place(dva)) {
            *held = Held { payload: None, before: held.clone().last() };
        }
    }

    pub(crate) fn at(&self, dva: Dva) -> Option<Held> {
        self.lock().get(&place(dva)).cloned()
    }

    /// All that is to be written.
    pub(crate) fn to_write(&self) -> Vec<(Dva, Payload)> {
        let held = self.lock();
        let to_write = held.iter().filter_map(|(&(vdev, offset), held)| {
            let payload = held.payload.clone()?;
            let asize = payload.bytes().len() as u64;
            Some((Dva { vdev: VdevId(vdev), asize, offset, gang: false }, payload))
        });
        to_write.collect()
    }

    /// All of it is on the disks.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_blocks_that_a_pass_replaces_or_frees_stay_readable_and_are_not_written() {
        let held = HeldBlocks::default();
        let dva = Dva { vdev: VdevId(1), asize: 512, offset: 4096, gang: false };
        let bytes = |payload: Option<Payload>| payload.map(|payload| payload.bytes()[0]);
        let versions = || held.at(dva).map(|held| (bytes(held.payload), bytes(held.before)));
        let written = || held.to_write().iter().map(|(_, payload)| payload.bytes()[0]).collect::<Vec<_>>();
        held.release(dva);
        assert_eq!(versions(), None);
        held.hold(dva, vec![1; 512].into());
        assert_eq!(versions(), Some((Some(1), None)));
        held.hold(dva, vec![2; 512].into());
        assert_eq!((versions(), written()), (Some((Some(2), Some(1))), vec![2]));
        held.release(dva);
        assert_eq!((versions(), written()), (Some((None, Some(2))), vec![]));
        // Another block takes the place.
        held.hold(dva, vec![3; 512].into());
        assert_eq!((versions(), written()), (Some((Some(3), Some(2))), vec![3]));
        held.clear();
        assert_eq!(versions(), None);
    }
}
