//! Log blocks: the links and the places of blocks can be read, so that space is claimed without a key; names and data
//! are encrypted.

use format::ByteOrder;
use format::blkptr;
use format::zil::{CHAIN_SIZE, RECORD_HEADER, TRAILER_AT, WRITE_HEADER, kind};

use super::areas::Areas;
use super::error::CryptError;

/// Where a slim log block counts its bytes in use.
const USED: usize = 0x88;
/// Where the readable part of records with block pointers begins: the pointer of a write, the count and pointers of a clone.
const POINTERS: usize = 0x40;

/// The encrypted areas of a slim log block.
pub(super) fn areas(block: &[u8], order: ByteOrder) -> Result<Areas, CryptError> {
    const BAD: CryptError = CryptError::Layout("log records");
    let chain = block.get(..CHAIN_SIZE).ok_or(BAD)?;
    let used = usize::try_from(order.u64(chain, USED)).ok().filter(|used| *used <= block.len()).ok_or(BAD)?;
    let mut areas = Areas { authenticated: chain[..TRAILER_AT].to_vec(), ..Areas::default() };
    let mut at = CHAIN_SIZE;
    while at < used {
        let header = block.get(at..at + RECORD_HEADER).ok_or(BAD)?;
        let (what, len) = (order.u64(header, 0), order.u64(header, 8));
        let end = usize::try_from(len).ok().and_then(|len| at.checked_add(len)).ok_or(BAD)?;
        if end > used || end < at + RECORD_HEADER {
            return Err(BAD);
        }
        areas.authenticated.extend_from_slice(header);
        let body = at + RECORD_HEADER;
        match what {
            kind::WRITE if end >= at + WRITE_HEADER => {
                areas.authenticated.extend_from_slice(&block[at + POINTERS..at + POINTERS + blkptr::SIZE]);
                areas.sealed.extend([body..at + POINTERS, at + WRITE_HEADER..end]);
            }
            kind::CLONE_RANGE if end >= at + POINTERS => {
                areas.authenticated.extend_from_slice(&block[at + POINTERS..end]);
                areas.sealed.push(body..at + POINTERS);
            }
            kind::WRITE | kind::CLONE_RANGE => return Err(BAD),
            _ => areas.sealed.push(body..end),
        }
        at = end;
    }
    Ok(areas)
}
