//! Commands for a pool that a server holds: carried out there.
//!
//! From:   a command line that changes something.
//! To:     the servers of the pools it names; pools that nobody holds are changed here. Decided before anything is
//!         printed or changed. What only reads, reads a leased state of the pool's devices itself (`open`).

mod foreign;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use format::config::PoolState;
use pool::known::KnownPool;
use server::messages::Job;
use server::{Client, ClientError, Runtime};

use crate::Surroundings;
use crate::args::Parsed;
use crate::compat::{self, Call, zpool_iostat, zpool_upgrade};
use crate::messages::{Action, Failure};
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::own;
use crate::own::stop::{INTERRUPTED, Stop, no_signals};
use crate::usage::Program;
use crate::visit;

/// How long a server with a silent device may take to answer from memory.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often a waiting client looks whether it was told to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Whether pools are held by servers: not with `CENOTE_SERVER=off`, where each command opens and exports its pool.
#[must_use]
pub fn is_used() -> bool {
    std::env::var_os("CENOTE_SERVER").is_none_or(|value| value != "off")
}

/// Connects to the server of the pool `name`, whichever login of this user started it: a server whose socket is in another
/// runtime folder is found by its lock on the devices of the imported pool of that name.
///
/// # Errors
/// Something listens in its place that cannot be used; nobody can reach the server any more.
pub fn connect(name: &str) -> Result<Option<Client>, ClientError> {
    let devices = || {
        let known = open::known().read().unwrap_or_default();
        known.into_iter().find(|pool| pool.name == name).map_or_else(Vec::new, |pool| pool.devices)
    };
    server::client::connect_anywhere(&Runtime::of_user(), name, devices)
}

/// As [`connect`], to the server of a pool that the list of imported pools has: the list is not read again. Where no server
/// runs this finds no socket and no lock on the pool's devices, and asks nobody.
///
/// # Errors
/// As [`connect`].
pub fn connect_to(known: &KnownPool) -> Result<Option<Client>, ClientError> {
    server::client::connect_anywhere(&Runtime::of_user(), &known.name, || known.devices.clone())
}

/// The server that holds the pool `name`, if one does.
///
/// # Errors
/// Something listens in its place that cannot be used.
pub fn server_of(name: &str, around: &Surroundings) -> Result<Option<Client>, Failure> {
    if !is_used() || around.live().is_some_and(|live| live.name() == name) {
        return Ok(None);
    }
    let Some(client) = connect(name).map_err(|error| broken(name, &error))? else { return Ok(None) };
    // Another pool of the same name may be meant here. The list of imported pools tells without reading a device.
    let listed = || open::known().read().ok()?.into_iter().find(|pool| pool.name == name);
    let guid = match listed().filter(|_| around.search.is_empty()) {
        Some(known) => Some(known.guid),
        None => match open::find(name, around) {
            Ok(usable) => usable.guid(),
            Err(_) => return Ok(None),
        },
    };
    Ok(Some(client).filter(|client| guid.is_none_or(|guid| guid.0 == client.guid)))
}

/// The failure of talking to the server of a pool.
pub fn broken(name: &str, error: &ClientError) -> Failure {
    Action::Open(name).failed(error)
}

/// Carries out `call` where its pools are: in their servers, or with `here`.
///
/// # Errors
/// Those of the command; [`Failure::Ended`] when a server carried it out.
pub fn or_here(
    call: &Call,
    words: &[String],
    console: &mut Console,
    here: fn(&Call, &mut Console) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if call.around.visited {
        visit::judge(call.program, call.command, &call.args)?;
        return here(call, console);
    }
    if call.around.served.is_some() || !is_used() {
        return here(call, console);
    }
    if let Some(status) = foreign::ask(call, words, console)? {
        return Err(Failure::Ended(status));
    }
    let complete = compat::with_surroundings(call)?;
    let words = complete.as_deref().unwrap_or(words);
    let translated = places_of_paths(call, words);
    let (call, split) = match &translated {
        Some((call, words)) => (call, words.as_slice()),
        None => (call, words),
    };
    let mut pools: Vec<(String, Vec<String>)> = Vec::new();
    for target in targets(call)? {
        let pool = pool_of(&target).trim_end_matches(':');
        match pools.iter_mut().find(|(name, _)| name == pool) {
            Some((_, group)) => group.push(target),
            None => pools.push((pool.to_owned(), vec![target])),
        }
    }
    let mut clients: Vec<Option<Client>> = Vec::new();
    for (pool, _) in &pools {
        clients.push(match server_of(pool, call.around)? {
            None if has_lost_server(pool, call.around) => start_again(pool, call.around, console)?,
            client => client,
        });
    }
    if clients.iter().all(Option::is_none) {
        return from_memory(call, words, console)?.map_or_else(|| here(call, console), Err);
    }
    if let [(pool, _)] = pools.as_slice() {
        let client = clients.into_iter().next().flatten().expect("it has a server");
        let words = words.iter().map(OsString::from).collect();
        let status = send(&client, call.program.name(), words, call.around);
        return Err(Failure::Ended(status.map_err(|error| broken(pool, &error))?));
    }
    if gathers(call) {
        return here(call, console);
    }
    each_pool(call, split, console, here, pools.into_iter().zip(clients))
}

