//! `cenote install-links`: the other names of the program, as symbolic links.
//!
//! From:   a folder, or the folder of the running program.
//! To:     links in it. A file that is no link to this program is never replaced or removed.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::messages::{Failure, io_words};
use crate::mount_helper;
use crate::out::Console;

/// The names of the program as commands.
const COMMANDS: [&str; 2] = ["zpool", "zfs"];

/// Arguments of `install-links`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A folder that is not there is made. The links are zpool, zfs, mount.zfs and mount.fuse.zfs. mount(8) looks for its helpers in /sbin alone, so root names \
/usr/sbin. A file that is no link to cenote stays as it is, and nothing is done then.

Examples:
  cenote install-links ~/.local/bin
  cenote install-links /usr/sbin
  cenote install-links --remove /usr/sbin")]
pub struct InstallLinks {
    /// Remove the links instead.
    #[arg(long)]
    pub remove: bool,
    /// One JSON object with the links that were made or removed.
    #[arg(long)]
    pub json: bool,
    /// The folder of the links; without it, the folder of the program.
    #[arg(value_name = "DIR")]
    pub folder: Option<PathBuf>,
}

/// What is at the place of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    /// A link to this program.
    Ours,
    Other,
}

/// Carries out `install-links`.
///
/// # Errors
/// The folder cannot be used, or something else has one of the names.
pub fn run(args: &InstallLinks, console: &mut Console) -> Result<(), Failure> {
    let program = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| Failure::refused(format!("cannot find this program: {}", io_words(&error))))?;
    let folder = match &args.folder {
        Some(folder) => folder.clone(),
        None => program.parent().unwrap_or(Path::new("/")).to_owned(),
    };
    let failed = |verb: &str, path: &Path, error: &std::io::Error| {
        Failure::refused(format!("cannot {verb} '{}': {}", path.display(), io_words(error)))
    };
    if !args.remove && !folder.exists() {
        fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, &error))?;
    }
    let meta = fs::metadata(&folder).map_err(|error| failed("open", &folder, &error))?;
    if !meta.is_dir() {
        return Err(Failure::refused(format!("'{}' is not a folder", folder.display())));
    }
    let names = COMMANDS.into_iter().chain(mount_helper::NAMES);
    let places: Vec<(PathBuf, There)> = names
        .map(|name| {
            let path = folder.join(name);
            let there = look(&path, &program).map_err(|error| failed("look at", &path, &error))?;
            Ok((path, there))
        })
        .collect::<Result<_, Failure>>()?;
    if let Some((path, _)) = places.iter().find(|(_, there)| !args.remove && *there == There::Other) {
        let line = format!("'{}' is there already and is no link to cenote", path.display());
        return Err(Failure::refused(line)
            .hint("nothing was changed; 'cenote zfs' and 'cenote zpool' work without links"));
    }
    let mut changed = Vec::new();
    for (path, there) in &places {
        let done = match (args.remove, there) {
            (false, There::Nothing) => symlink(target(&program, &folder), path),
            (true, There::Ours) => fs::remove_file(path),
            _ => continue,
        };
        done.map_err(|error| failed(if args.remove { "remove" } else { "make" }, path, &error))?;
        changed.push(path.display().to_string());
    }
    if args.json {
        let what = if args.remove { "removed" } else { "created" };
        return console.line(&serde_json::json!({ "schema": 1, what: changed }).to_string());
    }
    if console.is_quiet() {
        return Ok(());
    }
    changed.iter().try_for_each(|path| console.line(path))
}

/// Where a link leads: beside the program by its name alone, so that both can be moved.
fn target(program: &Path, folder: &Path) -> PathBuf {
    let beside = fs::canonicalize(folder).is_ok_and(|folder| program.parent() == Some(&folder));
    match (beside, program.file_name()) {
        (true, Some(name)) => name.into(),
        _ => program.to_owned(),
    }
}

fn look(path: &Path, program: &Path) -> std::io::Result<There> {
    let target = match fs::read_link(path) {
        Ok(target) => target,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(There::Nothing),
        // A file, or a folder.
        Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(There::Other),
        Err(error) => return Err(error),
    };
    let is_same = fs::canonicalize(path).is_ok_and(|end| end == program);
    // The program that the link leads to may be gone, or be another version of it.
    let is_called_cenote = target.file_name() == program.file_name();
    Ok(if is_same || is_called_cenote { There::Ours } else { There::Other })
}
