//! Where a backup goes: a dataset, or a folder of stream files.
//!
//! From:   a word of the command line.
//! To:     the place of each dataset, the tag of its holds, and a refusal where nothing can be put.

use std::path::{Path, PathBuf};

use crate::messages::Failure;
use crate::own::child::Zfs;

/// Begins the tag of the hold on the snapshot that was sent last.
const TAG: &str = "cenote-backup:";
/// Longest tag of a hold, with room for the dataset's name.
const TAG_MAX: usize = 200;

/// Where a backup goes.
#[derive(Debug)]
pub(super) enum Destination {
    Dataset(String),
    Folder(PathBuf),
}

impl Destination {
    pub(super) fn of(word: &str) -> Destination {
        // No dataset's name ends in a slash.
        match word.starts_with(['/', '.']) || word.ends_with('/') {
            true => Destination::Folder(word.into()),
            false => Destination::Dataset(word.to_owned()),
        }
    }

    /// The place of a dataset below the source; `below` begins with a slash, or is empty.
    pub(super) fn below(&self, below: &str) -> Destination {
        match self {
            Destination::Dataset(name) => Destination::Dataset(format!("{name}{below}")),
            Destination::Folder(path) => Destination::Folder(path.join(below.trim_start_matches('/'))),
        }
    }

    /// The tag of the hold in the source. One that is too long is cut, and told apart by a sum.
    pub(super) fn tag(&self) -> String {
        let name = match self {
            Destination::Dataset(name) => name.clone(),
            // Another working folder must not make another destination of it.
            Destination::Folder(path) => {
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
            }
        };
        let tag = format!("{TAG}{name}");
        if tag.len() <= TAG_MAX {
            return tag;
        }
        let sum = tag.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let cut = (0..=TAG_MAX).rev().find(|at| tag.is_char_boundary(*at)).unwrap_or(0);
        format!("{}~{sum:016x}", &tag[..cut])
    }
}

/// Refuses a destination below a dataset that does not exist, before a snapshot is made that nothing would remove.
pub(super) fn expect_place(zfs: &Zfs, top: &str, destination: &Destination) -> Result<(), Failure> {
    let name = match destination {
        Destination::Dataset(name) => name,
        Destination::Folder(path) => return expect_folder_above(path),
    };
    let above = name.rsplit_once('/').map_or(name.as_str(), |(above, _)| above);
    match zfs.read(&["list", "-H", "-o", "name", above]) {
        Ok(_) => Ok(()),
        Err(_) => {
            let line = format!("cannot back up '{top}' to '{name}': there is no dataset '{above}'");
            Err(Failure::refused(line).hint("nothing was changed; import the pool of the destination first"))
        }
    }
}

/// Refuses a new folder in one that does not exist: where a disk is not mounted, the backup would fill another one.
fn expect_folder_above(path: &Path) -> Result<(), Failure> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match whole.parent() {
        Some(above) if !whole.exists() && !above.is_dir() => {
            let line =
                format!("cannot back up to '{}': there is no folder '{}'", path.display(), above.display());
            Err(Failure::refused(line)
                .hint("nothing was changed; is its disk mounted? else make it with mkdir -p"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_an_end_or_a_dot_in_front_makes_a_folder() {
        for (word, is_folder) in
            [("/a", true), ("./a", true), ("..", true), ("a/", true), ("tank/a", false), ("tank", false)]
        {
            assert_eq!(matches!(Destination::of(word), Destination::Folder(_)), is_folder, "{word}");
        }
        assert!(
            matches!(Destination::of("/a").below("/b/c"), Destination::Folder(path) if path == Path::new("/a/b/c"))
        );
        assert!(matches!(Destination::of("t/a").below(""), Destination::Dataset(name) if name == "t/a"));
    }

    #[test]
    fn tags_of_long_places_stay_short_and_different() {
        let long = |end: &str| Destination::of(&format!("/{}{end}", "ä".repeat(300))).tag();
        assert!(long("a").len() < 256 && long("a") != long("b"));
        assert_eq!(Destination::of("usb/home").tag(), "cenote-backup:usb/home");
    }
}
