//! The mount point that the properties of a dataset ask for, and the one that is possible.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use front::MountOptions;
use pool::props::dataset as props;
use pool::props::{DatasetKind, Source, Value};
use pool::{DatasetInfo, Pool, SyncMode};
use rustix::fs::{Access, access};
use zpl::session::Atime;

use crate::Runtime;

/// What `mountpoint` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Here.
    At(PathBuf),
    /// `legacy`: mounted by mount(8) only.
    Legacy,
    /// Nowhere.
    Nowhere,
}

/// Whether the properties of a dataset say that it is mounted when everything is.
///
/// # Errors
/// Its properties cannot be read.
pub fn is_mounted_with_all(pool: &Pool, info: &DatasetInfo) -> pool::Result<bool> {
    Ok(Plan::of(pool, info)?.is_some_and(|plan| plan.is_automatic()))
}

/// What `canmount` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CanMount {
    /// Never.
    Off,
    /// With all others.
    On,
    /// Only when asked for by name.
    NoAuto,
}

/// Mount plan of one file system, from its properties.
#[derive(Clone, Debug)]
pub struct Plan {
    pub dataset: String,
    pub target: Target,
    /// The mountpoint is inherited or the default.
    pub inherits: bool,
    pub can: CanMount,
    /// Whether it is mounted over the contents of the folder.
    pub overlay: bool,
    /// `target` was given to mount(8); the properties say otherwise.
    pub told: bool,
    /// The folder that mountpoints lie beneath, if it is not `/`.
    pub altroot: Option<String>,
    pub options: MountOptions,
}

impl Plan {
    /// Plan of a dataset; `None` if it is no file system or an unfinished receive. A snapshot is mounted only by mount(8),
    /// and read-only.
    ///
    /// # Errors
    /// Its properties cannot be read.
    pub fn of(pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<Plan>> {
        let is_snapshot = info.is_snapshot();
        if !is_snapshot && info.kind != DatasetKind::Filesystem || info.is_unfinished() {
            return Ok(None);
        }
        let number = |name: &str| -> pool::Result<u64> {
            let property = props::parse(name).expect("the table has it");
            Ok(match pool.property(info, property)? {
                Some((Value::Number(number), _)) => number,
                _ => 0,
            })
        };
        let mountpoint = props::parse("mountpoint").expect("the table has it");
        let (target, inherits) = match pool.property(info, mountpoint)? {
            _ if is_snapshot => (Target::Legacy, false),
            Some((Value::Text(path), source)) => {
                let target = match path.as_str() {
                    "legacy" => Target::Legacy,
                    path if path.starts_with('/') => Target::At(PathBuf::from(path)),
                    _ => Target::Nowhere,
                };
                (target, !matches!(source, Source::Local | Source::Received))
            }
            _ => (Target::Nowhere, true),
        };
        let can = match number("canmount")? {
            _ if is_snapshot => CanMount::NoAuto,
            0 => CanMount::Off,
            1 => CanMount::On,
            _ => CanMount::NoAuto,
        };
        let usual = MountOptions::default();
        let options = MountOptions {
            source: info.name.clone(),
            read_only: is_snapshot || number("readonly")? != 0 || pool.read_only().is_some(),
            exec: number("exec")? != 0,
            // Only root may have them honoured.
            setuid: usual.setuid && number("setuid")? != 0,
            devices: usual.devices && number("devices")? != 0,
            // The kernel gets the option, too, so that all users see it.
            atime: if number("atime")? == 0 { Atime::Off } else { Atime::Dataset },
            synchronous: number("sync")? == SyncMode::Always as u64,
            ..usual
        };
        let overlay = number("overlay")? != 0;
        let dataset = info.name.clone();
        let altroot = pool.altroot().map(str::to_owned);
        Ok(Some(Plan { dataset, target, inherits, can, overlay, told: false, altroot, options }))
    }

    /// The same file system at the place given to mount(8), which ignores `canmount`.
    #[must_use]
    pub fn at(self, point: &Path) -> Plan {
        let target = Target::At(point.to_path_buf());
        Plan { target, inherits: false, can: CanMount::On, overlay: true, told: true, ..self }
    }

    /// Whether `dataset` inherits the property `name` from `top`.
    ///
    /// # Errors
    /// Its properties cannot be read.
    pub fn follows(pool: &Pool, dataset: &str, top: &str, name: &str) -> pool::Result<bool> {
        let at_or_below =
            |name: &str| name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if dataset == top || !at_or_below(dataset) {
            return Ok(dataset == top);
        }
        let property = props::parse(name).expect("the caller names one");
        Ok(match pool.property(&pool.dataset(dataset)?, property)? {
            Some((_, Source::Local | Source::Received)) => false,
            // Set between the two, it stays.
            Some((_, Source::Inherited(from))) => from == top || !at_or_below(&from),
            _ => true,
        })
    }

    /// Whether it is mounted with all others.
    pub fn is_automatic(&self) -> bool {
        self.can == CanMount::On && matches!(self.target, Target::At(_))
    }
}

/// The mount that mount(8) asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The folder.
    pub point: PathBuf,
    /// On behalf of zfs(8) (`zfsutil`).
    pub by_zfs: bool,
}

