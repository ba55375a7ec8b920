//! The checksum inside a log block: its four words stand in the chain header. The hashed bytes have the chain's identity in
//! their place, so that a block of another chain, or of another place in it, does not verify.
//!
//! From:   the bytes of a log block.
//! To:     `pool`, which writes and follows chains.
//! Source: docs/format/08-zil.md §2, §6.

use format::crypt::MAC;
use format::zil::{self, Chain, TRAILER_AT};
use format::{ByteOrder, Checksum, ChecksumKind};

use crate::fletcher;

const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Where an encrypted block has its authentication code: in the last two words of the checksum.
const MAC_AT: usize = TRAILER_AT + 24;
/// Where the bytes in use are counted in a slim block.
const USED_AT: usize = 0x88;

/// Completes the slim block `raw` with magic number and checksum, little-endian; its other bytes are final. In an encrypted dataset
/// the authentication code of the block takes the place of half of the checksum.
///
/// # Panics
/// If the block is no whole number of [`zil::BLOCK_MIN`] bytes.
pub fn seal(raw: &mut [u8], identity: [u64; 4], mac: Option<[u8; MAC]>) {
    assert!(!raw.is_empty() && raw.len().is_multiple_of(zil::BLOCK_MIN), "log blocks come in units");
    let order = ByteOrder::Little;
    put_words(raw, TRAILER_AT, [MAGIC, identity[0], identity[1], identity[2], identity[3]], order);
    let sum = fletcher::fletcher4(raw, order);
    let Checksum(sum) = match &mac {
        Some(mac) => sum.with_mac(ChecksumKind::Zilog2, mac, order),
        None => sum,
    };
    put_words(raw, TRAILER_AT + 8, sum, order);
}

/// The authentication code that a slim block of an encrypted dataset holds.
///
/// # Panics
/// If the block is shorter than its header.
#[must_use]
pub fn mac_of(raw: &[u8]) -> [u8; MAC] {
    let mut mac = [0; MAC];
    mac.copy_from_slice(&raw[MAC_AT..MAC_AT + MAC]);
    mac
}

/// Whether the block `raw`, read whole, is that of the chain with this identity: the byte order of its writer.
/// `encrypted` blocks hold a message authentication code in two of the words, which is not verified here.
#[must_use]
pub fn verify(raw: &[u8], kind: ChecksumKind, identity: [u64; 4], encrypted: bool) -> Option<ByteOrder> {
    let at = Chain::place(kind, raw.len())?;
    let trailer = at + TRAILER_AT;
    let order =
        [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u64(raw, trailer) == MAGIC)?;
    let end = if kind == ChecksumKind::Zilog2 {
        let used = usize::try_from(order.u64(raw, USED_AT)).ok().filter(|used| *used <= raw.len())?;
        zil::written(used).min(raw.len())
    } else {
        raw.len()
    };
    if end < trailer + 40 {
        return None;
    }
    let mut hashed = raw[..end].to_vec();
    let mut stored = [1, 2, 3, 4].map(|i| order.u64(raw, trailer + 8 * i));
    put_words(&mut hashed, trailer + 8, identity, order);
    let Checksum(mut sum) = if kind == ChecksumKind::Zilog2 {
        fletcher::fletcher4(&hashed, order)
    } else {
        fletcher::fletcher2(&hashed, order)
    };
    if encrypted {
        (sum[0], sum[1]) = (sum[0] ^ sum[2], sum[1] ^ sum[3]);
        (sum[2], sum[3], stored[2], stored[3]) = (0, 0, 0, 0);
    }
    (sum == stored).then_some(order)
}

fn put_words<const N: usize>(raw: &mut [u8], at: usize, words: [u64; N], order: ByteOrder) {
    for (i, word) in words.into_iter().enumerate() {
        order.put_u64(raw, at + 8 * i, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::BlockPtr;

    const IDENTITY: [u64; 4] = [3, 4, 54, 1];

    fn sealed(used: usize) -> Vec<u8> {
        let mut raw: Vec<u8> = (0..zil::written(used)).map(|i| i as u8).collect();
        Chain { next: BlockPtr::HOLE, used: used as u64 }.encode(&mut raw, ByteOrder::Little);
        seal(&mut raw, IDENTITY, None);
        raw
    }

    #[test]
    fn a_sealed_block_verifies_in_its_place_of_its_chain_only() {
        for used in [zil::CHAIN_SIZE, 4096, 4097, 20_000] {
            let mut raw = sealed(used);
            // The following bytes were not written: they may be anything.
            raw.resize(32 << 10, 0xaa);
            let verify = |raw: &[u8], identity| verify(raw, ChecksumKind::Zilog2, identity, false);
            assert_eq!(verify(&raw, IDENTITY), Some(ByteOrder::Little));
            assert_eq!(verify(&raw, [3, 4, 54, 2]), None);
            raw[200] ^= 1;
            assert_eq!(verify(&raw, IDENTITY), None);
        }
    }

    #[test]
    fn a_block_that_is_no_log_block_has_no_verified_result() {
        for raw in [vec![], vec![0; 40], vec![0; 4096], vec![0xff; 8192]] {
            for kind in [ChecksumKind::Zilog, ChecksumKind::Zilog2, ChecksumKind::Fletcher4] {
                assert_eq!(verify(&raw, kind, IDENTITY, false), None);
            }
        }
        let mut raw = sealed(5000);
        ByteOrder::Little.put_u64(&mut raw, USED_AT, u64::MAX);
        assert_eq!(verify(&raw, ChecksumKind::Zilog2, IDENTITY, false), None);
    }
}
