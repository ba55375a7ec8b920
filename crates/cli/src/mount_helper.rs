//! `mount.zfs`, which mount(8) runs for `mount -t zfs DATASET FOLDER` and for lines of `/etc/fstab`.
//!
//! From:   a dataset, a folder and mount options.
//! To:     the server of the dataset's pool, which mounts. umount(8) needs no helper: the server sees that a mount is gone.
//!
//! Words and exit statuses are those of OpenZFS's mount.zfs(8) and of mount(8).

use std::ffi::OsString;
use std::path::Path;

use server::messages::Job;
use server::{Live, MountError, Overrides, Told};

use crate::around::Surroundings;
use crate::command::Program;
use crate::compat::{self, zfs_mount};
use crate::messages::Failure;
use crate::open::{self, pool_of};
use crate::out::{self, Console};
use crate::{client, connect, start};

/// The names of this program as a helper. mount(8) uses the second one to remount file systems that `/proc/mounts` calls
/// `fuse.zfs`.
pub const NAMES: [&str; 2] = ["mount.zfs", "mount.fuse.zfs"];

/// Whether `zfs` was started by mount.fuse(8). mount(8) hands file systems of the type `fuse.zfs` to that program if no
/// `mount.fuse.zfs` is installed; it then runs `zfs DATASET FOLDER -o OPTIONS`.
pub(crate) fn is_from_mount_fuse(words: &[OsString]) -> bool {
    let [dataset, folder, option, _] = words else { return false };
    let is_command = dataset.to_str().is_none_or(|word| compat::command(Program::Zfs, word).is_some());
    !is_command && option == "-o" && Path::new(folder).is_absolute()
}

const USAGE: &str = "Usage: mount.zfs [-sfnvh] [-o options] <dataset> <mountpoint>";
/// Exit statuses of mount(8).
const WRONG: u8 = 1;
const FAILED: u8 = 32;
/// Exit status of mount.zfs for a file system that is mounted already.
const BUSY: u8 = 128;

/// Options without a meaning here: mount(8)'s own, what `/proc/mounts` shows of FUSE, and properties of the dataset.
const IDLE: &[&str] = &[
    "acl",
    "allow_other",
    "async",
    "auto",
    "default_permissions",
    "diratime",
    "dirxattr",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "_netdev",
    "noacl",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "noiversion",
    "nolazytime",
    "nomand",
    "noowner",
    "nostrictatime",
    "nouser",
    "nousers",
    "owner",
    "posixacl",
    "saxattr",
    "silent",
    "user",
    "users",
];
/// Beginnings of such options.
const IDLE_BEGINNINGS: &[&str] =
    &["x-", "X-", "comment=", "context=", "group_id=", "helper=", "max_read=", "uhelper=", "user_id="];

/// The mount that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Request {
    dataset: String,
    point: String,
    options: Vec<String>,
    /// Options that are not known are passed over.
    sloppy: bool,
    /// Nothing is mounted.
    fake: bool,
    verbose: bool,
}

/// Why it ends: these lines, then its usage if it was not understood, and this status.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    lines: Vec<String>,
    usage: bool,
    status: u8,
}

impl Refused {
    fn usage(line: impl Into<String>) -> Refused {
        Refused { lines: vec![line.into()], usage: true, status: WRONG }
    }

    fn with(status: u8, line: impl Into<String>) -> Refused {
        Refused { lines: vec![line.into()], usage: false, status }
    }

    fn and(mut self, line: impl Into<String>) -> Refused {
        self.lines.push(line.into());
        self
    }
}

impl Request {
    fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Request, Refused> {
        let mut request = Request::default();
        let mut operands = Vec::new();
        let mut words = words.into_iter();
        let text = |word: OsString| {
            word.into_string().map_err(|word| {
                Refused::with(WRONG, format!("argument '{}' is not UTF-8", word.to_string_lossy()))
            })
        };
        let mut only_operands = false;
        while let Some(word) = words.next() {
            let word = text(word)?;
            let Some(letters) = word.strip_prefix('-').filter(|rest| !rest.is_empty() && !only_operands)
            else {
                operands.push(word);
                continue;
            };
            only_operands = letters == "-";
            let mut rest = if only_operands { "" } else { letters };
            while let Some(letter) = rest.chars().next() {
                rest = &rest[letter.len_utf8()..];
                match letter {
                    's' => request.sloppy = true,
                    'f' => request.fake = true,
                    // There is no /etc/mtab to be kept.
                    'n' => {}
                    'v' => request.verbose = true,
                    'o' | 't' | 'N' => {
                        let next = if rest.is_empty() { words.next().map(text).transpose()? } else { None };
                        let value = next.unwrap_or_else(|| rest.to_owned());
                        rest = "";
                        match letter {
                            'o' => request.options.extend(value.split(',').map(str::to_owned)),
                            'N' => return Err(Refused::with(FAILED, "namespaces (-N) are not supported")),
                            // The type is that by which mount(8) found this program.
                            _ => {}
                        }
                    }
                    'h' | '?' => return Err(Refused { lines: Vec::new(), usage: true, status: WRONG }),
                    other => return Err(Refused::usage(format!("Invalid option '{other}'"))),
                }
            }
        }
        let mut operands = operands.into_iter();
        request.dataset = operands.next().ok_or_else(|| Refused::usage("missing dataset argument"))?;
        request.point = operands.next().ok_or_else(|| Refused::usage("missing mountpoint argument"))?;
        match operands.next() {
            Some(_) => Err(Refused::usage("too many arguments")),
            None => Ok(request),
        }
    }