/// Properties that a mount option can override.
pub(crate) const MOUNTED: [&str; 6] = ["readonly", "exec", "setuid", "devices", "atime", "xattr"];

/// Mount options from the command line. They override properties until the next mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `ro`, `rw`.
    pub read_only: Option<bool>,
    /// `exec`, `noexec`.
    pub exec: Option<bool>,
    /// `suid`, `nosuid`.
    pub setuid: Option<bool>,
    /// `dev`, `nodev`.
    pub devices: Option<bool>,
    /// `atime`, `noatime`.
    pub atime: Option<bool>,
    /// `noxattr`.
    pub no_xattr: bool,
}

impl Overrides {
    /// Removes options whose properties were changed meanwhile, because the later change wins.
    pub(crate) fn unless_changed(mut self, old: &MountOptions, new: &MountOptions) -> Overrides {
        for (given, changed) in [
            (&mut self.read_only, old.read_only != new.read_only),
            (&mut self.exec, old.exec != new.exec),
            (&mut self.setuid, old.setuid != new.setuid),
            (&mut self.devices, old.devices != new.devices),
            (&mut self.atime, old.atime != new.atime),
        ] {
            if changed {
                *given = None;
            }
        }
        self
    }

    /// Removes the options that belong to the property `name`, which was just set, perhaps to its old value.
    pub(crate) fn settle(&mut self, name: &str) {
        match name {
            "readonly" => self.read_only = None,
            "exec" => self.exec = None,
            "setuid" => self.setuid = None,
            "devices" => self.devices = None,
            "atime" => self.atime = None,
            "xattr" => self.no_xattr = false,
            _ => {}
        }
    }

    pub(crate) fn apply(self, options: &mut MountOptions) {
        options.lifts_read_only = options.read_only && self.read_only == Some(false);
        options.read_only = self.read_only.unwrap_or(options.read_only);
        options.exec = self.exec.unwrap_or(options.exec);
        options.setuid = self.setuid.unwrap_or(options.setuid);
        options.devices = self.devices.unwrap_or(options.devices);
        options.atime = match self.atime {
            Some(true) => Atime::On,
            Some(false) => Atime::Off,
            None => options.atime,
        };
        options.xattr &= !self.no_xattr;
    }
}

/// The place where this user can mount a file system for `wanted`: there, or in the folder for mounts of the runtime
/// directory.
pub fn place(wanted: &Path, runtime: &Runtime) -> PathBuf {
    let there = wanted.to_owned();
    if rustix::process::geteuid().is_root() || front::apart::ask(move || Ok(is_ours(&there))).unwrap_or(false)
    {
        return wanted.to_path_buf();
    }
    runtime.mounts().join(wanted.strip_prefix("/").unwrap_or(wanted))
}

/// Whether this user may mount there: on a folder of their own, or on one that they can make.
fn is_ours(wanted: &Path) -> bool {
    let mut path = wanted;
    loop {
        match std::fs::metadata(path) {
            Ok(metadata) if path == wanted => {
                return metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
            }
            Ok(metadata) => {
                return metadata.is_dir() && access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok();
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return false,
        }
        let Some(parent) = path.parent() else { return false };
        path = parent;
    }
}
