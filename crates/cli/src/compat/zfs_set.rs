//! `zfs set`.

use super::Call;
use super::changing::words;
use super::dataset_values::{self};
use super::mounting::{self, Moved};
use super::no_effect;
use super::owner_quota;
use super::select::dataset_failure;
use super::volumes;
use crate::args::Assignments;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{Intent, Sessions};
use crate::out::Console;
use pool::props::Value;
use pool::props::dataset::{self as props};
use pool::props::names::{self};

/// `zfs set`.
pub static COMMAND: Command = Command {
    name: "set",
    about: "sets properties",
    syntax: &["set [-u] PROPERTY=VALUE… FILESYSTEM|VOLUME|SNAPSHOT…"],
    examples: &["zfs set compression=zstd-5 tank/home", "zfs set quota=10G reservation=1G tank/home/alice"],
    options: &[flag("u", "changes mountpoint or sharing in the pool alone, and mounts nothing")],
    targets: Targets::Of(targets),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs set`.
struct Options {
    in_pool_only: bool,
}

fn read(args: &Parsed) -> Options {
    Options { in_pool_only: args.has("u") }
}

/// The operands behind the assignments.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(call.args.operands.iter().skip_while(|word| word.contains('=')).cloned().collect())
}

/// Runs `zfs set`.
///
/// # Errors
/// The arguments are wrong, or the change is refused for datasets. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let operands = &call.args.operands;
    let names = operands.iter().take_while(|word| word.contains('=')).count();
    let (texts, datasets) = operands.split_at(names);
    match (texts, datasets) {
        ([], []) => return Err(Failure::usage("missing arguments")),
        ([], [_]) => return Err(Failure::usage("missing property=value argument(s)")),
        (_, []) => return Err(Failure::usage("missing dataset name(s)")),
        _ => {}
    }
    if texts.is_empty() {
        return Err(Failure::usage("missing property=value argument(s)"));
    }
    let texts = texts.iter().map(String::as_str);
    let own = Assignments::collect(texts, |word| props::parse(word).map(|p| p.name))?;
    let change = Change { own: &own, in_pool_only: call.options.in_pool_only };
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in datasets {
        if let Err(failure) = set_one(call, console, &mut sessions, name, &change) {
            console.complain(failure)?;
        }
    }
    no_effect::warn(console, own.iter());
    sessions.finish()
}

/// The change that `set` makes.
pub(super) struct Change<'a> {
    pub own: &'a Assignments,
    /// Mounts stay as they are.
    pub in_pool_only: bool,
}

pub(super) fn set_one(
    call: &Call,
    console: &mut Console,
    sessions: &mut Sessions,
    name: &str,
    change: &Change,
) -> Result<(), Failure> {
    let Change { own, in_pool_only } = *change;
    let action = Action::SetProperty(name);
    names::check_no_bookmark(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = sessions.of(name).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    let mut values = Vec::new();
    for (word, text) in own.iter() {
        let change = dataset_values::change(pool, &info, word, text);
        values.extend(change.map_err(|error| action.failed(error))?);
    }
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    if values.is_empty() {
        return Ok(());
    }
    let (inside, values): (Vec<_>, Vec<_>) =
        values.into_iter().partition(|(name, _)| owner_quota::is_kept_inside(name));
    let mut values = values;
    volumes::complete(pool, &info, &mut values).map_err(|error| action.failed(error))?;
    let new_size = volumes::take_size(pool, &info, &mut values).map_err(|error| action.failed(error))?;
    let names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
    let on = (String::from("readonly"), Some(Value::Number(1)));
    if let Some(live) = call.live().filter(|_| values.contains(&on)) {
        mounting::turning_read_only(live, name, action)?;
    }
    let kind = mounting::kind_of(&values).filter(|_| !in_pool_only);
    let set = || {
        // The reservation of a volume grows before the volume, and shrinks after it.
        if let Some((size, true)) = new_size {
            volumes::resize(pool, name, size)?;
        }
        if !values.is_empty() {
            pool.set_properties(name, values).map_err(|error| words(action, &error))?;
        }
        match new_size {
            Some((size, false)) => volumes::resize(pool, name, size),
            _ => Ok(()),
        }
    };
    let done = match kind {
        Some(kind) => {
            mounting::moving(call, console, Moved { top: name, kind, force: false }, str::to_owned, set)
        }
        None => set(),
    };
    mounting::refresh(call, console, done.is_ok().then_some((name, names.as_slice())))?;
    new_size.iter().for_each(|_| mounting::letting_go(call, &[name.to_owned()]));
    done?;
    let quotas: Vec<(String, u64)> = inside
        .into_iter()
        .filter_map(|(name, value)| match value {
            Some(Value::Number(quota)) => Some((name, quota)),
            _ => None,
        })
        .collect();
    let done = owner_quota::apply(pool, name, &quotas).map_err(|error| action.failed(error));
    if let Some(live) = call.live() {
        live.limits_changed();
    }
    done
}
