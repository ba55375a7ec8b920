//! The features that a pool gets: those of [`features::of_new_pools`], unless the user asks for others.
//!
//! From:   `-d`, `-o feature@x=`, `-o compatibility=`.
//! To:     `zpool create`, `zpool set`, `zpool upgrade`.

use std::path::Path;

use format::features::{self, Feature};

/// Where OpenZFS keeps its files of feature names.
const FOLDERS: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];
/// The longest file of feature names, in bytes.
const FILE_MAX: u64 = 64 << 10;

/// The features that a value of `compatibility` allows.
///
/// # Errors
/// The names that stand for no set of features.
pub fn allowed(compatibility: &str) -> Result<Vec<&'static Feature>, String> {
    match compatibility {
        "off" | "" => Ok(features::of_new_pools().collect()),
        "legacy" => Ok(Vec::new()),
        list => {
            let mut common: Vec<&'static Feature> = features::ALL.iter().collect();
            for name in list.split(',') {
                let set = named(name).ok_or_else(|| list.to_owned())?;
                common.retain(|feature| set.iter().any(|other| other.name == feature.name));
            }
            Ok(common)
        }
    }
}

/// A set known by name, or a file of feature names.
fn named(name: &str) -> Option<Vec<&'static Feature>> {
    if let Some(set) = features::set(name) {
        return Some(set.features().collect());
    }
    let read = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        (metadata.is_file() && metadata.len() <= FILE_MAX)
            .then(|| std::fs::read_to_string(path).ok())
            .flatten()
    };
    let text = if name.starts_with('/') {
        read(Path::new(name))?
    } else if name.contains('/') || name.is_empty() {
        return None;
    } else {
        FOLDERS.iter().find_map(|folder| read(&Path::new(folder).join(name)))?
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    let words = lines.flat_map(|line| line.split(|c: char| c == ',' || c.is_whitespace()));
    words.filter(|word| !word.is_empty()).map(features::by_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_pools_get_what_openzfs_2_1_takes() {
        let names: Vec<&str> = allowed("off").expect("known").iter().map(|f| f.name).collect();
        assert!(names.contains(&"zstd_compress") && names.contains(&"blake3"));
        assert!(!names.contains(&"block_cloning"));
        assert_eq!(allowed("legacy"), Ok(Vec::new()));
        assert_eq!(allowed("nosuchfile"), Err("nosuchfile".to_owned()));
        assert_eq!(allowed("../x"), Err("../x".to_owned()));
    }

    #[test]
    fn several_sets_allow_what_all_of_them_do() {
        let both = allowed("grub2,openzfs-2.2").expect("known");
        assert_eq!(both, allowed("grub2").expect("known"));
    }

    #[test]
    fn a_file_of_names_is_a_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mine");
        std::fs::write(&path, "# mine\nlz4_compress,hole_birth # both\nenabled_txg\n").expect("written");
        let text = path.to_str().expect("text");
        assert_eq!(allowed(text).expect("read").len(), 3);
        std::fs::write(&path, "nosuch\n").expect("written");
        assert_eq!(allowed(text), Err(text.to_owned()));
    }
}
