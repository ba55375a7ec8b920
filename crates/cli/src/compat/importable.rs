//! The list of pools that could be imported.

use format::Guid;
use format::config::PoolState;
use pool::known::KnownPool;
use pool::{Found, Pool};
use serde_json::{Map, Value, json};

use super::view::{self, Naming, State, VdevView};
use crate::json;
use crate::messages::{Failure, plain};
use crate::open;
use crate::out::Console;
use crate::state;

/// A pool as it would be imported: with its vdevs, also those that were removed, and its state.
struct Shown {
    found: Found,
    tree: Vec<VdevView>,
    state: State,
}

impl Shown {
    fn of(found: &Found) -> Shown {
        let mut found = found.clone();
        if found.config.has_removed() {
            // If they cannot be read, they are shown as missing, as other devices of the pool may be.
            let removed = Pool::removed_vdevs(&found).unwrap_or_default();
            found.tops.extend(removed.into_iter().map(|vdev| (vdev.id, vdev)));
        }
        let mut tree = view::found_tree(&found, Naming::default());
        tree.sort_by_key(|vdev| vdev.class);
        let worst = tree.iter().map(|vdev| vdev.state).max().unwrap_or(State::Unavail);
        let state = if worst > State::Degraded { State::Unavail } else { worst };
        Shown { found, tree, state }
    }
}

/// The pools that could be imported, as JSON in the envelope that OpenZFS gives its JSON. `zpool import` of OpenZFS prints no
/// JSON. Pools that share a name have their guids as keys.
pub(super) fn as_json(pools: &[Found]) -> Value {
    let is_shared = |name: &str| pools.iter().filter(|pool| pool.config.name == name).count() > 1;
    let object = |found: &Found| {
        let Shown { found, tree, state } = Shown::of(found);
        let (name, guid) = (found.config.name.clone(), found.config.pool_guid.0.to_string());
        let mut object = json!({ "name": name, "state": state.word(), "pool_guid": guid });
        let Advice { status, action, message } = advice(&found, state);
        if let Some(status) = status {
            object["status"] = status.replace("\n\t", " ").into();
        }
        object["action"] = action.replace("\n\t", " ").into();
        if let Some(message) = message {
            object["msgid"] = format!("ZFS-8000-{message}").into();
            object["moreinfo"] = format!("{LINK}{message}").into();
        }
        object["destroyed"] = (found.config.state == PoolState::Destroyed).into();
        object["vdevs"] = tree.iter().map(vdev_json).collect::<Map<_, _>>().into();
        (if is_shared(&name) { guid } else { name }, object)
    };
    json::envelope("zpool import", "pools", pools.iter().map(object).collect())
}

fn vdev_json(vdev: &VdevView) -> (String, Value) {
    let mut object = json!({
        "name": vdev.name,
        "vdev_type": vdev.kind,
        "guid": vdev.guid.0.to_string(),
        "class": vdev.class.word(),
        "state": vdev.state.word(),
    });
    if let Some(path) = &vdev.path {
        object["path"] = path.as_str().into();
    }
    if !vdev.is_leaf() {
        object["vdevs"] = vdev.children.iter().map(vdev_json).collect::<Map<_, _>>().into();
    }
    (vdev.name.clone(), object)
}

/// The pools with these guids, as the list of imported pools describes them.
///
/// # Errors
/// That list cannot be read.
pub(super) fn imported(guids: &[Guid]) -> Result<Value, Failure> {
    let mut known = state::known().read().map_err(open::NotOpen::from)?;
    known.retain(|pool| guids.contains(&pool.guid));
    let object = |pool: KnownPool| {
        let devices: Vec<String> = pool.devices.iter().map(|path| path.display().to_string()).collect();
        let mut object = json!({
            "name": pool.name,
            "pool_guid": pool.guid.0.to_string(),
            "read_only": pool.read_only,
            "devices": devices,
        });
        if let Some(altroot) = pool.altroot {
            object["altroot"] = altroot.into();
        }
        (pool.name, object)
    };
    Ok(json::envelope("zpool import", "pools", known.into_iter().map(object).collect()))
}

