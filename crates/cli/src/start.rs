//! Starting the server of a pool in the background.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use fuse::Unavailable;
use server::ClientError;
use server::messages::{Elsewhere, Moved, Ready};

use crate::around::Surroundings;
use crate::connect;
use crate::messages::{Action, Failure, io_words, plain, reason};
use crate::open::{self, Intent};
use crate::out::Console;
use crate::state;

/// Where the log of a pool's server is.
pub fn log_of(pool: &str) -> PathBuf {
    state::state_folder().join("log").join(format!("{pool}.log"))
}

/// Starts the server of an imported pool, unless servers are not used. Waits until the file systems are mounted, with these
/// mount options (`ro,noexec`), and prints an error for each that could not be mounted.
///
/// # Errors
/// The server does not start.
pub fn start(
    name: &str,
    mount: bool,
    options: Option<&str>,
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    let mut words: Vec<OsString> = (!mount).then(|| "--no-mount".into()).into_iter().collect();
    if let Some(list) = options {
        words.extend(["--options".into(), list.into()]);
    }
    start_with(name, mount, &words, around, console)
}

/// As [`start`], for a pool that was just created.
///
/// # Errors
/// As [`start`].
pub fn start_new(name: &str, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    start_with(name, true, &["--created".into()], around, console)
}

fn start_with(
    name: &str,
    mount: bool,
    options: &[OsString],
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    if !connect::is_used() {
        return Ok(());
    }
    if let Err(missing) = fuse::check_available() {
        if mount && has_mounts(name, around) {
            let line = format!("cenote: '{name}' is not mounted: {missing}: {}", remedy(&missing));
            console.note(&plain(line));
        }
        return Ok(());
    }
    launch(name, options, around, console)
}

/// Whether a server would mount any file system of the pool. If that cannot be read, it counts as yes.
fn has_mounts(name: &str, around: &Surroundings) -> bool {
    let Ok(session) = open::open_for(name, around, Intent::Read) else { return true };
    let pool = session.pool();
    let has = match pool.list(name, None, false) {
        Ok(list) => list.iter().any(|info| server::is_mounted_with_all(pool, info).unwrap_or(true)),
        Err(_) => true,
    };
    // It was only read.
    session.finish().is_err() || has
}

/// As [`start`], without mounts and also where nothing can be mounted: for clients over the network.
///
/// # Errors
/// As [`start`].
pub fn start_unmounted(name: &str, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    if !connect::is_used() {
        return Ok(());
    }
    launch(name, &["--no-mount".into()], around, console)
}

fn launch(
    name: &str,
    options: &[OsString],
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    console.flush()?;
    let mut words: Vec<OsString> = Vec::new();
    for place in &around.search {
        words.extend(["-d".into(), state::absolute(place).into_os_string()]);
    }
    words.extend(["serve", "--ready"].map(OsString::from));
    words.extend(options.iter().cloned());
    words.extend(["--".into(), name.into()]);
    let ready = server::start::start(words).map_err(|error| match error {
        // The server printed the reason itself.
        ClientError::Start(_) => Failure::Ended(1),
        error => Action::Open(name).failed(error),
    })?;
    report(&ready, console)
}

/// Advice where nothing can be mounted, and the way without a mount.
pub fn remedy(missing: &Unavailable) -> &'static str {
    match missing {
        Unavailable::NotBuilt => "'cenote cp' and 'cenote ls' reach its files",
        Unavailable::Device(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            "read and write access to it is needed (chmod 666 /dev/fuse); \
             'cenote cp' and 'cenote ls' reach the files without a mount"
        }
        Unavailable::Device(_) => {
            "load the kernel module (modprobe fuse), or start the container with --device /dev/fuse; \
             'cenote cp' and 'cenote ls' reach the files without a mount"
        }
        Unavailable::Helper => {
            "install the package fuse3; 'cenote cp' and 'cenote ls' reach the files without a mount"
        }
    }
}

/// Reports the file systems that are not mounted, and those that are mounted elsewhere.
fn report(ready: &Ready, console: &mut Console) -> Result<(), Failure> {
    ready.notes.iter().for_each(|note| console.note(&format!("cenote: {note}")));
    tell_moved(&ready.moved, console);
    for (dataset, why) in &ready.failed {
        console.complain(not_mounted(dataset, why))?;
    }
    Ok(())
}

