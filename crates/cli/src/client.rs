//! Handing command lines to the server of a pool, with standard input, output and error.
//!
//! From:   commands that know their pool.
//! To:     the server of that pool, if it has one.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

use server::messages::Job;
use server::{Client, ClientError};

use crate::around::Surroundings;
use crate::command::Call;
use crate::connect::{connect, is_used};
use crate::messages::{Action, Failure};
use crate::{open, state};

/// The server that holds the pool `name`, if one does.
///
/// # Errors
/// The program behind the socket cannot be used.
pub fn server_of(name: &str, around: &Surroundings) -> Result<Option<Client>, Failure> {
    if around.live().is_some_and(|live| live.name() == name) {
        return Ok(None);
    }
    let Some(client) = server_named(name)? else { return Ok(None) };
    // The command may mean another pool of the same name. The list of imported pools shows this without reading a device.
    let listed = || state::known().read().ok()?.into_iter().find(|pool| pool.name == name);
    let guid = match listed().filter(|_| around.search.is_empty()) {
        Some(known) => Some(known.guid),
        None => match open::find(name, around) {
            Ok(usable) => usable.guid(),
            Err(_) => return Ok(None),
        },
    };
    Ok(Some(client).filter(|client| guid.is_none_or(|guid| guid.0 == client.guid)))
}

/// The server that holds a pool of this name, if one does, whichever pool the command means.
///
/// # Errors
/// The socket belongs to something that cannot be used.
pub fn server_named(name: &str) -> Result<Option<Client>, Failure> {
    if !is_used() {
        return Ok(None);
    }
    connect(name).map_err(|error| broken(name, &error))
}

/// The failure of talking to the server of a pool.
pub fn broken(name: &str, error: &ClientError) -> Failure {
    Action::Open(name).failed(error)
}

/// A path in a mounted dataset as a place, `DATASET:/path`.
pub fn place_of(path: &Path, around: &Surroundings) -> Option<String> {
    let full = std::fs::canonicalize(path).ok()?;
    let mount = open::dataset_of(&full, around).ok()??;
    let inside = full.strip_prefix(&mount.point).ok()?.to_str()?;
    Some(format!("{}:/{inside}", mount.dataset))
}

/// Runs the part of a command for one of several pools in that pool's server. Returns the exit status and the output.
///
/// # Errors
/// The server refuses, or goes away meanwhile; what it prints cannot be kept.
pub fn part(client: &Client, call: &Call, words: Vec<OsString>) -> Result<(u8, String), ClientError> {
    let printed = memory_file()?;
    let job = job(call.command.program.name(), words, Some(&call.line), call.around);
    let status = client.run(job, [std::io::stdin().as_fd(), printed.as_fd(), std::io::stderr().as_fd()])?;
    Ok((status, text_of(printed)?))
}

/// A file in memory, for the output of a server.
pub fn memory_file() -> std::io::Result<File> {
    Ok(rustix::fs::memfd_create("cenote-part", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// The text that was printed into such a file.
pub fn text_of(mut file: File) -> std::io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// Runs a command line in a server.
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

/// Runs a job with standard input, output and error of this process.
///
/// # Errors
/// As [`send`].
pub fn run(client: &Client, job: Job) -> Result<u8, ClientError> {
    client.run(job, [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()])
}

/// A command line in the form for a server. If it is a part of the typed line, `whole` is the typed line.
pub fn job(program: &str, words: Vec<OsString>, whole: Option<&str>, around: &Surroundings) -> Job {
    Job {
        program: program.to_owned(),
        words,
        whole: whole.map(str::to_owned),
        folder: std::env::current_dir().unwrap_or_else(|_| "/".into()).into_os_string(),
        umask: around.umask(),
        posix: around.posix,
    }
}