    fn has(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option)
    }

    /// The mount options that override the properties.
    fn overrides(&self) -> Result<Overrides, Refused> {
        let is_idle = |word: &str| {
            IDLE.contains(&word)
                || IDLE_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
                // As it is mounted; only the property `sync` says so.
                || matches!(word, "sync" | "dirsync") && self.has("remount")
        };
        let mut known = Vec::new();
        for word in self.options.iter().map(String::as_str).filter(|word| !is_idle(word)) {
            if zfs_mount::overrides(std::iter::once(word)).is_some() {
                known.push(word);
            } else if !self.sloppy {
                let name = &self.dataset;
                let line = format!("filesystem '{name}' cannot be mounted due to invalid option '{word}'.");
                return Err(
                    Refused::with(WRONG, line).and("Use the '-s' option to ignore the bad mount option.")
                );
            }
        }
        Ok(zfs_mount::overrides(known.into_iter()).unwrap_or_default())
    }
}

/// Whether a command line can be carried out, as far as its words show. Nothing is carried out.
pub fn understood(words: impl IntoIterator<Item = OsString>) -> bool {
    Request::parse(words).is_ok_and(|request| request.overrides().is_ok())
}

/// Carries out a command line; returns the exit status.
pub(crate) fn main(words: impl IntoIterator<Item = OsString>) -> u8 {
    let mut console = out::standard();
    let done = Request::parse(words).and_then(|request| hand_on(request, &mut console));
    finish(done, &mut console)
}

/// Carries out a command line in the server of the pool.
pub(crate) fn served(job: &Job, live: &Live, mut console: Console<'_>) -> u8 {
    let done = Request::parse(job.words.iter().cloned()).and_then(|request| mount(&request, live));
    finish(done.map(|()| 0), &mut console)
}

fn finish(done: Result<u8, Refused>, console: &mut Console<'_>) -> u8 {
    let refused = match done {
        Ok(status) => return status,
        Err(refused) => refused,
    };
    refused.lines.iter().for_each(|line| console.remark(line));
    if refused.usage {
        console.remark(USAGE);
    }
    refused.status
}

/// Lets the pool's server mount. A missing server is started without mounting other file systems.
fn hand_on(mut request: Request, console: &mut Console<'_>) -> Result<u8, Refused> {
    // mount(8) takes the name for a path where a folder is called so.
    if request.dataset.starts_with('/') {
        let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
        let inside = Path::new(&request.dataset).strip_prefix(&here).ok().and_then(Path::to_str);
        request.dataset = inside.unwrap_or(&request.dataset[1..]).to_owned();
    }
    let Request { dataset, point, .. } = &request;
    let full = std::fs::canonicalize(point).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Refused::with(FAILED, format!("mount point '{point}' does not exist"))
        }
        _ => Refused::with(
            WRONG,
            format!(
                "filesystem '{dataset}' cannot be mounted at '{point}' due to canonicalization error: {error}"
            ),
        ),
    })?;
    let overrides = request.overrides()?;
    if request.verbose {
        console.remark(&format!("mount.zfs: '{dataset}' on '{}': {overrides:?}", full.display()));
    }
    if request.fake {
        return Ok(0);
    }
    let failed =
        |why: String| Refused::with(FAILED, format!("filesystem '{dataset}' cannot be mounted: {why}"));
    if !connect::is_used() {
        return Err(failed("there is no server (CENOTE_SERVER=off)".into()));
    }
    let around = Surroundings::default();
    let pool = pool_of(dataset);
    let broken = |failure: Failure| match failure {
        Failure::Refused(lines) => Refused { lines, usage: false, status: FAILED },
        // All is said.
        _ => Refused { lines: Vec::new(), usage: false, status: FAILED },
    };
    let mut client = client::server_of(pool, &around).map_err(broken)?;
    if client.is_none() {
        open::find(pool, &around).map_err(|_| missing(dataset))?;
        start::start(pool, false, None, &around, console).map_err(broken)?;
        client = client::server_of(pool, &around).map_err(broken)?;
    }
    let client = client.ok_or_else(|| failed("the server of its pool does not run".into()))?;
    let mut words: Vec<OsString> = Vec::new();
    if request.sloppy {
        words.push("-s".into());
    }
    if !request.options.is_empty() {
        words.extend(["-o".into(), request.options.join(",").into()]);
    }
    words.extend(["--".into(), dataset.into(), full.into_os_string()]);
    client::send(&client, NAMES[0], words, &around).map_err(|error| failed(error.to_string()))
}