/// Says which file systems are mounted elsewhere than they should be. Several for one reason are one line.
pub fn tell_moved(moved: &[Moved], console: &mut Console) {
    for why in [Elsewhere::NotYours, Elsewhere::Linked, Elsewhere::Within] {
        let of_why: Vec<&Moved> = moved.iter().filter(|moved| moved.why == why).collect();
        match of_why.as_slice() {
            [] => {}
            [one] => console.note(&elsewhere(one)),
            many => console.note(&several(many, why)),
        }
    }
}

/// The line about several file systems that are mounted elsewhere for one reason.
fn several(moved: &[&Moved], why: Elsewhere) -> String {
    let number = moved.len();
    let above =
        |path: fn(&Moved) -> &Path| common(&moved.iter().map(|moved| path(moved)).collect::<Vec<_>>());
    match why {
        Elsewhere::NotYours => format!(
            "cenote: {number} file systems are mounted in '{}': {}; 'zfs mount' lists them",
            above(|moved| &moved.point).display(),
            not_yours(&above(|moved| &moved.wanted)),
        ),
        Elsewhere::Linked => format!(
            "cenote: {number} file systems, such as '{}', are mounted elsewhere, with links at their places; 'zfs mount' lists them",
            moved[0].dataset
        ),
        Elsewhere::Within => format!(
            "cenote: {number} file systems, such as '{}', are mounted elsewhere: their places are in a mount of yours; \
             'zfs mount' lists them",
            moved[0].dataset
        ),
    }
}

/// The innermost folder that contains all of these paths, or is one of them.
fn common(paths: &[&Path]) -> PathBuf {
    let Some((first, rest)) = paths.split_first() else { return PathBuf::new() };
    let is_above = |folder: &&Path| rest.iter().all(|path| path.starts_with(folder));
    first.ancestors().find(is_above).unwrap_or(Path::new("/")).to_path_buf()
}

/// The line about a file system that is mounted elsewhere than it should be.
fn elsewhere(moved: &Moved) -> String {
    let Moved { dataset, wanted, point, why } = moved;
    let (wanted, point) = (wanted.display(), point.display());
    let why = match why {
        Elsewhere::NotYours => not_yours(&moved.wanted),
        Elsewhere::Linked => format!("'{wanted}', which is in a mount of yours, is a link to it"),
        Elsewhere::Within => format!("'{wanted}' is in a mount of yours"),
    };
    format!("cenote: '{dataset}' is mounted on '{point}': {why}")
}

/// Why this user cannot mount on the folder `wanted`.
fn not_yours(wanted: &Path) -> String {
    let path = wanted.to_owned();
    let why = front::apart::ask(move || Ok(obstacle(&path))).ok().flatten();
    why.unwrap_or_else(|| format!("'{}' is not a folder of yours", wanted.display()))
}

/// The obstacle to a mount on `wanted`; `None` if there is none.
fn obstacle(wanted: &Path) -> Option<String> {
    let shown = wanted.display();
    let there = wanted.ancestors().find_map(|path| match std::fs::metadata(path) {
        Ok(metadata) => Some(Ok((path, metadata))),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        Err(error) => Some(Err(error)),
    })?;
    let (path, metadata) = match there {
        Ok(there) => there,
        Err(error) => return Some(format!("'{shown}': {}", io_words(&error))),
    };
    let user = rustix::process::geteuid().as_raw();
    let at = path.display();
    if !metadata.is_dir() {
        Some(format!("'{at}' is not a folder"))
    } else if path == wanted {
        (metadata.uid() != user).then(|| format!("'{shown}' belongs to user {}", metadata.uid()))
    } else {
        let may_make = access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
        (!may_make).then(|| format!("'{shown}' does not exist, and you may not make it in '{at}'"))
    }
}

/// Why the server of the imported pool `name` cannot mount the file system `asked`: it does not run.
pub fn no_server(name: &str, asked: &str) -> Failure {
    match fuse::check_available() {
        Err(missing) => Action::Mount(asked).failed(&missing).hint(remedy(&missing)),
        Ok(()) => Action::Mount(asked).failed("its server does not run").hint(how_to_start(name)),
    }
}

/// The hint where the server of the imported pool `name` does not run.
pub fn how_to_start(name: &str) -> String {
    format!("'cenote serve --background {name}' starts it")
}

