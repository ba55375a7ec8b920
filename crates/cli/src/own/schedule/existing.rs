//! The snapshots of a dataset, with the facts on which the policy decides.
//!
//! From:   `zfs get`.
//! To:     the policy and the backup. The oldest comes first.

use super::{MADE_BY, MADE_FOR};
use crate::messages::Failure;
use crate::own::child::Zfs;

/// A snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Existing {
    /// `dataset@name`.
    pub full: String,
    pub guid: u64,
    pub txg: u64,
    /// Seconds since 1970.
    pub created: i64,
    /// How many holds it has.
    pub holds: u64,
    pub has_clones: bool,
    /// The command of cenote that made it, if one did.
    pub made_by: Option<String>,
    /// The tag of the destination that a backup made it for.
    pub made_for: Option<String>,
}

impl Existing {
    /// Behind the `@`.
    pub(super) fn name(&self) -> &str {
        self.full.split_once('@').map_or("", |(_, name)| name)
    }
}

/// The snapshots of `dataset` alone.
///
/// # Errors
/// The message of `zfs get`.
pub(super) fn snapshots_of(zfs: &Zfs, dataset: &str) -> Result<Vec<Existing>, Failure> {
    let properties = format!("guid,createtxg,creation,userrefs,clones,{MADE_BY},{MADE_FOR}");
    let columns = "name,property,value,source";
    let words = ["get", "-Hp", "-d", "1", "-t", "snapshot", "-o", columns, &properties, dataset];
    Ok(parse(&zfs.read(&words)?))
}

fn parse(text: &str) -> Vec<Existing> {
    let mut all: Vec<Existing> = Vec::new();
    for line in text.lines() {
        let mut cells = line.split('\t');
        let [Some(name), Some(property), Some(value), Some(source)] = [(); 4].map(|()| cells.next()) else {
            continue;
        };
        if all.last().is_none_or(|last| last.full != name) {
            all.push(Existing { full: name.to_owned(), ..Existing::default() });
        }
        let Some(last) = all.last_mut() else { continue };
        let number = || value.parse().unwrap_or_default();
        match property {
            "guid" => last.guid = number(),
            "createtxg" => last.txg = number(),
            "creation" => last.created = i64::try_from(number()).unwrap_or(i64::MAX),
            // A number that cannot be read counts as a hold: in doubt nothing is destroyed.
            "userrefs" => last.holds = value.parse().unwrap_or(1),
            "clones" => last.has_clones = !matches!(value, "" | "-"),
            MADE_BY => last.made_by = (source == "local").then(|| value.to_owned()),
            MADE_FOR => last.made_for = (source == "local").then(|| value.to_owned()),
            _ => {}
        }
    }
    all.sort_by_key(|one| one.txg);
    all
}

/// A file system or volume, with what decides whether it may get snapshots.
#[derive(Debug)]
pub(super) struct Listed {
    pub name: String,
    pub is_read_only: bool,
    /// It holds a part of a stream, and `zfs snapshot` refuses it.
    pub is_receiving: bool,
}

/// The datasets at and below `dataset`, parents first; without `recursive`, `dataset` alone.
///
/// # Errors
/// The message of `zfs list`.
pub(super) fn datasets(zfs: &Zfs, dataset: &str, recursive: bool) -> Result<Vec<Listed>, Failure> {
    let mut words = vec!["list", "-H", "-o", "name,readonly,receive_resume_token", "-t", "filesystem,volume"];
    words.extend(recursive.then_some("-r"));
    words.push(dataset);
    let of_line = |line: &str| {
        let mut cells = line.split('\t');
        let (name, readonly, token) = (cells.next()?.to_owned(), cells.next()?, cells.next()?);
        Some(Listed { name, is_read_only: readonly == "on", is_receiving: token.len() > 1 })
    };
    Ok(zfs.read(&words)?.lines().filter_map(of_line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_of_the_snapshot_itself_says_who_made_it() {
        let text = "t@b\tguid\t7\t-\nt@b\tcreatetxg\t20\t-\nt@b\tcreation\t99\t-\nt@b\tuserrefs\t2\t-\n\
                    t@b\tclones\t\t-\nt@b\tcenote:made-by\tsnapshots\tlocal\n\
                    t@b\tcenote:made-for\tx\tinherited from t\n\
                    t@a\tguid\t8\t-\nt@a\tcreatetxg\t10\t-\nt@a\tuserrefs\t?\t-\nt@a\tclones\tt/c\t-\n\
                    t@a\tcenote:made-by\tsnapshots\tinherited from t\n";
        let all = parse(text);
        let b = Existing {
            full: "t@b".into(),
            guid: 7,
            txg: 20,
            created: 99,
            holds: 2,
            has_clones: false,
            made_by: Some("snapshots".into()),
            made_for: None,
        };
        let a = Existing {
            full: "t@a".into(),
            guid: 8,
            txg: 10,
            holds: 1,
            has_clones: true,
            ..Existing::default()
        };
        assert_eq!(all, [a, b]);
    }
}
