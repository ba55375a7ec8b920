//! Uberblocks: the roots of the pool, one per txg.
//!
//! From:   a slot of a label's ring, its checksum verified; or a checkpoint's array of words.
//! To:     `pool`, which starts from the best one and writes the next.
//! Source: docs/format/01-labels-uberblock.md §5.

use alloc::vec::Vec;

use crate::{BlockPtr, ByteOrder, Corrupt, Txg, label};

/// First word of an uberblock.
pub const MAGIC: u64 = 0x00ba_b10c;
/// Word that says that the multihost fields are there.
pub const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Bytes of the structure in OpenZFS 2.1.
pub const SIZE_V1: usize = 0xd0;
/// Bytes of the structure since OpenZFS 2.3.
pub const SIZE: usize = 0xd8;

/// Multihost protection: the heartbeat of the pool's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mmp {
    /// Delay between heartbeats in nanoseconds; 0 when multihost is off.
    pub delay_ns: u64,
    /// Interval, sequence and fail count, each with its valid bit; 0 when multihost is off.
    pub config: u64,
}

impl Mmp {
    /// Of a pool whose owner sends heartbeats every `interval_ms`, and stops after so many intervals in which it could not.
    #[must_use]
    pub const fn alive(delay_ns: u64, interval_ms: u32, fail_intervals: u16) -> Mmp {
        let interval = (interval_ms as u64 & 0xff_ffff) << 8;
        Mmp { delay_ns, config: 0b111 | interval | (fail_intervals as u64) << 48 }
    }

    /// The same with this number of the heartbeat.
    #[must_use]
    pub const fn numbered(self, seq: u16) -> Mmp {
        Mmp { config: self.config & !(0xffff << 32) | (seq as u64) << 32 | 2, ..self }
    }

    /// Whether the pool's owner sends heartbeats.
    #[must_use]
    pub const fn is_on(self) -> bool {
        self.delay_ns != 0
    }

    /// Milliseconds between heartbeats, if known.
    #[must_use]
    pub const fn interval_ms(self) -> Option<u32> {
        if self.config & 1 != 0 { Some((self.config >> 8 & 0xff_ffff) as u32) } else { None }
    }

    /// Number of the heartbeat within its txg, if known.
    #[must_use]
    pub const fn seq(self) -> Option<u16> {
        if self.config & 2 != 0 { Some((self.config >> 32) as u16) } else { None }
    }

    /// Missed intervals after which the owner suspends the pool; 0: never.
    #[must_use]
    pub const fn fail_intervals(self) -> Option<u16> {
        if self.config & 4 != 0 { Some((self.config >> 48) as u16) } else { None }
    }
}

/// The root of one state of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uberblock {
    /// Pool version: 1 to 28, or 5000.
    pub version: u64,
    /// Last txg synced. 0: an unused template.
    pub txg: Txg,
    /// Sum of the guids of all vdevs, the root's (the pool guid) included.
    pub guid_sum: u64,
    /// When it was written, in seconds since 1970.
    pub timestamp: u64,
    /// The MOS.
    pub root: BlockPtr,
    /// Highest pool version of the software that wrote it.
    pub software_version: u64,
    /// Multihost fields; `None` from software before 0.8.
    pub mmp: Option<Mmp>,
    /// Txg of the checkpoint the pool was rewound to, else 0.
    pub checkpoint_txg: Txg,
    /// State of a raidz expansion (bits 55 to 63) and its offset in sectors; 0 normally.
    pub raidz_reflow: u64,
}

impl Uberblock {
    /// Decodes the start of a slot; the magic shows the byte order.
    ///
    /// # Errors
    /// [`Corrupt`] for a bad magic, short input or a bad root pointer.
    pub fn decode(raw: &[u8]) -> Result<Uberblock, Corrupt> {
        if raw.len() < SIZE_V1 {
            return Err(Corrupt::new("uberblock length", raw.len() as u64));
        }
        let magic = ByteOrder::Little.word(raw, 0);
        let order = match magic {
            MAGIC => ByteOrder::Little,
            _ if magic.swap_bytes() == MAGIC => ByteOrder::Big,
            _ => return Err(Corrupt::new("uberblock magic", magic)),
        };
        let word = |at| order.u64(raw, at);
        Ok(Uberblock {
            version: word(0x08),
            txg: Txg(word(0x10)),
            guid_sum: word(0x18),
            timestamp: word(0x20),
            root: BlockPtr::decode(&raw[0x28..], order)?,
            software_version: word(0xa8),
            mmp: (word(0xb0) == MMP_MAGIC).then(|| Mmp { delay_ns: word(0xb8), config: word(0xc0) }),
            checkpoint_txg: Txg(word(0xc8)),
            raidz_reflow: if raw.len() >= SIZE { word(0xd0) } else { 0 },
        })
    }

