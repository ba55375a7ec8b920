//! Sealing and opening blocks: which bytes of a block are sealed depends on what it holds.

use format::ByteOrder;
use format::crypt::{MAC, Sealing};

use super::areas::Areas;
use super::error::CryptError;
use super::keys::DatasetKeys;
use super::{dnodes, log};

/// The content of a block, with the byte order of its writer where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A block that is sealed as a whole.
    Whole,
    /// Dnodes: the bonuses are encrypted, and the rest can be read.
    Dnodes(ByteOrder),
    /// Records of a slim log block: names and data are sealed. Its checksum is put into it afterwards, and it is written once, as its
    /// [`Sealing`] stands in the pointer that the block before it holds.
    Log(ByteOrder),
}

impl Content {
    /// The areas that are sealed; `None` for the whole block.
    fn areas(self, keys: &DatasetKeys, block: &[u8]) -> Result<Option<Areas>, CryptError> {
        match self {
            Content::Whole => Ok(None),
            Content::Dnodes(order) => dnodes::areas(block, order, keys.mac_version()).map(Some),
            Content::Log(order) => log::areas(block, order).map(Some),
        }
    }
}

impl DatasetKeys {
    /// Seals a block in place: as it is to lie on the disk. `with.iv` must be new for its salt.
    ///
    /// # Errors
    /// [`CryptError::TooLong`]: a block of 16 MiB with CCM; [`CryptError::Layout`]: the block does not have the
    /// layout of its type.
    pub fn seal(&self, content: Content, with: &Sealing, block: &mut [u8]) -> Result<[u8; MAC], CryptError> {
        let cipher = self.cipher(with.salt);
        let Some(areas) = content.areas(self, block)? else { return cipher.seal(&with.iv, &[], block) };
        let mut message = areas.message(block);
        let mac = cipher.seal(&with.iv, &areas.authenticated, &mut message)?;
        areas.put_back(&message, block);
        Ok(mac)
    }

    /// Opens a block in place. A block that cannot be opened stays sealed or is zeroed, so it holds no readable bytes.
    ///
    /// # Errors
    /// [`CryptError::Unauthentic`], [`CryptError::Layout`].
    pub fn open(
        &self,
        content: Content,
        with: &Sealing,
        mac: &[u8; MAC],
        block: &mut [u8],
    ) -> Result<(), CryptError> {
        let cipher = self.cipher(with.salt);
        let Some(areas) = content.areas(self, block)? else { return cipher.open(&with.iv, &[], block, mac) };
        let mut message = areas.message(block);
        cipher.open(&with.iv, &areas.authenticated, &mut message, mac)?;
        areas.put_back(&message, block);
        Ok(())
    }
}
