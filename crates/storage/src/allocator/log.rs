//! Space for intent logs: allocated in advance, and claimed after a crash.
//!
//! From:   `pool`, on the thread that allocates.
//! To:     `vdev_space`.
//! Source: docs/format/08-zil.md §4, §5.

use format::Txg;
use format::blkptr::Dva;

use super::{AllocError, Allocator, Class, SpaceMapSource};

impl Allocator {
    /// Allocates room for `psize` bytes of an intent log: on a log device that has room, else anywhere. `txg` may
    /// be one that is still open.
    ///
    /// # Errors
    /// See [`AllocError`]; nothing is allocated then.
    ///
    /// # Panics
    /// If `psize` is 0 or `txg` is synced already.
    pub fn allocate_log<S: SpaceMapSource + ?Sized>(
        &mut self,
        psize: u64,
        txg: Txg,
        source: &mut S,
    ) -> Result<Dva, AllocError<S::Error>> {
        assert!(txg > self.synced[0], "a block is born in a txg that is not synced");
        for index in 0..self.vdevs.len() {
            let vdev = &mut self.vdevs[index];
            if vdev.spec.class == Class::Log
                && vdev.allocating
                && let Some((metaslab, dva)) = vdev.allocate(psize, &[], txg, self.synced[0], source)?
            {
                self.pending.insert((txg, index, metaslab));
                return Ok(dva);
            }
        }
        Ok(self.allocate(psize, 1, txg, source)?[0])
    }

    /// Allocates exactly `dva` in `txg`: a block of a log that a crash left behind, which no space map knows.
    /// `false`, and no change, when it cannot be there or part of it is in use.
    ///
    /// # Errors
    /// [`AllocError`] when the space map cannot be read.
    pub fn claim<S: SpaceMapSource + ?Sized>(
        &mut self,
        dva: Dva,
        txg: Txg,
        source: &mut S,
    ) -> Result<bool, AllocError<S::Error>> {
        assert!(txg > self.synced[0], "space is claimed in a txg that is not synced");
        let Some(index) = self.index_of(dva.vdev) else { return Ok(false) };
        let Some(metaslab) = self.vdevs[index].claim(dva, txg, self.synced[0], source)? else {
            return Ok(false);
        };
        self.pending.insert((txg, index, metaslab));
        Ok(true)
    }
}
