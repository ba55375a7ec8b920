//! Sparse contents of a scripted disk: pages that were never written are zeros and take no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE: usize = 64 << 10;

/// Bytes by page number. A clone shares its pages until one side writes.
#[derive(Clone, Default)]
pub(super) struct Pages(BTreeMap<u64, Arc<[u8]>>);

impl Pages {
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) {
        for (page, within, range) in pieces(offset, buf.len()) {
            match self.0.get(&page) {
                Some(bytes) => buf[range.clone()].copy_from_slice(&bytes[within..within + range.len()]),
                None => buf[range].fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, within, range) in pieces(offset, bytes.len()) {
            let page = self.0.entry(page).or_insert_with(|| Arc::from([0; PAGE]));
            Arc::make_mut(page)[within..within + range.len()].copy_from_slice(&bytes[range]);
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.0.len() * PAGE) as u64
    }
}

/// Splits `[offset, offset + len)` at page borders: (page, start within it, range of the buffer).
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let end = len.min(done + PAGE - within);
        let range = done..end;
        done = end;
        (!range.is_empty()).then_some((at / PAGE as u64, within, range))
    })
}
