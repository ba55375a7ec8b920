//! `zpool events`: events of pools since their import.
//!
//! From:   the servers that hold them, which keep the newest events in memory.
//! To:     standard output.

use std::collections::BTreeMap;
use std::time::Duration;

use format::NvList;
use format::nvlist::NvValue;
use serde_json::{Value, json};

use super::Call;
use crate::args::{Parsed, flag};
use crate::client;
use crate::command::{Command, Run, Typed};
use crate::dates::{self, Form};
use crate::json;
use crate::messages::{Action, Failure, reason};
use crate::open;
use crate::out::Console;
use crate::state;
use crate::suggest;

/// `zpool events`.
pub static COMMAND: Command = Command {
    name: "events",
    about: "shows what happened to pools",
    syntax: &["events [-vHf] [POOL]", "events -j [POOL]", "events -c"],
    examples: &["zpool events", "zpool events -v tank"],
    options: &[
        flag("c", "forgets all"),
        flag("f", "goes on as more happens"),
        flag("H", "no headings, tabs between fields"),
        flag("v", "with all details"),
        flag("j|json", "prints JSON, with all details"),
    ],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool events`.
struct Options {
    clear: bool,
    follow: bool,
    scripted: bool,
    verbose: bool,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        clear: args.has("c"),
        follow: args.has("f"),
        scripted: args.has("H"),
        verbose: args.has("v"),
        json: args.has("j"),
    }
}

/// How often `-f` asks for more.
const GLANCE: Duration = Duration::from_millis(250);
/// How far the details of an event are indented.
const INDENT: usize = 8;

/// Runs `zpool events`.
///
/// # Errors
/// The arguments are wrong, or a server does not answer.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let wanted = match call.args.operands.as_slice() {
        [] => None,
        [pool] => Some(pool.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if call.options.clear {
        if wanted.is_some() || call.options.verbose || call.options.follow || call.options.scripted {
            return Err(Failure::usage("invalid options combined with -c"));
        }
        let cleared: u64 = asked(call, None, true)?.iter().map(|(_, _, gone)| gone).sum();
        return console.line(&format!("cleared {cleared} events"));
    }
    if call.options.json {
        if call.options.follow {
            return Err(Failure::usage("-j cannot be combined with -f"));
        }
        return console.line(&as_json(asked(call, wanted, false)?).to_string());
    }
    if let Some(name) =
        wanted.filter(|name| !names(call).is_ok_and(|all| all.iter().any(|known| known == name)))
    {
        // OpenZFS shows no events, and does not say why.
        let line = format!("{}: {}", Action::Open(name), reason::NO_SUCH_POOL);
        let all = names(call)?;
        let said = suggest::with_nearest(line, name, all.iter().map(String::as_str));
        said.lines().for_each(|line| console.note(line));
    }
    if !call.options.scripted {
        console.line(&format!("{:<30} CLASS", "TIME"))?;
    }
    // The last event shown of each pool.
    let mut shown: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let mut news = Vec::new();
        for (pool, events, dropped) in asked(call, wanted, false)? {
            if dropped > 0 && !shown.contains_key(&pool) {
                console.line(&format!("dropped {dropped} events"))?;
            }
            let last = shown.entry(pool).or_default();
            for event in events {
                let eid = event.get_u64("eid").unwrap_or(0);
                if eid > *last {
                    *last = eid;
                    news.push(event);
                }
            }
        }
        news.sort_by_key(time);
        news.iter().try_for_each(|event| print(call, console, event))?;
        if !call.options.follow {
            return Ok(());
        }
        console.flush()?;
        std::thread::sleep(GLANCE);
    }
}

/// All events in the order of time, with everything that is known of each.
fn as_json(asked: Vec<(String, Vec<NvList>, u64)>) -> Value {
    let mut events: Vec<NvList> = asked.into_iter().flat_map(|(_, events, _)| events).collect();
    events.sort_by_key(time);
    let value = |value: &NvValue| match value {
        NvValue::Uint64(number) => Value::from(*number),
        NvValue::String(text) => Value::from(String::from_utf8_lossy(text)),
        NvValue::Uint64Array(numbers) => Value::from(numbers.clone()),
        // Events are made of these alone.
        _ => Value::Null,
    };
    let object = |event: &NvList| -> Value {
        event.iter().map(|(name, what)| (String::from_utf8_lossy(name).into_owned(), value(what))).collect()
    };
    let events: Vec<Value> = events.iter().map(object).collect();
    json!({ "output_version": json::version("zpool events"), "events": events })
}

/// The events of every pool that a server holds, or of the one that is wanted; and how many are gone.
fn asked(
    call: &Typed<Options>,
    wanted: Option<&str>,
    clear: bool,
) -> Result<Vec<(String, Vec<NvList>, u64)>, Failure> {
    let mut all = Vec::new();
    for name in names(call)? {
        if wanted.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let Some(client) = client::server_of(&name, call.around)? else { continue };
        let (events, gone) = client.events(clear).map_err(|error| client::broken(&name, &error))?;
        all.push((name, events, gone));
    }
    Ok(all)
}

/// The pools that may have a server. No device is read for it: one that hangs would hang this command.
fn names(call: &Typed<Options>) -> Result<Vec<String>, Failure> {
    if call.around.search.is_empty() {
        let known = state::known().read().map_err(open::NotOpen::from)?;
        return Ok(known.into_iter().map(|pool| pool.name).collect());
    }
    Ok(open::usable(call.around)?.into_iter().map(|usable| usable.name).collect())
}

/// Seconds and nanoseconds since 1970.
fn time(event: &NvList) -> (u64, u64) {
    match event.get("time") {
        Some(NvValue::Uint64Array(words)) => {
            (words.first().copied().unwrap_or(0), words.get(1).copied().unwrap_or(0))
        }
        _ => (0, 0),
    }
}

fn print(call: &Typed<Options>, console: &mut Console, event: &NvList) -> Result<(), Failure> {
    let (seconds, nanos) = time(event);
    let when = format!("{}.{nanos:09}", dates::show(seconds, Form::Event));
    let between = if call.options.scripted { '\t' } else { ' ' };
    console.line(&format!("{when}{between}{}", event.get_str("class").unwrap_or("-")))?;
    if call.options.verbose {
        details(event).iter().try_for_each(|line| console.line(line))?;
        console.line("")?;
    }
    Ok(())
}

/// The lines of `-v` about an event, one for each name.
fn details(event: &NvList) -> Vec<String> {
    let line = |(name, value): (&[u8], &NvValue)| {
        let shown = match value {
            NvValue::Uint64(number) => format!("{number:#x}"),
            NvValue::String(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
            NvValue::Uint64Array(numbers) => numbers.iter().map(|number| format!("{number:#x} ")).collect(),
            // Events are made of these alone.
            _ => String::new(),
        };
        format!("{:INDENT$}{} = {shown}", "", String::from_utf8_lossy(name))
    };
    event.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_details_of_an_event_list_all_its_values() {
        let mut event = NvList::new();
        event.insert("class", "sysevent.fs.zfs.config_sync");
        event.insert("pool_guid", 255u64);
        event.insert("time", NvValue::Uint64Array(vec![16, 7]));
        assert_eq!(
            details(&event),
            [
                "        class = \"sysevent.fs.zfs.config_sync\"",
                "        pool_guid = 0xff",
                "        time = 0x10 0x7 ",
            ]
        );
        assert_eq!(time(&event), (16, 7));
        let said = as_json(vec![("tank".to_owned(), vec![event], 0)])["events"].to_string();
        assert_eq!(said, r#"[{"class":"sysevent.fs.zfs.config_sync","pool_guid":255,"time":[16,7]}]"#);
    }
}
