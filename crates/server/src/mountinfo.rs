//! Mounts in the kernel's list.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Type name of cenote's file systems in the kernel.
pub const TYPE: &str = "fuse.zfs";

/// A mounted dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The dataset.
    pub dataset: String,
    /// The mount point.
    pub point: PathBuf,
    /// Uid of the user who mounted it, if the kernel shows it.
    pub user: Option<u32>,
    /// Restricting options: `ro`, `noexec`, `nosuid`, `nodev`, `noatime`. The kernel does not show [`NOXATTR`]; callers add
    /// it from the server's answer.
    pub denied: Vec<&'static str>,
}

/// The option of a mount without extended attributes.
pub const NOXATTR: &str = "noxattr";

/// Options that deny rights.
const DENIALS: [&str; 5] = ["ro", "noexec", "nosuid", "nodev", "noatime"];

/// A line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    id: u64,
    device: (u32, u32),
    mounted: Mounted,
    /// It is one of our file systems.
    is_ours: bool,
}

/// A mount of this user by its number, which no other mount has at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub id: u64,
    pub dataset: String,
    pub point: PathBuf,
}

/// The datasets that this user mounted, in mount order. Other users may mount file systems with cenote's type name, but only
/// under their own uid.
pub(crate) fn of_this_user() -> io::Result<Vec<Numbered>> {
    let user = rustix::process::getuid().as_raw();
    let mut all = parse_all(&fs::read("/proc/self/mountinfo")?);
    all.retain(|entry| entry.is_ours && entry.mounted.user == Some(user));
    let numbered =
        |entry: Entry| Numbered { id: entry.id, dataset: entry.mounted.dataset, point: entry.mounted.point };
    Ok(all.into_iter().map(numbered).collect())
}

/// Devices of mounted datasets.
pub(crate) fn devices() -> io::Result<HashSet<(u32, u32)>> {
    let all = parse_all(&fs::read("/proc/self/mountinfo")?);
    Ok(all.into_iter().filter(|entry| entry.is_ours).map(|entry| entry.device).collect())
}

/// The datasets that are mounted here, in the order they were mounted.
///
/// # Errors
/// `/proc` cannot be read.
pub fn mounted() -> io::Result<Vec<Mounted>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The mounted dataset that contains `path`, and its mount point.
///
/// # Errors
/// `path` cannot be looked at.
pub fn dataset_of(path: &Path) -> io::Result<Option<Mounted>> {
    let path = path.to_owned();
    let path = front::apart::ask(move || fs::canonicalize(path))?;
    let all = parse_all(&fs::read("/proc/self/mountinfo")?);
    // The innermost mount, and of those at the same place the last.
    let inner = all
        .into_iter()
        .filter(|entry| path.starts_with(&entry.mounted.point))
        .enumerate()
        .max_by_key(|(at, entry)| (entry.mounted.point.as_os_str().len(), *at));
    Ok(inner.and_then(|(_, entry)| entry.is_ours.then_some(entry.mounted)))
}

fn parse(text: &[u8]) -> Vec<Mounted> {
    parse_all(text).into_iter().filter(|entry| entry.is_ours).map(|entry| entry.mounted).collect()
}

/// Every mount.
fn parse_all(text: &[u8]) -> Vec<Entry> {
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

fn line(line: &[u8]) -> Option<Entry> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let (id, device, point) = (words.first()?, words.get(2)?, words.get(4)?);
    let (major, minor) = std::str::from_utf8(device).ok()?.split_once(':')?;
    let dash = words.iter().position(|word| *word == b"-")?;
    let (kind, source, options) = (words.get(dash + 1)?, words.get(dash + 2)?, words.get(dash + 3)?);
    let user = options
        .split(|byte| *byte == b',')
        .find_map(|option| std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok());
    let given = words.get(5)?.split(|byte| *byte == b',').chain(options.split(|byte| *byte == b','));
    let given: Vec<&[u8]> = given.collect();
    let mounted = Mounted {
        dataset: String::from_utf8_lossy(&unescape(source)).into_owned(),
        point: PathBuf::from(OsString::from_vec(unescape(point))),
        user,
        denied: DENIALS.into_iter().filter(|word| given.contains(&word.as_bytes())).collect(),
    };
    Some(Entry {
        id: std::str::from_utf8(id).ok()?.parse().ok()?,
        device: (major.parse().ok()?, minor.parse().ok()?),
        mounted,
        is_ours: *kind == TYPE.as_bytes(),
    })
}

/// Blanks, tabs, line ends and backslashes are written as `\ooo`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| byte == b'\\' && d.iter().all(|c| (b'0'..b'8').contains(c)));
        match digits {
            Some(d) => {
                out.push(d.iter().fold(0, |sum: u8, c| sum.wrapping_mul(8).wrapping_add(c - b'0')));
                rest = &tail[3..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_found_among_others() {
        let text = b"22 1 0:20 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:50 / /tank/a\\040b rw,nosuid shared:9 master:1 - fuse.zfs tank/a\\040b rw,user_id=1000\n\
            41 22 0:51 / /mnt rw - fuse.sshfs host: rw,user_id=0\n\
            broken\n";
        let (dataset, point) = ("tank/a b".into(), "/tank/a b".into());
        let wanted = Mounted { dataset, point, user: Some(1000), denied: vec!["nosuid"] };
        assert_eq!(parse(text), [wanted]);
        assert_eq!(unescape(b"a\\134b\\9"), b"a\\b\\9");
    }

    #[test]
    fn a_place_in_no_dataset_is_in_none() {
        assert_eq!(dataset_of(Path::new("/proc/self")).unwrap(), None);
        assert!(dataset_of(Path::new("/no/such/place")).is_err());
    }
}
