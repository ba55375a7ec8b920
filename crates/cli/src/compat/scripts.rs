//! `zpool status -c` and `zpool iostat -c`: programs that are asked about each leaf vdev.
//!
//! From:   executables in the folders of `ZPOOL_SCRIPTS_PATH`, else `~/.zpool.d` and `/etc/zfs/zpool.d`.
//! To:     columns: lines `name=value` of what they print, behind the row of the vdev.
//!
//! The command's process finds the scripts. They run as its user and in its working directory. For `iostat`, the pool's
//! server (of the same user) starts them; then limits and umask are those of the server.

mod output;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::Access;

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use crate::around::Served;
use crate::config;
use crate::messages::Failure;
use crate::out::Console;

/// Where the system has them.
const SYSTEM: &str = "/etc/zfs/zpool.d";
/// Where they find programs.
const PATH: &str = "/bin:/sbin:/usr/bin:/usr/sbin";
/// Maximal number of bytes that are read from the output of one script.
const OUTPUT_MAX: usize = 64 << 10;
/// Maximal number of scripts that run at the same time.
const AT_ONCE: usize = 16;
/// Separates the paths of scripts that a client found.
const FOUND: char = '\n';

/// The scripts of a command line.
pub struct Scripts {
    paths: Vec<PathBuf>,
    /// In a pool's server: the client that they run for.
    served: Option<Served>,
}

/// The output of a script for a vdev.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    named: Vec<(String, String)>,
    /// A value without a name; nothing is read behind it.
    rest: Vec<String>,
}

/// The output of all scripts for all vdevs.
#[derive(Debug, Default)]
pub struct Answers {
    columns: Vec<(String, usize)>,
    said: BTreeMap<(String, String), Said>,
}

impl Scripts {
    /// The scripts that `-c` names; those that are nowhere are passed over, as OpenZFS does.
    ///
    /// # Errors
    /// They may not be run.
    pub fn of(call: &Call, lists: &[String]) -> Result<Option<Scripts>, Failure> {
        let Some(list) = lists.last() else { return Ok(None) };
        let served = call.around.served.clone();
        if served.is_some() {
            let paths = list.split(FOUND).map(PathBuf::from).filter(|path| path.is_absolute());
            return Ok(Some(Scripts { paths: paths.collect(), served }));
        }
        if lists.len() > 1 {
            return Err(Failure::refused("Can't set -c flag twice"));
        }
        check_allowed()?;
        let folders = folders();
        let found = |name: &str| {
            let mut places = folders.iter().map(|folder| folder.join(name));
            places.find(|path| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok())
        };
        let names = list.split(',').filter(|name| !name.is_empty() && !name.contains(['/', FOUND]));
        Ok(Some(Scripts { paths: names.filter_map(found).collect(), served }))
    }

    /// The argument of `-c` in the request to a pool's server.
    ///
    /// # Errors
    /// The request cannot contain one of the paths.
    pub fn to_argument(&self) -> Result<String, Failure> {
        let told = |path: &PathBuf| match path.to_str().filter(|text| !text.contains(FOUND)) {
            Some(text) => Ok(text.to_owned()),
            None => Err(Failure::refused(format!(
                "cenote: not supported yet: a script whose path is not UTF-8 or has a line break: {path:?}"
            ))),
        };
        Ok(self.paths.iter().map(told).collect::<Result<Vec<_>, _>>()?.join(&FOUND.to_string()))
    }

    /// Asks about every leaf of these pools.
    pub fn ask<'a>(&self, views: impl IntoIterator<Item = &'a PoolView>) -> Answers {
        let mut vdevs: Vec<(String, String)> = Vec::new();
        for view in views {
            let mut paths = Vec::new();
            view.tree(Naming::default()).iter().for_each(|vdev| leaf_paths(vdev, &mut paths));
            vdevs.extend(paths.into_iter().map(|path| (view.name.clone(), path)));
        }
        let mut answers = Answers::default();
        for some in vdevs.chunks(AT_ONCE) {
            let said = std::thread::scope(|scope| {
                let asked: Vec<_> =
                    some.iter().map(|(pool, path)| scope.spawn(|| self.about(pool, path))).collect();
                asked.into_iter().map(|thread| thread.join().unwrap_or_default()).collect::<Vec<_>>()
            });
            some.iter().zip(said).for_each(|(vdev, said)| answers.add(vdev.clone(), said));
        }
        answers
    }

    /// Runs all scripts for one vdev.
    fn about(&self, pool: &str, path: &str) -> Said {
        let mut said = Said::default();
        let under = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let enclosure = enclosure_of(&under);
        let mut variables: Vec<(&str, &OsStr)> =
            vec![("POOL_NAME", pool.as_ref()), ("VDEV_PATH", path.as_ref()), ("VDEV_UPATH", under.as_ref())];
        variables.extend(enclosure.as_ref().map(|place| ("VDEV_ENC_SYSFS_PATH", place.as_os_str())));
        for script in &self.paths {
            if let Some(output) = output_of(Command::new(script), &variables, self.served.as_ref()) {
                said.read(&output);
            }
        }
        said
    }
}

/// Whether scripts may be run at all.
fn check_allowed() -> Result<(), Failure> {
    if std::env::var_os("ZPOOL_SCRIPTS_ENABLED").is_some() && !config::is_set("ZPOOL_SCRIPTS_ENABLED") {
        return Err(Failure::refused("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED."));
    }
    let root = rustix::process::getuid().is_root() || rustix::process::geteuid().is_root();
    if root && !config::is_set("ZPOOL_SCRIPTS_AS_ROOT") {
        let why = "Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.";
        return Err(Failure::refused(why));
    }
    Ok(())
}

