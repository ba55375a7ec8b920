//! `zfs create`, `rename`, `set` and `inherit`.

use pool::props::dataset::{self as props, Asked};
use pool::props::names::{self, NameError};
use pool::props::{Access, DatasetKind, PropertyError, Value};
use server::Kind;

use super::Call;
use super::changing::{is_missing, session, words};
use super::dataset_values::{self};
use super::mounting;
use super::no_effect;
use super::owner_quota;
use super::parents::{create_parents, nearest_ancestor};
use super::select::dataset_failure;
use crate::args::Assignments;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session, Sessions, pool_of};
use crate::out::Console;

/// Runs `zfs create`.
///
/// # Errors
/// Usage, or why there is no new file system; then nothing was changed.
pub fn create(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    if args.has("V") {
        return Err(Failure::refused("cenote: not supported yet: zfs create -V (volumes)"));
    }
    if args.has("s") || args.has("b") {
        return Err(Failure::usage("'-s' and '-b' can only be used when creating a volume"));
    }
    let own = Assignments::collect(args.values("o"), |word| props::parse(word).map(|p| p.name))?;
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing filesystem argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let action = Action::Create(name);
    names::check_new(name, DatasetKind::Filesystem).map_err(|error| action.failed(error))?;
    let Some((parent, _)) = name.rsplit_once('/') else {
        return Err(action.failed(reason::MISSING_DATASET_NAME));
    };
    let intent = if args.has("n") { Intent::Read } else { Intent::Write };
    let session = session(call, name, intent).map_err(|error| match error {
        NotOpen::Missing(pool) => action.failed(format!("{} '{pool}'", reason::NO_SUCH_POOL)),
        other => other.into(),
    })?;
    let done = create_in(&session, call, console, name, parent, &own);
    session.finish().and(done)
}

