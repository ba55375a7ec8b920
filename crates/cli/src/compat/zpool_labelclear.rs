//! `zpool labelclear`.

use super::{Call, aux_owner};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::messages::Failure;
use crate::open::NotOpen;
use crate::out::Console;
use crate::state;
use format::config::{Label, PoolState};
use pool::labels;
use std::path::Path;
use std::sync::Arc;
use storage::host::{Access, Disk, FileDisk};

/// `zpool labelclear`.
pub static COMMAND: Command = Command {
    name: "labelclear",
    about: "erases the labels of a device",
    syntax: &["labelclear [-f] DEVICE"],
    examples: &["zpool labelclear /dev/sdb"],
    options: &[flag("f", "also of an exported or foreign pool")],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool labelclear`.
struct Options {
    force: bool,
}

fn read(args: &Parsed) -> Options {
    Options { force: args.has("f") }
}

/// Runs `zpool labelclear`.
///
/// # Errors
/// The arguments are wrong, or the label cannot be cleared.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let word = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing vdev name")),
        [word] => word,
        _ => return Err(Failure::usage("too many vdev names")),
    };
    let path = Path::new(word);
    if let Err(error) = std::fs::metadata(storage::host::backing_file(path)) {
        return Err(Failure::refused(format!("failed to open {word}: {error}")));
    }
    let failed = || Failure::refused(format!("failed to clear label for {word}"));
    let labels = match FileDisk::open(path, Access::Peek) {
        Ok(disk) => labels::read(&disk),
        Err(error) => return Err(failed().hint(error.to_string())),
    };
    if labels.good == 0 {
        return Err(failed());
    }
    if let Some(config) = labels.pool_configs().max_by_key(|config| config.txg) {
        let known = state::known().read().map_err(NotOpen::from)?;
        if let Some(pool) = known.iter().find(|pool| pool.guid == config.pool_guid) {
            console.remark("");
            return Err(Failure::refused(format!("{word} is a member (ACTIVE) of pool \"{}\"", pool.name)));
        }
        let state = match config.state {
            PoolState::Exported => Some("exported"),
            PoolState::Active => Some("potentially active"),
            _ => None,
        };
        if let Some(state) = state.filter(|_| !call.options.force) {
            return Err(Failure::refused("use '-f' to override the following error:")
                .hint(format!("{word} is a member of {state} pool \"{}\"", config.name)));
        }
    }
    if let Some(pool) = aux_owner::owner_of_aux(&labels, call.around)? {
        let spare =
            labels.configs.iter().any(|l| matches!(l, Label::Aux(aux) if aux.state == PoolState::Spare));
        let kind = if spare { "SPARE" } else { "L2CACHE" };
        console.remark("");
        return Err(Failure::refused(format!("{word} is a member ({kind}) of pool \"{pool}\"")));
    }
    let disk = pool::open_disk(path, Access::ReadWrite { exclusive: true })
        .map_err(|error| failed().hint(error.to_string()))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    labels::clear(&disk).map_err(|error| failed().hint(error.to_string()))?;
    disk.flush().map_err(|error| failed().hint(error.to_string()))
}