    /// The structure, little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; SIZE] {
        let order = ByteOrder::Little;
        let mut raw = [0; SIZE];
        let mut put = |at, value| order.put_u64(&mut raw, at, value);
        put(0x00, MAGIC);
        put(0x08, self.version);
        put(0x10, self.txg.0);
        put(0x18, self.guid_sum);
        put(0x20, self.timestamp);
        put(0xa8, self.software_version);
        if let Some(mmp) = self.mmp {
            put(0xb0, MMP_MAGIC);
            put(0xb8, mmp.delay_ns);
            put(0xc0, mmp.config);
        }
        put(0xc8, self.checkpoint_txg.0);
        put(0xd0, self.raidz_reflow);
        raw[0x28..0xa8].copy_from_slice(&self.root.encode(order));
        raw
    }

    /// The bytes of a whole slot for this ashift, the checksum trailer still zero.
    #[must_use]
    pub fn encode_slot(&self, ashift: u32) -> Vec<u8> {
        let mut raw = self.encode().to_vec();
        raw.resize(1 << label::uberblock_shift(ashift), 0);
        raw
    }

    /// Decodes the array of words that a checkpoint keeps in the MOS directory.
    ///
    /// # Errors
    /// As [`Uberblock::decode`].
    pub fn from_words(words: &[u64]) -> Result<Uberblock, Corrupt> {
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Uberblock::decode(&raw)
    }

    /// The key by which uberblocks are compared: the greatest is the state of the pool.
    #[must_use]
    pub fn rank(&self) -> (Txg, u64, u16) {
        (self.txg, self.timestamp, self.mmp.and_then(Mmp::seq).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slot of the last txg of a pool of OpenZFS 2.1.11.
    const REAL: &[u8] = include_bytes!("../tests/fixtures/uberblock.raw");

    #[test]
    fn a_real_uberblock_comes_out_byte_for_byte() {
        let uberblock = Uberblock::decode(REAL).unwrap();
        assert_eq!(uberblock.txg, Txg(30));
        assert_eq!(uberblock.guid_sum, 14_647_385_916_529_563_526);
        assert_eq!(uberblock.timestamp, 1_795_237_853);
        assert_eq!(uberblock.mmp, Some(Mmp::default()));
        let alive = Mmp::alive(5, 1000, 10);
        assert_eq!(
            (alive.interval_ms(), alive.seq(), alive.fail_intervals()),
            (Some(1000), Some(0), Some(10))
        );
        let beat = alive.numbered(9).numbered(7);
        assert_eq!((beat.interval_ms(), beat.seq(), beat.fail_intervals()), (Some(1000), Some(7), Some(10)));
        assert!(beat.is_on() && !Mmp::default().is_on());
        assert_eq!(uberblock.root.fill(), 51);
        let slot = uberblock.encode_slot(9);
        assert_eq!(slot.len(), REAL.len());
        assert_eq!(slot[..slot.len() - label::TRAILER], REAL[..REAL.len() - label::TRAILER]);
    }

    #[test]
    fn a_foreign_uberblock_tells_its_byte_order_by_the_magic() {
        let ours = Uberblock::decode(REAL).unwrap();
        let swapped: Vec<u8> = REAL[..SIZE].chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
        assert_eq!(Uberblock::decode(&swapped), Ok(ours));
    }

    #[test]
    fn the_later_txg_wins_then_the_time_then_the_heartbeat() {
        let old = Uberblock::decode(REAL).unwrap();
        let txg = Uberblock { txg: Txg(31), timestamp: 0, ..old.clone() };
        let time = Uberblock { timestamp: old.timestamp + 1, ..old.clone() };
        let beat = Uberblock { mmp: Some(Mmp { delay_ns: 1, config: 5 << 32 | 2 }), ..old.clone() };
        let invalid = Uberblock { mmp: Some(Mmp { delay_ns: 1, config: 9 << 32 }), ..old.clone() };
        assert!(txg.rank() > time.rank() && time.rank() > beat.rank() && beat.rank() > old.rank());
        assert_eq!(invalid.rank(), old.rank());
    }

    #[test]
    fn a_checkpoint_keeps_26_or_27_words() {
        let words: Vec<u64> = REAL[..SIZE_V1].chunks(8).map(|w| ByteOrder::Little.u64(w, 0)).collect();
        assert_eq!(words.len(), 26);
        assert_eq!(Uberblock::from_words(&words), Uberblock::decode(REAL));
        assert!(Uberblock::from_words(&words[1..]).is_err());
    }

    proptest! {
        #[test]
        fn an_uberblock_survives_a_round_trip(w in any::<[u64; 8]>(), mmp in any::<Option<(u64, u64)>>()) {
            let uberblock = Uberblock {
                version: w[0], txg: Txg(w[1]), guid_sum: w[2], timestamp: w[3], root: BlockPtr::HOLE,
                software_version: w[4], mmp: mmp.map(|(delay_ns, config)| Mmp { delay_ns, config }),
                checkpoint_txg: Txg(w[5]), raidz_reflow: w[6],
            };
            prop_assert_eq!(Uberblock::decode(&uberblock.encode()), Ok(uberblock));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(at in 0..SIZE, byte in any::<u8>(), len in 0..=SIZE) {
            let mut raw = REAL[..SIZE].to_vec();
            raw[at] = byte;
            raw.truncate(len);
            if let Ok(uberblock) = Uberblock::decode(&raw) {
                let again = uberblock.encode();
                prop_assert_eq!(Uberblock::decode(&again).unwrap().encode(), again);
            }
        }
    }
}