/// Has a command that reads one pool carried out by the server of that pool, if a device of it does not answer: the
/// server may know the answer without reading. Gives how the command ended; `None` where it is to be carried out here.
fn from_memory(call: &Call, words: &[String], console: &mut Console) -> Result<Option<Failure>, Failure> {
    if !reads_memory(call) || !call.around.search.is_empty() {
        return Ok(None);
    }
    let Ok(known) = open::known().read() else { return Ok(None) };
    let named = |pool: &KnownPool| call.args.operands.iter().any(|word| pool_of(word) == pool.name);
    let mut asked: Vec<&KnownPool> = known.iter().filter(|pool| named(pool)).collect();
    if asked.is_empty() {
        asked = known.iter().collect();
    }
    let [pool] = asked.as_slice() else { return Ok(None) };
    let Some((client, _)) = open::silent::server_of(pool) else { return Ok(None) };
    client.set_patience(PATIENCE).map_err(|error| broken(&pool.name, &error))?;
    let words = words.iter().map(OsString::from).collect();
    let job = job(call.program.name(), words, Some(&call.line), call.around);
    // A server that must read the device for an answer gives none in time. It then goes on to hold what it was given, so
    // that is nothing whose end others may wait for.
    let answered = File::open("/dev/null").and_then(|nothing| {
        let kept = [memory_file()?, memory_file()?];
        let stdio = [nothing.as_fd(), kept[0].as_fd(), kept[1].as_fd()];
        let status = client.run(job, stdio).map_err(std::io::Error::other)?;
        let [out, err] = kept;
        Ok((status, text_of(out)?, text_of(err)?))
    });
    let Ok((status, out, err)) = answered else { return Ok(None) };
    console.out().write_all(out.as_bytes())?;
    err.lines().for_each(|line| console.remark(line));
    Ok(Some(Failure::Ended(status)))
}

/// Whether a command reads what the server of a pool has in memory, and prints it once.
fn reads_memory(call: &Call) -> bool {
    let is_count = |word: &String| word.parse::<f64>().is_ok();
    let reads = reads_only(call.program, call.command.name);
    reads && !call.args.has("c") && !call.args.operands.iter().any(is_count)
}

/// Whether a command changes nothing, so that it waits for no command that does.
pub fn reads_only(program: Program, command: &str) -> bool {
    match program {
        Program::Zpool => matches!(command, "status" | "list" | "get"),
        Program::Zfs => matches!(command, "list" | "get"),
    }
}

/// Whether the server of an imported pool ended without exporting it.
fn has_lost_server(pool: &str, around: &Surroundings) -> bool {
    open::find(pool, around).is_ok_and(|usable| {
        let is_active =
            |found: &pool::Found| found.config.state == PoolState::Active && !open::is_held(found);
        usable.known.is_some() && usable.found.as_ref().is_some_and(is_active)
    })
}

/// Starts the server of a pool whose server died, with its mounts, and says so.
fn start_again(pool: &str, around: &Surroundings, console: &mut Console) -> Result<Option<Client>, Failure> {
    own::serve::start(pool, true, None, around, console)?;
    let client = server_of(pool, around)?;
    if client.is_some() {
        console.remark(&format!(
            "cenote: the server of '{pool}' had ended without exporting the pool; it was started again"
        ));
    }
    Ok(client)
}

