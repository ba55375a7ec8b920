//! Blocks that are sealed in part: all sealed areas of a block form one message, the rest stays readable.

use core::ops::Range;

/// The parts of a block that are encrypted, and the bytes that are authenticated with them.
#[derive(Default)]
pub(super) struct Areas {
    /// The areas that are sealed, in the order in which they form the message.
    pub(super) sealed: Vec<Range<usize>>,
    /// The bytes that the authentication code covers beside the message.
    pub(super) authenticated: Vec<u8>,
}

impl Areas {
    /// The bytes of `block` that are sealed, one area after the other.
    pub(super) fn message(&self, block: &[u8]) -> Vec<u8> {
        self.sealed.iter().flat_map(|area| &block[area.clone()]).copied().collect()
    }

    /// Puts the bytes back where they lie in `block`.
    pub(super) fn put_back(&self, message: &[u8], block: &mut [u8]) {
        let mut at = 0;
        for area in &self.sealed {
            let len = area.len();
            block[area.clone()].copy_from_slice(&message[at..at + len]);
            at += len;
        }
    }
}
