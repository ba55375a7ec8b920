//! `cenote`, and under their own names `zfs` and `zpool`: arguments become calls, results become text.
//!
//! One program has several names. As `zfs` or `zpool` (the name that it is started under, or `cenote zfs …`) it takes the
//! words of OpenZFS and prints what OpenZFS prints. As `mount.zfs` it helps mount(8). Its own commands are in [`own`].
#![forbid(unsafe_code)]

pub mod args;
mod around;
mod client;
mod colour;
pub mod command;
pub mod compat;
mod config;
mod connect;
pub mod dates;
mod files;
mod forward;
mod front_ends;
mod json;
mod key_bytes;
mod messages;
pub mod mount_helper;
mod near;
mod open;
pub mod out;
pub mod own;
pub mod place;
pub mod programs;
pub mod served;
mod start;
mod state;
mod stop;
mod suggest;
mod table;
mod visit;
mod wrap;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

pub use around::Surroundings;
use command::Program;

/// The program: looks at the name it was started under. Returns the exit status of the process.
pub fn main() -> ExitCode {
    stop::take_size_limit_as_error();
    let mut words = std::env::args_os();
    let invoked = words.next().unwrap_or_else(|| OsString::from("cenote"));
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    let name = Path::new(&invoked).file_name().unwrap_or(OsStr::new("cenote")).to_owned();
    let around = Surroundings { posix, ..Surroundings::default() };
    let words: Vec<OsString> = words.collect();
    let status = match name.to_str() {
        Some("zfs") if mount_helper::is_from_mount_fuse(&words) => mount_helper::main(words),
        Some("zfs") => programs::run(Program::Zfs, words, &around, out::standard()),
        Some(server::visitors::READER) => answer_visitor(&words),
        Some("zpool") => programs::run(Program::Zpool, words, &around, out::standard()),
        Some(name) if mount_helper::NAMES.contains(&name) => mount_helper::main(words),
        _ => own::main(words, posix, &(Arc::new(served::Roof) as Arc<dyn server::Commands>)),
    };
    ExitCode::from(status)
}

/// Answers a question of another user for the server that started this process: `posix|gnu PROGRAM WORD…`.
fn answer_visitor(words: &[OsString]) -> u8 {
    let limited = visit::limit_this_process();
    let program = words.get(1).and_then(|word| word.to_str());
    let program = Program::ALL.into_iter().find(|known| Some(known.name()) == program);
    match (limited, program) {
        (Ok(()), Some(program)) => {
            let posix = words[0] == "posix";
            let around = Surroundings { posix, visited: true, ..Surroundings::default() };
            programs::run(program, words[2..].iter().cloned(), &around, out::standard())
        }
        (Err(error), _) => {
            out::standard().remark(&format!("cenote: cannot limit what the answer takes: {error}"));
            1
        }
        (Ok(()), None) => 2,
    }
}
