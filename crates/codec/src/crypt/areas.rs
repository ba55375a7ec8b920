//! Blocks of which a part is sealed and the rest stays readable: the sealed areas are one message.

use core::ops::Range;

use format::crypt::{MAC, Sealing};

use super::error::CryptError;
use super::keys::DatasetKeys;

/// What of a block is sealed, and what is authenticated with it.
#[derive(Default)]
pub(super) struct Areas {
    /// The areas that are sealed, in the order in which they form the message.
    pub(super) sealed: Vec<Range<usize>>,
    /// What the authentication code covers beside the message.
    pub(super) authenticated: Vec<u8>,
}

impl Areas {
    fn message(&self, block: &[u8]) -> Vec<u8> {
        self.sealed.iter().flat_map(|area| &block[area.clone()]).copied().collect()
    }

    fn put_back(&self, message: &[u8], block: &mut [u8]) {
        let mut at = 0;
        for area in &self.sealed {
            let len = area.len();
            block[area.clone()].copy_from_slice(&message[at..at + len]);
            at += len;
        }
    }

    /// Seals the areas of `block`.
    pub(super) fn seal(
        &self,
        keys: &DatasetKeys,
        with: &Sealing,
        block: &mut [u8],
    ) -> Result<[u8; MAC], CryptError> {
        let mut message = self.message(block);
        let mac = keys.cipher(with.salt).seal(&with.iv, &self.authenticated, &mut message)?;
        self.put_back(&message, block);
        Ok(mac)
    }

    /// Opens the areas of `block`, which stays as it was if they do not open.
    pub(super) fn open(
        &self,
        keys: &DatasetKeys,
        with: &Sealing,
        mac: &[u8; MAC],
        block: &mut [u8],
    ) -> Result<(), CryptError> {
        let mut message = self.message(block);
        keys.cipher(with.salt).open(&with.iv, &self.authenticated, &mut message, mac)?;
        self.put_back(&message, block);
        Ok(())
    }
}
