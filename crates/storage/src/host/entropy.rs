//! Randomness: guids, salts, hash seeds.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// A source of random bytes.
pub trait Entropy: Send + Sync + Debug {
    /// Fills `buf` with random bytes.
    fn fill(&self, buf: &mut [u8]);

    /// A random number.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The kernel's random numbers: unpredictable, fit for keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            match getrandom(&mut *buf, GetRandomFlags::empty()) {
                Ok(filled) => buf = &mut buf[filled..],
                Err(Errno::INTR) => {}
                Err(errno) => panic!("every kernel since 3.17 answers getrandom: {errno}"),
            }
        }
    }
}

/// SplitMix64: the same seed gives the same numbers. Never for keys.
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// The sequence that belongs to `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> SeededEntropy {
        SeededEntropy { state: AtomicU64::new(seed) }
    }

    /// A number below `bound`, which is not zero.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        assert_ne!(bound, 0, "no number is below zero");
        self.u64() % bound
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.u64().to_le_bytes()[..chunk.len()]);
        }
    }

    fn u64(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (one, other) = (SeededEntropy::new(1), SeededEntropy::new(1));
        for _ in 0..100 {
            assert_eq!(one.u64(), other.u64());
        }
        assert_ne!(SeededEntropy::new(1).u64(), SeededEntropy::new(2).u64());
    }

    #[test]
    fn splitmix_gives_its_published_first_numbers() {
        let entropy = SeededEntropy::new(1_234_567);
        assert_eq!(entropy.u64(), 6_457_827_717_110_365_317);
        assert_eq!(entropy.u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn fill_reaches_the_last_byte() {
        for entropy in [&SeededEntropy::new(3) as &dyn Entropy, &SystemEntropy] {
            let mut seen = [0u8; 13];
            for _ in 0..64 {
                let mut buf = [0u8; 13];
                entropy.fill(&mut buf);
                seen.iter_mut().zip(buf).for_each(|(all, byte)| *all |= byte);
            }
            assert!(seen.iter().all(|byte| *byte != 0));
        }
    }
}
