//! Usershares of Samba: folders that its server shares, by the program `net`.
//!
//! From:   mounted file systems whose property `sharesmb` is `on`.
//! To:     one usershare for each. The comment of a usershare says which pool made it. Those of others stay.
//! Source: net(8), smb.conf(5), zfsprops(7).

use std::collections::BTreeMap;
use std::path::Path;

use super::{Failed, WantedShare, run};
use crate::shares::ShareError;

const NET: &str = "/usr/bin/net";
/// The group Everyone. Samba translates its name only while its server runs.
const EVERYONE: &str = "S-1-1-0:F";
/// Sections of smb.conf(5) with a meaning of their own.
const RESERVED: &[&str] = &["global", "homes", "printers"];

/// A usershare.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    name: String,
    path: String,
    comment: String,
}

/// Those of one pool.
#[derive(Default)]
pub(super) struct Usershares {
    /// Paths by name, as they were set last. `None`: not known.
    set: Option<BTreeMap<String, String>>,
}

/// The name of a usershare, as OpenZFS chooses it. Samba takes letters of both cases for the same.
fn name_of(dataset: &str) -> String {
    dataset.replace(['/', '-', ':', ' '], "_")
}

/// The beginning of the comments of a pool's usershares.
fn mark(pool: u64) -> String {
    format!("cenote {pool} ")
}

/// Reads what `net usershare info` prints.
fn parse(text: &str) -> Vec<Listed> {
    let mut found: Vec<Listed> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            found.push(Listed { name: name.to_owned(), path: String::new(), comment: String::new() });
        } else if let (Some(last), Some((key, value))) = (found.last_mut(), line.split_once('=')) {
            match key {
                "path" => value.clone_into(&mut last.path),
                "comment" => value.clone_into(&mut last.comment),
                _ => {}
            }
        }
    }
    found
}

/// The path in a usershare: one line, without the variables of smb.conf(5).
fn shown(point: &Path) -> Result<&str, String> {
    let is_plain = |text: &&str| !text.contains(|letter: char| letter.is_control() || letter == '%');
    point.to_str().filter(is_plain).ok_or_else(|| {
        format!("Samba cannot share '{}': its path has a control character or a '%'", point.display())
    })
}

/// The names and paths to share; or why not. Of several file systems with one name for Samba, the one that is `shared`
/// already, as paths by name, keeps it.
fn names<'a>(
    wanted: &[&'a WantedShare],
    shared: &BTreeMap<String, String>,
) -> (BTreeMap<String, (&'a WantedShare, &'a str)>, Failed) {
    let mut names: BTreeMap<String, (String, (&WantedShare, &str))> = BTreeMap::new();
    let mut failed = Failed::new();
    let is_new = |share: &WantedShare| {
        shared.get(&name_of(&share.dataset)).is_none_or(|path| share.point.as_os_str() != path.as_str())
    };
    let mut wanted = wanted.to_vec();
    wanted.sort_by_key(|share| (is_new(share), share.dataset.as_str()));
    for share in wanted {
        let name = name_of(&share.dataset);
        let why = match (names.get(&name.to_lowercase()), shown(&share.point)) {
            _ if RESERVED.contains(&name.to_lowercase().as_str()) => {
                format!("'{name}' has another meaning for Samba")
            }
            (Some((_, (other, _))), _) => format!("it has the same name for Samba as '{}'", other.dataset),
            (None, Err(why)) => why,
            (None, Ok(path)) => {
                names.insert(name.to_lowercase(), (name, (share, path)));
                continue;
            }
        };
        failed.push((share.dataset.clone(), ShareError::Server(why)));
    }
    (names.into_values().collect(), failed)
}

/// The paths by name.
fn paths_of(names: &BTreeMap<String, (&WantedShare, &str)>) -> BTreeMap<String, String> {
    names.iter().map(|(name, (_, path))| (name.clone(), (*path).to_owned())).collect()
}

impl Usershares {
    /// The first call finds the shares that an earlier server left.
    pub(super) fn begin(&mut self, is_root: bool) {
        self.set = (!is_root || !Path::new(NET).exists()).then(BTreeMap::new);
    }