/// The command line with mounted paths written as places (`tank/fs:/file`), where a command works on files; `None` if
/// there are none.
fn places_of_paths<'a>(call: &Call<'a>, words: &[String]) -> Option<(Call<'a>, Vec<String>)> {
    if !matches!((call.program, call.command.name), (Program::Zfs, "rewrite" | "project")) {
        return None;
    }
    let written = |word: &String| place_of(Path::new(word)).unwrap_or_else(|| word.clone());
    let operands: Vec<String> = call.args.operands.iter().map(written).collect();
    if operands == call.args.operands {
        return None;
    }
    let is_path = |word: &&String| call.args.operands.contains(word);
    let words = words.iter().map(|word| if is_path(&word) { written(word) } else { word.clone() }).collect();
    let args = Parsed { options: call.args.options.clone(), operands };
    Some((Call { args, line: call.line.clone(), ..*call }, words))
}

/// A path in a mounted dataset as a place, `DATASET:/path`.
pub fn place_of(path: &Path) -> Option<String> {
    let full = std::fs::canonicalize(path).ok()?;
    let mount = server::mountinfo::dataset_of(&full).ok()??;
    let inside = full.strip_prefix(&mount.point).ok()?.to_str()?;
    Some(format!("{}:/{inside}", mount.dataset))
}

/// Whether a command makes one report of several pools, and asks their servers itself for what it is made of.
fn gathers(call: &Call) -> bool {
    matches!((call.program, call.command.name), (Program::Zpool, "iostat" | "upgrade"))
}

/// Carries out a command on several pools, one after the other.
fn each_pool(
    call: &Call,
    words: &[String],
    console: &mut Console,
    here: fn(&Call, &mut Console) -> Result<(), Failure>,
    pools: impl Iterator<Item = ((String, Vec<String>), Option<Client>)>,
) -> Result<(), Failure> {
    let mut worst = 0;
    let others: Vec<String> = targets(call)?;
    // A server takes its own pool for all.
    let named = !call.args.has("a") || !call.args.operands.is_empty();
    for ((pool, group), client) in pools {
        // All that is no target stays: options and what they are about.
        let rest = |word: &&String| !named || !others.contains(word);
        if let Some(client) = client {
            console.flush()?;
            let group = group.iter().filter(|_| named);
            let own = words.iter().filter(rest).chain(group).map(OsString::from).collect();
            let job = job(call.program.name(), own, Some(&call.line), call.around);
            let status = run(&client, job);
            worst = worst.max(status.map_err(|error| broken(&pool, &error))?);
            continue;
        }
        let options = call.args.options.iter().filter(|(name, _)| *name != "a").cloned().collect();
        let operands = call.args.operands.iter().filter(rest).chain(&group).cloned().collect();
        let args = Parsed { options, operands };
        let call = Call { args, line: call.line.clone(), ..*call };
        if let Err(failure) = here(&call, console) {
            console.complain(failure)?;
        }
    }
    match worst {
        0 => Ok(()),
        status => Err(Failure::Ended(status)),
    }
}

/// What a command changes, of its operands; nothing if it only reads, or finds its servers itself.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let operands = &call.args.operands;
    let first = || operands.first().into_iter().cloned().collect();
    let last = || operands.last().into_iter().cloned().collect();
    let behind = |count: usize| operands.iter().skip(count).cloned().collect();
    let all = || -> Result<Vec<String>, Failure> {
        Ok(open::usable(call.around)?.into_iter().map(|pool| pool.name).collect())
    };
    Ok(match (call.program, call.command.name) {
        (
            Program::Zfs,
            "create" | "destroy" | "rename" | "promote" | "rollback" | "clone" | "load-key" | "unload-key"
            | "change-key",
        ) => first(),
        // One of the two may leave out the file system that the other names.
        (Program::Zfs, "bookmark") => {
            operands.iter().find(|word| !word.starts_with(['@', '#'])).into_iter().cloned().collect()
        }
        (Program::Zfs, "set") => operands.iter().skip_while(|word| word.contains('=')).cloned().collect(),
        (Program::Zfs, "snapshot" | "rewrite" | "project") => behind(0),
        (Program::Zfs, "inherit" | "hold" | "release") => behind(1),
        (Program::Zfs, "allow") if operands.len() == 1 => Vec::new(),
        (Program::Zfs, "receive" | "allow" | "unallow") => last(),
        (Program::Zfs, "upgrade") if call.args.has("v") => Vec::new(),
        (Program::Zfs, "upgrade") if call.args.has("a") && operands.is_empty() => all()?,
        (Program::Zfs, "upgrade") => behind(0),
        (Program::Zpool, "set") => operands.get(1).into_iter().cloned().collect(),
        (Program::Zpool, "sync") if operands.is_empty() => all()?,
        (Program::Zpool, "upgrade") if zpool_upgrade::lacks_sense(call) || call.args.has("v") => Vec::new(),
        (Program::Zpool, "upgrade" | "scrub") if call.args.has("a") && operands.is_empty() => all()?,
        (Program::Zpool, "sync" | "upgrade" | "scrub" | "resilver") => behind(0),
        (
            Program::Zpool,
            "add" | "attach" | "checkpoint" | "clear" | "detach" | "initialize" | "offline" | "online"
            | "reguid" | "remove" | "replace" | "trim",
        ) => first(),
        // What devices did, their server knows.
        (Program::Zpool, "get") if operands.len() > 2 => {
            let all = all()?;
            let vdevs = operands.iter().skip(2).any(|word| !all.contains(word));
            operands.get(1).filter(|_| vdevs).into_iter().cloned().collect()
        }
        (Program::Zpool, "iostat") => zpool_iostat::pools(call)?,
        _ => Vec::new(),
    })
}

