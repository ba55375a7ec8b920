//! Commands of cenote's own that run in the server of the pool that they change.

use std::ffi::OsString;
use std::time::Duration;

use crate::around::Surroundings;
use crate::client::{broken, send, server_of};
use crate::messages::Failure;
use crate::open::pool_of;
use crate::out::Console;
use crate::stop::{INTERRUPTED, Stop, no_signals};

/// How often a waiting client looks whether it was told to stop.
const GLANCE: Duration = Duration::from_millis(50);

/// Has one of cenote's own commands carried out by the server of the pool it changes; `None` if that has none.
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