fn create_in(
    session: &Session,
    call: &Call,
    console: &mut Console,
    name: &str,
    parent: &str,
    own: &Assignments,
) -> Result<(), Failure> {
    let (action, pool, dry) = (Action::Create(name), session.pool(), call.args.has("n"));
    let parents = call.args.has("p");
    if let Some(failure) = session.refusal(action).filter(|_| !dry) {
        return Err(failure);
    }
    let words_of = |error: pool::Error| words(action, &error);
    let above = match pool.dataset(parent) {
        Ok(info) => Some(info),
        Err(error) if is_missing(&error) && parents => None,
        Err(error) if is_missing(&error) => return Err(action.failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words_of(error)),
    };
    if above.as_ref().is_some_and(|info| info.kind != DatasetKind::Filesystem) {
        return Err(action.failed(reason::NOT_A_FILESYSTEM));
    }
    // With -p the nearest ancestor that is there decides what is inherited.
    let nearest = match above {
        Some(info) => info,
        None => nearest_ancestor(pool, parent).map_err(words_of)?,
    };
    // With -p an existing dataset is enough, and what was asked for it is not looked at.
    if parents && pool.dataset(name).is_ok() {
        return Ok(());
    }
    let given: Vec<(&str, &str)> = own.iter().collect();
    let enabled = dataset_values::enabled_in(pool);
    let made = dataset_values::creation(&given, Some((pool, &nearest)), &enabled)
        .map_err(|error| action.failed(error))?;
    match pool.dataset(name) {
        Ok(_) => return Err(action.failed(reason::ALREADY_EXISTS)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(words_of(error)),
    }
    if call.args.has("v") || call.args.has("P") {
        announce(call, console, name, own)?;
    }
    if dry {
        return Ok(());
    }
    no_effect::warn(console, own.iter());
    let mut topmost = None;
    if parents {
        topmost = create_parents(pool, parent, &enabled).map_err(words_of)?;
    }
    pool.create_filesystem(name, made.local, made.filesystem, dataset_values::initialiser())
        .map_err(words_of)?;
    owner_quota::apply(pool, name, &made.quotas).map_err(|error| action.failed(error))?;
    if let Some(live) = call.live() {
        // What is reserved for the new file system is taken from the others.
        live.limits_changed();
    }
    mounting::created(call, console, topmost.as_deref().unwrap_or(name))
}

/// `-v`, `-P`: says what is, or would be, made.
fn announce(call: &Call, console: &mut Console, name: &str, own: &Assignments) -> Result<(), Failure> {
    let (parsable, would) = (call.args.has("P"), if call.args.has("n") { "would " } else { "" });
    if call.args.has("p") {
        console.line(&match parsable {
            true => format!("create_ancestors\t{name}"),
            false => format!("{would}create ancestors of {name}"),
        })?;
    }
    console.line(&match parsable {
        true => format!("create\t{name}"),
        false => format!("{would}create {name}"),
    })?;
    own.iter().try_for_each(|(name, value)| {
        console.line(&match parsable {
            true => format!("property\t{name}\t{value}"),
            false => format!("\t{name}={value}"),
        })
    })
}

/// Runs `zfs rename`.
///
/// # Errors
/// Usage, or why the old name stays.
pub fn rename(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let (from, to) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        [from, to] => (from.as_str(), to.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    for (one, other) in [("p", "r"), ("u", "p"), ("u", "r")] {
        if args.has(one) && args.has(other) {
            return Err(Failure::usage(format!("-{one} and -{other} options are mutually exclusive")));
        }
    }
    if args.has("r") && !from.contains('@') {
        return Err(Failure::usage("source dataset for recursive rename must be a snapshot"));
    }
    if from.contains('#') {
        return Err(Action::Open(from).failed(NameError::BookmarkUnexpected));
    }
    // Parents and mounts are those of file systems.
    let checked = match args.has("u") || args.has("p") {
        true => names::check_kind(from, DatasetKind::Filesystem),
        false => names::check(from).map(drop),
    };
    checked.map_err(|error| Action::Open(from).failed(error))?;
    let session = session(call, from, Intent::Write).map_err(|error| error.dataset(from))?;
    let done = rename_in(&session, call, console, from, to);
    session.finish().and(done)
}

fn rename_in(
    session: &Session,
    call: &Call,
    console: &mut Console,
    from: &str,
    to: &str,
) -> Result<(), Failure> {
    let (pool, action) = (session.pool(), Action::Rename(from));
    let info = pool.dataset(from).map_err(|error| dataset_failure(from, &error))?;
    if from == to {
        return Ok(());
    }
    if info.is_snapshot() {
        return super::zfs_snapshot::rename(session, call, from, to, call.args.has("r"));
    }
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let target = Action::RenameTo(to);
    names::check_new(to, DatasetKind::Filesystem).map_err(|error| target.failed(error))?;
    let Some((parent, _)) = to.rsplit_once('/') else {
        return Err(Action::Create(to).failed(reason::MISSING_DATASET_NAME));
    };
    if pool_of(from) != pool_of(to) {
        return Err(target.failed(reason::CROSSES_POOLS));
    }
    if to.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
        return Err(target.failed(reason::NO_DESCENDANT));
    }
    if !from.contains('/') {
        return Err(action.failed("operation does not apply to pools"));
    }
    if pool.dataset(to).is_ok() {
        return Err(action.failed(reason::ALREADY_EXISTS));
    }
    match pool.dataset(parent) {
        Ok(above) if above.kind != DatasetKind::Filesystem => {
            return Err(Action::Create(to).failed(reason::NOT_A_FILESYSTEM));
        }
        Ok(_) => {}
        Err(error) if is_missing(&error) && call.args.has("p") => {
            let enabled = dataset_values::enabled_in(pool);
            let made = create_parents(pool, parent, &enabled).map_err(|error| words(action, &error))?;
            made.iter().try_for_each(|made| mounting::created(call, console, made))?;
        }
        Err(error) if is_missing(&error) => return Err(Action::Create(to).failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words(action, &error)),
    }
    // The deepest descendant must have a name that is not too long.
    let longer = to.len().saturating_sub(from.len());
    let list = pool.list(from, None, true).map_err(|error| words(action, &error))?;
    if list.iter().any(|info| info.name.len() + longer >= names::NAME_MAX) {
        return Err(action.failed(NameError::TooLong));
    }
    let renamed = |name: &str| match name.strip_prefix(from) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
        _ => name.to_owned(),
    };
    let rename = || pool.rename_dataset(from, to).map_err(|error| words(action, &error));
    if call.args.has("u") {
        rename()?;
        if let Some(live) = call.live() {
            live.rename(renamed);
        }
        // What they inherit may be another.
        return mounting::refresh(call, console, None);
    }
    mounting::moving(call, console, from, Kind::Name, renamed, rename)
}

/// Runs `zfs set`.
///
/// # Errors
/// Usage; each dataset that refuses is complained about.
pub fn set(call: &Call, console: &mut Console) -> Result<(), Failure> {
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
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in datasets {
        if let Err(failure) = set_one(call, console, &mut sessions, name, &own) {
            console.complain(failure)?;
        }
    }
    no_effect::warn(console, own.iter());
    sessions.finish()
}

