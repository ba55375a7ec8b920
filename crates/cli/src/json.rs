//! The JSON of `-j`: one compact line whose keys come in a fixed order.
//!
//! From:   what the tables show.
//! To:     standard output. The shape is that of OpenZFS 2.3 and later (`output_version` 0.1).

use pool::props::Source;
use serde_json::{Map, Value, json};

/// A number as `--json-int` wants it; anything else, and everything without it, is a string.
pub fn scalar(text: &str, as_int: bool) -> Value {
    match text.parse::<u64>() {
        Ok(n) if as_int => Value::from(n),
        _ => Value::from(text),
    }
}

/// `{"value":…,"source":{"type":…,"data":…}}`.
pub fn property(value: &str, source: &Source, as_int: bool) -> Value {
    let (kind, data) = match source {
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        other => (other.word(), "-"),
    };
    json!({ "value": scalar(value, as_int), "source": { "type": kind.to_uppercase(), "data": data } })
}

/// The frame around the objects of a command: `what` is `datasets` or `pools`.
pub fn envelope(command: &str, what: &str, objects: Map<String, Value>) -> Value {
    let mut frame = Map::new();
    frame.insert("output_version".to_owned(), version(command));
    frame.insert(what.to_owned(), Value::Object(objects));
    Value::Object(frame)
}

/// The fields before the objects of a command.
pub fn version(command: &str) -> Value {
    json!({ "command": command, "vers_major": 0, "vers_minor": 1 })
}

/// The fields before the properties of a dataset.
#[derive(Debug, Clone, Copy)]
pub struct DatasetHead<'a> {
    pub name: &'a str,
    pub kind: pool::props::DatasetKind,
    pub createtxg: u64,
}

/// One dataset with its properties (already in order).
pub fn dataset(head: DatasetHead, properties: Map<String, Value>, as_int: bool) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("name", head.name.into());
    add("type", head.kind.word().to_uppercase().into());
    let pool = head.name.split(['/', '@', '#']).next().unwrap_or(head.name);
    add("pool", pool.into());
    add("createtxg", scalar(&head.createtxg.to_string(), as_int));
    if let Some((dataset, snapshot)) = head.name.split_once('@') {
        add("dataset", dataset.into());
        add("snapshot_name", snapshot.into());
    }
    add("properties", Value::Object(properties));
    Value::Object(object)
}

/// The fields before the properties or vdevs of a pool.
#[derive(Debug, Clone, Copy)]
pub struct PoolHead<'a> {
    pub name: &'a str,
    pub state: &'a str,
    pub guid: u64,
    pub txg: u64,
    /// 5000 for pools with features.
    pub spa_version: u64,
    pub zpl_version: u64,
    /// `list` and `get` say `"type":"POOL"`, `status` does not.
    pub typed: bool,
}

/// The beginning of one pool; the caller adds `properties`, `vdevs` and so on.
pub fn pool(head: PoolHead, as_int: bool) -> Map<String, Value> {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("name", head.name.into());
    if head.typed {
        add("type", "POOL".into());
    }
    add("state", head.state.into());
    for (key, n) in [
        ("pool_guid", head.guid),
        ("txg", head.txg),
        ("spa_version", head.spa_version),
        ("zpl_version", head.zpl_version),
    ] {
        add(key, scalar(&n.to_string(), as_int));
    }
    object
}

/// `zfs version -j`, `zpool version -j`.
pub fn versions(command: &str, userland: &str, kernel: &str) -> Value {
    json!({ "output_version": version(command), "zfs_version": { "userland": userland, "kernel": kernel } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::pool::props::DatasetKind;

    #[test]
    fn a_dataset_is_laid_out_as_recorded() {
        let mut properties = Map::new();
        properties.insert("used".to_owned(), property("24K", &Source::None, false));
        properties.insert("compression".to_owned(), property("zstd-3", &Source::Local, false));
        let head = DatasetHead { name: "tank/a", kind: DatasetKind::Filesystem, createtxg: 8 };
        let mut all = Map::new();
        all.insert("tank/a".to_owned(), dataset(head, properties, false));
        assert_eq!(
            envelope("zfs list", "datasets", all).to_string(),
            concat!(
                r#"{"output_version":{"command":"zfs list","vers_major":0,"vers_minor":1},"datasets":{"tank/a":"#,
                r#"{"name":"tank/a","type":"FILESYSTEM","pool":"tank","createtxg":"8","properties":{"#,
                r#""used":{"value":"24K","source":{"type":"NONE","data":"-"}},"#,
                r#""compression":{"value":"zstd-3","source":{"type":"LOCAL","data":"-"}}}}}}"#
            )
        );
    }

    #[test]
    fn snapshots_name_their_dataset_and_integers_lose_their_quotes() {
        let head = DatasetHead { name: "tank/a@s", kind: DatasetKind::Snapshot, createtxg: 15 };
        let mut properties = Map::new();
        properties.insert("used".to_owned(), property("0", &Source::Inherited("tank".to_owned()), true));
        assert_eq!(
            dataset(head, properties, true).to_string(),
            concat!(
                r#"{"name":"tank/a@s","type":"SNAPSHOT","pool":"tank","createtxg":15,"dataset":"tank/a","#,
                r#""snapshot_name":"s","properties":{"used":{"value":0,"source":{"type":"INHERITED","data":"tank"}}}}"#
            )
        );
        assert_eq!(scalar("1.00", true), Value::from("1.00"));
    }

    #[test]
    fn pools_and_versions_are_laid_out_as_recorded() {
        let head = PoolHead {
            name: "tank",
            state: "ONLINE",
            guid: 6117534059992966118,
            txg: 4,
            spa_version: 5000,
            zpl_version: 5,
            typed: true,
        };
        assert_eq!(
            Value::Object(pool(head, true)).to_string(),
            r#"{"name":"tank","type":"POOL","state":"ONLINE","pool_guid":6117534059992966118,"txg":4,"spa_version":5000,"zpl_version":5}"#
        );
        assert_eq!(
            versions("zfs version", "zfs-2.4", "zfs-kmod-2.4").to_string(),
            concat!(
                r#"{"output_version":{"command":"zfs version","vers_major":0,"vers_minor":1},"#,
                r#""zfs_version":{"userland":"zfs-2.4","kernel":"zfs-kmod-2.4"}}"#
            )
        );
    }
}
