//! `zpool add`.

use std::path::PathBuf;

use pool::props::Value;
use pool::{AuxKind, NewDevices};

use super::Call;
use super::vdev_spec::{CLASSES, Class, Spec, replication, show_devices};
use super::view::{Class as Shown, Naming, PoolView, VdevView};
use super::zpool_attach::{note_coming, note_devices};
use super::zpool_create::{check_distinct, check_use, is_too_small, open_all, opened, uses_force};
use super::zpool_devices;
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{self, Session};
use crate::out::Console;

/// `zpool add`.
pub static COMMAND: Command = Command {
    name: "add",
    about: "adds devices to a pool",
    syntax: &[
        "add [-fgLnP] [--allow-in-use] [--allow-replication-mismatch] [--allow-ashift-mismatch] [-o PROPERTY=VALUE] \
         POOL VDEV…",
    ],
    examples: &["zpool add -n tank mirror /dev/sdc /dev/sdd", "zpool add tank cache /dev/nvme0n1"],
    options: &[
        flag("f", "uses devices that seem to be in use"),
        flag("g", "vdevs by their guids"),
        flag("L", "where symbolic links lead"),
        flag("n", "adds nothing, only shows the layout"),
        flag("P", "whole paths"),
        property("o", "sets ashift"),
        flag("allow-in-use", "uses devices that seem to be in use"),
        flag("allow-replication-mismatch", "also with another redundancy"),
        flag("allow-ashift-mismatch", "also with another sector size"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool add`.
struct Options {
    force: bool,
    naming: Naming,
    dry_run: bool,
    properties: Vec<String>,
    allow_in_use: bool,
    allow_uneven: bool,
    allow_ashift: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        force: args.has("f"),
        naming: Naming { guids: args.has("g"), follow: args.has("L"), full: args.has("P") },
        dry_run: args.has("n"),
        properties: args.texts("o"),
        allow_in_use: args.has("allow-in-use"),
        allow_uneven: args.has("allow-replication-mismatch"),
        allow_ashift: args.has("allow-ashift-mismatch"),
    }
}

/// Runs `zpool add`.
///
/// # Errors
/// The arguments are wrong, the pool is missing or cannot be written, or devices are in use, do not fit or are too
/// small. Then nothing was changed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let wanted = zpool_devices::ashift(&call.options.properties)?;
    let (name, words) = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name argument")),
        [_] => return Err(Failure::usage("missing vdev specification")),
        [name, words @ ..] => (name, words),
    };
    let view = PoolView::new(open::find(name, call.around)?);
    let layout = Spec::parse(words)?;
    let all = layout.devices();
    let force = call.options.force;
    check_use(&all, force || call.options.allow_in_use, Action::AddTo(name), call)?;
    let Some(session) = view.session() else {
        // Says why it cannot be opened.
        return open::open_pool(name, call.around, open::Intent::Read).map(drop);
    };
    let info = session.pool().info();
    if !force && !call.options.allow_uneven {
        let uneven = replication::uneven_with(&info.config.tree.children, &layout);
        if !uneven.is_empty() {
            return Err(uses_force(false, uneven));
        }
    }
    if call.options.dry_run {
        console.line(&format!("would update '{name}' to the following configuration:\n"))?;
        return show(&view, &layout, call.options.naming.or_variables(call), console);
    }
    let failed = |why: &dyn std::fmt::Display| Action::AddTo(name).failed(why);
    check_distinct(&all, name, Action::AddTo(name))?;
    if all.iter().any(|path| is_too_small(path)) {
        return Err(failed(&"one or more devices is less than the minimum size (64M)"));
    }
    drop(view);
    let session = zpool_devices::opened(call, name, &|why| failed(&why))?;
    let ashift = match wanted {
        Some(shift) => Some(shift).filter(|shift| *shift != 0),
        None => usual_ashift(&session).map_err(|error| failed(&error))?,
    };
    let disks = open_all(&all).map_err(|error| Action::AddTo(name).refused_by(&error))?;
    let (tops, aux) = opened(&layout, &disks);
    let (caches, spares) = aux.split_at(layout.caches.len());
    let new = NewDevices {
        tops,
        caches: caches.to_vec(),
        spares: spares.to_vec(),
        ashift,
        any_ashift: force || call.options.allow_ashift,
    };
    note_coming(&session, &all)?;
    let added = session.pool().add(new).map_err(|error| failed(&error));
    note_devices(&session)?;
    added?;
    session.finish()
}

/// The pool's property `ashift`, if it is set.
fn usual_ashift(session: &Session) -> pool::Result<Option<u32>> {
    let set = session.pool().pool_properties()?.into_iter().find_map(|(name, value)| match value {
        Value::Number(shift) if name == "ashift" => u32::try_from(shift).ok(),
        _ => None,
    });
    Ok(set.filter(|shift| *shift != 0))
}

/// Prints the pool as it would be.
fn show(view: &PoolView, layout: &Spec, naming: Naming, console: &mut Console) -> Result<(), Failure> {
    console.line(&format!("\t{}", view.name))?;
    let tree = view.tree(naming);
    for class in CLASSES {
        let shown = match class {
            Class::Data => Shown::Normal,
            Class::Dedup => Shown::Dedup,
            Class::Special => Shown::Special,
            Class::Log => Shown::Log,
        };
        let mut tops = tree.iter().filter(|vdev| vdev.class == shown).peekable();
        if class != Class::Data && (tops.peek().is_some() || layout.has(class)) {
            console.line(&format!("\t{}", class.heading()))?;
        }
        for top in tops {
            show_vdev(top, 2, console)?;
        }
        layout.show_tops(class, naming, console)?;
    }
    let aux = view.aux().map_err(|error| Action::Open(&view.name).failed(error))?;
    let lists = [(AuxKind::Cache, "cache", &layout.caches), (AuxKind::Spare, "spares", &layout.spares)];
    for (kind, heading, new) in lists {
        let path = |raw: &Vec<u8>| PathBuf::from(String::from_utf8_lossy(raw).into_owned());
        let mut all: Vec<PathBuf> = aux
            .iter()
            .filter(|aux| aux.kind == kind)
            .filter_map(|aux| aux.device.clone().or_else(|| aux.config.path.as_ref().map(path)))
            .collect();
        all.extend(new.iter().cloned());
        if !all.is_empty() {
            console.line(&format!("\t{heading}"))?;
        }
        show_devices(&all, naming, console)?;
    }
    Ok(())
}

fn show_vdev(vdev: &VdevView, depth: usize, console: &mut Console) -> Result<(), Failure> {
    console.line(&format!("\t{}{}", " ".repeat(depth), vdev.name))?;
    vdev.children.iter().try_for_each(|child| show_vdev(child, depth + 2, console))
}