/// Lists the pools that could be imported.
pub(super) fn list(console: &mut Console, pools: &[Found]) -> Result<(), Failure> {
    for (i, found) in pools.iter().enumerate() {
        if i > 0 {
            console.line("")?;
        }
        let Shown { found, tree, state } = Shown::of(found);
        console.line(&format!("  pool: {}", found.config.name))?;
        console.line(&format!("    id: {}", found.config.pool_guid.0))?;
        let mark = if found.config.state == PoolState::Destroyed { " (DESTROYED)" } else { "" };
        console.line(&format!(" state: {}{mark}", state.word()))?;
        let Advice { status, action, message } = advice(&found, state);
        if let Some(status) = status {
            console.line(&format!("status: {status}"))?;
        }
        console.line(&format!("action: {action}"))?;
        if let Some(message) = message {
            console.line(&format!("   see: {LINK}{message}"))?;
        }
        console.line("config:\n")?;
        let width =
            tree.iter().map(|vdev| width(vdev, 2)).max().unwrap_or(0).max(found.config.name.len()).max(10);
        console.line(&format!("\t{:width$}  {}", found.config.name, state.word()))?;
        let mut last = view::Class::Normal;
        for vdev in &tree {
            if vdev.class != last {
                console.line(&format!("\t{}", vdev.class.heading()))?;
                last = vdev.class;
            }
            print_vdev(console, vdev, 2, width)?;
        }
    }
    Ok(())
}

/// The problem of a pool, and the action against it. Lines after the first begin with a tab.
struct Advice {
    status: Option<String>,
    action: String,
    /// The number of the page of OpenZFS about the problem.
    message: Option<&'static str>,
}

impl Advice {
    fn of(status: impl Into<String>, action: impl Into<String>, message: Option<&'static str>) -> Advice {
        Advice { status: Some(status.into()), action: action.into(), message }
    }
}

/// The address of these pages, without the number.
const LINK: &str = "https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-";
const MISSING: &str = "One or more devices are missing from the system.";

fn advice(found: &Found, state: State) -> Advice {
    if let Some(error) = open::held(found) {
        let action = "The pool cannot be imported as long as that process uses it.";
        return Advice::of(format!("{error}."), action, None);
    }
    if found.has_heartbeats
        && let Err(error) = Pool::watch(found, &pool::Options::default())
    {
        return advice_on_others(&error);
    }
    match state {
        State::Online => Advice {
            status: None,
            action: "The pool can be imported using its name or numeric identifier.".to_owned(),
            message: None,
        },
        State::Degraded => Advice::of(
            MISSING,
            "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may be \
             compromised if imported.",
            Some("2Q"),
        ),
        _ => Advice::of(
            MISSING,
            "The pool cannot be imported. Attach the missing\n\tdevices and try again.",
            Some("3C"),
        ),
    }
}

/// A pool with `multihost` on that cannot be imported, and what to do.
fn advice_on_others(error: &pool::Error) -> Advice {
    const PAGE: Option<&str> = Some("EY");
    match error {
        pool::Error::ActiveElsewhere { host, hostid } => {
            let from = plain(host);
            let action = format!(
                "The pool must be exported from {from} (hostid={hostid:x})\n\tbefore it can be safely imported."
            );
            Advice::of("The pool is currently imported by another system.", action, PAGE)
        }
        pool::Error::NoHostId => Advice::of(
            "The pool has the multihost property on.  It cannot\n\tbe safely imported when the system hostid is not set.",
            "Set a unique system hostid with the zgenhostid(8) command.",
            PAGE,
        ),
        other => Advice::of(format!("{}.", plain(other)), "The pool cannot be imported.", PAGE),
    }
}

/// The name of a vdev in the list: where it was, if it is not there.
fn shown(vdev: &VdevView) -> &str {
    vdev.path.as_deref().unwrap_or(&vdev.name)
}

fn width(vdev: &VdevView, indent: usize) -> usize {
    let own = indent + shown(vdev).len();
    vdev.children.iter().map(|child| width(child, indent + 2)).max().unwrap_or(0).max(own)
}

fn print_vdev(console: &mut Console, vdev: &VdevView, indent: usize, full: usize) -> Result<(), Failure> {
    let name = format!("{}{}", " ".repeat(indent), shown(vdev));
    let note = if vdev.state == State::Unavail && vdev.is_leaf() { "  cannot open" } else { "" };
    console.line(&format!("\t{name:full$}  {}{note}", vdev.state.word()))?;
    vdev.children.iter().try_for_each(|child| print_vdev(console, child, indent + 2, full))
}