/// The words of the system where a process may not mount.
const NOT_PERMITTED: &str = "Operation not permitted";

/// The failure of mounting, with the hint that OpenZFS gives.
pub fn not_mounted(dataset: &str, why: &str) -> Failure {
    let failure = Action::Mount(dataset).failed(why);
    match why {
        reason::LEGACY_MOUNTPOINT => failure.hint("use mount(8) to mount this filesystem"),
        why if why.contains(NOT_PERMITTED) => failure.hint(
            "mounting is not permitted here: start a container with --device /dev/fuse --cap-add SYS_ADMIN; \
             'cenote cp' and 'cenote ls' reach the files without a mount",
        ),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_obstacle_of_a_mount_is_named() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = place.path();
        assert_eq!(obstacle(folder), None);
        assert_eq!(obstacle(&folder.join("a/b")), None);
        let file = folder.join("file");
        std::fs::write(&file, "").expect("written");
        for wanted in [file.clone(), file.join("below")] {
            assert_eq!(obstacle(&wanted), Some(format!("'{}' is not a folder", file.display())));
        }
        if !rustix::process::geteuid().is_root() {
            assert_eq!(obstacle(Path::new("/")), Some("'/' belongs to user 0".to_owned()));
            let said = obstacle(Path::new("/no/such"));
            assert_eq!(said.as_deref(), Some("'/no/such' does not exist, and you may not make it in '/'"));
        }
    }

    #[test]
    fn several_file_systems_elsewhere_for_one_reason_are_one_line() {
        let moved = |dataset: &str, why| Moved {
            dataset: dataset.to_owned(),
            wanted: format!("/{dataset}").into(),
            point: "/run/p".into(),
            why,
        };
        let said = |moved: &[Moved]| {
            let mut err = Vec::new();
            let mut console = Console::new(std::io::sink(), &mut err);
            tell_moved(moved, &mut console);
            drop(console);
            String::from_utf8(err).expect("text")
        };
        let one = said(&[moved("t/a", Elsewhere::Linked)]);
        assert!(one.contains("'t/a' is mounted on '/run/p'") && one.lines().count() == 1, "{one}");
        let names = ["t/a", "t/b", "t/c"];
        let mut all: Vec<Moved> = names.map(|name| moved(name, Elsewhere::Linked)).into();
        all.push(moved("t/d", Elsewhere::NotYours));
        let many = said(&all);
        assert!(many.contains("cenote: 3 file systems, such as 't/a', are mounted elsewhere"), "{many}");
        assert!(many.lines().count() == 2 && many.contains("'/t/d' "), "{many}");
        let all: Vec<Moved> = ["t", "t/a", "t/b"].map(|name| moved(name, Elsewhere::NotYours)).into();
        assert_eq!(
            said(&all),
            format!(
                "cenote: 3 file systems are mounted in '/run/p': {}; 'zfs mount' lists them\n",
                not_yours(Path::new("/t"))
            )
        );
        let mut err = Vec::new();
        tell_moved(&all, &mut Console::new(std::io::sink(), &mut err).quiet(true));
        assert!(err.is_empty());
    }

    #[test]
    fn a_mount_that_is_not_permitted_has_advice_in_its_error() {
        let Failure::Refused(lines) =
            not_mounted("t/a", "fusermount3: mount failed: Operation not permitted")
        else {
            panic!("refused")
        };
        assert!(
            lines.len() == 2 && lines[1].contains("--cap-add SYS_ADMIN") && lines[1].contains("cenote ls")
        );
        assert!(
            matches!(not_mounted("t/a", "directory is not empty"), Failure::Refused(lines) if lines.len() == 1)
        );
    }

    #[test]
    fn without_fuse_the_message_names_the_commands_that_need_no_mount() {
        let denied = std::io::ErrorKind::PermissionDenied.into();
        let missing = std::io::ErrorKind::NotFound.into();
        for (why, word) in [
            (Unavailable::NotBuilt, "cenote cp"),
            (Unavailable::Helper, "the package fuse3"),
            (Unavailable::Device(denied), "read and write access"),
            (Unavailable::Device(missing), "--device /dev/fuse"),
        ] {
            let line = remedy(&why);
            assert!(line.contains(word) && line.contains("cenote ls") && !line.contains('\n'), "{line}");
        }
    }
}
