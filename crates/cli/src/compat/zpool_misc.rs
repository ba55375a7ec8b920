//! `zpool history`, `sync`, `labelclear`, `reguid` and `reopen`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use format::Guid;
use format::config::{Label, PoolState};
use pool::labels;
use pool::props::dataset::Owner;
use storage::host::{Access, Disk, FileDisk};

use super::owner_quota::name_of;
use super::{Call, aux_owner, history_event};
use crate::messages::{Action, Failure, reason};
use crate::open::{self, Intent, NotOpen, Sessions};
use crate::out::Console;
use crate::state;

/// The pools named, or all; those missing are complained about.
pub(super) fn names(call: &Call, console: &mut Console) -> Result<Vec<String>, Failure> {
    let all: Vec<String> = open::usable(call.around)?.into_iter().map(|pool| pool.name).collect();
    if call.args.operands.is_empty() {
        return Ok(all);
    }
    let mut named = Vec::new();
    for name in &call.args.operands {
        if all.contains(name) {
            named.push(name.clone());
        } else {
            console.complain(open::no_such_pool(name))?;
        }
    }
    Ok(named)
}

/// Runs `zpool history`.
///
/// # Errors
/// Usage; pools that are missing are complained about.
pub fn history(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let (internal, long) = (call.args.has("i"), call.args.has("l"));
    let mut known: BTreeMap<u64, Option<String>> = BTreeMap::new();
    let mut user = |who| known.entry(who).or_insert_with(|| name_of(Owner::User, who)).clone();
    // By name and each once, in whatever order they were named.
    for name in names(call, console)?.into_iter().collect::<BTreeSet<_>>() {
        let session = open::open_pool(&name, call.around, Intent::Read)?;
        let events = session.pool().history().map_err(|error| Action::Open(&name).failed(error))?;
        console.line(&format!("History for '{name}':"))?;
        for line in events.iter().filter_map(|event| history_event::line(event, internal, long, &mut user)) {
            console.line(&line)?;
        }
        console.line("")?;
        session.finish()?;
    }
    Ok(())
}

/// Runs `zpool sync`. Between commands nothing waits to be written; what a txg more frees is freed.
///
/// # Errors
/// Pools that are missing are complained about.
pub fn sync(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let names = names(call, console)?;
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in &names {
        let session = sessions.of(name)?;
        if session.pool().read_only().is_none() {
            session.pool().sync_unless_suspended().map_err(|error| Action::Sync(name).failed(error))?;
        }
    }
    sessions.finish()
}

/// Runs `zpool labelclear`.
///
/// # Errors
/// Usage, or why the label stays.
pub fn labelclear(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let word = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing vdev name")),
        [word] => word,
        _ => return Err(Failure::usage("too many vdev names")),
    };
    let path = Path::new(word);
    if let Err(error) = std::fs::metadata(storage::host::backing_file(path)) {
        return Err(Failure::refused(format!("failed to open {word}: {error}")));
    }
    let failed = || Failure::refused(format!("failed to clear label for {word}"));
    let labels = match FileDisk::open(path, Access::Peek) {
        Ok(disk) => labels::read(&disk),
        Err(error) => return Err(failed().hint(error.to_string())),
    };
    if labels.good == 0 {
        return Err(failed());
    }
    if let Some(config) = labels.pool_configs().max_by_key(|config| config.txg) {
        let known = state::known().read().map_err(NotOpen::from)?;
        if let Some(pool) = known.iter().find(|pool| pool.guid == config.pool_guid) {
            console.remark("");
            return Err(Failure::refused(format!("{word} is a member (ACTIVE) of pool \"{}\"", pool.name)));
        }
        let state = match config.state {
            PoolState::Exported => Some("exported"),
            PoolState::Active => Some("potentially active"),
            _ => None,
        };
        if let Some(state) = state.filter(|_| !call.args.has("f")) {
            return Err(Failure::refused("use '-f' to override the following error:")
                .hint(format!("{word} is a member of {state} pool \"{}\"", config.name)));
        }
    }
    if let Some(pool) = aux_owner::owner_of_aux(&labels, call.around)? {
        let spare =
            labels.configs.iter().any(|l| matches!(l, Label::Aux(aux) if aux.state == PoolState::Spare));
        let kind = if spare { "SPARE" } else { "L2CACHE" };
        console.remark("");
        return Err(Failure::refused(format!("{word} is a member ({kind}) of pool \"{pool}\"")));
    }
    let disk = pool::open_disk(path, Access::ReadWrite { exclusive: true })
        .map_err(|error| failed().hint(error.to_string()))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    labels::clear(&disk).map_err(|error| failed().hint(error.to_string()))?;
    disk.flush().map_err(|error| failed().hint(error.to_string()))
}

