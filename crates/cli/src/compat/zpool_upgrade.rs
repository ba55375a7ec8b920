//! `zpool upgrade`: upgrades pools and lists features and versions.
//!
//! Of several pools each is upgraded by the server that holds it; what is said about all of them is said here, once.

use std::ffi::OsString;
use std::io::Write;

use format::config::VERSION_FEATURES;
use format::features;
use serde_json::{Value, json};

use super::Call;
use super::pools_named::pools_named;
use crate::args::{Parsed, flag, value};
use crate::client;
use crate::command::{Command, Run, Subjects, Targets, Typed, Visitors};
use crate::json;
use crate::messages::{Action, Failure};
use crate::open::{self, Intent};
use crate::out::Console;

/// `zpool upgrade`.
pub static COMMAND: Command = Command {
    name: "upgrade",
    about: "shows or enables features",
    syntax: &["upgrade [-v] [-j]", "upgrade [-V VERSION] -a|POOL…"],
    examples: &["zpool upgrade", "zpool upgrade -v", "zpool upgrade tank"],
    options: &[
        flag("a", "in all pools"),
        flag("v", "lists the features there are"),
        value("V", "to this legacy version"),
        flag("j|json", "prints JSON"),
    ],
    targets: Targets::Of(targets),
    gathers: true,
    visitors: Some(Visitors { operands: Subjects::None, options: &["j"] }),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool upgrade`.
struct Options {
    all: bool,
    verbose: bool,
    version: Option<String>,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a"), verbose: args.has("v"), version: args.text("V"), json: args.has("j") }
}

fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let call = &call.typed(read);
    if lacks_sense(call) || call.options.verbose {
        return Ok(Vec::new());
    }
    Ok(match call.options.all && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.clone(),
    })
}

const SUPPORTS: &str = "This system supports ZFS pool feature flags.\n";

/// Runs `zpool upgrade`.
///
/// # Errors
/// The arguments are wrong, or pools cannot be upgraded. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let wanted = match call.options.version.as_deref() {
        None => VERSION_FEATURES,
        Some(text) => match text.parse() {
            Ok(version) if pool::version::is_known(version) => version,
            _ => return Err(Failure::usage(format!("invalid version '{text}'"))),
        },
    };
    if lacks_sense(call) {
        return Err(Failure::usage("too many arguments"));
    }
    if call.options.json {
        return as_json(call, console);
    }
    let is_part = call.around.served.as_ref().is_some_and(|served| served.whole().is_some());
    if !is_part {
        console.line(SUPPORTS)?;
    }
    if call.options.verbose {
        return versions(console);
    }
    let all = open::usable(call.around)?;
    if call.args.operands.is_empty() && !call.options.all {
        return upgradable(call, console);
    }
    let names: Vec<String> = match call.options.all {
        true => all.into_iter().map(|pool| pool.name).collect(),
        false => pools_named(call, console)?,
    };
    let mut changed = false;
    for name in &names {
        changed |= match client::server_of(name, call.around)? {
            Some(client) => upgrade_there(call, console, name, &client)?,
            None => upgrade_one(call, console, name, wanted)?,
        };
    }
    if call.options.all && !changed && !is_part {
        console.line("All pools are already formatted using feature flags.\n")?;
        console.line("Every feature flags pool already has all supported and requested features enabled.")?;
    }
    Ok(())
}

/// Whether the words of `upgrade` contradict each other: pools named with `-a` or `-v`.
fn lacks_sense(call: &Typed<Options>) -> bool {
    (call.options.all || call.options.verbose) && !call.args.operands.is_empty()
}

/// Lets the server of one of several pools upgrade it; returns whether the server printed something.
fn upgrade_there(
    call: &Typed<Options>,
    console: &mut Console,
    name: &str,
    client: &server::Client,
) -> Result<bool, Failure> {
    console.flush()?;
    let mut words = vec![call.command.name];
    words.extend(call.options.version.as_deref().iter().flat_map(|version| ["-V", *version]));
    words.extend(if call.options.all { vec!["-a"] } else { vec!["--", name] });
    let words = words.into_iter().map(OsString::from).collect();
    let (status, said) = client::part(client, call, words).map_err(|error| client::broken(name, &error))?;
    console.out().write_all(said.as_bytes())?;
    if status != 0 {
        console.complain(Failure::Ended(status))?;
    }
    Ok(!said.is_empty())
}

/// Upgrades a pool that this process may open; whether it changed, or anything is said of it.
fn upgrade_one(
    call: &Typed<Options>,
    console: &mut Console,
    name: &str,
    wanted: u64,
) -> Result<bool, Failure> {
    let mut changed = false;
    let session = open::open_pool(name, call.around, Intent::Write)?;
    if let Some(failure) = session.refusal(Action::Upgrade(name)) {
        console.complain(failure)?;
        return Ok(changed);
    }
    let config = session.pool().info().config;
    let from = config.version;
    if from > wanted || from == wanted && wanted < VERSION_FEATURES {
        let more = if from > wanted { "more current " } else { "" };
        if !call.options.all {
            console.line(&format!("Pool '{name}' is already formatted using {more}version '{from}'.\n"))?;
        }
        session.finish()?;
        return Ok(true);
    }
    session.command(&call.line);
    if from < wanted {
        if config.compatibility.as_deref() == Some("legacy") {
            console.line("Upgrade not performed because 'compatibility' property set to 'legacy'.")?;
            session.finish()?;
            return Ok(changed);
        }
        let failed = |error| Action::Upgrade(name).failed(error);
        session.pool().upgrade_version(wanted).map_err(failed)?;
        let to = if wanted < VERSION_FEATURES { format!("version {wanted}") } else { "feature flags".into() };
        console.line(&format!("Successfully upgraded '{name}' from version {from} to {to}."))?;
        changed = true;
    }
    let missing = if wanted < VERSION_FEATURES { Vec::new() } else { missing_features(&session) };
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|feature| feature.name).collect();
        session.pool().enable_features(missing).map_err(|error| Action::Upgrade(name).failed(error))?;
        console.line(&format!("Enabled the following features on '{name}':"))?;
        names.iter().try_for_each(|feature| console.line(&format!("  {feature}")))?;
        console.line("")?;
        changed = true;
    } else if !call.options.all && from == VERSION_FEATURES {
        console.line(&format!("Pool '{name}' already has all supported and requested features enabled."))?;
        changed = true;
    }
    session.finish()?;
    Ok(changed)
}

/// Features that a pool is to have and has not.
pub(super) fn missing_features(session: &open::Session) -> Vec<&'static features::Feature> {
    let info = session.pool().info();
    let wanted =
        super::features::allowed(info.config.compatibility.as_deref().unwrap_or("off")).unwrap_or_default();
    let missing =
        |feature: &&'static features::Feature| info.feature(feature) == pool::FeatureState::Disabled;
    wanted.into_iter().filter(missing).filter(|feature| !feature.no_upgrade).collect()
}

/// A pool: its name, its version, and the features that could be enabled.
type Standing = (String, u64, Vec<&'static features::Feature>);

/// The versions and features of all pools. Prints an error for each pool that cannot be opened.
fn standing(call: &Typed<Options>, console: &mut Console) -> Result<Vec<Standing>, Failure> {
    let mut all = Vec::new();
    for usable in open::usable(call.around)? {
        let name = usable.name.clone();
        let session = match open::open(usable, Intent::Read) {
            Ok(session) => session,
            Err(error) => {
                console.complain(error.into())?;
                continue;
            }
        };
        let version = session.pool().info().config.version;
        let missing = if version < VERSION_FEATURES { Vec::new() } else { missing_features(&session) };
        all.push((name, version, missing));
    }
    Ok(all)
}

/// Prints the pools that could be upgraded, or with `-v` all features and legacy versions. The JSON has the envelope that
/// OpenZFS gives its JSON, although its `zpool upgrade` prints none.
fn as_json(call: &Typed<Options>, console: &mut Console) -> Result<(), Failure> {
    if call.options.all || !call.args.operands.is_empty() {
        return Err(Failure::usage("-j can only be used without pools"));
    }
    if call.options.verbose {
        let feature = |feature: &features::Feature| {
            json!({
                "name": feature.name,
                "guid": feature.guid,
                "read_only_compatible": feature.read_only_compatible,
                "description": feature.description,
            })
        };
        let known: Vec<Value> = features::ALL.iter().map(feature).collect();
        let legacy =
            LEGACY.iter().zip(1..).map(|(what, version)| json!({ "version": version, "description": what }));
        let legacy: Vec<Value> = legacy.collect();
        let version = json::version("zpool upgrade");
        let all = json!({ "output_version": version, "features": known, "legacy_versions": legacy });
        return console.line(&all.to_string());
    }
    let object = |(name, version, missing): Standing| {
        let missing: Vec<&str> = missing.iter().map(|feature| feature.name).collect();
        (name.clone(), json!({ "name": name, "version": version, "missing_features": missing }))
    };
    let pools = standing(call, console)?.into_iter().map(object).collect();
    console.line(&json::envelope("zpool upgrade", "pools", pools).to_string())
}

/// Lists the pools that could be upgraded.
fn upgradable(call: &Typed<Options>, console: &mut Console) -> Result<(), Failure> {
    let (mut legacy, mut lacking) = (Vec::new(), Vec::new());
    for (name, version, missing) in standing(call, console)? {
        if version < VERSION_FEATURES {
            legacy.push((version, name));
        } else if !missing.is_empty() {
            lacking.push((name, missing));
        }
    }
    if legacy.is_empty() {
        console.line("All pools are formatted using feature flags.\n")?;
    } else {
        console.line(
            "The following pools are formatted with legacy version numbers and can\n\
             be upgraded to use feature flags.  After being upgraded, these pools\n\
             will no longer be accessible by software that does not support feature\n\
             flags.\n\n\
             Note that setting a pool's 'compatibility' feature to 'legacy' will\n\
             inhibit upgrades.\n\n\
             VER  POOL\n---  ------------",
        )?;
        for (version, name) in &legacy {
            console.line(&format!("{version:<3}  {name}"))?;
        }
        console.line("\nUse 'zpool upgrade -v' for a list of available legacy versions.")?;
    }
    if lacking.is_empty() {
        return console.line("Every feature flags pool has all supported and requested features enabled.");
    }
    console.line(
        "Some supported features are not enabled on the following pools. Once a\n\
         feature is enabled the pool may become incompatible with software\n\
         that does not support the feature. See zpool-features(7) for details.\n\n\
         POOL  FEATURE\n---------------",
    )?;
    for (name, missing) in lacking {
        console.line(&name)?;
        missing.iter().try_for_each(|feature| console.line(&format!("      {}", feature.name)))?;
    }
    Ok(())
}

/// The features and legacy versions that this build knows.
fn versions(console: &mut Console) -> Result<(), Failure> {
    console.line("The following features are supported:\n\nFEAT DESCRIPTION")?;
    console.line("-------------------------------------------------------------")?;
    for feature in features::ALL {
        let note = if feature.read_only_compatible { " (read-only compatible)" } else { "" };
        console.line(format!("{:<37}{note}", feature.name).trim_end())?;
        console.line(&format!("     {}", feature.description))?;
    }
    console.line("\nThe following legacy versions are also supported:\n\nVER  DESCRIPTION")?;
    console.line("---  --------------------------------------------------------")?;
    for (version, what) in LEGACY.iter().enumerate() {
        console.line(&format!("{:2}   {what}", version + 1))?;
    }
    Ok(())
}

/// The news of each legacy version.
const LEGACY: [&str; 28] = [
    "the first version",
    "replicated metadata",
    "hot spares and double parity",
    "the pool history",
    "gzip compression",
    "the bootfs property",
    "separate intent logs",
    "delegated administration",
    "refquota and refreservation",
    "cache devices",
    "faster scrubs",
    "properties of snapshots",
    "the snapused properties",
    "passthrough-x inheritance of ACLs",
    "space used by user and group",
    "STMF properties",
    "triple parity",
    "holds on snapshots",
    "removal of log devices",
    "zle compression",
    "deduplication",
    "received properties",
    "slim intent logs",
    "system attributes",
    "better scrub statistics",
    "faster deletion of snapshots",
    "faster creation of snapshots",
    "several replaced devices at once",
];
