//! `zpool import`: adds pools to the file of known pools.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use format::Guid;
use format::config::PoolState;
use pool::known::KnownPool;
use pool::props::names;
use pool::props::pool::{self as props, Moment};
use pool::{Found, MissingLogs, Pool};

use super::Call;
use super::import_checks::{self, Allowed};
use super::import_places;
use super::importable;
use super::recovery::{self, Recovery};
use crate::args::assignment;
use crate::args::{Parsed, flag, property, value};
use crate::client;
use crate::command::{Command, Run, Typed};
use crate::config;
use crate::connect;
use crate::messages::{Action, Failure, reason};
use crate::open::NotOpen;
use crate::out::Console;
use crate::state;
use crate::suggest;

/// `zpool import`.
pub static COMMAND: Command = Command {
    name: "import",
    about: "lists pools on devices, or takes them into use",
    syntax: &[
        "import [-D] [-j] [-d DIRECTORY|DEVICE]…|[-c CACHEFILE]",
        "import -a [-DfjlmN] [-F [-nTX]] [-c CACHEFILE|-d DIRECTORY|DEVICE] [-o MOUNTOPTIONS] [-o PROPERTY=VALUE]… \
         [-R ROOT] [-s] [--rewind-to-checkpoint]",
        "import [-Dfjlmt] [-F [-nTX]] [-c CACHEFILE|-d DIRECTORY|DEVICE] [-o MOUNTOPTIONS] [-o PROPERTY=VALUE]… \
         [-R ROOT] [-s] [--rewind-to-checkpoint] POOL|ID [NEWPOOL]",
    ],
    examples: &[
        "zpool import -d /srv",
        "zpool import -d /srv tank",
        "zpool import -N -o readonly=on -R /mnt tank old-tank",
        "zpool import -a",
    ],
    options: &[
        flag("a", "all that are found"),
        flag("D", "destroyed pools"),
        flag("f", "also pools that another machine uses"),
        flag("l", "loads keys first"),
        flag("m", "without missing log devices"),
        flag("N", "mounts nothing"),
        flag("F", "at an earlier state, if the last is damaged"),
        flag("n", "with -F: only says whether that would do"),
        value("T", "at this txg"),
        flag("X", "tries any earlier state"),
        flag("s", "looks at labels of all devices").idle(),
        flag("t", "under the new name only until the export"),
        value("c", "pools of this cache file"),
        value("d", "looks in this folder, or at this device; may be repeated"),
        property("o", "sets a property or mount options; may be repeated"),
        value("R", "mounts below this folder; the pool is not remembered after export"),
        flag("rewind-to-checkpoint", "at its checkpoint"),
        flag("j|json", "prints JSON"),
    ],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool import`.
struct Options {
    all: bool,
    destroyed: bool,
    force: bool,
    without_logs: bool,
    unmounted: bool,
    load_keys: bool,
    recovery: recovery::Asked,
    temporary: bool,
    cachefile: Option<String>,
    places: Vec<String>,
    properties: Vec<String>,
    altroot: Option<String>,
    checkpoint: bool,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        all: args.has("a"),
        destroyed: args.has("D"),
        force: args.has("f"),
        without_logs: args.has("m"),
        unmounted: args.has("N"),
        load_keys: args.has("l"),
        recovery: recovery::Asked {
            rewind: args.has("F"),
            dry_run: args.has("n"),
            extreme: args.has("X"),
            txg: args.text("T"),
        },
        temporary: args.has("t"),
        cachefile: args.text("c"),
        places: args.texts("d"),
        properties: args.texts("o"),
        altroot: args.text("R"),
        checkpoint: args.has("rewind-to-checkpoint"),
        json: args.has("j"),
    }
}

/// Where devices are sought unless `-d` says otherwise.
const FOLDERS: [&str; 3] = ["/dev/disk/by-id", "/dev/disk/by-path", "/dev"];

/// Options of an imported pool.
#[derive(Clone, Default)]
struct Wanted {
    altroot: Option<String>,
    cachefile: Option<String>,
    read_only: bool,
    /// Going back to an earlier state.
    recovery: Recovery,
    /// Going back to the checkpoint.
    to_checkpoint: bool,
    /// Pool properties to set, as `property=value`.
    stored: Vec<(&'static str, pool::props::Value)>,
}

/// Runs `zpool import`.
///
/// # Errors
/// The arguments are wrong, or a pool cannot be imported.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    if call.options.load_keys && call.options.unmounted {
        return Err(Failure::usage("-l is incompatible with -N"));
    }
    if call.options.json {
        console.expect_json();
    }
    let recovery = Recovery::of(&call.options.recovery)?;
    let wanted = match read_options(call)? {
        Ok(wanted) => Wanted { recovery, to_checkpoint: call.options.checkpoint, ..wanted },
        Err(lines) => {
            // OpenZFS prints this and exits with status 0.
            lines.lines().for_each(|line| console.remark(line));
            return Ok(());
        }
    };
    let (pattern, new_name) = match args.operands.as_slice() {
        [] => (None, None),
        [pool] => (Some(pool.as_str()), None),
        [pool, name] => (Some(pool.as_str()), Some(name.as_str())),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if call.options.all && pattern.is_some() {
        return Err(Failure::usage("too many arguments"));
    }
    let known = state::known().read().map_err(NotOpen::from)?;
    let mut found = discover(call)?;
    let destroyed = call.options.destroyed;
    found.retain(|pool| (pool.config.state == PoolState::Destroyed) == destroyed);
    found.sort_by(|a, b| (&a.config.name, a.config.pool_guid.0).cmp(&(&b.config.name, b.config.pool_guid.0)));
    let pools = Pools { known, found, wanted };
    let imported = match pattern {
        None if !call.options.all => return list(call, pools, console),
        None => import_all(call, pools, console)?,
        Some(pattern) => import_named(call, &pools, (pattern, new_name), console)?,
    };
    match call.options.json {
        true => console.object(&importable::imported(&imported)?),
        false => Ok(()),
    }
}

/// The pools that were found, and the options for an import.
struct Pools {
    /// Those that are imported.
    known: Vec<KnownPool>,
    /// Those on the devices that the command line points at.
    found: Vec<Found>,
    wanted: Wanted,
}

/// Lists the pools that could be imported.
fn list(call: &Typed<Options>, pools: Pools, console: &mut Console) -> Result<(), Failure> {
    let Pools { known, mut found, .. } = pools;
    found.retain(|pool| !is_known(&known, pool));
    if call.options.json {
        console.object(&importable::as_json(&found))?;
    }
    if found.is_empty() {
        return none_available(call, &known, console);
    }
    why_none(call, &known, false, console);
    found.iter().flat_map(|pool| &pool.copies).for_each(|copy| import_places::tell(copy, console));
    if call.options.json { Ok(()) } else { importable::list(console, &found) }
}

/// Says that there is no pool to import, and why.
fn none_available(call: &Typed<Options>, known: &[KnownPool], console: &mut Console) -> Result<(), Failure> {
    console.note("no pools available to import");
    if why_none(call, known, true, console) { Err(Failure::Ended(1)) } else { Ok(()) }
}

/// Imports all pools that were found. Returns the pools that are imported now.
fn import_all(call: &Typed<Options>, pools: Pools, console: &mut Console) -> Result<Vec<Guid>, Failure> {
    let Pools { known, mut found, wanted } = pools;
    let known = known.as_slice();
    found.retain(|pool| !is_known(known, pool));
    let resumed = resume(call, known, &wanted, console)?;
    if found.is_empty() {
        return match resumed {
            Some(imported) => Ok(imported),
            None => none_available(call, known, console).map(|()| Vec::new()),
        };
    }
    why_none(call, known, false, console);
    let mut imported = resumed.unwrap_or_default();
    for pool in &found {
        match import_one(call, pool, None, &wanted, console) {
            Ok(guid) => imported.extend(guid),
            Err(failure) => console.complain(failure)?,
        }
    }
    Ok(imported)
}

/// Imports the pool with a name or guid. Returns the pool that is imported now.
fn import_named(
    call: &Typed<Options>,
    pools: &Pools,
    (pattern, new_name): (&str, Option<&str>),
    console: &mut Console,
) -> Result<Vec<Guid>, Failure> {
    let Pools { known, found, wanted } = pools;
    let same = |pool: &&KnownPool| pool.name == *pattern || pool.guid.0.to_string() == *pattern;
    if let Some(pool) = known.iter().find(same).filter(|_| new_name.is_none())
        && let Some(imported) = resume(call, std::slice::from_ref(pool), wanted, console)?
    {
        return Ok(imported);
    }
    if let Some(other) = known.iter().find(|pool| pool.name == *new_name.unwrap_or(pattern)) {
        let here =
            found.iter().any(|p| p.config.name == *pattern || p.config.pool_guid.0.to_string() == *pattern);
        if here || other.name == *pattern {
            return Err(match new_name {
                Some(new) => Action::ImportAs(pattern, new).failed(reason::POOL_EXISTS),
                None => name_taken(pattern),
            });
        }
    }
    let matches: Vec<&Found> = match pool::parse_guid(pattern) {
        Some(guid) => found.iter().filter(|pool| pool.config.pool_guid == guid).collect(),
        None => found.iter().filter(|pool| pool.config.name == *pattern && !is_known(known, pool)).collect(),
    };
    match matches.as_slice() {
        [] => {
            why_none(call, known, true, console);
            Err(Action::Import(pattern).failed(reason::NO_POOL_AVAILABLE))
        }
        [pool] if is_known(known, pool) => Err(name_taken(pattern)),
        [pool] => Ok(import_one(call, pool, new_name, wanted, console)?.into_iter().collect()),
        _ => Err(Action::Import(pattern)
            .failed("more than one matching pool")
            .hint("import by numeric ID instead")),
    }
}

/// Whether a pool that was found is imported.
fn is_known(known: &[KnownPool], found: &Found) -> bool {
    known.iter().any(|pool| pool.guid == found.config.pool_guid)
}

const NEW_NAME: &str = "use the form 'zpool import <pool | id> <newpool>' to give it a new name";

fn name_taken(name: &str) -> Failure {
    Action::Import(name).failed(reason::POOL_NAME_TAKEN).hint(NEW_NAME)
}

/// `-o` and `-R`. The inner error is a line after which the command ends well.
fn read_options(call: &Typed<Options>) -> Result<Result<Wanted, String>, Failure> {
    let mut wanted = Wanted::default();
    for text in call.options.properties.iter().map(String::as_str) {
        // Without a value it is a list of mount options.
        let Ok((word, value)) = assignment(text) else {
            if super::zfs_mount::overrides(std::iter::once(text)).is_none() {
                let name = call.args.operands.first().map_or("", String::as_str);
                return Err(Action::Import(name).failed(super::zfs_mount::INVALID));
            }
            continue;
        };
        let Some(property) = props::parse(word) else {
            let line = format!("property '{word}' is not a valid pool or vdev property");
            let all = props::VISIBLE.iter().map(|property| property.name);
            return Ok(Err(suggest::with_nearest(line, word, all)));
        };
        let judged =
            props::check_settable(property, Moment::Import).and_then(|()| property.parse_value(value));
        let name = call.args.operands.first().map_or("", String::as_str);
        let parsed = judged.map_err(|error| Action::Import(name).failed(error))?;
        use pool::props::Value::{Number, Text};
        match (property.name, parsed) {
            ("readonly", Number(n)) => wanted.read_only = n != 0,
            ("altroot", Text(path)) => wanted.altroot = Some(path),
            ("cachefile", Text(path)) => {
                let judged = super::zpool_props::check_cachefile(&path);
                judged.map_err(|reason| Action::Import(name).failed(reason))?;
                wanted.cachefile = Some(path).filter(|path| !path.is_empty());
            }
            ("multihost", Number(1)) if storage::host::hostid() == 0 => {
                return Err(Action::Import(name).failed(pool::props::PropertyError::NeedsHostId));
            }
            ("compatibility", Text(list)) if super::features::allowed(&list).is_err() => {
                let error = pool::props::PropertyError::Unknown { name: list };
                return Err(Action::Import(name).failed(error));
            }
            (
                name @ ("comment" | "failmode" | "multihost" | "autoexpand" | "autotrim" | "autoreplace"
                | "delegation" | "listsnapshots" | "ashift" | "compatibility" | "dedup_table_quota"),
                value,
            ) => wanted.stored.push((name, value)),
            (name, _) => {
                let line = format!("cenote: not supported yet: zpool import -o {name}=");
                return Err(Failure::refused(line));
            }
        }
    }
    if let Some(root) = call.options.altroot.as_deref() {
        if !root.starts_with('/') {
            let line = format!("invalid alternate root '{root}': must be an absolute path");
            return Err(Failure::refused(line));
        }
        wanted.altroot = Some(root.to_owned());
    }
    if wanted.altroot.is_some() && wanted.cachefile.is_none() {
        wanted.cachefile = Some("none".to_owned());
    }
    Ok(Ok(wanted))
}

/// The pools on the devices that the command line points at.
fn discover(call: &Typed<Options>) -> Result<Vec<Found>, Failure> {
    let mut places: Vec<PathBuf> =
        call.options.places.iter().map(String::as_str).map(PathBuf::from).collect();
    places.extend(call.around.search.iter().cloned());
    if let Some(file) = call.options.cachefile.as_deref() {
        if !places.is_empty() {
            return Err(Failure::usage("-c is incompatible with -d"));
        }
        let devices = pool::known::cached_devices(Path::new(file));
        return match devices {
            Ok(devices) => Ok(pool::discover(&devices)),
            Err(error) => {
                let bad = match call.args.operands.first() {
                    Some(name) => Action::Import(name).failed(reason::BAD_CACHE),
                    None => Failure::refused(format!("cannot discover pools: {}", reason::BAD_CACHE)),
                };
                Err(bad.hint(error.to_string()))
            }
        };
    }
    if places.is_empty() {
        match std::env::var_os("ZPOOL_IMPORT_PATH") {
            Some(list) => places.extend(std::env::split_paths(&list)),
            None => places.extend(FOLDERS.iter().map(PathBuf::from)),
        }
    }
    Ok(pool::discover(&places))
}

/// Says what is wrong with the places that `-d` names. Returns whether one of them cannot be read, or is a file without a
/// pool. Folders are looked at only with `folders`: it takes long.
fn why_none(call: &Typed<Options>, known: &[KnownPool], folders: bool, console: &mut Console) -> bool {
    let named = call.options.places.iter().map(PathBuf::from).chain(call.around.search.iter().cloned());
    let mut named = named.filter(|place| folders || !place.is_dir()).peekable();
    let is_told = call.options.cachefile.is_some() || std::env::var_os("ZPOOL_IMPORT_PATH").is_some();
    if folders && named.peek().is_none() && !is_told {
        console.explain(
            "cenote: only disks were looked at: -d names a file with a pool, or a folder of such files",
        );
    }
    // Each of them is explained.
    let is_bad = |place: &PathBuf| import_places::explain(place, known, call.options.destroyed, console);
    named.filter(is_bad).count() > 0
}

/// Imports a pool that was found. Returns its guid, or `None` if the command only printed how to import it.
fn import_one(
    call: &Typed<Options>,
    found: &Found,
    new_name: Option<&str>,
    wanted: &Wanted,
    console: &mut Console,
) -> Result<Option<Guid>, Failure> {
    let old = found.config.name.as_str();
    let name = new_name.unwrap_or(old);
    let action = match new_name {
        Some(new) => Action::ImportAs(old, new),
        None => Action::Import(old),
    };
    if let Err(error) = names::check_pool(name, new_name.is_some()) {
        let failure = action.failed(error);
        return Err(if new_name.is_some() { failure } else { failure.hint(NEW_NAME) });
    }
    // The name is reserved until the pool is in the list.
    let claim = state::known().claim(name).map_err(NotOpen::from)?;
    if claim.is_none() || state::known().read().map_err(NotOpen::from)?.iter().any(|pool| pool.name == name) {
        return Err(if new_name.is_some() { action.failed(reason::POOL_EXISTS) } else { name_taken(old) });
    }
    let allowed = Allowed { force: call.options.force, without_logs: call.options.without_logs };
    import_checks::check_free(found, allowed, action, console)?;
    import_places::choose(found, action, console)?;
    let temporary = call.options.temporary && new_name.is_some();
    let options = pool::Options {
        read_only: wanted.read_only,
        watched: true,
        altroot: wanted.altroot.clone(),
        new_name: new_name.map(str::to_owned),
        temporary,
        missing_logs: match call.options.without_logs {
            true => MissingLogs::GivenUp,
            false => MissingLogs::Refused,
        },
        ..config::options().map_err(NotOpen::from)?
    };
    let Some(pool) = open_once(found, options, wanted, action, console)? else { return Ok(None) };
    let guid = pool.guid();
    settle(call, pool, name, wanted, console).map_err(|error| action.failed(error))?;
    let devices = found.devices.values().map(|path| state::absolute(path)).collect();
    let known = KnownPool {
        name: name.to_owned(),
        guid,
        devices,
        altroot: wanted.altroot.clone(),
        read_only: wanted.read_only,
        temporary,
        without_logs: call.options.without_logs && !found.is_complete(),
        cachefile: wanted.cachefile.clone().or_else(|| temporary.then(|| "none".to_owned())),
    };
    state::known().enter(known).map_err(NotOpen::from)?;
    drop(claim);
    start(call, name, console).map(|()| Some(guid))
}

/// Opens a pool at the state that is wanted, and replays its intent logs. Returns nothing if all is said already.
fn open_once(
    found: &Found,
    options: pool::Options,
    wanted: &Wanted,
    action: Action,
    console: &mut Console,
) -> Result<Option<Pool>, Failure> {
    let Some(state) = wanted.recovery.choose(found, &options, action, console)? else { return Ok(None) };
    let lost = state.filter(|state| !state.is_newest());
    if lost.is_some() && wanted.read_only {
        return Err(action.failed("going back to an earlier state writes to the pool: not with readonly=on"));
    }
    let to_checkpoint = wanted.to_checkpoint;
    if to_checkpoint && wanted.read_only {
        return Err(action.failed("returning to the checkpoint writes to the pool: not with readonly=on"));
    }
    let options = pool::Options { state: lost.clone(), to_checkpoint, ..options };
    let pool = match Pool::import(found, options.clone()) {
        Ok(pool) => pool,
        Err(pool::Error::ActiveElsewhere { host, hostid }) => {
            return Err(import_checks::active_elsewhere(action, &host, hostid));
        }
        Err(error) => return Err(recovery::explain(found, &options, action, error, console)?),
    };
    if let Some(state) = &lost {
        recovery::exclaim(&found.config.name, state, false, console)?;
    }
    // A log that cannot be replayed stays; its dataset reports that when it is used.
    if let Err(error) = zpl::replay_logs(&pool) {
        console.remark(&format!("cenote: an intent log cannot be replayed: {error}"));
    }
    Ok(Some(pool))
}

/// Sets what is wanted of a pool that was opened, and leaves it exported, for its server to take.
fn settle(
    call: &Typed<Options>,
    pool: Pool,
    name: &str,
    wanted: &Wanted,
    console: &mut Console,
) -> pool::Result<()> {
    if pool.read_only().is_none() {
        pool.set_command(&call.line);
        if !wanted.stored.is_empty() {
            let stored = wanted.stored.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            pool.set_pool_properties(stored.collect())?;
        }
    }
    if let Some(why) = pool.refused().filter(|_| !wanted.read_only) {
        console.note(&format!("cenote: '{name}' can only be read: {why}"));
    }
    pool.export()
}

/// Starts the server of an imported pool, with the mount options that stand among the properties of `-o`.
fn start(call: &Typed<Options>, name: &str, console: &mut Console) -> Result<(), Failure> {
    let given: Vec<&str> =
        call.options.properties.iter().map(String::as_str).filter(|text| !text.contains('=')).collect();
    let options = Some(given.join(",")).filter(|list| !list.is_empty());
    crate::start::start(name, !call.options.unmounted, options.as_deref(), call.around, console)?;
    if call.options.load_keys { mount_encrypted(call, name, console) } else { Ok(()) }
}

/// Lets the server of a just imported pool load all keys and mount their datasets.
pub(super) fn mount_encrypted(call: &Call, name: &str, console: &mut Console) -> Result<(), Failure> {
    let Some(client) = client::server_of(name, call.around)? else {
        let keyless = format!("cannot load the keys of '{name}': its server, which keeps them, does not run");
        return Err(Failure::refused(keyless).hint(crate::start::how_to_start(name)));
    };
    console.flush()?;
    let words = ["mount", "-l", "-a"].map(OsString::from).to_vec();
    match client::send(&client, "zfs", words, call.around).map_err(|error| client::broken(name, &error))? {
        0 => Ok(()),
        status => Err(Failure::Ended(status)),
    }
}

/// Starts missing servers of imported pools: those that died, or all after a reboot. Returns the pools whose servers were
/// started; `None` if none was missing. If the command has options for opening, the pools are imported again.
fn resume(
    call: &Typed<Options>,
    pools: &[KnownPool],
    wanted: &Wanted,
    console: &mut Console,
) -> Result<Option<Vec<Guid>>, Failure> {
    let mut started = None;
    for pool in pools {
        if connect::is_used() && client::server_of(&pool.name, call.around)?.is_none() {
            let started: &mut Vec<Guid> = started.get_or_insert_default();
            let outcome = match says_how(call, wanted) {
                true => import_anew(call, pool, wanted, console),
                false => start(call, &pool.name, console),
            };
            match outcome {
                Ok(()) => started.push(pool.guid),
                Err(failure) => console.complain(failure)?,
            }
        }
    }
    Ok(started)
}

/// Whether the command says how a pool is to be opened, or at which state.
fn says_how(call: &Typed<Options>, wanted: &Wanted) -> bool {
    let Wanted { altroot, cachefile, read_only, recovery, to_checkpoint, stored } = wanted;
    let terms = altroot.is_some() || cachefile.is_some() || *read_only || !stored.is_empty();
    terms || recovery.is_asked() || *to_checkpoint || call.options.without_logs
}

/// Imports a pool whose server died, in the way that the command says. The list keeps the pool as it was if that fails.
fn import_anew(
    call: &Typed<Options>,
    known: &KnownPool,
    wanted: &Wanted,
    console: &mut Console,
) -> Result<(), Failure> {
    let mut found = discover(call)?;
    found.retain(|pool| pool.config.pool_guid == known.guid);
    found.extend(crate::open::listed(known));
    let Some(found) = found.iter().find(|pool| !pool.lacks_any()).or(found.first()) else {
        return Err(Action::Import(&known.name).failed(reason::NO_POOL_AVAILABLE));
    };
    state::known().forget(known.guid).map_err(NotOpen::from)?;
    let outcome = import_one(call, found, None, wanted, console).map(|_| ());
    let listed = state::known().read().map_err(NotOpen::from)?;
    if !listed.iter().any(|pool| pool.guid == known.guid) {
        state::known().enter(known.clone()).map_err(NotOpen::from)?;
    }
    outcome
}
