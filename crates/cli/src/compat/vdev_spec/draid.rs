//! The words for a draid vdev: `draid[PARITY][:DATAd][:CHILDRENc][:SPARESs]`.
//!
//! From:   the operands of `zpool create` and `zpool add`.
//! To:     the numbers of the vdev, in OpenZFS's order of checks and words.
//! Source: docs/format/11-redundancy.md §10.1.

use pool::DraidLayout;

use crate::messages::Failure;

/// Data columns of a group, if nothing else is said: a balance of room and speed.
const DATA_USUAL: u64 = 8;
/// Devices' worth of spare space that a vdev has at most, and its devices.
const SPARES_MAX: u64 = 100;
pub(super) const CHILDREN_MAX: usize = 255;

/// The parity in a word for a draid vdev; `None` for any other word.
pub(super) fn parity(word: &str) -> Option<u8> {
    let rest = word.strip_prefix("draid")?;
    let (digits, _) = rest.split_once(':').unwrap_or((rest, ""));
    match digits {
        "" => Some(1),
        _ => digits.parse().ok().filter(|parity| (1..=3).contains(parity) && !digits.starts_with(['0', '+'])),
    }
}

/// The vdev that `word` describes, of so many devices.
///
/// # Errors
/// There is no such vdev.
pub(super) fn layout(word: &str, parity: u8, devices: usize) -> Result<DraidLayout, Failure> {
    let refuse = |line: String| Err(Failure::Refused(line.lines().map(str::to_owned).collect()));
    let children = devices as u64;
    let (mut data, mut spares) = (None, 0);
    for part in word.split(':').skip(1) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let suffix = part[digits..].chars().next().map(|letter| letter.to_ascii_lowercase());
        let number = part[..digits].parse::<u64>().ok();
        match (number, suffix) {
            (Some(number), Some('c')) if number != children => {
                return refuse(format!(
                    "invalid number of dRAID children; {number} required but {children} provided"
                ));
            }
            (Some(_), Some('c')) => {}
            (Some(number), Some('d')) => data = Some(number),
            (Some(number), Some('s')) => spares = number,
            _ => {
                return refuse(format!("invalid dRAID syntax; expected [:<number><c|d|s>] not '{word}'"));
            }
        }
    }
    let parity_columns = u64::from(parity);
    let room = children.saturating_sub(spares).saturating_sub(parity_columns);
    let data = match data {
        Some(data) => data,
        None if room > 0 => room.min(DATA_USUAL),
        None => {
            return refuse(format!(
                "request number of distributed spares {spares} and parity level {parity}\nleaves no disks available for data"
            ));
        }
    };
    if data == 0 || data > room {
        return refuse(format!(
            "requested number of dRAID data disks per group {data} is too high,\nat most {room} disks are available for data"
        ));
    }
    if spares > SPARES_MAX {
        return refuse(format!(
            "invalid number of dRAID spares {spares}; additional disks would be required"
        ));
    }
    if devices > CHILDREN_MAX {
        return refuse(format!(
            "{children} disks were provided, but dRAID only supports up to {CHILDREN_MAX} disks"
        ));
    }
    Ok(DraidLayout { parity, data, spares })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_openzfs_reads_them() {
        for (word, expected) in [
            ("draid", Some(1)),
            ("draid2", Some(2)),
            ("draid3:4d", Some(3)),
            ("draid:1s", Some(1)),
            ("draid0", None),
            ("draid01", None),
            ("draid4", None),
            ("draidx", None),
            ("raidz", None),
        ] {
            assert_eq!(parity(word), expected, "{word}");
        }
        let numbers = |word: &str, devices| {
            let layout = layout(word, parity(word).expect("a draid"), devices).expect("possible");
            (layout.parity, layout.data, layout.spares)
        };
        assert_eq!(numbers("draid", 5), (1, 4, 0));
        assert_eq!(numbers("draid2:3D:11c:2s", 11), (2, 3, 2));
        assert_eq!(numbers("draid1", 40), (1, 8, 0));
    }

    #[test]
    fn impossible_draid_layouts_are_refused_in_the_words_of_openzfs() {
        let refused = |word: &str, devices| match layout(word, parity(word).expect("a draid"), devices) {
            Err(Failure::Refused(lines)) => lines.join(" "),
            other => panic!("{word}: {other:?}"),
        };
        assert!(refused("draid1:6c", 5).contains("6 required but 5 provided"));
        assert!(refused("draid1:2", 5).contains("not 'draid1:2'"));
        assert!(refused("draid1::2d", 5).contains("expected [:<number><c|d|s>]"));
        assert!(refused("draid1:2é", 5).contains("expected"));
        assert!(refused("draid2:3s", 5).contains("leaves no disks available for data"));
        assert!(refused("draid2:4d", 5).contains("per group 4 is too high, at most 3 disks"));
        assert!(refused("draid1:1d:101s", 200).contains("invalid number of dRAID spares 101"));
        assert!(refused("draid1:2d", 256).contains("only supports up to 255"));
    }
}
