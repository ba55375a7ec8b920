//! The space of a block on the disks of a layout.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §6, §7.1.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The shape of a pool's top-level devices, all alike. Written `stripe`, `mirror:2`, `raidz1:5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    /// Each block on one disk.
    #[default]
    Stripe,
    /// Each block on every one of so many disks.
    Mirror(u64),
    /// Blocks with parity.
    Raidz {
        /// Disks that may fail.
        parity: u64,
        /// Disks of one device, those for parity included.
        disks: u64,
    },
}

/// `accounted` bytes of raidz are per this many bytes of a block, as ZFS has it.
const ACCOUNTED_BLOCK: u64 = 128 << 10;

impl Layout {
    /// Bytes on all disks together for a block of `psize` bytes, copies, parity and padding included.
    #[must_use]
    pub fn raw_bytes(self, psize: u64, ashift: u32) -> u64 {
        let sectors = psize.div_ceil(1 << ashift);
        let all = match self {
            Layout::Stripe => sectors,
            Layout::Mirror(ways) => sectors * ways,
            Layout::Raidz { parity, disks } => {
                (sectors + parity * sectors.div_ceil(disks - parity)).next_multiple_of(parity + 1)
            }
        };
        all << ashift
    }

    /// Bytes that `used` counts for a block of `psize` bytes: copies of a mirror and the parity of a record of 128 KiB
    /// are taken out.
    #[must_use]
    pub fn used_bytes(self, psize: u64, ashift: u32) -> u64 {
        match self {
            Layout::Stripe | Layout::Mirror(_) => psize.next_multiple_of(1 << ashift),
            Layout::Raidz { .. } => {
                let per_sector = ACCOUNTED_BLOCK / (self.raw_bytes(ACCOUNTED_BLOCK, ashift) >> 9);
                (self.raw_bytes(psize, ashift) >> 9) * per_sector
            }
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Stripe => f.write_str("stripe"),
            Layout::Mirror(ways) => write!(f, "mirror:{ways}"),
            Layout::Raidz { parity, disks } => write!(f, "raidz{parity}:{disks}"),
        }
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(text: String) -> Result<Layout, String> {
        text.parse()
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let (word, disks) = match text.split_once(':') {
            Some((word, count)) => {
                let count = count.parse::<u64>().ok().filter(|count| (1..=255).contains(count));
                (word, Some(count.ok_or_else(|| format!("'{text}' has no number of disks from 1 to 255"))?))
            }
            None => (text, None),
        };
        let parity = match word {
            "stripe" => return Ok(Layout::Stripe),
            "mirror" => return Ok(Layout::Mirror(disks.unwrap_or(2))),
            "raidz" | "raidz1" => 1,
            "raidz2" => 2,
            "raidz3" => 3,
            _ => return Err(format!("'{text}' is none of stripe, mirror:N, raidz1:N, raidz2:N, raidz3:N")),
        };
        match disks {
            Some(disks) if disks > parity => Ok(Layout::Raidz { parity, disks }),
            _ => {
                Err(format!("'{text}' needs the number of disks, more than {parity}: {word}:{}", parity + 4))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_takes_what_the_format_says() {
        let of = |text: &str| text.parse::<Layout>().unwrap();
        // The checked example of the format's page.
        assert_eq!(of("raidz3:6").raw_bytes(128 << 10, 12), 68 * 4096);
        // One sector of data is mirrored by raidz1; three with padding take four.
        assert_eq!(of("raidz1:5").raw_bytes(4096, 12), 2 * 4096);
        assert_eq!(of("raidz1:5").raw_bytes(3 * 4096, 12), 4 * 4096);
        assert_eq!(of("mirror").raw_bytes(5000, 12), 2 * 8192);
        assert_eq!(of("stripe").raw_bytes(512, 9), 512);
    }

    #[test]
    fn used_is_without_the_parity_of_a_large_record() {
        let raidz: Layout = "raidz1:5".parse().unwrap();
        let used = raidz.used_bytes(128 << 10, 12);
        assert!(used <= 128 << 10 && used > 126 << 10, "{used}");
        assert!(raidz.used_bytes(4096, 12) > 4096, "small blocks pay for their parity");
        assert_eq!("mirror:3".parse::<Layout>().unwrap().used_bytes(4097, 12), 8192);
    }

    #[test]
    fn layouts_are_read_as_they_are_written() {
        for text in ["stripe", "mirror:2", "raidz1:5", "raidz2:8", "raidz3:11"] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
        for bad in ["", "raid5", "raidz1", "raidz2:2", "mirror:0", "mirror:x", "raidz1:300"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
    }
}
