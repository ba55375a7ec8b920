//! Numbers out of the bytes of an input: what a target with a structure of its own is told to do.

/// The bytes that are left. When none is left, every number is 0.
pub struct Choices<'a>(pub &'a [u8]);

impl Choices<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `limit`, which is not 0, of as many bytes as it needs.
    pub fn below(&mut self, limit: u64) -> u64 {
        let bytes = limit.next_power_of_two().trailing_zeros().div_ceil(8).max(1);
        (0..bytes).fold(0u64, |number, _| number << 8 | u64::from(self.byte())) % limit
    }

    /// A word of eight bytes.
    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }
}
