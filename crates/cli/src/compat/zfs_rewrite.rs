//! `zfs rewrite`: writes old data again with the present settings.

use std::path::Path;

use zpl::{FileKind, Filesystem, ObjectId};

use super::Call;
use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run, Targets};
use crate::files::operand::Operand;
use crate::files::pools::{Kernel, Pools, refused};
use crate::files::walk::{Order, Unread, Walk};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::Console;
use crate::stop::Stop;

/// `zfs rewrite`.
pub static COMMAND: Command = Command {
    name: "rewrite",
    about: "writes files anew with the present properties",
    syntax: &["rewrite [-CPSrvx] [-o OFFSET] [-l LENGTH] DIRECTORY|FILE…"],
    examples: &["zfs rewrite -r /tank/home", "zfs rewrite -v /tank/home/disk.img"],
    options: &[
        flag("C", "skips blocks that clones share (not supported yet)"),
        flag("P", "keeps logical birth times (not supported yet)"),
        flag("S", "skips blocks that snapshots share (not supported yet)"),
        flag("r", "all that is in folders, too"),
        flag("v", "says what is written"),
        flag("x", "does not leave the file system").idle(),
        property("o", "from this offset"),
        value("l", "that many bytes"),
    ],
    targets: Targets::All,
    beside: Beside::TakesTurns,
    takes_files: true,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs rewrite`.
struct Options {
    cloned: bool,
    physical: bool,
    snapshots: bool,
    recursive: bool,
    verbose: bool,
    offset: Option<String>,
    length: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        cloned: args.has("C"),
        physical: args.has("P"),
        snapshots: args.has("S"),
        recursive: args.has("r"),
        verbose: args.has("v"),
        offset: args.text("o"),
        length: args.text("l"),
    }
}

/// Bytes of a file between two checks whether to stop; a multiple of every record size.
const STEP: u64 = 64 << 20;

/// Runs `zfs rewrite`.
///
/// # Errors
/// The arguments are wrong, or files cannot be rewritten. Each such file has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let options = &call.options;
    for (option, is_given, what) in [
        ("C", options.cloned, "skipping cloned blocks"),
        ("P", options.physical, "keeping the logical birth times of blocks"),
        ("S", options.snapshots, "skipping blocks that snapshots have"),
    ] {
        if is_given {
            return Err(Failure::refused(format!(
                "cenote: not supported yet: zfs rewrite -{option} ({what})"
            )));
        }
    }
    let number = |option: &str, given: &Option<String>| match given {
        None => Ok(None),
        Some(text) => {
            let wrong = |error| Failure::usage(format!("invalid argument '{text}' for -{option}: {error}"));
            pool::props::size::parse_size(text).map(Some).map_err(wrong)
        }
    };
    let offset = number("o", &options.offset)?.unwrap_or(0);
    let len = number("l", &options.length)?.filter(|&len| len > 0);
    if args.operands.is_empty() {
        return Err(Failure::usage(""));
    }
    let (mut places, mut missing) = (Vec::new(), false);
    for word in &args.operands {
        match Operand::read(word, call.around) {
            Ok(Some(place)) => places.push(place),
            Ok(None) => {
                console.complain(match std::fs::symlink_metadata(call.around.path(Path::new(word))) {
                    Err(error) => Failure::refused(format!("failed to stat {word}: {error}")),
                    // OpenZFS skips it without a message, although nothing of it was rewritten.
                    Ok(_) => {
                        let line = format!("cannot rewrite '{word}': not in a ZFS filesystem");
                        console.complain(Failure::refused(line))?;
                        continue;
                    }
                })?;
                missing = true;
            }
            Err(error) => console.complain(Failure::refused(error.to_string()))?,
        }
    }
    let stop = &call.around.stop()?;
    let rewrite = Rewrite { offset, len, recursive: options.recursive, verbose: options.verbose, stop };
    let pools = Pools::open(places.iter().map(|operand| (&operand.place, Intent::Write)), call.around)?;
    for operand in &places {
        let fs = pools.filesystem(&operand.place, Intent::Write)?;
        let kernel = pools.kernel(&operand.place);
        if let Err(failure) = rewrite.one(console, &fs, &kernel, operand) {
            console.complain(failure)?;
        }
    }
    pools.finish()?;
    if stop.asked() {
        return Err(Failure::Ended(stop.status()));
    }
    if missing { Err(Failure::Ended(2)) } else { Ok(()) }
}

/// The part of each file that is written again, and the options.
struct Rewrite<'a> {
    offset: u64,
    /// Bytes from `offset` on; `None`: to the end.
    len: Option<u64>,
    /// `-r`.
    recursive: bool,
    /// `-v`.
    verbose: bool,
    stop: &'a Stop,
}

impl Rewrite<'_> {
    /// One operand, with all below it for `-r`. There is one file system to a place, so `-x` has nothing to stop at.
    fn one(
        &self,
        console: &mut Console,
        fs: &Filesystem,
        kernel: &Kernel,
        operand: &Operand,
    ) -> Result<(), Failure> {
        let failed = |error| refused("rewrite", operand.shown(b"."), error);
        let id = fs.resolve(&operand.place.path, false).map_err(failed)?;
        if fs.stat(id).map_err(failed)?.kind == FileKind::Directory && !self.recursive {
            return Ok(());
        }
        for step in Walk::new(fs, id, self.recursive, Order::Forward).map_err(failed)? {
            if self.stop.asked() {
                break;
            }
            let (path, done) = match step {
                Ok(step) => {
                    if fs.stat(step.id).map_err(failed)?.kind != FileKind::Regular {
                        continue;
                    }
                    let done = self.file(fs, step.id).map_err(Unread::from);
                    kernel.node(step.id);
                    (step.path, done)
                }
                Err((path, error)) => (path, Err(error)),
            };
            let shown = operand.shown(&path);
            match done {
                Err(error) => console.complain(refused("rewrite", shown, error))?,
                Ok(()) if self.verbose => console.line(&shown)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Rewrites a file, until a stop is requested.
    fn file(&self, fs: &Filesystem, id: ObjectId) -> Result<(), zpl::Error> {
        let end = self.offset.saturating_add(self.len.unwrap_or(u64::MAX)).min(fs.stat(id)?.size);
        let mut at = self.offset;
        while at < end && !self.stop.asked() {
            let until = (at / STEP + 1).saturating_mul(STEP).min(end);
            fs.rewrite(id, at, Some(until - at))?;
            at = until;
        }
        Ok(())
    }
}