pub(super) fn set_one(
    call: &Call,
    console: &mut Console,
    sessions: &mut Sessions,
    name: &str,
    own: &Assignments,
) -> Result<(), Failure> {
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
    let names: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
    let on = (String::from("readonly"), Some(Value::Number(1)));
    if let Some(live) = call.live().filter(|_| values.contains(&on)) {
        mounting::turning_read_only(live, name, action)?;
    }
    let kind = mounting::kind_of(&values).filter(|_| !call.args.has("u"));
    let set = || match values.is_empty() {
        true => Ok(()),
        false => pool.set_properties(name, values).map_err(|error| words(action, &error)),
    };
    let done = match kind {
        Some(kind) => mounting::moving(call, console, name, kind, str::to_owned, set),
        None => set(),
    };
    mounting::refresh(call, console, done.is_ok().then_some((name, names.as_slice())))?;
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

/// Runs `zfs inherit`.
///
/// # Errors
/// Usage; each dataset that refuses is complained about.
pub fn inherit(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let Some((word, datasets)) = args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    if datasets.is_empty() {
        return Err(Failure::usage("missing dataset argument"));
    }
    let to_received = args.has("S");
    let property = match props::ask(word) {
        Some(Asked::Native(property)) => {
            if let Err(error) = property.check_inheritable() {
                let quota = ["quota", "reservation", "refquota", "refreservation"].contains(&property.name);
                let failure = Failure::refused(error.to_string());
                match (&error, to_received) {
                    (PropertyError::CannotInherit { name }, false) if quota => {
                        return Err(failure
                            .hint(format!("use 'zfs set {name}=none' to clear"))
                            .hint(format!("use 'zfs inherit -S {name}' to revert to received value")));
                    }
                    (PropertyError::CannotInherit { name: name @ ("volsize" | "version") }, true) => {
                        let why = "property cannot be reverted to a received value";
                        return Err(Failure::refused(format!("'{name}' {why}")));
                    }
                    // Of what is set but not inherited a received value can come back.
                    (PropertyError::CannotInherit { .. }, true) if property.access == Access::Set => {}
                    _ => return Err(failure),
                }
            }
            Some(property)
        }
        Some(Asked::User(_)) => None,
        _ => return Err(Failure::usage(format!("invalid property '{word}'"))),
    };
    let stored = property.map_or(word.as_str(), |property| property.name);
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in datasets {
        if let Some(live) = call.live().filter(|_| stored == "readonly" && inherits_on(call, name))
            && let Err(failure) = mounting::turning_read_only(live, name, Action::Inherit(stored, name))
        {
            console.complain(failure)?;
            continue;
        }
        let mut inherit = || inherit_one(&mut sessions, name, stored, property, args.has("r"), to_received);
        let done = match mounting::kind_of(&[(stored.to_owned(), None)]) {
            // Whether there is such a dataset is said by the change itself.
            Some(kind) if call.live().is_some_and(|live| has(live, name)) => {
                mounting::moving(call, console, name, kind, str::to_owned, inherit)
            }
            _ => inherit(),
        };
        if let Some(live) = call.live() {
            live.limits_changed();
        }
        let settled = [stored.to_owned()];
        mounting::refresh(call, console, done.is_ok().then_some((name.as_str(), settled.as_slice())))?;
        if let Err(failure) = done {
            console.complain(failure)?;
        }
    }
    sessions.finish()
}

/// Whether `readonly` is on above this dataset.
fn inherits_on(call: &Call, name: &str) -> bool {
    let (Some(live), Some((above, _))) = (call.live(), name.rsplit_once('/')) else { return false };
    let property = props::parse("readonly").expect("the table has it");
    let value = live.pool().map(|pool| pool.dataset(above).and_then(|info| pool.property(&info, property)));
    matches!(value, Ok(Ok(Some((Value::Number(1), _)))))
}

/// Whether the pool has this dataset.
fn has(live: &server::Live, name: &str) -> bool {
    live.pool().is_ok_and(|pool| pool.dataset(name).is_ok())
}

fn inherit_one(
    sessions: &mut Sessions,
    name: &str,
    stored: &str,
    property: Option<&'static pool::props::Property>,
    recursive: bool,
    to_received: bool,
) -> Result<(), Failure> {
    let action = Action::Inherit(stored, name);
    names::check_no_bookmark(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = sessions.of(name).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    // Of native properties a snapshot has those of its file system.
    if property.is_some_and(|property| info.is_snapshot() || !property.applies.contains(info.kind)) {
        return Err(action.failed(reason::INHERIT_NOT_HERE));
    }
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let depth = if recursive { None } else { Some(0) };
    let list = match info.is_snapshot() {
        true => vec![info],
        false => pool.list(name, depth, false).map_err(|error| words(action, &error))?,
    };
    for info in list {
        if property.is_some_and(|property| !property.applies.contains(info.kind)) {
            continue;
        }
        let received = pool.received_property(&info, stored).map_err(|error| words(action, &error))?;
        let mut values = vec![(stored.to_owned(), None)];
        if received.is_some() {
            // A received value comes back by itself unless it is hidden.
            let hidden = (!to_received).then(|| Value::Text(String::new()));
            values.push((format!("{stored}$inherit"), hidden));
        }
        pool.set_properties(&info.name, values).map_err(|error| words(action, &error))?;
    }
    Ok(())
}
