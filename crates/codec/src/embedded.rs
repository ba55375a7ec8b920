//! The checksum inside its own block: labels, uberblocks, boot environment, gang headers.
//!
//! The last 40 bytes hold a magic number and four words. The hashed bytes have a *verifier* in their place:
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
    seal_in(region, verifier, ByteOrder::Little, |sum| sum);
}

/// As [`seal`], for the gang header of an encrypted or authenticated block: the last two words of the checksum are
/// folded into the first two and are zero.
///
/// # Panics
/// As [`seal`].
pub fn seal_folded(region: &mut [u8], verifier: [u64; 4]) {
    seal_in(region, verifier, ByteOrder::Little, folded);
}

fn seal_in(region: &mut [u8], verifier: [u64; 4], order: ByteOrder, form: fn(Checksum) -> Checksum) {
    assert!(region.len() >= TRAILER, "a sealed region holds its trailer");
    let body = region.len() - TRAILER;
    let mut trailer = trailer(verifier, order);
    let Checksum(sum) = form(hash(&region[..body], &trailer));
    for (i, word) in sum.into_iter().enumerate() {
        order.put_u64(&mut trailer, 8 + 8 * i, word);
    }
    region[body..].copy_from_slice(&trailer);
}

/// Checks the trailer of `region`; the byte order of its writer, or `None` if it is not what was sealed
/// with `verifier` (or too short to hold a trailer).
#[must_use]
pub fn verify(region: &[u8], verifier: [u64; 4]) -> Option<ByteOrder> {
    verify_in(region, verifier, |sum| sum)
}

/// As [`verify`], for a region that [`seal_folded`] sealed.
#[must_use]
pub fn verify_folded(region: &[u8], verifier: [u64; 4]) -> Option<ByteOrder> {
    verify_in(region, verifier, folded)
}

fn verify_in(region: &[u8], verifier: [u64; 4], form: fn(Checksum) -> Checksum) -> Option<ByteOrder> {
    let (body, stored) = region.split_last_chunk::<TRAILER>()?;
    let order =
        [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u64(stored, 0) == MAGIC)?;
    let found = Checksum([1, 2, 3, 4].map(|i| order.word(stored, i)));
    (form(hash(body, &trailer(verifier, order))) == found).then_some(order)
}

fn folded(Checksum(sum): Checksum) -> Checksum {
    Checksum([sum[0] ^ sum[2], sum[1] ^ sum[3], 0, 0])
}

/// The trailer that is hashed: it has the verifier in the place of the checksum.
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
            seal_in(&mut sealed, VERIFIER, order, |sum| sum);
            assert_eq!(sealed[..8192 - TRAILER], region()[..8192 - TRAILER]);
            assert_eq!(verify(&sealed, VERIFIER), Some(order));
            assert_eq!(verify(&sealed, [0x44000, 0, 0, 0]), None);
        }
    }

    /// The header of a gang of an encrypted dataset, written by ztest of OpenZFS 2.1.
    #[test]
    fn a_folded_checksum_is_that_of_openzfs() {
        let mut header = [0; 512];
        for (at, word) in [
            (0, 0x56),
            (0x8, 0x1b36c),
            (0x30, 0x8000_0802_0055_0055),
            (0x50, 0x48e),
            (0x60, 0xb3e3_b9ec_389a_ef55),
            (0x68, 0xd01c_07f2_2518_7657),
            (0x70, 0xeb83_4c4e_5a1c_73de),
            (0x78, 0x55de_e559_5726_feb2),
            (0x80, 0x55),
            (0x88, 0x1b928),
            (0xb0, 0x8000_0802_0054_0054),
            (0xd0, 0x48e),
            (0xe0, 0xcc66_b563_60fe_80b9),
            (0xe8, 0x28be_b633_3eab_4704),
            (0xf0, 0x5ec6_064d_aeea_2356),
            (0xf8, 0x55b1_ae2f_734c_673a),
            (0x100, 0x55),
            (0x108, 0x1d63b),
            (0x130, 0x8000_0802_0054_0054),
            (0x150, 0x48e),
            (0x160, 0x2605_e9c4_1eae_0621),
            (0x168, 0x4227_977d_821d_84bd),
            (0x170, 0x959d_f516_7222_d91f),
            (0x178, 0xfd91_37fc_abe0_9a0d),
        ] {
            ByteOrder::Little.put_u64(&mut header, at, word);
        }
        let verifier = [0, 0x0369_9e00, 0x48e, 0];
        seal_folded(&mut header, verifier);
        let words = [0x1e0, 0x1e8, 0x1f0, 0x1f8].map(|at| ByteOrder::Little.u64(&header, at));
        assert_eq!(words, [0x3a00_b4b3_9222_4a2c, 0xcfc7_ad49_18a8_4dab, 0, 0]);
        assert_eq!(verify_folded(&header, verifier), Some(ByteOrder::Little));
        assert_eq!(verify(&header, verifier), None);
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
