//! The checksum inside its own block: labels, uberblocks, boot environment, gang headers.
//!
//! The last 40 bytes hold a magic number and four words. What is hashed has a *verifier* in their place:
//! where the block lies (labels: byte offset on the device, then zeros), so that a misplaced copy is found.
//!
//! Source: docs/format/01-labels-uberblock.md §2.1; 02-blocks-checksums-compression.md §2, §3.

use format::{ByteOrder, Checksum};
use sha2::{Digest, Sha256};

/// Bytes of the trailer.
pub const TRAILER: usize = 40;
const MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// Writes the trailer of `region`, whose other bytes are final. Little-endian.
///
/// # Panics
/// If `region` has no room for the trailer.
pub fn seal(region: &mut [u8], verifier: [u64; 4]) {
    seal_in(region, verifier, ByteOrder::Little);
}

fn seal_in(region: &mut [u8], verifier: [u64; 4], order: ByteOrder) {
    assert!(region.len() >= TRAILER, "a sealed region holds its trailer");
    let body = region.len() - TRAILER;
    let mut trailer = trailer(verifier, order);
    let Checksum(sum) = hash(&region[..body], &trailer);
    for (i, word) in sum.into_iter().enumerate() {
        order.put_u64(&mut trailer, 8 + 8 * i, word);
    }
    region[body..].copy_from_slice(&trailer);
}

/// Checks the trailer of `region`; the byte order of its writer, or `None` if it is not what was sealed
/// with `verifier` (or too short to hold a trailer).
#[must_use]
pub fn verify(region: &[u8], verifier: [u64; 4]) -> Option<ByteOrder> {
    let (body, stored) = region.split_last_chunk::<TRAILER>()?;
    let order =
        [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u64(stored, 0) == MAGIC)?;
    let found = Checksum([1, 2, 3, 4].map(|i| order.word(stored, i)));
    (hash(body, &trailer(verifier, order)) == found).then_some(order)
}

/// The trailer that is hashed: the verifier stands where the checksum will be.
fn trailer(verifier: [u64; 4], order: ByteOrder) -> [u8; TRAILER] {
    let mut trailer = [0; TRAILER];
    order.put_u64(&mut trailer, 0, MAGIC);
    for (i, word) in verifier.into_iter().enumerate() {
        order.put_u64(&mut trailer, 8 + 8 * i, word);
    }
    trailer
}

fn hash(body: &[u8], trailer: &[u8; TRAILER]) -> Checksum {
    let digest = Sha256::new().chain_update(body).chain_update(trailer).finalize();
    Checksum([0, 1, 2, 3].map(|i| ByteOrder::Big.word(&digest, i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERIFIER: [u64; 4] = [0x4000, 0, 0, 0];

    fn region() -> Vec<u8> {
        (0..8192u32).map(|i| ((i * 31) >> 3) as u8).collect()
    }

    #[test]
    fn a_sealed_region_verifies_in_its_place_only() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut sealed = region();
            seal_in(&mut sealed, VERIFIER, order);
            assert_eq!(sealed[..8192 - TRAILER], region()[..8192 - TRAILER]);
            assert_eq!(verify(&sealed, VERIFIER), Some(order));
            assert_eq!(verify(&sealed, [0x44000, 0, 0, 0]), None);
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let mut sealed = region();
        seal(&mut sealed, VERIFIER);
        for at in (0..8152).step_by(97).chain(8152..8192) {
            sealed[at] ^= 0x10;
            assert_eq!(verify(&sealed, VERIFIER), None, "byte {at}");
            sealed[at] ^= 0x10;
        }
    }

    #[test]
    fn short_and_empty_regions_verify_as_nothing() {
        for len in [0, 1, 39, 40] {
            assert_eq!(verify(&vec![0; len], VERIFIER), None);
        }
    }
}
