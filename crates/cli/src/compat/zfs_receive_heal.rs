//! `zfs receive -c`: damaged blocks of a snapshot, healed from a stream of it.

use std::io::Read;
use std::time::Instant;

use pool::props::number::nice_bytes;
use pool::props::{DatasetKind, names};
use pool::{Error, Pool};
use stream::{Destination, Healing, Incoming, Receiver};

use super::zfs_receive_options::Options;
use super::zfs_receive_words::{cannot, name, receiving};
use crate::command::Typed;
use crate::messages::Failure;
use crate::out::Console;

/// Heals the snapshots that the streams are of.
///
/// # Errors
/// A stream of another kind, or one that does not fit; blocks that could not be healed. Healed blocks stay healed.
pub(super) fn heal_in<R: Read>(
    pool: &Pool,
    call: &Typed<Options>,
    console: &mut Console,
    stream: &mut Incoming<R>,
    destination: &Destination,
) -> Result<(), Failure> {
    let (verbose, dry) = (call.options.verbose, call.options.dry_run);
    let top = stream.package().map(|(begin, _)| name(begin));
    let unread = |error| Failure::refused(format!("cannot receive: {error}"));
    let mut failed = None;
    while let Some((begin, _)) = stream.next_stream().map_err(unread)? {
        let sent = name(&begin);
        let into = destination.name_of(&sent, top.as_deref());
        names::check_kind(&into, DatasetKind::Snapshot)
            .map_err(|error| Failure::refused("cannot receive: invalid name").hint(error.to_string()))?;
        if verbose {
            let verb = if dry { "would receive" } else { "receiving" };
            let kind = if begin.fromguid.0 == 0 { "full" } else { "incremental" };
            console.line(&format!("{verb} corrective {kind} stream of {sent} into {into}"))?;
            console.flush()?;
        }
        let (since, before) = (Instant::now(), stream.bytes());
        let mut healing = Healing::default();
        let done = Receiver::new(pool).heal(stream, &begin, &into, dry, &mut healing);
        if healing.healed > 0 {
            let _turn = call.turn()?;
            pool.set_command(&call.line);
            pool.log_command().map_err(|error: Error| receiving(&begin, &error))?;
        }
        done.map_err(|error| receiving(&begin, &error))?;
        if verbose && !dry {
            let (bytes, seconds) = (stream.bytes() - before, since.elapsed().as_secs_f64().max(0.01));
            let (size, rate) = (nice_bytes(bytes), nice_bytes((bytes as f64 / seconds) as u64));
            console.line(&format!("received {size} stream in {seconds:.2} seconds ({rate}/sec)"))?;
            console.line(&format!("healed {} of {into}", blocks(healing.healed)))?;
        }
        if let Healing { lost, first_lost: Some(first), .. } = healing {
            let why = "corrective receive was not able to reconstruct the data needed for healing.";
            let left = match lost {
                1 => format!("A block of {into} is still damaged: {first}"),
                _ => format!("{} of {into} are still damaged, the first: {first}", blocks(lost)),
            };
            // Another snapshot of a package may have the blocks that this one lacks.
            match failed {
                None => failed = Some(Failure::refused(format!("{}: {why}", cannot(&begin))).hint(left)),
                Some(_) => console.remark(&left),
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn blocks(count: u64) -> String {
    if count == 1 { "1 block".to_owned() } else { format!("{count} blocks") }
}