/// The folders in which scripts are looked for, in order. The paths are absolute, because a pool's server has another
/// working directory.
fn folders() -> Vec<PathBuf> {
    let all: Vec<PathBuf> = match std::env::var_os("ZPOOL_SCRIPTS_PATH") {
        Some(path) => std::env::split_paths(&path).filter(|folder| !folder.as_os_str().is_empty()).collect(),
        None => {
            let own = std::env::var_os("HOME").map(|home| Path::new(&home).join(".zpool.d"));
            own.into_iter().chain([PathBuf::from(SYSTEM)]).collect()
        }
    };
    all.into_iter().map(|folder| std::path::absolute(&folder).unwrap_or(folder)).collect()
}

fn leaf_paths(vdev: &VdevView, paths: &mut Vec<String>) {
    if let Some(path) = vdev.path.as_ref().filter(|path| vdev.is_leaf() && !paths.contains(path)) {
        paths.push(path.clone());
    }
    vdev.children.iter().for_each(|child| leaf_paths(child, paths));
}

/// The enclosure that a device is in, as sysfs has it.
fn enclosure_of(device: &Path) -> Option<PathBuf> {
    let name = device.strip_prefix("/dev").ok()?;
    let block = std::fs::canonicalize(Path::new("/sys/class/block").join(name)).ok()?;
    // Of a partition, that of the disk.
    let mut places = [Some(block.as_path()), block.parent()].into_iter().flatten();
    let entries = places.find_map(|place| std::fs::read_dir(place.join("device")).ok())?;
    let is_enclosure =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("enclosure_device");
    let link = entries.filter_map(Result::ok).find(is_enclosure)?;
    std::fs::canonicalize(link.path()).ok()
}

/// Its output, if it succeeds. Its environment contains only the variables set here.
fn output_of(mut command: Command, variables: &[(&str, &OsStr)], served: Option<&Served>) -> Option<String> {
    command.env_clear().env("PATH", PATH).envs(variables.iter().copied());
    if let Some(served) = served {
        command.current_dir(served.folder());
    }
    output::of(command, served)
}

impl Said {
    fn read(&mut self, output: &str) {
        for line in output.lines() {
            let Some((name, value)) = line.split_once('=') else {
                self.rest.push(line.to_owned());
                return;
            };
            if !self.named.iter().any(|(known, _)| known == name) {
                self.named.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}

impl Answers {
    fn add(&mut self, vdev: (String, String), said: Said) {
        for (name, value) in &said.named {
            let wide = name.chars().count().max(value.chars().count());
            match self.columns.iter_mut().find(|(known, _)| known == name) {
                Some((_, width)) => *width = wide.max(*width),
                None => self.columns.push((name.clone(), wide)),
            }
        }
        self.said.insert(vdev, said);
    }

    /// The headings of the scripts' columns, which follow those of the other columns.
    pub fn headings(&self) -> String {
        self.columns.iter().map(|(name, width)| format!("  {name:>width$}")).collect()
    }

    /// Behind a line of dashes.
    pub fn dashes(&self) -> String {
        self.columns.iter().map(|(_, width)| format!("  {}", "-".repeat(*width))).collect()
    }

    /// Behind the row of the leaf that is at `path`.
    pub fn cells(&self, pool: &str, path: Option<&str>) -> String {
        let said = path.and_then(|path| self.said.get(&(pool.to_owned(), path.to_owned())));
        let Some(said) = said else { return String::new() };
        let cell = |(name, width): &(String, usize)| {
            let value = said.named.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            let value = value.filter(|value| !value.trim().is_empty()).unwrap_or("-");
            format!("  {value:>width$}")
        };
        let rest = said.rest.iter().map(|value| format!("  {value}"));
        self.columns.iter().map(cell).chain(rest).collect()
    }
}

/// `-c` without a name: lists the scripts and their descriptions.
///
/// # Errors
/// They may not be run; standard output is gone.
pub fn list(console: &mut Console, word: &str) -> Result<(), Failure> {
    check_allowed()?;
    console.line(&format!("Available 'zpool {word} -c' commands:"))?;
    for folder in folders() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if !path.is_file() || rustix::fs::access(&path, Access::EXEC_OK).is_err() {
                continue;
            }
            let mut command = Command::new(&path);
            command.arg("-h");
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let output = output_of(command, &[], None).unwrap_or_default();
            for line in output.lines().filter(|line| !line.trim().is_empty()) {
                console.line(&format!("  {name:<14}  {line}"))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(output: &str) -> Said {
        let mut said = Said::default();
        said.read(output);
        said
    }

    #[test]
    fn lines_are_columns_until_one_has_no_name() {
        let all = said("temp=40\nhealth=\ntemp=50\nx=a=b\nplain\nlate=1\n");
        let named: Vec<_> = all.named.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(named, [("temp", "40"), ("health", ""), ("x", "a=b")]);
        assert_eq!(all.rest, ["plain"]);
        assert_eq!(said(""), Said::default());
    }

    #[test]
    fn columns_are_as_wide_as_what_stands_in_them() {
        let mut answers = Answers::default();
        let vdev = |path: &str| ("tank".to_owned(), path.to_owned());
        answers.add(vdev("/a"), said("temp=40\nserial=123456789\n"));
        answers.add(vdev("/b"), said("size=1T\ntemp=\nat the end\n"));
        assert_eq!(answers.headings(), "  temp     serial  size");
        assert_eq!(answers.dashes(), "  ----  ---------  ----");
        assert_eq!(answers.cells("tank", Some("/a")), "    40  123456789     -");
        assert_eq!(answers.cells("tank", Some("/b")), "     -          -    1T  at the end");
        assert_eq!(answers.cells("tank", Some("/c")), "");
        assert_eq!(answers.cells("tank", None), "");
    }
}