fn missing(dataset: &str) -> Refused {
    Refused::with(WRONG, format!("filesystem '{dataset}' cannot be mounted, unable to open the dataset"))
}

fn mount(request: &Request, live: &Live) -> Result<(), Refused> {
    let Request { dataset, point, .. } = request;
    let overrides = request.overrides()?;
    let is_remount = request.has("remount");
    let told = Told { point: Path::new(point).to_path_buf(), by_zfs: request.has("zfsutil") };
    let done = if is_remount {
        live.remount_at(dataset, &told, overrides)
    } else {
        live.mount_at(dataset, told, overrides)
    };
    done.map_err(|error| match error {
        MountError::Pool(pool::Error::NoDataset(_)) => missing(dataset),
        MountError::NotLegacy => {
            Refused::with(WRONG, format!("filesystem '{dataset}' cannot be mounted using 'mount'."))
                .and(format!("Use 'zfs set mountpoint=legacy' or 'zfs mount {dataset}'."))
                .and("See zfs(8) for more information.")
        }
        MountError::Legacy => {
            Refused::with(WRONG, format!("filesystem '{dataset}' cannot be mounted using 'zfs mount'."))
                .and(format!("Use 'zfs set mountpoint={point}' or 'mount -t zfs {dataset} {point}'."))
                .and("See zfs(8) for more information.")
        }
        MountError::Snapshot => Refused::with(
            FAILED,
            format!("filesystem '{dataset}' can not be mounted: {}", MountError::Snapshot),
        ),
        MountError::Mounted => Refused::with(BUSY, format!("filesystem '{dataset}' is already mounted")),
        error => Refused::with(FAILED, format!("filesystem '{dataset}' cannot be mounted: {error}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, Refused> {
        Request::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn command_lines_are_those_that_mount_8_makes() {
        let request = parse("tank/leg /mnt -o rw,noatime").expect("known");
        assert_eq!((request.dataset.as_str(), request.point.as_str()), ("tank/leg", "/mnt"));
        assert!(request.overrides().expect("known").atime == Some(false));
        let request = parse("-sfnv -oro,x-systemd.automount tank/leg /mnt -t zfs").expect("known");
        assert!(request.sloppy && request.fake && request.verbose);
        assert_eq!(request.overrides().expect("known").read_only, Some(true));
        for (line, said) in [
            ("", "missing dataset argument"),
            ("tank", "missing mountpoint argument"),
            ("a /b c", "too many arguments"),
            ("-x tank /mnt", "Invalid option 'x'"),
        ] {
            assert_eq!(parse(line), Err(Refused::usage(said)), "{line}");
        }
    }

    #[test]
    fn a_call_by_mount_fuse_is_no_subcommand() {
        let is = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            is_from_mount_fuse(&words)
        };
        assert!(is("tank/a /mnt -o rw,remount") && is("tank /mnt -o ro"));
        for line in
            ["list /tank/a -o name", "tank/a mnt -o ro", "tank/a /mnt", "tank /mnt -r x", "get /m -o all"]
        {
            assert!(!is(line), "{line}");
        }
    }

    #[test]
    fn an_option_that_is_not_known_is_refused_unless_sloppy() {
        let refused = parse("-o ro,bogus tank /mnt").expect("parsed").overrides().expect_err("not known");
        assert_eq!(refused.lines[0], "filesystem 'tank' cannot be mounted due to invalid option 'bogus'.");
        let sloppy = parse("-s -o ro,bogus tank /mnt").expect("parsed").overrides().expect("passed over");
        assert_eq!(sloppy.read_only, Some(true));
        assert!(
            parse("-o sync tank /mnt").expect("parsed").overrides().is_err(),
            "nothing would be synchronous"
        );
        // A remount brings the options that mount(8) finds in /proc/mounts.
        let shown =
            "-o remount,ro,sync,nosuid,relatime,user_id=0,group_id=0,default_permissions,allow_other tank /m";
        assert_eq!(parse(shown).expect("parsed").overrides().expect("known").setuid, Some(false));
    }
}
