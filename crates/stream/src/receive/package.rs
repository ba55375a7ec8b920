//! The nvlist of a replication package, and the target names of its snapshots.
//!
//! Source: docs/format/09-send-stream.md §4.

use format::{Guid, NvList, NvValue};

use pool::props::{self, DatasetKind, Value};

/// Naming rule of the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// `fs` or `fs@snap`: the top of the package becomes this.
    Into(String),
    /// `-d`: the sent name without its pool, below this.
    WithoutPool(String),
    /// `-e`: the last element of the sent name, below this.
    LastElement(String),
}

impl Destination {
    /// The local name of the snapshot that was sent as `toname`, in a package (if it is one) whose top is `top`.
    #[must_use]
    pub fn name_of(&self, toname: &str, top: Option<&str>) -> String {
        let (sent, leaf) = toname.split_once('@').unwrap_or((toname, ""));
        let top = top.and_then(|top| top.split('@').next()).unwrap_or(sent);
        let below =
            sent.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with('/')).unwrap_or("");
        let named = |fs: String| format!("{fs}@{leaf}");
        match self {
            Destination::Into(name) => match name.split_once('@') {
                Some(_) if below.is_empty() => name.clone(),
                Some((fs, leaf)) => format!("{fs}{below}@{leaf}"),
                None => named(format!("{name}{below}")),
            },
            Destination::WithoutPool(fs) => match sent.split_once('/') {
                Some((_, rest)) => named(format!("{fs}/{rest}")),
                None => named(fs.clone()),
            },
            Destination::LastElement(fs) => {
                let last = top.rsplit('/').next().unwrap_or(top);
                named(format!("{fs}/{last}{below}"))
            }
        }
    }
}

/// The entry in the list of a package for the file system whose snapshot has this guid.
fn entry_of(list: &NvList, snapshot: Guid) -> Option<&NvList> {
    list.get_list("fss")?.iter().find_map(|(_, entry)| match entry {
        NvValue::List(entry) => {
            let snaps = entry.get_list("snaps")?;
            let has = snaps.iter().any(|(_, guid)| *guid == NvValue::Uint64(snapshot.0));
            has.then_some(entry)
        }
        _ => None,
    })
}

/// Tags under which the sender holds the snapshot with this guid, as a package lists them (`zfs send -h`).
#[must_use]
pub fn holds_of(list: &NvList, snapshot: Guid) -> Vec<String> {
    let tags = || -> Option<Vec<String>> {
        let entry = entry_of(list, snapshot)?;
        let is_it = |guid: &NvValue| *guid == NvValue::Uint64(snapshot.0);
        let (name, _) = entry.get_list("snaps")?.iter().find(|(_, guid)| is_it(guid))?;
        let holds = entry.get_list("snapholds")?.get_list(std::str::from_utf8(name).ok()?)?;
        Some(holds.iter().filter_map(|(tag, _)| String::from_utf8(tag.to_vec()).ok()).collect())
    };
    tags().unwrap_or_default()
}

/// Properties in a package for the file system or volume whose snapshot has this guid; properties that this build does
/// not know are left out. `None`: the package has no list of them.
#[must_use]
pub fn properties_of(list: &NvList, snapshot: Guid, kind: DatasetKind) -> Option<Vec<(String, Value)>> {
    let known = |name: &str| {
        name.contains(':')
            || props::dataset::parse(name)
                .is_some_and(|property| property.name == name && property.check_settable(kind, false).is_ok())
    };
    let props = entry_of(list, snapshot)?.get_list("props")?;
    Some(read(props, known))
}

/// The parent's snapshot with which the file system or volume with this snapshot was sent.
#[must_use]
pub fn parent_snapshot_of(list: &NvList, snapshot: Guid) -> Option<Guid> {
    entry_of(list, snapshot)?.get_u64("parentfromsnap").filter(|guid| *guid != 0).map(Guid)
}

/// For a package of raw streams: whether the dataset with this snapshot is an encryption root at the sender. `None`: the
/// package has no raw streams.
#[must_use]
pub fn is_key_root_of(list: &NvList, snapshot: Guid) -> Option<bool> {
    let entry = entry_of(list, snapshot).filter(|_| list.contains("raw"))?;
    Some(entry.contains("is_encroot"))
}

/// Properties that a package brings for the snapshot with this guid.
#[must_use]
pub fn snapshot_properties_of(list: &NvList, snapshot: Guid) -> Vec<(String, Value)> {
    let props = || {
        let entry = entry_of(list, snapshot)?;
        let mut snaps = entry.get_list("snaps")?.iter();
        let (leaf, _) = snaps.find(|(_, guid)| **guid == NvValue::Uint64(snapshot.0))?;
        entry.get_list("snapprops")?.get_list(std::str::from_utf8(leaf).ok()?)
    };
    props().map(|props| read(props, props::names::is_user_property)).unwrap_or_default()
}

fn read(props: &NvList, known: impl Fn(&str) -> bool) -> Vec<(String, Value)> {
    let read = |(name, value): (&[u8], &NvValue)| {
        let name = String::from_utf8(name.to_vec()).ok().filter(|name| known(name))?;
        match value {
            NvValue::Uint64(number) => Some((name, Value::Number(*number))),
            NvValue::String(text) => Some((name, Value::Text(String::from_utf8(text.clone()).ok()?))),
            _ => None,
        }
    };
    props.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_destination() {
        let into = Destination::Into("tank/a".into());
        assert_eq!(into.name_of("src/x/y@s", None), "tank/a@s");
        assert_eq!(into.name_of("src/x/y@s", Some("src/x@s")), "tank/a/y@s");
        assert_eq!(Destination::Into("tank/a@b".into()).name_of("src/x@s", None), "tank/a@b");
        let rest = Destination::WithoutPool("tank/a".into());
        assert_eq!(rest.name_of("src/x/y@s", Some("src/x@s")), "tank/a/x/y@s");
        assert_eq!(rest.name_of("src@s", None), "tank/a@s");
        let last = Destination::LastElement("tank/a".into());
        assert_eq!(last.name_of("src/x/y@s", None), "tank/a/y@s");
        assert_eq!(last.name_of("src/x/y@s", Some("src/x@s")), "tank/a/x/y@s");
    }
}
