//! The byte order of the machine that wrote a block.

/// Byte order of a block's structured contents. cenote writes little-endian and reads both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub enum ByteOrder {
    /// x86, arm: what cenote writes.
    #[default]
    Little,
    /// SPARC, POWER.
    Big,
}

impl ByteOrder {
    /// The `u64` number `index` of `raw` (byte offset `8 * index`).
    ///
    /// # Panics
    /// If `raw` is too short: callers check the length of their structure once.
    #[must_use]
    pub fn word(self, raw: &[u8], index: usize) -> u64 {
        self.u64(raw, index * 8)
    }

    /// The `u64` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    #[must_use]
    pub fn u64(self, raw: &[u8], at: usize) -> u64 {
        let bytes: [u8; 8] = raw[at..at + 8].try_into().expect("eight bytes were sliced");
        match self {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    /// The `u32` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    #[must_use]
    pub fn u32(self, raw: &[u8], at: usize) -> u32 {
        let bytes: [u8; 4] = raw[at..at + 4].try_into().expect("four bytes were sliced");
        match self {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    /// The `u16` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    #[must_use]
    pub fn u16(self, raw: &[u8], at: usize) -> u16 {
        let bytes: [u8; 2] = raw[at..at + 2].try_into().expect("two bytes were sliced");
        match self {
            ByteOrder::Little => u16::from_le_bytes(bytes),
            ByteOrder::Big => u16::from_be_bytes(bytes),
        }
    }

    /// Writes `value` as the `u64` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    pub fn put_u64(self, raw: &mut [u8], at: usize, value: u64) {
        let bytes = match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        raw[at..at + 8].copy_from_slice(&bytes);
    }

    /// Writes `value` as the `u32` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    pub fn put_u32(self, raw: &mut [u8], at: usize, value: u32) {
        let bytes = match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        raw[at..at + 4].copy_from_slice(&bytes);
    }

    /// Writes `value` as the `u16` at byte offset `at`.
    ///
    /// # Panics
    /// If `raw` is too short.
    pub fn put_u16(self, raw: &mut [u8], at: usize, value: u16) {
        let bytes = match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        };
        raw[at..at + 2].copy_from_slice(&bytes);
    }
}
