//! Forwarding commands to the servers of their pools.
//!
//! From:   a command line that changes something.
//! To:     the servers of its pools; pools without a server are changed here. This is decided before anything is printed or
//!         changed. Reading commands read a leased state of the pool's devices themselves (`open`).

mod foreign;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use format::config::PoolState;
use pool::known::KnownPool;
use server::Client;

use crate::args::Parsed;
use crate::around::Surroundings;
use crate::client::{broken, job, memory_file, place_of, run, send, server_of, text_of};
use crate::command::{Beside, Call};
use crate::connect::is_used;
use crate::messages::Failure;
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::{start, state, visit};

/// How long a server with a silent device may take to answer from memory.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs `call` in the servers of its pools, or here.
///
/// # Errors
/// Those of the command; [`Failure::Ended`] when a server carried it out.
pub fn or_here(call: &Call, words: &[String], console: &mut Console) -> Result<(), Failure> {
    if call.around.visited {
        visit::judge(call.command, &call.args)?;
        return call.run(console);
    }
    if call.around.served.is_some() || !is_used() {
        return call.run(console);
    }
    if let Some(status) = foreign::ask(call, words, console)? {
        return Err(Failure::Ended(status));
    }
    let complete = call.command.completed.map(|completed| completed(call)).transpose()?.flatten();
    let words = complete.as_deref().unwrap_or(words);
    let translated = places_of_paths(call, words);
    let (call, split) = match &translated {
        Some((call, words)) => (call, words.as_slice()),
        None => (call, words),
    };
    let mut pools: Vec<(String, Vec<String>)> = Vec::new();
    for target in call.targets()? {
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
        return from_memory(call, words, console)?.map_or_else(|| call.run(console), Err);
    }
    if let [(pool, _)] = pools.as_slice() {
        let client = clients.into_iter().next().flatten().expect("it has a server");
        let words = words.iter().map(OsString::from).collect();
        let status = send(&client, call.command.program.name(), words, call.around);
        return Err(Failure::Ended(status.map_err(|error| broken(pool, &error))?));
    }
    if call.command.gathers {
        return call.run(console);
    }
    each_pool(call, split, console, pools.into_iter().zip(clients))
}

/// Lets the server of a pool carry out a command that reads this pool, if a device does not answer: the server may know
/// the answer without reading. Returns how the command ended; `None` if this process must carry it out.
fn from_memory(call: &Call, words: &[String], console: &mut Console) -> Result<Option<Failure>, Failure> {
    if !reads_memory(call) || !call.around.search.is_empty() {
        return Ok(None);
    }
    let Ok(known) = state::known().read() else { return Ok(None) };
    let named = |pool: &KnownPool| call.args.operands.iter().any(|word| pool_of(word) == pool.name);
    let mut asked: Vec<&KnownPool> = known.iter().filter(|pool| named(pool)).collect();
    if asked.is_empty() {
        asked = known.iter().collect();
    }
    let [pool] = asked.as_slice() else { return Ok(None) };
    let Some((client, _)) = open::silent::server_of(pool) else { return Ok(None) };
    client.set_patience(PATIENCE).map_err(|error| broken(&pool.name, &error))?;
    let words = words.iter().map(OsString::from).collect();
    let job = job(call.command.program.name(), words, Some(&call.line), call.around);
    // A server that must read the device for an answer gives none in time. It then still holds what it was given, so
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
    let Beside::Reads { but } = call.command.beside else { return false };
    let repeats = call.args.operands.iter().any(is_count);
    !repeats && !call.args.options.iter().any(|(name, _)| but.contains(name))
}

/// Whether the server of an imported pool ended without exporting it.
fn has_lost_server(pool: &str, around: &Surroundings) -> bool {
    open::find(pool, around).is_ok_and(|usable| {
        let is_active =
            |found: &pool::Found| found.config.state == PoolState::Active && !open::is_held(found);
        usable.known.is_some() && usable.found.as_ref().is_some_and(is_active)
    })
}

/// Starts the server of a pool whose server died, with its mounts, and prints a remark.
fn start_again(pool: &str, around: &Surroundings, console: &mut Console) -> Result<Option<Client>, Failure> {
    start::start(pool, true, None, around, console)?;
    let client = server_of(pool, around)?;
    if client.is_some() {
        console.note(&format!(
            "cenote: the server of '{pool}' had ended without exporting the pool; it was started again"
        ));
    }
    Ok(client)
}

/// The command line with mounted paths written as places (`tank/fs:/file`), where a command works on files; `None` if
/// there are none.
fn places_of_paths<'a>(call: &Call<'a>, words: &[String]) -> Option<(Call<'a>, Vec<String>)> {
    if !call.command.takes_files {
        return None;
    }
    let written = |word: &String| place_of(Path::new(word), call.around).unwrap_or_else(|| word.clone());
    let operands: Vec<String> = call.args.operands.iter().map(written).collect();
    if operands == call.args.operands {
        return None;
    }
    let is_path = |word: &&String| call.args.operands.contains(word);
    let words = words.iter().map(|word| if is_path(&word) { written(word) } else { word.clone() }).collect();
    let args = Parsed { options: call.args.options.clone(), operands };
    Some((Call { args, line: call.line.clone(), ..*call }, words))
}

/// Carries out a command on several pools, one after the other.
fn each_pool(
    call: &Call,
    words: &[String],
    console: &mut Console,
    pools: impl Iterator<Item = ((String, Vec<String>), Option<Client>)>,
) -> Result<(), Failure> {
    let mut worst = 0;
    let others: Vec<String> = call.targets()?;
    // In a server, "all pools" means its own pool.
    let every = call.command.every_pool();
    let is_every = |name: &str| Some(name) == every;
    let named = !call.args.options.iter().any(|(name, _)| is_every(name)) || !call.args.operands.is_empty();
    for ((pool, group), client) in pools {
        // All words except targets stay: options and their arguments.
        let rest = |word: &&String| !named || !others.contains(word);
        if let Some(client) = client {
            console.flush()?;
            let group = group.iter().filter(|_| named);
            let own = words.iter().filter(rest).chain(group).map(OsString::from).collect();
            let job = job(call.command.program.name(), own, Some(&call.line), call.around);
            let status = run(&client, job);
            worst = worst.max(status.map_err(|error| broken(&pool, &error))?);
            continue;
        }
        let options = call.args.options.iter().filter(|(name, _)| !is_every(name)).cloned().collect();
        let operands = call.args.operands.iter().filter(rest).chain(&group).cloned().collect();
        let args = Parsed { options, operands };
        let call = Call { args, line: call.line.clone(), ..*call };
        if let Err(failure) = call.run(console) {
            console.complain(failure)?;
        }
    }
    match worst {
        0 => Ok(()),
        status => Err(Failure::Ended(status)),
    }
}
