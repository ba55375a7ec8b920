//! Commands of cenote's own that run in the server of the pool that they change.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use crate::around::Surroundings;
use crate::client::{broken, send, server_of};
use crate::messages::Failure;
use crate::open::pool_of;
use crate::out::{Console, columns_of};
use crate::place::PoolPath;
use crate::stop::{INTERRUPTED, Stop, no_signals};
use crate::wrap;

/// The time between two looks of a waiting client whether it received the order to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a command may take to stop before a line says why.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets the server of a pool carry out a command that reads its files, if that server has keys of encrypted datasets: this process
/// has none. `None` if the server has none either.
///
/// # Errors
/// That server cannot be used.
pub fn forward_to_keys(
    command: &str,
    read: &[&PoolPath],
    words: &[OsString],
    around: &Surroundings,
    console: &mut Console,
) -> Result<Option<u8>, Failure> {
    let Some(first) = read.first() else { return Ok(None) };
    let pool = pool_of(&first.dataset);
    if read.iter().any(|place| pool_of(&place.dataset) != pool) {
        return Ok(None);
    }
    let status = server_of(pool, around)?.map(|client| client.status());
    if status.and_then(Result::ok).is_none_or(|status| status.keys.is_empty()) {
        return Ok(None);
    }
    // A dataset may have the name of the command, too.
    let command = words.iter().position(|word| *word == *command);
    let places = command.map_or(0, |at| at + 1);
    let mut words = words.to_vec();
    for word in &mut words[places..] {
        *word = whole_place(word, read);
    }
    forward(&[first.dataset.as_str()], &words, around, console)
}

/// A word that names one of these datasets alone, as the place of its root. The server has another working folder, in which a
/// file may have the name of the dataset.
fn whole_place(word: &OsString, read: &[&PoolPath]) -> OsString {
    let is_root =
        |place: &&&PoolPath| word.to_str() == Some(place.dataset_name().as_str()) && place.path == b"/";
    match read.iter().find(is_root) {
        Some(place) => format!("{}:/", place.dataset_name()).into(),
        None => word.clone(),
    }
}

/// Lets the server of a pool carry out one of cenote's own commands that changes the pool; `None` if there is no server.
///
/// # Errors
/// It changes several pools of which one has a server; or that server cannot be used.
pub fn forward(
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
            let (stop, pool) = (stop.clone(), (*pool).to_owned());
            std::thread::spawn(move || {
                while !stop.asked() {
                    std::thread::sleep(GLANCE);
                }
                stopper.stop();
                std::thread::sleep(PATIENCE);
                // The command still waits, so this process does as well.
                let lines = wrap::fitting(&still_waits(&pool), columns_of(&std::io::stderr()));
                let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
            });
        }
        let status = send(&client, "cenote", words.to_vec(), around);
        // The server does not know which signal stopped the command, but this process does.
        let ours = |status| if stop.asked() && status == INTERRUPTED { stop.status() } else { status };
        return status.map(|status| Some(ours(status))).map_err(|error| broken(pool, &error));
    }
    Ok(None)
}

/// Message for a user whose command waits for an unresponsive pool.
fn still_waits(pool: &str) -> String {
    format!(
        "cenote: still waiting for '{pool}', which may be suspended: 'zpool status {pool}' says why; Ctrl-C again leaves at \
         once, and what was written before is kept"
    )
}
