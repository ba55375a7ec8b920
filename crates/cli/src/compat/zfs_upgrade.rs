//! `zfs upgrade`: upgrades file systems and lists versions.

use pool::props::DatasetKind;
use pool::props::Value;
use pool::props::dataset as props;
use serde_json::{Value as Json, json};

use super::Call;
use super::select::{Kinds, Selection};
use super::zfs_set::{Change, set_one};
use crate::args::Assignments;
use crate::args::{Parsed, every_pool, flag, value};
use crate::command::{Command, Run, Subjects, Targets, Typed, Visitors};
use crate::json;
use crate::messages::Failure;
use crate::open;
use crate::open::{Intent, Sessions};
use crate::out::Console;

/// `zfs upgrade`.
pub static COMMAND: Command = Command {
    name: "upgrade",
    about: "brings file systems to the newest version",
    syntax: &["upgrade [-v] [-j]", "upgrade [-r] [-V VERSION] -a|FILESYSTEM…"],
    examples: &["zfs upgrade", "zfs upgrade -v", "zfs upgrade -r tank/home"],
    options: &[
        every_pool("a", "all file systems"),
        flag("r", "also everything below"),
        flag("v", "lists the versions there are"),
        value("V", "to this version"),
        flag("j|json", "prints JSON"),
    ],
    targets: Targets::Of(targets),
    visitors: Some(Visitors { operands: Subjects::None, options: &["j"] }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs upgrade`.
struct Options {
    all: bool,
    recursive: bool,
    verbose: bool,
    version: Option<String>,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        all: args.has("a"),
        recursive: args.has("r"),
        verbose: args.has("v"),
        version: args.text("V"),
        json: args.has("j"),
    }
}

fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let call = &call.typed(read);
    Ok(match (call.options.verbose, call.options.all && call.args.operands.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => open::names(call.around)?,
        (false, false) => call.args.operands.clone(),
    })
}

/// Runs `zfs upgrade`.
///
/// # Errors
/// The arguments are wrong, or datasets are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    if call.options.verbose {
        return versions(console, call.options.json);
    }
    let wanted = match call.options.version.as_deref() {
        None => 5,
        Some(text) => match text.parse() {
            Ok(version @ 1..=5u64) => version,
            _ => return Err(Failure::usage(format!("invalid version {text}"))),
        },
    };
    if call.options.all && !args.operands.is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    let changes = call.options.all || !args.operands.is_empty();
    if changes && call.options.json {
        return Err(Failure::usage("-j can only be used without file systems"));
    }
    let selection = Selection {
        asked: Some(Kinds::HEADS),
        default: Kinds::HEADS,
        depth: None,
        recursive: call.options.recursive,
    };
    let mut sessions =
        Sessions::new(call.around, if changes { Intent::Write } else { Intent::Read }, &call.line);
    let found = selection.find(&args.operands, &mut sessions, console)?;
    let asked = props::ask("version").expect("the table has it");
    let mut versions = Vec::new();
    for info in found.iter().filter(|info| info.kind == DatasetKind::Filesystem) {
        match super::zfs_list::show(&mut sessions, info, &asked, true)?.value {
            Some(Value::Number(version)) => versions.push((version, info.name.clone())),
            _ => versions.push((5, info.name.clone())),
        }
    }
    if changes {
        upgrade_each(call, console, &mut sessions, &versions, wanted)?;
        return sessions.finish();
    }
    let mut old = versions;
    old.retain(|(version, _)| *version < 5);
    if call.options.json {
        return console.line(&as_json(&old).to_string());
    }
    console.line("This system is currently running ZFS filesystem version 5.\n")?;
    if old.is_empty() {
        return console.line("All filesystems are formatted with the current version.");
    }
    console.line("The following filesystems are out of date, and can be upgraded.  After being\nupgraded, these filesystems (and any 'zfs send' streams generated from\nsubsequent snapshots) will no longer be accessible by older software versions.\n\n\nVER  FILESYSTEM\n---  ------------")?;
    old.iter().try_for_each(|(version, name)| console.line(&format!("{version:2}   {name}")))
}

/// Gives file systems version `wanted`, and counts them.
fn upgrade_each(
    call: &Typed<Options>,
    console: &mut Console,
    sessions: &mut Sessions,
    versions: &[(u64, String)],
    wanted: u64,
) -> Result<(), Failure> {
    let (mut upgraded, mut same) = (0, 0);
    for (at, name) in versions {
        let session = sessions.of(name).map_err(|error| error.dataset(name))?;
        let needed = pool::version::oldest_pool(wanted);
        if session.pool().info().config.version < needed {
            let how = format!("the pool version needs to first be upgraded\nto version {needed}\n");
            console.line(&format!("{name}: can not be upgraded; {how}"))?;
            console.complain(Failure::Ended(1))?;
        } else if *at > wanted {
            console.line(&format!("{name}: can not be downgraded; it is already at version {at}"))?;
            console.complain(Failure::Ended(1))?;
        } else if *at == wanted {
            same += 1;
        } else {
            let own = Assignments::collect([format!("version={wanted}").as_str()], |_| Some("version"))?;
            let change = Change { own: &own, in_pool_only: false };
            match set_one(call, console, sessions, name, &change) {
                Ok(()) => upgraded += 1,
                Err(failure) => console.complain(failure)?,
            }
        }
    }
    console.line(&format!("{upgraded} filesystems upgraded"))?;
    match same {
        0 => Ok(()),
        same => console.line(&format!("{same} filesystems already at this version")),
    }
}

/// The file systems that can be upgraded, as JSON in the envelope that OpenZFS gives its JSON. `zfs upgrade` of OpenZFS prints no
/// JSON.
fn as_json(old: &[(u64, String)]) -> Json {
    let object =
        |(version, name): &(u64, String)| (name.clone(), json!({ "name": name, "version": version }));
    let mut all = json::envelope("zfs upgrade", "datasets", old.iter().map(object).collect());
    all["current_version"] = 5.into();
    all
}

/// The news of each version, from version 1 on.
const VERSIONS: [&str; 5] = [
    "Initial ZFS filesystem version",
    "Enhanced directory entries",
    "Case insensitive and filesystem user identifier (FUID)",
    "userquota, groupquota properties",
    "System attributes",
];

/// The versions that there are.
fn versions(console: &mut Console, json: bool) -> Result<(), Failure> {
    if json {
        let numbered = VERSIONS.iter().zip(1..);
        let all = numbered.map(|(what, version)| json!({ "version": version, "description": what }));
        let all: Vec<Json> = all.collect();
        let frame = json!({ "output_version": json::version("zfs upgrade"), "versions": all });
        return console.line(&frame.to_string());
    }
    console.line("The following filesystem versions are supported:\n\nVER  DESCRIPTION")?;
    console.line("---  --------------------------------------------------------")?;
    for (number, what) in VERSIONS.iter().enumerate() {
        console.line(&format!(" {}   {what}", number + 1))?;
    }
    console.line(
        "\nFor more information on a particular version, including supported releases,\nsee the ZFS Administration Guide.\n",
    )
}
