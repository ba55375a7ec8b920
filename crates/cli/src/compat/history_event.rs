//! One event of a pool's history as `zpool history` prints it.
//!
//! From:   records of the history: commands, operations of OpenZFS, and calls of its kernel module (ioctl).
//! To:     lines of text.
//! Source: docs/format/06-mos-dsl.md §1.4; the output of `zpool history -i -l` of OpenZFS 2.1.11.

use format::NvList;
use format::nvlist::NvValue;
use pool::Event;
use serde_json::{Map, Value};

use crate::dates::{self, Form};
use crate::out::quoted;

/// How far the parts of a list are indented against it.
const INDENT: usize = 4;

/// One event as a line; `None` for an event that is shown only with `-i`.
pub fn line(
    event: &Event,
    internal: bool,
    long: bool,
    user: &mut dyn FnMut(u64) -> Option<String>,
) -> Option<String> {
    let record = &event.record;
    let date = dates::show(event.time, Form::History);
    let mut line = match event.command() {
        Some(command) => format!("{date} {command}"),
        None if !internal => return None,
        None => {
            let txg = record.get_u64("history txg").unwrap_or(0);
            let text = record.get_str("history internal str").unwrap_or_default();
            let dataset = match (record.get_str("dsname"), record.get_u64("dsid")) {
                (Some(name), Some(id)) => format!("{name} ({id}) "),
                (Some(name), None) => format!("{name} "),
                _ => String::new(),
            };
            match (record.get_str("internal_name"), record.get_str("ioctl")) {
                (Some(name), _) => format!("{date} [txg:{txg}] {name} {dataset}{text}"),
                (None, Some(name)) => ioctl(&date, name, record),
                (None, None) => format!("{date} [txg:{txg}] {dataset}{text}"),
            }
        }
    };
    if long {
        let host = record.get_str("history hostname").unwrap_or("");
        let zone = record.get_str("history zone").map(|zone| format!(":{zone}")).unwrap_or_default();
        if let Some(NvValue::Uint64(who)) = record.get("history who") {
            let name = user(*who).map(|name| format!(" ({name})")).unwrap_or_default();
            line += &format!(" [user {who}{name} on {host}{zone}]");
        } else if !host.is_empty() {
            line += &format!(" [on {host}{zone}]");
        }
    }
    Some(line)
}

/// One event for programs; `None` for an event that is shown only with `-i`.
pub fn object(event: &Event, internal: bool) -> Option<Value> {
    let record = &event.record;
    let mut object = Map::new();
    object.insert("time".to_owned(), event.time.into());
    let mut add = |key: &str, value: Option<Value>| value.map(|value| object.insert(key.to_owned(), value));
    let text = |key: &str| record.get_str(key).map(Value::from);
    match event.command() {
        Some(command) => add("command", Some(command.to_string().into())),
        None if !internal => return None,
        None => add("txg", record.get_u64("history txg").map(Value::from)),
    };
    add("internal_name", text("internal_name"));
    add("ioctl", text("ioctl"));
    add("dataset", text("dsname"));
    add("dataset_id", record.get_u64("dsid").map(Value::from));
    add("text", text("history internal str"));
    add("user", record.get_u64("history who").map(Value::from));
    add("host", text("history hostname"));
    add("zone", text("history zone"));
    Some(Value::Object(object))
}

/// A call of the kernel module: its input and its output. The text ends with a line feed, as in OpenZFS.
fn ioctl(date: &str, name: &str, record: &NvList) -> String {
    let elapsed = match record.get("elapsed_ns") {
        Some(NvValue::Int64(nanos)) => format!("({}ms) ", nanos / 1_000_000),
        Some(NvValue::Uint64(nanos)) => format!("({}ms) ", nanos / 1_000_000),
        _ => String::new(),
    };
    let mut lines = vec![format!("{date} {elapsed}ioctl {name}")];
    for (key, heading) in [("in_nvl", "input"), ("out_nvl", "output")] {
        if let Some(NvValue::List(list)) = record.get(key) {
            lines.push(format!("{:INDENT$}{heading}:", ""));
            dump(list, 2 * INDENT, &mut lines);
        }
    }
    if let Some(bytes) = record.get_u64("out_size") {
        lines.push(format!("{:INDENT$}output nvlist omitted; original size: {}KB", "", bytes / 1024));
    }
    if let Some(NvValue::Int64(errno)) = record.get("errno") {
        lines.push(format!("{:INDENT$}errno: {errno}", ""));
    }
    lines.join("\n") + "\n"
}

