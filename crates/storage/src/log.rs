//! Blocks of intent logs: written at once, outside of txgs, and verified by what they hold themselves.
//!
//! Source: docs/format/08-zil.md §2.

use std::io::IoSlice;

use format::blkptr::{Block, Dva};
use format::label::DATA_START;
use format::{ByteOrder, Txg};

use crate::reflow::placed;
use crate::vdev::{Source, TopVdev};
use crate::{Leaf, Payload, Purpose, ReadError, Storage, WriteError};

impl Storage {
    /// Writes a sealed log block of `size` bytes that is born in txg `born` to `dva`, or as much of one as is in use, past everything that
    /// is queued. Durable after [`Storage::flush_log`].
    ///
    /// # Errors
    /// A device error.
    ///
    /// # Panics
    /// The sync thread panicked while it rebuilt a device.
    pub fn write_log(&self, (dva, born): (Dva, Txg), size: u64, payload: Payload) -> Result<(), WriteError> {
        let _passed = self.gate().write();
        let _no_rebuild = self.beside.read();
        let top = &self.vdevs().tops()[dva.vdev.0 as usize];
        let Some(layout) = top.spread() else {
            let mut leaves = top.written_leaves()?;
            return leaves.try_for_each(|(_, leaf)| self.write_log_part(top.id, leaf, dva.offset, &payload));
        };
        // Which bytes lie where follows from the size of the whole block, and so does its parity.
        let map = layout.map(dva.offset, size, born);
        for (column, part) in placed(&map, &payload) {
            let leaves = top.numbers_of_side(column.child).filter_map(|number| top.child(number));
            for holder in leaves.flat_map(|leaf| top.ways().holders(leaf, column.offset)) {
                self.write_log_part(top.id, holder.device, column.offset, &part)?;
            }
        }
        Ok(())
    }

    /// Leaves out devices that the pool does not need.
    fn write_log_part(
        &self,
        vdev: u32,
        leaf: &Leaf,
        offset: u64,
        payload: &Payload,
    ) -> Result<(), WriteError> {
        let at = offset + DATA_START;
        self.tree.write(vdev, leaf, || leaf.write(&[IoSlice::new(payload.bytes())], at))?;
        if self.suspension().is_enabled() && !leaf.health.has_failed() {
            leaf.unflushed.keep(at, vec![payload.clone()]);
        }
        Ok(())
    }

    /// The log block that `block` points to, and its byte order; `None` when it was never written: that is how
    /// a chain usually ends.
    ///
    /// # Errors
    /// When a device refused, and no copy could be read and verified.
    pub fn read_log(&self, block: &Block) -> Result<Option<(Vec<u8>, ByteOrder)>, ReadError> {
        let mut failure = None;
        for dva in block.copies() {
            for replica in self.replicas_of(&dva, block.birth) {
                match self.read_log_copy(block, dva, replica) {
                    Ok(Some(found)) => return Ok(Some(found)),
                    Ok(None) => {}
                    Err(ReadError::Device { path, offset, source }) => {
                        failure.get_or_insert(ReadError::Device { path, offset, source });
                    }
                    // A pointer to an impossible place was not written by the writer of the block before it.
                    Err(_) => {}
                }
            }
        }
        failure.map_or(Ok(None), Err)
    }

    fn read_log_copy(
        &self,
        block: &Block,
        dva: Dva,
        replica: usize,
    ) -> Result<Option<(Vec<u8>, ByteOrder)>, ReadError> {
        let top = self.vdevs().top_of(&dva)?;
        if dva.gang || top.asize_of(block.lsize) > dva.asize || block.lsize > format::zil::BLOCK_MAX as u64 {
            return Ok(None);
        }
        let mut raw = vec![0; block.lsize as usize];
        let verify =
            |raw: &[u8]| codec::zilog::verify(raw, block.checksum_kind, block.checksum.0, block.encrypted);
        let mut order = None;
        // Damage cannot be told from the end of the chain, so no device is blamed.
        let source = Source { replica, birth: block.birth, purpose: Purpose::SyncRead };
        let _passed = self.gate().read();
        let top = self.vdevs().top_of(&dva)?;
        let is_good = &mut |raw: &[u8]| {
            order = verify(raw);
            order.is_some()
        };
        match self.moved(&dva, block.lsize)? {
            Some(places) => self.read_moved(&places, source, TopVdev::read, &mut raw, is_good)?,
            None => top.read(source, dva.offset, &mut raw, is_good)?,
        };
        Ok(order.map(|order| (raw, order)))
    }
}