/// Runs `zpool prefetch`: of the tables that it is about this build reads none, so that there is nothing to bring in.
///
/// # Errors
/// Usage; a pool that is not there.
pub fn prefetch(call: &Call) -> Result<(), Failure> {
    if let Some(kind) = call.args.value("t").filter(|kind| !["ddt", "brt"].contains(kind)) {
        return Err(Failure::usage(format!("invalid prefetch type '{kind}'")));
    }
    let [name] = call.args.operands.as_slice() else {
        let words =
            if call.args.operands.is_empty() { "missing pool name argument" } else { "too many arguments" };
        return Err(Failure::usage(words));
    };
    open::open_pool(name, call.around, Intent::Read)?.finish()
}

/// Runs `zpool reguid`.
///
/// # Errors
/// Usage; a pool that is missing or cannot be written; a guid that is taken.
pub fn reguid(call: &Call) -> Result<(), Failure> {
    let wanted = match call.args.value("g") {
        None => None,
        Some(text) => {
            let guid = text.parse().map_err(|_| Failure::usage(format!("invalid GUID: {text}")))?;
            Some(Guid(guid))
        }
    };
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    let session = open::open_pool(name, call.around, Intent::Write)?;
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot reguid '{name}': {why}"));
    if session.pool().read_only().is_some() {
        return Err(failed(&reason::POOL_READ_ONLY));
    }
    let all = state::known().read().map_err(NotOpen::from)?;
    if wanted.is_some_and(|guid| all.iter().any(|pool| pool.guid == guid)) {
        return Err(failed(&pool::Error::GuidTaken));
    }
    session.command(&call.line);
    let old = session.pool().guid();
    let new = session.pool().set_guid(wanted).map_err(|error| failed(&error))?;
    state::known()
        .update(|pools| {
            if let Some(pool) = pools.iter_mut().find(|pool| pool.guid == old) {
                pool.guid = new;
            }
        })
        .map_err(NotOpen::from)?;
    session.finish()?;
    Ok(())
}

/// Runs `zpool reopen`: looks at every device anew. Those that are not there, or are no longer those of the pool, are
/// told of; the pool goes on with what it has open.
///
/// # Errors
/// Usage; pools and devices that are missing are complained about.
pub fn reopen(call: &Call, console: &mut Console) -> Result<(), Failure> {
    for name in names(call, console)? {
        let session = open::open_pool(&name, call.around, Intent::Read)?;
        let config = session.pool().info().config;
        let is_own = |path: &Path, guid: u64| {
            let disk = FileDisk::open(path, Access::Peek).ok()?;
            let newest = labels::read(&disk).pool_configs().max_by_key(|config| config.txg)?.clone();
            Some(
                newest.pool_guid == config.pool_guid
                    && newest.label.is_some_and(|label| label.guid.0 == guid),
            )
        };
        let gone = config.tree.leaves().find(|leaf| {
            let path = session.devices.get(&leaf.guid.0).filter(|path| !open::is_gone(path));
            path.and_then(|path| is_own(path, leaf.guid.0)) != Some(true)
        });
        let path = gone.and_then(|leaf| leaf.path.clone());
        session.finish()?;
        if gone.is_some() {
            let at = String::from_utf8_lossy(&path.unwrap_or_default()).into_owned();
            let failure = Failure::refused(format!("cannot reopen '{name}': {}", reason::DEVICE_UNAVAILABLE));
            console.complain(failure.hint(at))?;
        }
    }
    Ok(())
}