/// The pairs of a list, one on a line, those of lists within it below their name.
fn dump(list: &NvList, indent: usize, lines: &mut Vec<String>) {
    for (name, value) in list.iter() {
        let name = quoted(name);
        let mut line = |text: String| lines.push(format!("{:indent$}{name}{text}", ""));
        let numbers = |values: Vec<String>| -> Vec<String> {
            values.iter().enumerate().map(|(at, value)| format!("[{at}]: {value}")).collect()
        };
        match value {
            NvValue::Boolean => line(String::new()),
            NvValue::BooleanValue(value) => line(format!(": {value}")),
            NvValue::String(text) => line(format!(": '{}'", quoted(text))),
            NvValue::Byte(number) | NvValue::Uint8(number) => line(format!(": {number}")),
            NvValue::Uint32(number) => line(format!(": {number}")),
            NvValue::Int32(number) => line(format!(": {number}")),
            NvValue::Int64(number) | NvValue::Hrtime(number) => line(format!(": {number}")),
            NvValue::Uint64(number) => line(format!(": {number}")),
            NvValue::Uint64Array(values) => {
                numbers(values.iter().map(u64::to_string).collect()).into_iter().for_each(line);
            }
            NvValue::StringArray(values) => {
                let shown = values.iter().map(|text| format!("'{}'", quoted(text)));
                numbers(shown.collect()).into_iter().for_each(line);
            }
            NvValue::List(within) => {
                line(":".to_owned());
                dump(within, indent + INDENT, lines);
            }
            // Calls of OpenZFS have no others.
            other => line(format!(": {}", quoted(format!("{other:?}").as_bytes()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_shown_with_what_it_was_given() {
        let mut snaps = NvList::new();
        snaps.insert("tank/fs@s", NvValue::Boolean);
        let mut input = NvList::new();
        input.insert("snaps", NvValue::List(snaps));
        input.insert("props", NvValue::List(NvList::new()));
        input.insert("origin", "tank@a");
        input.insert("type", NvValue::Int32(2));
        let mut record = NvList::new();
        record.insert("ioctl", "snapshot");
        record.insert("in_nvl", NvValue::List(input));
        record.insert("elapsed_ns", NvValue::Int64(84_700_000));
        record.insert("history who", 0u64);
        record.insert("history hostname", "oracle");
        record.insert("history zone", "linux");
        let event = Event { time: 0, record };
        let shown = line(&event, true, true, &mut |_| Some("root".to_owned())).expect("it is internal");
        let (_, shown) = shown.split_once(' ').expect("a date comes first");
        let wanted = "(84ms) ioctl snapshot\n    input:\n        snaps:\n            tank/fs@s\n        props:\n        \
                      origin: 'tank@a'\n        type: 2\n [user 0 (root) on oracle:linux]";
        assert_eq!(shown, wanted);
        assert_eq!(line(&event, false, true, &mut |_| None), None);
    }

    #[test]
    fn an_internal_operation_is_shown_without_a_zone() {
        let mut record = NvList::new();
        record.insert("internal_name", "set");
        record.insert("history internal str", "comment=x");
        record.insert("history txg", 14u64);
        record.insert("history hostname", "oracle");
        let event = Event { time: 0, record };
        let shown = line(&event, true, true, &mut |_| None).expect("it is internal");
        assert!(shown.ends_with(" [txg:14] set comment=x [on oracle]"), "{shown}");
    }
}
