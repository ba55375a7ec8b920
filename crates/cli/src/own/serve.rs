//! `cenote serve`, and starting it in the background.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use server::messages::Ready;
use server::{ClientError, Runtime};

use super::Serve;
use crate::Surroundings;
use crate::forward;
use crate::messages::{Action, Failure, reason};
use crate::open::{self, NotOpen};
use crate::out::Console;
use crate::served::Roof;

/// Carries out `serve`. Ends when the server does.
///
/// # Errors
/// The pool is not there, in use, or cannot be opened.
pub fn run(args: &Serve, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let name = args.pool.as_str();
    if args.background {
        return start(name, !args.no_mount, around, console);
    }
    let usable = open::find(name, around)?;
    let options = open::options(&usable).map_err(NotOpen::from)?;
    let found = usable.found.ok_or_else(|| NotOpen::Unavailable(name.to_owned()))?;
    let background = args.ready.then(|| log_of(name));
    let serve =
        server::Serve { found, options, runtime: Runtime::of_user(), mount: !args.no_mount, background };
    server::serve(serve, Arc::new(Roof)).map_err(|error| match error {
        server::ServeError::Pool(source) => NotOpen::Failed { name: name.to_owned(), source }.into(),
        error => Action::Open(name).failed(error),
    })
}

/// Where the log of a pool's server is.
fn log_of(pool: &str) -> PathBuf {
    open::state_folder().join("log").join(format!("{pool}.log"))
}

/// Starts the server of an imported pool, unless servers are not used; waits until it is mounted. What is not mounted
/// is complained about.
///
/// # Errors
/// The server does not start.
pub fn start(name: &str, mount: bool, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    if !forward::is_used() {
        return Ok(());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        if mount {
            console.remark(&format!("cenote: '{name}' is not mounted: '/dev/fuse': {error}"));
        }
        return Ok(());
    }
    console.flush()?;
    let mut words: Vec<OsString> = Vec::new();
    for place in &around.search {
        words.extend(["-d".into(), open::absolute(place).into_os_string()]);
    }
    words.extend(["serve", "--ready"].map(OsString::from));
    words.extend((!mount).then(|| "--no-mount".into()));
    words.extend(["--".into(), name.into()]);
    let ready = server::start::start(words).map_err(|error| match error {
        // Why, it said itself.
        ClientError::Start(_) => Failure::Ended(1),
        error => Action::Open(name).failed(error),
    })?;
    report(&ready, console)
}

/// Says what is not mounted, and what is mounted elsewhere.
fn report(ready: &Ready, console: &mut Console) -> Result<(), Failure> {
    for (dataset, point, place) in &ready.moved {
        console.remark(&moved(dataset, point, place));
    }
    for (dataset, why) in &ready.failed {
        console.complain(not_mounted(dataset, why))?;
    }
    Ok(())
}

/// The line about a file system that is mounted elsewhere than it should be.
pub fn moved(dataset: &str, point: &std::path::Path, place: &std::path::Path) -> String {
    format!("cenote: '{dataset}' is mounted on '{}': '{}' is not yours", place.display(), point.display())
}

/// The failure of mounting, with the hint that OpenZFS gives.
pub fn not_mounted(dataset: &str, why: &str) -> Failure {
    let failure = Action::Mount(dataset).failed(why);
    match why {
        reason::LEGACY_MOUNTPOINT => failure.hint("use mount(8) to mount this filesystem"),
        _ => failure,
    }
}
