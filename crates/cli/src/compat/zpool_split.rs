//! `zpool split`: one side of each mirror becomes a pool of its own.

use format::Guid;
use pool::known::KnownPool;
use pool::props::pool::{self as props, Moment};
use pool::props::{Value, names};

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use super::zpool_attach::note_devices;
use super::zpool_devices::{named, opened};
use crate::args::{Parsed, assignment, flag, property, value};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Failure, reason};
use crate::open::{self, NotOpen};
use crate::out::Console;
use crate::state;

/// `zpool split`.
pub static COMMAND: Command = Command {
    name: "split",
    about: "makes a pool of one side of all mirrors",
    syntax: &["split [-gLlnP] [-o PROPERTY=VALUE]… [-R ROOT] POOL NEWPOOL [DEVICE]…"],
    examples: &["zpool split -n tank copy", "zpool split -R /mnt tank copy"],
    options: &[
        flag("g", "vdevs by their guids"),
        flag("L", "where symbolic links lead"),
        flag("l", "loads keys first"),
        flag("n", "splits nothing, only shows the layout"),
        flag("P", "whole paths"),
        property("o", "sets a property of the new pool"),
        value("R", "imports the new pool below this folder"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool split`.
struct Options {
    naming: Naming,
    load_keys: bool,
    dry_run: bool,
    properties: Vec<String>,
    altroot: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        naming: Naming { guids: args.has("g"), follow: args.has("L"), full: args.has("P") },
        load_keys: args.has("l"),
        dry_run: args.has("n"),
        properties: args.texts("o"),
        altroot: args.text("R"),
    }
}

/// Runs `zpool split`.
///
/// # Errors
/// The arguments are wrong, the pool does not consist of mirrors, or one of its devices does not have all data.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let (pool, name, devices) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("Missing pool name")),
        [_] => return Err(Failure::usage("Missing new pool name")),
        [pool, name, devices @ ..] => (pool.as_str(), name.as_str(), devices),
    };
    let failed = |why: &dyn std::fmt::Display| failed(pool, why);
    if call.options.load_keys && call.options.altroot.is_none() {
        return Err(Failure::usage("loading keys is only valid when importing the pool"));
    }
    let (stored, cachefile) = properties(call, &failed)?;
    if let Some(root) = call.options.altroot.as_deref().filter(|root| !root.starts_with('/')) {
        return Err(Failure::refused(format!("invalid alternate root '{root}': must be an absolute path")));
    }
    let view = PoolView::new(open::find(pool, call.around)?);
    names::check_pool(name, true).map_err(|error| failed(&error))?;
    let tree = view.shown(call.options.naming.or_variables(call));
    let sides = sides(&view, &tree, devices).map_err(|error| failed(&error))?;
    drop(view);
    if call.options.dry_run {
        console.line(&format!("would create '{name}' with the following layout:\n"))?;
        console.line(&format!("\t{name}"))?;
        return sides.iter().try_for_each(|side| console.line(&format!("\t  {}", name_of(&tree, *side))));
    }
    let claim = state::known().claim(name).map_err(NotOpen::from)?;
    if claim.is_none() || state::known().read().map_err(NotOpen::from)?.iter().any(|pool| pool.name == name) {
        return Err(failed(&reason::POOL_EXISTS));
    }
    let session = opened(call, pool, &|why| failed(&why))?;
    let options = pool::Options { altroot: call.options.altroot.clone(), ..pool::Options::default() };
    let split = session.pool().split(&sides, name, options).map_err(|error| failed(&error))?;
    let known = KnownPool {
        cachefile: cachefile.or_else(|| Some("none".to_owned())),
        ..known_of(split.pool(), name, call.options.altroot.clone())
    };
    let settled = settle(split.pool(), stored).and_then(|()| split.export());
    note_devices(&session)?;
    session.finish()?;
    settled.map_err(|error| failed(&error))?;
    if call.options.altroot.is_none() {
        return Ok(());
    }
    state::known().enter(known).map_err(NotOpen::from)?;
    drop(claim);
    let mount_options = call.options.properties.iter().map(String::as_str).filter(|text| !text.contains('='));
    let list = mount_options.collect::<Vec<_>>().join(",");
    let list = Some(list).filter(|list| !list.is_empty());
    crate::start::start(name, true, list.as_deref(), call.around, console)?;
    if call.options.load_keys { super::zpool_import::mount_encrypted(call, name, console) } else { Ok(()) }
}

fn failed(pool: &str, why: &dyn std::fmt::Display) -> Failure {
    // OpenZFS has an empty line behind it.
    Failure::refused(format!("Unable to split {pool}: {why}")).hint(String::new())
}

/// The sides that go, as devices are named or the pool chooses.
fn sides(view: &PoolView, tree: &[VdevView], devices: &[String]) -> pool::Result<Vec<Guid>> {
    let session = view.session().ok_or(pool::Error::NotWhole)?;
    let find = |name: &String| tree.iter().find_map(|vdev| named(vdev, name)).map(|vdev| vdev.guid);
    let wanted: Option<Vec<Guid>> = devices.iter().map(find).collect();
    session.pool().sides(&wanted.ok_or(pool::Error::OneOfEach)?)
}

/// How the device with this guid is called.
fn name_of(tree: &[VdevView], guid: Guid) -> String {
    let mut name = guid.0.to_string();
    for vdev in tree {
        vdev.walk(&mut |vdev| {
            if vdev.guid == guid {
                name.clone_from(&vdev.name);
            }
        });
    }
    name
}

/// Properties to store, by name.
type Stored = Vec<(String, Value)>;

/// The properties of the new pool, as `-o` sets them, and the file that remembers it if it is imported. An alternate root belongs to
/// the import that `-R` asks for, and nothing is imported read-only: without effect, as in OpenZFS.
fn properties(
    call: &Typed<Options>,
    failed: &dyn Fn(&dyn std::fmt::Display) -> Failure,
) -> Result<(Stored, Option<String>), Failure> {
    let (mut stored, mut cachefile) = (Vec::new(), None);
    for text in call.options.properties.iter().map(String::as_str) {
        let Ok((word, value)) = assignment(text) else {
            if call.options.altroot.is_none() {
                return Err(Failure::usage("setting mntopts is only valid when importing the pool"));
            }
            continue;
        };
        let Some(property) = props::parse(word) else {
            return Err(Failure::refused(format!("property '{word}' is not a valid pool or vdev property")));
        };
        let judged =
            props::check_settable(property, Moment::Import).and_then(|()| property.parse_value(value));
        match (property.name, judged.map_err(|error| failed(&error))?) {
            ("altroot", _) if call.options.altroot.is_some() => {
                return Err(Failure::usage("property 'altroot' specified multiple times"));
            }
            ("altroot" | "readonly", _) => {}
            ("multihost", Value::Number(1)) if storage::host::hostid() == 0 => {
                return Err(failed(&pool::props::PropertyError::NeedsHostId));
            }
            ("cachefile", Value::Text(path)) => {
                super::zpool_props::check_cachefile(&path).map_err(|reason| failed(&reason))?;
                cachefile = Some(path).filter(|path| !path.is_empty());
            }
            (name, value) => stored.push((name.to_owned(), value)),
        }
    }
    Ok((stored, cachefile))
}

/// Brings the new pool into the state in which it is left.
fn settle(pool: &pool::Pool, stored: Vec<(String, Value)>) -> pool::Result<()> {
    if !stored.is_empty() {
        pool.set_pool_properties(stored)?;
    }
    // The logs hold the changes that programs had asked to be safe when the devices left. A log that cannot be replayed
    // waits for the next import.
    let _ = zpl::replay_logs(pool);
    Ok(())
}

/// How the new pool is imported.
fn known_of(pool: &pool::Pool, name: &str, altroot: Option<String>) -> KnownPool {
    KnownPool {
        name: name.to_owned(),
        guid: pool.guid(),
        devices: pool.leaves().map(|leaf| state::absolute(leaf.disk.path())).collect(),
        altroot,
        read_only: false,
        temporary: false,
        without_logs: false,
        cachefile: Some("none".to_owned()),
    }
}