/// Has one of cenote's own commands carried out by the server of the pool it changes; `None` if that has none.
///
/// # Errors
/// It changes several pools of which one has a server; or that server cannot be used.
pub fn own(
    changed: &[&str],
    words: &[OsString],
    around: &Surroundings,
    console: &mut Console,
) -> Result<Option<u8>, Failure> {
    let mut pools: Vec<&str> = changed.iter().map(|dataset| pool_of(dataset)).collect();
    pools.sort_unstable();
    pools.dedup();
    for pool in &pools {
        let Some(client) = server_of(pool, around)? else { continue };
        if pools.len() > 1 {
            let line = format!("'{pool}' has a server: name places of one pool at a time");
            return Err(Failure::refused(line));
        }
        console.flush()?;
        // Ctrl-C asks the command there to stop in good order; the second one ends this process at once.
        let stop = Stop::on_signals().map_err(no_signals)?;
        if let Ok(stopper) = client.stopper() {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.asked() {
                    std::thread::sleep(GLANCE);
                }
                stopper.stop();
            });
        }
        let status = send(&client, "cenote", words.to_vec(), around);
        // The server knows only that it was asked to stop.
        let ours = |status| if stop.asked() && status == INTERRUPTED { stop.status() } else { status };
        return status.map(|status| Some(ours(status))).map_err(|error| broken(pool, &error));
    }
    Ok(None)
}

/// Has the part of a command that is about one of several pools carried out by its server. Gives its exit status and
/// what it printed.
///
/// # Errors
/// The server refuses, or goes away meanwhile; what it prints cannot be kept.
pub fn part(client: &Client, call: &Call, words: Vec<OsString>) -> Result<(u8, String), ClientError> {
    let printed = memory_file()?;
    let job = job(call.program.name(), words, Some(&call.line), call.around);
    let status = client.run(job, [std::io::stdin().as_fd(), printed.as_fd(), std::io::stderr().as_fd()])?;
    Ok((status, text_of(printed)?))
}

/// A file in memory, for what a server prints.
fn memory_file() -> std::io::Result<File> {
    Ok(rustix::fs::memfd_create("cenote-part", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// What was printed into such a file.
fn text_of(mut file: File) -> std::io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Has a command line carried out by a server.
///
/// # Errors
/// The server refuses, or goes away meanwhile.
pub fn send(
    client: &Client,
    program: &str,
    words: Vec<OsString>,
    around: &Surroundings,
) -> Result<u8, ClientError> {
    run(client, job(program, words, None, around))
}

fn run(client: &Client, job: Job) -> Result<u8, ClientError> {
    client.run(job, [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()])
}

/// A command line as a server is told; `whole` is what was typed, where it is a part of that.
fn job(program: &str, words: Vec<OsString>, whole: Option<&str>, around: &Surroundings) -> Job {
    Job {
        program: program.to_owned(),
        words,
        whole: whole.map(str::to_owned),
        folder: std::env::current_dir().unwrap_or_else(|_| "/".into()).into_os_string(),
        umask: around.umask(),
        posix: around.posix,
    }
}
