//! `zpool create`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::config::PoolState;
use format::features::Feature;
use format::{Guid, label};
use pool::known::KnownPool;
use pool::props::dataset::{Asked, ask};
use pool::props::names;
use pool::props::pool::{self as props};
use pool::{CreateSpec, NewTop, Pool, labels};
use server::ClientError;
use storage::host::{Access, Disk, FileDisk, Host};

use super::Call;
use super::dataset_values::{self, Creation};
use super::key_material::Occasion;
use super::key_words::Given;
use super::vdev_spec::{Spec, Top, replication};
use super::zpool_create_wanted::{Refused, Wanted, read_options};
use super::{aux_owner, no_effect, owner_quota};
use crate::args::{Assignments, assignment};
use crate::args::{Parsed, flag, property, value};
use crate::client;
use crate::command::{Command, Run, Typed};
use crate::connect::connect;
use crate::messages::{Action, Failure, plain, reason};
use crate::open;
use crate::out::Console;
use crate::state;

/// `zpool create`.
pub static COMMAND: Command = Command {
    name: "create",
    about: "makes a pool",
    syntax: &[
        "create [-dfn] [-m MOUNTPOINT] [-o PROPERTY=VALUE]… [-O FSPROPERTY=VALUE]… [-R ROOT] [-t TEMPNAME] \
         POOL VDEV…",
    ],
    examples: &[
        "zpool create tank /srv/tank.img",
        "zpool create -O compression=zstd tank mirror /dev/sda /dev/sdb",
        "zpool create -n tank raidz2 /dev/sda /dev/sdb /dev/sdc /dev/sdd",
    ],
    options: &[
        flag("d", "enables no features but those named with -o"),
        flag("f", "uses devices that seem to be in use, and groups of uneven redundancy or size"),
        flag("n", "makes nothing, only shows the layout"),
        value("m", "where the root file system is mounted"),
        property("o", "sets a property of the pool, or a feature@NAME; may be repeated"),
        property("O", "sets a property of the root file system; may be repeated"),
        value("R", "mounts below this folder; the pool is not remembered after export"),
        value("t", "a name until the next export"),
    ],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool create`.
struct Options {
    no_features: bool,
    force: bool,
    dry_run: bool,
    mountpoint: Option<String>,
    /// Assignments in the order given, each with whether it is for the root file system (`-O`) or the pool (`-o`).
    assignments: Vec<(String, bool)>,
    altroot: Option<String>,
    temporary_name: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        no_features: args.has("d"),
        force: args.has("f"),
        dry_run: args.has("n"),
        mountpoint: args.text("m"),
        assignments: args.mixed("o", "O"),
        altroot: args.text("R"),
        temporary_name: args.text("t"),
    }
}

/// Runs `zpool create`.
///
/// # Errors
/// The arguments are wrong, or the pool cannot be created. Then nothing was changed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let (own, filesystem) = assignments(call)?;
    let Some((name, devices)) = args.operands.split_first() else {
        return Err(Failure::usage("missing pool name argument"));
    };
    if devices.is_empty() {
        return Err(Failure::usage("missing vdev specification"));
    }
    let failed = |reason: &dyn std::fmt::Display| Action::Create(name).failed(reason);
    let layout = Spec::parse(devices)?;
    let all = layout.devices();
    // Faults of the devices are reported first, then those of the mount point, then those of the name.
    check_use(&all, call.options.force, Action::Create(name), call)?;
    check_distinct(&all, name, Action::Create(name))?;
    check_even(&layout, call.options.force)?;
    check_place(call, name, &own, &filesystem)?;
    let wanted =
        read_options(&own, call.options.no_features, call.options.altroot.as_deref()).map_err(|reason| {
            match reason {
                Refused::Reason(reason) => failed(&reason),
                Refused::Line(line) => Failure::refused(line),
            }
        })?;
    let given = wanted.features.clone();
    let enabled = move |feature: &Feature| given.iter().any(|other| other.name == feature.name);
    let offered = dataset_values::Offered { version: wanted.version, enabled: Box::new(enabled) };
    let root: Vec<(&str, &str)> = filesystem.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    no_effect::warn(console, root.iter().copied());
    let mut creation = dataset_values::creation(&root, None, &offered).map_err(|error| failed(&error))?;
    let key = creation.encrypt(None, &offered).map_err(|error| failed(&error))?;
    // The temporary name of the pool until it is exported (`-t`).
    let called = call.options.temporary_name.as_deref().unwrap_or(name);
    if is_taken(called)? {
        return Err(failed(&reason::POOL_EXISTS));
    }
    if all.iter().any(|path| is_too_small(path)) {
        return Err(failed(&"one or more devices is less than the minimum size (64M)"));
    }
    if call.options.dry_run {
        console.line(&format!("would create '{name}' with the following layout:\n"))?;
        return layout.show(name, console);
    }
    let given = key.map(|key| key.ask(Occasion::Creating, &Host::system(), call, console)).transpose();
    let given = given.map_err(|why| failed(&why))?;
    creation.filesystem.encryption.own = given.as_ref().map(|given| given.own.clone());
    let guid = New { call, name, called, layout: &layout, devices: &all }.make(wanted, creation)?;
    let started = crate::start::start_new(called, call.around, console);
    if started.is_err() {
        unmake(guid, &all, console);
        return started;
    }
    given.map_or(Ok(()), |given| unlock(called, &given, call))
}

/// Lets the server of a new pool load the key of the root file system, and mount that.
fn unlock(pool: &str, given: &Given, call: &Call) -> Result<(), Failure> {
    let broken = |error: &ClientError| client::broken(pool, error);
    let Some(server) = connect(pool).map_err(|error| broken(&error))? else { return Ok(()) };
    let mut input = client::memory_file().map_err(|error| Action::Open(pool).failed(plain(&error)))?;
    let typed = |input: &mut File, bytes: &[u8]| -> io::Result<()> {
        input.rewind()?;
        input.write_all(bytes)?;
        input.rewind()
    };
    typed(&mut input, &given.typed).map_err(|error| Action::Open(pool).failed(plain(&error)))?;
    let words = ["mount", "-l", pool].map(OsString::from).to_vec();
    let job = client::job("zfs", words, None, call.around);
    let (out, err) = (io::stdout(), io::stderr());
    let done = server.run(job, [input.as_fd(), out.as_fd(), err.as_fd()]);
    // The memory of the file is given back as it is.
    typed(&mut input, &vec![0; given.typed.len()])
        .map_err(|error| Action::Open(pool).failed(plain(&error)))?;
    match done.map_err(|error| broken(&error))? {
        0 => Ok(()),
        status => Err(Failure::Ended(status)),
    }
}

/// The properties of the pool (`-o`), and those of its root file system (`-O`, `-m`), judged as words.
fn assignments(call: &Typed<Options>) -> Result<(Assignments, Vec<(String, String)>), Failure> {
    for (text, is_root) in &call.options.assignments {
        if !text.contains('=') {
            let option = if *is_root { "O" } else { "o" };
            return Err(Failure::refused(format!("missing '=' for -{option} option")));
        }
    }
    let of = |root: bool| {
        let chosen = call.options.assignments.iter().filter(move |(_, is_root)| *is_root == root);
        chosen.map(|(text, _)| text.as_str())
    };
    let own = Assignments::collect(of(false), |word| props::parse(word).map(|p| p.name))?;
    for (name, value) in own.iter() {
        if props::ask(name).is_none() {
            return Err(Failure::refused(format!("property '{name}' is not a valid pool or vdev property")));
        }
        if name == "ashift" {
            props::ashift_option(value).map_err(|error| Failure::refused(error.to_string()))?;
        }
    }
    let filesystem = root_assignments(of(true), call.options.mountpoint.as_deref())?;
    Ok((own, filesystem))
}

/// Where the pool would be mounted, and its names.
fn check_place(
    call: &Typed<Options>,
    name: &str,
    own: &Assignments,
    filesystem: &[(String, String)],
) -> Result<(), Failure> {
    let _args = &call.args;
    let property = filesystem.iter().find(|(property, _)| property == "mountpoint");
    let altroot = call
        .options
        .altroot
        .as_deref()
        .or_else(|| own.iter().find(|(property, _)| *property == "altroot").map(|(_, root)| root));
    if let Some(root) = altroot.filter(|root| !root.starts_with('/')) {
        return Err(Failure::refused(format!("invalid alternate root '{root}': must be an absolute path")));
    }
    check_mountpoint(altroot, property.map(|(_, place)| place.as_str()), name)?;
    check_name(name)?;
    if let Some(temporary) = call.options.temporary_name.as_deref() {
        names::check_pool(temporary, true).map_err(|error| Action::Create(temporary).failed(error))?;
    }
    Ok(())
}

/// A pool to make, after all checks.
struct New<'a> {
    call: &'a Typed<'a, Options>,
    name: &'a str,
    /// The temporary name until it is exported (`-t`).
    called: &'a str,
    layout: &'a Spec,
    devices: &'a [PathBuf],
}

impl New<'_> {
    /// Makes the pool, exports it, and enters it into the list of imported pools, for its server to take.
    ///
    /// # Errors
    /// Another process took the name or a device meanwhile, or a device refuses. Then nothing is left of the pool.
    fn make(&self, wanted: Wanted, creation: Creation) -> Result<Guid, Failure> {
        let New { call, name, called, layout, devices } = *self;
        let failed = |reason: &dyn std::fmt::Display| Action::Create(name).failed(reason);
        // From here until the pool is listed, the name is reserved.
        let claim = state::known().claim(called).map_err(open::NotOpen::from)?;
        if claim.is_none() || is_taken(called)? {
            return Err(failed(&reason::POOL_EXISTS));
        }
        let disks = open_all(devices).map_err(|error| Action::Create(name).refused_by(&error))?;
        // Another process may have used them since the checks. They are locked now.
        check_use(devices, call.options.force, Action::Create(name), call)?;
        let (tops, aux) = opened(layout, &disks);
        let (caches, spares) = aux.split_at(layout.caches.len());
        let Creation { local, filesystem, quotas, .. } = creation;
        let spec = CreateSpec {
            ashift: wanted.ashift,
            version: wanted.version,
            features: wanted.features,
            properties: wanted.stored,
            root_properties: local,
            comment: wanted.comment,
            compatibility: wanted.compatibility,
            command: Some(call.line.clone()),
            tops,
            caches: caches.to_vec(),
            spares: spares.to_vec(),
            ..CreateSpec::new(name.to_owned(), Vec::new(), filesystem, dataset_values::initialiser())
        };
        let pool = Pool::create(spec, pool::Options::default()).map_err(|error| failed(&error))?;
        let guid = pool.guid();
        let kept = owner_quota::apply(&pool, name, &quotas).map_err(|refusal| failed(&refusal));
        if let Err(failure) = kept.and_then(|()| pool.export().map_err(|error| failed(&error))) {
            // No half-made pool is left: its devices are unused again.
            disks.iter().for_each(|disk| drop(labels::clear(disk)));
            return Err(failure);
        }
        let altroot = wanted.altroot;
        let temporary = call.options.temporary_name.is_some();
        let cachefile =
            wanted.cachefile.or_else(|| (altroot.is_some() || temporary).then(|| "none".to_owned()));
        let (name, paths) = (called.to_owned(), devices[..devices.len() - aux.len()].to_vec());
        let known = KnownPool {
            name,
            guid,
            devices: paths,
            altroot,
            temporary,
            read_only: false,
            without_logs: false,
            cachefile,
        };
        if let Err(error) = state::known().enter(known) {
            disks.iter().for_each(|disk| drop(labels::clear(disk)));
            return Err(open::NotOpen::from(error).into());
        }
        Ok(guid)
    }
}

/// Removes a new pool without a server. If another process holds a device of it, the pool stays.
fn unmake(guid: Guid, devices: &[PathBuf], console: &mut Console) {
    let open = |path| -> Option<Arc<dyn Disk>> {
        Some(Arc::new(pool::open_disk(path, Access::ReadWrite { exclusive: true }).ok()?))
    };
    let Some(disks) = devices.iter().map(|path| open(path)).collect::<Option<Vec<_>>>() else { return };
    let is_new = |disk: &Arc<dyn Disk>| {
        labels::read(disk.as_ref()).pool_configs().all(|config| config.pool_guid == guid)
    };
    disks.iter().filter(|disk| is_new(disk)).for_each(|disk| drop(labels::clear(disk)));
    if let Err(error) = state::known().forget(guid) {
        console.remark(&format!("cenote: the pool was not made, but is still listed: {error}"));
    }
}

/// Opens the devices, so that no other process takes them.
pub(super) fn open_all(paths: &[PathBuf]) -> pool::Result<Vec<Arc<dyn Disk>>> {
    let open = |path: &PathBuf| -> pool::Result<Arc<dyn Disk>> {
        Ok(Arc::new(pool::open_disk(path, Access::ReadWrite { exclusive: true })?))
    };
    paths.iter().map(open).collect()
}

pub(super) fn is_too_small(path: &Path) -> bool {
    FileDisk::open(path, Access::Peek).is_ok_and(|disk| disk.size() < label::MIN_DEVICE)
}

/// The top-level vdevs of `layout` on `disks`, which are its devices in order, and the disks behind them.
pub(super) fn opened(layout: &Spec, disks: &[Arc<dyn Disk>]) -> (Vec<NewTop>, Vec<Arc<dyn Disk>>) {
    let mut rest = disks.iter().cloned();
    let of = |top: &Top| {
        let disks = rest.by_ref().take(top.devices.len()).collect();
        NewTop { layout: top.layout, class: top.class.of_vdev(), disks }
    };
    let tops = layout.tops.iter().map(of).collect();
    (tops, rest.collect())
}

/// Refuses a pool without a vdev for data, and vdevs that do not survive the same losses unless that is wanted.
fn check_even(layout: &Spec, force: bool) -> Result<(), Failure> {
    let wrong = match layout.has_data() {
        false => vec!["at least one general top-level vdev must be specified".to_owned()],
        true if force => Vec::new(),
        true => replication::uneven(layout),
    };
    if wrong.is_empty() { Ok(()) } else { Err(uses_force(force, wrong)) }
}

/// The error for a vdev specification. Without `force`, it says that `-f` would override the reasons in `wrong`.
pub(super) fn uses_force(force: bool, wrong: Vec<String>) -> Failure {
    let advice = match force {
        true => "the following errors must be manually repaired:",
        false => "use '-f' to override the following errors:",
    };
    let heading = ["invalid vdev specification", advice].map(str::to_owned);
    Failure::Refused(heading.into_iter().chain(wrong).collect())
}

/// Whether an imported pool is called `name`.
fn is_taken(name: &str) -> Result<bool, Failure> {
    Ok(state::known().read().map_err(open::NotOpen::from)?.iter().any(|pool| pool.name == name))
}

/// Properties of the root file system: `-O`, and `-m` as its mountpoint.
fn root_assignments<'a>(
    texts: impl Iterator<Item = &'a str>,
    mountpoint: Option<&str>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut all: Vec<(String, String)> = Vec::new();
    for text in texts {
        let (word, value) = assignment(text)?;
        let name = match pool::props::dataset::parse(word) {
            Some(property) => property.name,
            None if names::is_user_property(word) => word,
            // A quota of one user, group or project; `userused@…` is refused later, as a read-only property.
            None if matches!(ask(word), Some(Asked::Account(_))) => word,
            None => {
                return Err(Failure::refused(format!(
                    "property '{word}' is not a valid filesystem property"
                )));
            }
        };
        if all.iter().any(|(other, _)| other == name) {
            return Err(crate::args::AssignError::Twice(name.to_owned()).into());
        }
        all.push((name.to_owned(), value.to_owned()));
    }
    if let Some(path) = mountpoint {
        all.retain(|(name, _)| name != "mountpoint");
        all.push(("mountpoint".to_owned(), path.to_owned()));
    }
    Ok(all)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let Err(error) = names::check_pool(name, true) else { return Ok(()) };
    let failure = Action::Create(name).failed(&error);
    Err(match (&error, name.contains('/')) {
        (_, true) => failure.hint("use 'zfs create' to create a dataset"),
        (names::NameError::TooLong, _) => failure,
        _ => failure.hint("pool name may have been omitted"),
    })
}

/// Checks that the root file system can be mounted: at `property`, or in a folder named like the pool.
fn check_mountpoint(altroot: Option<&str>, property: Option<&str>, name: &str) -> Result<(), Failure> {
    let inside = match property {
        None => format!("/{name}"),
        Some(path) if path.starts_with('/') => path.to_owned(),
        // `none` and `legacy`; an invalid value is reported with the other properties.
        Some(_) => return Ok(()),
    };
    let place = match altroot.map(|root| root.trim_end_matches('/')) {
        Some(root) if inside == "/" && !root.is_empty() => root.to_owned(),
        Some(root) => format!("{root}{inside}"),
        None => inside,
    };
    let refused = match std::fs::read_dir(&place).map(|mut entries| entries.next()) {
        Ok(None) => return Ok(()),
        Ok(Some(_)) => format!("mountpoint '{place}' exists and is not empty"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => format!("mountpoint '{place}' : {}", plain(&error)),
    };
    Err(Failure::refused(refused).hint("use '-m' option to provide a different default"))
}

/// The use of a device.
enum Use {
    /// It is part of a pool that is imported.
    Firm(String),
    /// It has contents that `-f` overwrites.
    Overridable(String),
}

fn use_of(disk: &FileDisk, known: &[KnownPool], call: &Call) -> Result<Option<Use>, Failure> {
    let labels = labels::read(disk);
    let shown = disk.path().display();
    if let Some(config) = labels.pool_configs().max_by_key(|config| config.txg) {
        let pool = &config.name;
        return Ok(match known.iter().find(|other| other.guid == config.pool_guid) {
            Some(other) => Some(Use::Firm(format!("{shown} is part of active pool '{}'", other.name))),
            None => match config.state {
                PoolState::Exported => {
                    Some(Use::Overridable(format!("{shown} is part of exported pool '{pool}'")))
                }
                PoolState::Active => {
                    Some(Use::Overridable(format!("{shown} is part of potentially active pool '{pool}'")))
                }
                _ => None,
            },
        });
    }
    if let Some(pool) = aux_owner::owner_of_aux(&labels, call.around)? {
        return Ok(Some(Use::Firm(format!("{shown} is part of active pool '{pool}'"))));
    }
    let contained = |kind| Use::Overridable(format!("{shown} contains a filesystem of type '{kind}'"));
    Ok(filesystem_on(disk).map(contained))
}

/// Whether a device is in use already.
pub fn check_use(paths: &[PathBuf], force: bool, action: Action, call: &Call) -> Result<(), Failure> {
    let known = state::known().read().map_err(open::NotOpen::from)?;
    let (mut overridable, mut firm) = (Vec::new(), Vec::new());
    for path in paths {
        let disk = match FileDisk::open(path, Access::Peek) {
            Ok(disk) => disk,
            Err(error) => return Err(action.refused_by(&error)),
        };
        let before = (firm.len(), overridable.len());
        for disk in pool::partitions_of(path, &disk).iter().chain([&disk]) {
            match use_of(disk, &known, call)? {
                Some(Use::Firm(line)) => firm.push(line),
                Some(Use::Overridable(line)) => overridable.push(line),
                None => {}
            }
        }
        if before == (firm.len(), overridable.len())
            && let Ok(Some(table)) = storage::host::read_table(&disk)
        {
            overridable.push(format!(
                "{} contains a partition table of type '{}'",
                path.display(),
                table.kind
            ));
        }
    }
    if !force {
        firm.extend(overridable);
    }
    if !firm.is_empty() {
        return Err(uses_force(force, firm));
    }
    Ok(())
}

/// Refuses a device that is named twice for the pool `name`.
pub(super) fn check_distinct(paths: &[PathBuf], name: &str, action: Action) -> Result<(), Failure> {
    for (i, path) in paths.iter().enumerate() {
        let same = |other: &PathBuf| other == path || other.canonicalize().ok() == path.canonicalize().ok();
        if paths[..i].iter().any(same) {
            let why = format!("device '{}' is part of active pool '{name}'", path.display());
            return Err(action.failed(why));
        }
    }
    Ok(())
}

/// Signatures of other file systems: their offset, bytes and name.
const SIGNATURES: [(usize, &[u8], &str); 7] = [
    (0x438, &[0x53, 0xef], "ext4"),
    (0, b"XFSB", "xfs"),
    (0x10040, b"_BHRfS_M", "btrfs"),
    (4086, b"SWAPSPACE2", "swap"),
    (0, b"LUKS\xba\xbe", "crypto_LUKS"),
    (3, b"NTFS    ", "ntfs"),
    (0x218, b"LVM2 001", "LVM2_member"),
];

/// The file system whose signature is on a device.
fn filesystem_on(disk: &FileDisk) -> Option<&'static str> {
    let mut start = vec![0; disk.size().min(0x10048) as usize];
    disk.read_at(&mut start, 0).ok()?;
    let bears = |(at, bytes, _): &&(usize, &[u8], &str)| start.get(*at..at + bytes.len()) == Some(*bytes);
    SIGNATURES.iter().find(bears).map(|(_, _, name)| *name)
}
