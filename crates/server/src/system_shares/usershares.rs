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

/// The names and paths to share; or why not.
fn names<'a>(wanted: &[&'a WantedShare]) -> (BTreeMap<String, (&'a WantedShare, &'a str)>, Failed) {
    let mut names: BTreeMap<String, (String, (&WantedShare, &str))> = BTreeMap::new();
    let mut failed = Failed::new();
    for share in wanted {
        let name = name_of(&share.dataset);
        let why = match (names.get(&name.to_lowercase()), shown(&share.point)) {
            _ if RESERVED.contains(&name.to_lowercase().as_str()) => {
                format!("'{name}' has another meaning for Samba")
            }
            (Some((_, (other, _))), _) => format!("it has the same name for Samba as '{}'", other.dataset),
            (None, Err(why)) => why,
            (None, Ok(path)) => {
                names.insert(name.to_lowercase(), (name, (*share, path)));
                continue;
            }
        };
        failed.push((share.dataset.clone(), ShareError::Server(why)));
    }
    (names.into_values().collect(), failed)
}

impl Usershares {
    /// The first look finds what an earlier server left.
    pub(super) fn begin(&mut self, is_root: bool) {
        self.set = (!is_root || !Path::new(NET).exists()).then(BTreeMap::new);
    }

    /// Has Samba share exactly these file systems of the pool.
    pub(super) fn set(&mut self, pool: u64, wanted: &[&WantedShare]) -> Failed {
        let (names, mut failed) = names(wanted);
        let paths: BTreeMap<String, String> =
            names.iter().map(|(name, (_, path))| (name.clone(), (*path).to_owned())).collect();
        if self.set.as_ref().map_or(paths.is_empty() && !Path::new(NET).exists(), |set| *set == paths) {
            return failed;
        }
        let listed = match run(NET, &["usershare", "info", "--long"]) {
            Ok(text) => parse(&text),
            Err(why) => {
                let all = names.values().map(|(share, _)| share.dataset.clone());
                failed.extend(all.map(|dataset| (dataset, ShareError::Server(why.clone()))));
                return failed;
            }
        };
        let before = failed.len();
        let (ours, others): (Vec<Listed>, Vec<Listed>) =
            listed.into_iter().partition(|share| share.comment.starts_with(&mark(pool)));
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
        // What failed is tried again.
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
        let (names, failed) = names(&shares.iter().collect::<Vec<_>>());
        let paths: Vec<_> = names.iter().map(|(name, (_, path))| (name.as_str(), *path)).collect();
        assert_eq!(paths, [("t_good", "/6"), ("tank_a_b", "/1")]);
        let failed: Vec<_> = failed.iter().map(|(dataset, _)| dataset.as_str()).collect();
        assert_eq!(failed, ["tank/a/B", "homes", "t", "t/n"]);
    }
}