    /// Makes Samba share exactly these file systems of the pool.
    pub(super) fn set(&mut self, pool: u64, wanted: &[&WantedShare]) -> Failed {
        if self.set.is_none() && wanted.is_empty() && !Path::new(NET).exists() {
            return Failed::new();
        }
        if let Some(set) = &self.set {
            let (names, failed) = names(wanted, set);
            if paths_of(&names) == *set {
                return failed;
            }
        }
        let listed = match run(NET, &["usershare", "info", "--long"]) {
            Ok(text) => parse(&text),
            Err(why) => {
                let all = wanted.iter().map(|share| share.dataset.clone());
                return all.map(|dataset| (dataset, ShareError::Server(why.clone()))).collect();
            }
        };
        let (ours, others): (Vec<Listed>, Vec<Listed>) =
            listed.into_iter().partition(|share| share.comment.starts_with(&mark(pool)));
        let shared = ours.iter().map(|share| (share.name.clone(), share.path.clone())).collect();
        let (names, mut failed) = names(wanted, &shared);
        let (paths, before) = (paths_of(&names), failed.len());
        for share in ours.iter().filter(|share| paths.get(&share.name) != Some(&share.path)) {
            if let Err(why) = run(NET, &["usershare", "delete", &share.name]) {
                tracing::warn!(name = share.name, why, "a usershare of Samba is not removed");
            }
        }
        for (name, (share, path)) in names {
            let is_same = |listed: &&Listed| listed.name.eq_ignore_ascii_case(&name);
            if ours.iter().any(|listed| listed.name == name && listed.path == path) {
                continue;
            }
            let comment = format!("{}{}", mark(pool), share.dataset);
            let done = match others.iter().find(is_same) {
                Some(other) => Err(format!("Samba shares '{}' as '{}' already", other.path, other.name)),
                None => run(NET, &["usershare", "add", &name, path, &comment, EVERYONE]).map(drop),
            };
            if let Err(why) = done {
                failed.push((share.dataset.clone(), ShareError::Server(why)));
            }
        }
        // Usershares that failed are tried again.
        self.set = (failed.len() == before).then_some(paths);
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(dataset: &str, point: &str) -> WantedShare {
        WantedShare { dataset: dataset.into(), guid: 1, point: point.into(), nfs: None, smb: true }
    }

    #[test]
    fn the_list_of_usershares_says_which_ones_a_pool_made() {
        let text = "[tank_a]\npath=/tank/a b\ncomment=cenote 7 tank/a=b\nusershare_acl=S-1-1-0:F,\nguest_ok=n\n\n\
                    info_fn: file x is not a well formed usershare file.\n[other]\npath=/x\ncomment=\n";
        let listed = |name: &str, path: &str, comment: &str| Listed {
            name: name.into(),
            path: path.into(),
            comment: comment.into(),
        };
        let both = [listed("tank_a", "/tank/a b", "cenote 7 tank/a=b"), listed("other", "/x", "")];
        assert_eq!(parse(text), both);
        assert!(!both[0].comment.starts_with(&mark(77)));
    }

    #[test]
    fn names_that_samba_takes_for_the_same_are_not_shared_twice() {
        let shares = [
            share("tank/a-b", "/1"),
            share("tank/a/B", "/2"),
            share("homes", "/3"),
            share("t", "/4%u"),
            share("t/n", "/5\n"),
            share("t/good", "/6"),
        ];
        let (names, failed) = names(&shares.iter().collect::<Vec<_>>(), &BTreeMap::new());
        let paths: Vec<_> = names.iter().map(|(name, (_, path))| (name.as_str(), *path)).collect();
        assert_eq!(paths, [("t_good", "/6"), ("tank_a_b", "/1")]);
        let failed: Vec<_> = failed.iter().map(|(dataset, _)| dataset.as_str()).collect();
        assert_eq!(failed, ["homes", "t", "t/n", "tank/a/B"]);
    }

    #[test]
    fn a_new_file_system_does_not_take_the_name_of_one_that_is_shared() {
        // They come in the order of their guids, which are random.
        let shares = [share("tank/x-y", "/new"), share("tank/x_y", "/shared")];
        for order in [[0, 1], [1, 0]] {
            let wanted = order.map(|at| &shares[at]);
            let shared = BTreeMap::from([("tank_x_y".to_owned(), "/shared".to_owned())]);
            let (names, failed) = names(&wanted, &shared);
            assert_eq!(names["tank_x_y"].1, "/shared");
            assert_eq!(failed.len(), 1);
            assert_eq!(failed[0].0, "tank/x-y");
        }
    }
}
