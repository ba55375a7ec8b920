//! Blocks of dnodes: headers and block pointers stay readable, bonuses are sealed.

use format::blkptr;
use format::dnode::{FLAG_SPILL, HEADER, MAX_BLKPTRS, SLOT};
use format::{ByteOrder, ObjectType};

use super::areas::Areas;
use super::error::CryptError;
use super::pointers::{self, MacVersion};

/// Where fields of a dnode lie.
const TYPE: usize = 0x00;
const NBLKPTR: usize = 0x03;
const BONUS_TYPE: usize = 0x04;
const FLAGS: usize = 0x07;
const BLOCK_SECTORS: usize = 0x08;
const BONUS_LEN: usize = 0x0a;
const EXTRA_SLOTS: usize = 0x0c;
const MAX_BLKID: usize = 0x10;
const USED: usize = 0x18;

/// In which byte order the words of a dnode's header are authenticated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// As they lie in the block.
    AsStored,
    /// Little-endian: the objset block is built again on each pool that receives it.
    Portable,
}

/// Adds header and pointers of the dnode `raw` to the authenticated bytes; returns where its bonus may begin.
pub(super) fn head(
    raw: &[u8],
    order: ByteOrder,
    version: MacVersion,
    form: Header,
    out: &mut Vec<u8>,
) -> Result<usize, CryptError> {
    let mut header: [u8; HEADER] =
        raw.get(..HEADER).and_then(|header| header.try_into().ok()).ok_or(CryptError::Layout("dnodes"))?;
    header[FLAGS] &= FLAG_SPILL;
    header[USED..USED + 8].fill(0);
    if form == Header::Portable {
        for at in [BLOCK_SECTORS, BONUS_LEN] {
            let value = order.u16(raw, at);
            ByteOrder::Little.put_u16(&mut header, at, value);
        }
        ByteOrder::Little.put_u64(&mut header, MAX_BLKID, order.u64(raw, MAX_BLKID));
    }
    out.extend_from_slice(&header);
    let count = usize::from(raw[NBLKPTR]);
    let end = HEADER + count * blkptr::SIZE;
    let spill = usize::from(raw[FLAGS] & FLAG_SPILL != 0) * blkptr::SIZE;
    if count > MAX_BLKPTRS || end + spill > raw.len() {
        return Err(CryptError::Layout("block pointers of a dnode"));
    }
    let all =
        raw[HEADER..end].chunks_exact(blkptr::SIZE).chain((spill != 0).then(|| &raw[raw.len() - spill..]));
    all.for_each(|pointer| pointers::record(pointer, order, version, out));
    Ok(end)
}

/// The encrypted areas of a block of dnodes: the bonus of each object whose bonus is of a type that is encrypted.
pub(super) fn areas(block: &[u8], order: ByteOrder, version: MacVersion) -> Result<Areas, CryptError> {
    let mut areas = Areas::default();
    let mut at = 0;
    while at < block.len() {
        let slots = 1 + usize::from(*block.get(at + EXTRA_SLOTS).ok_or(CryptError::Layout("dnodes"))?);
        let dnode = block.get(at..at + slots * SLOT).ok_or(CryptError::Layout("slots of a dnode"))?;
        let begin = head(dnode, order, version, Header::AsStored, &mut areas.authenticated)?;
        let end = dnode.len() - usize::from(dnode[FLAGS] & FLAG_SPILL != 0) * blkptr::SIZE;
        let is_sealed = dnode[TYPE] != 0
            && ObjectType(dnode[BONUS_TYPE]).is_encrypted()
            && order.u16(dnode, BONUS_LEN) != 0;
        if is_sealed {
            areas.sealed.push(at + begin..at + end);
        } else {
            areas.authenticated.extend_from_slice(&dnode[begin..end]);
        }
        at += dnode.len();
    }
    Ok(areas)
}
