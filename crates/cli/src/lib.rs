//! `cenote`, and under their own names `zfs` and `zpool`: arguments become calls, results become text.
//!
//! One program has several names. As `zfs` or `zpool` (the name that it is started under, or `cenote zfs …`) it takes the
//! words of OpenZFS and prints what OpenZFS prints. As `mount.zfs` it helps mount(8). Its own commands are in [`own`].
#![forbid(unsafe_code)]

pub mod args;
pub mod compat;
pub mod config;
pub mod dates;
pub mod forward;
pub mod json;
pub mod messages;
pub mod mount_helper;
pub mod open;
pub mod out;
pub mod own;
pub mod place;
pub mod served;
pub mod table;
pub mod usage;
pub mod visit;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use usage::Program;

/// What a command finds around it.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// Folders and images given with `-d` before the subcommand: pools found there are used without being
    /// imported.
    pub search: Vec<PathBuf>,
    /// `POSIXLY_CORRECT` is set: options end at the first operand.
    pub posix: bool,
    /// Set when a pool's server carries the command out for a client.
    pub served: Option<served::Served>,
    /// This process answers one question of another user: only pools that are shared with all users are there, and nothing
    /// but the last synced state of them.
    pub visited: bool,
}

/// The program: looks at the name it was started under. Gives the exit status of the process.
pub fn main() -> ExitCode {
    own::stop::take_size_limit_as_error();
    let mut words = std::env::args_os();
    let invoked = words.next().unwrap_or_else(|| OsString::from("cenote"));
    let posix = std::env::var_os("POSIXLY_CORRECT").is_some();
    let name = Path::new(&invoked).file_name().unwrap_or(OsStr::new("cenote")).to_owned();
    let around = Surroundings { posix, ..Surroundings::default() };
    let words: Vec<OsString> = words.collect();
    let status = match name.to_str() {
        Some("zfs") if mount_helper::is_from_mount_fuse(&words) => mount_helper::main(words),
        Some("zfs") => compatible(Program::Zfs, words, around),
        Some(server::visitors::READER) => answer_visitor(&words),
        Some("zpool") => compatible(Program::Zpool, words, around),
        Some(name) if mount_helper::NAMES.contains(&name) => mount_helper::main(words),
        _ => own::main(words, posix),
    };
    ExitCode::from(status)
}

/// Answers a question of another user for the server that started this process: `posix|gnu PROGRAM WORD…`.
fn answer_visitor(words: &[OsString]) -> u8 {
    let limited = visit::limit_this_process();
    let program = words.get(1).and_then(|word| word.to_str());
    let program = [Program::Zfs, Program::Zpool].into_iter().find(|known| Some(known.name()) == program);
    match (limited, program) {
        (Ok(()), Some(program)) => {
            let posix = words[0] == "posix";
            let around = Surroundings { posix, visited: true, ..Surroundings::default() };
            compatible(program, words[2..].iter().cloned(), around)
        }
        (Err(error), _) => {
            out::standard().remark(&format!("cenote: cannot limit what the answer takes: {error}"));
            1
        }
        (Ok(()), None) => 2,
    }
}

/// Runs `zfs` or `zpool`. Names of datasets and properties are ASCII and paths given to these two are kept in
/// text structures on disk, so arguments must be UTF-8.
pub(crate) fn compatible(
    program: Program,
    words: impl IntoIterator<Item = OsString>,
    around: Surroundings,
) -> u8 {
    compatible_on(program, words, &around, out::standard())
}

/// As [`compatible`], with a console of its own.
pub(crate) fn compatible_on(
    program: Program,
    words: impl IntoIterator<Item = OsString>,
    around: &Surroundings,
    console: out::Console,
) -> u8 {
    let words: Result<Vec<String>, OsString> = words.into_iter().map(OsString::into_string).collect();
    match words {
        Ok(words) => compat::main(program, &words, around, console),
        Err(word) => {
            let line = format!("argument '{}' is not UTF-8", word.to_string_lossy());
            console.finish(Err(messages::Failure::usage(line)), || program.usage())
        }
    }
}
