//! The place of a trial's dataset: a temporary pool, or a pool of the user.
//!
//! A temporary pool is a sparse file without a name, so nothing can be left behind, however the process ends.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::features::{self, ZSTD_COMPRESS};
use pool::props::{BLOCK_MAX, Value};
use pool::{CreateSpec, FeatureState, Found, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, FileDisk, Host};

use crate::error::{is_full, system_reason};
use crate::plan::{property, setting};
use crate::throttle::Throttled;
use crate::{Configuration, Device, Error, Place, Plan, Result, Source, machine};

/// Room for the data that a pool writes besides the files.
const SLACK: u64 = 256 << 20;
/// The source times this is room for what an application makes of it; it takes space only as it is written.
const FOR_STEPS: u64 = 16;
/// The space that the same takes on the disk, since the rest stays sparse.
const SLACK_ON_DISK: u64 = 64 << 20;
/// 4 KiB sectors, as most disks have today.
const ASHIFT: u32 = 12;
const TEMPORARY_POOL: &str = "bench";
/// How datasets in a pool of the user are called, with the number of the process behind it.
const PREFIX: &str = "cenote-bench-";
/// The property that marks this program's datasets in a pool of the user.
const MARK: &str = "org.cenote:bench";
/// The snapshot of a dataset as a step finds it.
const BEFORE: &str = "before-step";

pub(crate) enum Target<'a> {
    /// A pool of its own.
    Image {
        /// Keeps the nameless file alive.
        _file: File,
        /// Leads to it while it is open.
        path: PathBuf,
        /// Where it takes space.
        folder: &'a Path,
        /// The rates to which the image is held.
        device: Device,
    },
    /// A dataset of its own.
    Dataset { found: &'a Found, pool: &'a str, dataset: String },
}

impl<'a> Target<'a> {
    /// A place for a dataset with all of `source`.
    ///
    /// # Errors
    /// [`Error::Temporary`].
    pub(crate) fn new(place: &'a Place, footprint: u64, plan: &Plan) -> Result<Target<'a>> {
        match place {
            Place::Folder(folder) => {
                let more = if plan.application.is_some() {
                    footprint.max(SLACK).saturating_mul(FOR_STEPS)
                } else {
                    0
                };
                let size = footprint.saturating_mul(2).saturating_add(SLACK).saturating_add(more);
                let size = size.next_multiple_of(1 << 20);
                let file = tempfile::tempfile_in(folder).and_then(|file| file.set_len(size).map(|()| file));
                let file = file.map_err(|source| Error::Temporary {
                    folder: folder.clone(),
                    source: system_reason(source),
                })?;
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                Ok(Target::Image { _file: file, path, folder, device: plan.device })
            }
            Place::Pool { found, name } => {
                let dataset = format!("{name}/{PREFIX}{}", std::process::id());
                Ok(Target::Dataset { found, pool: name, dataset })
            }
        }
    }

    /// The dataset's full name.
    pub(crate) fn dataset(&self) -> String {
        match self {
            Target::Image { .. } => format!("{TEMPORARY_POOL}/data"),
            Target::Dataset { dataset, .. } => dataset.clone(),
        }
    }

    /// Opens the pool with a new dataset in it.
    ///
    /// # Errors
    /// The pool cannot be made or opened, or cannot do what is asked of it.
    pub(crate) fn create(&self, configuration: &Configuration, options: Options) -> Result<Pool> {
        let failed = |source| self.failed("write to", configuration, source);
        let host = options.host.clone();
        let pool = match self {
            Target::Image { path, .. } => {
                Pool::create(spec(self.disk(path, configuration)?, &host), options).map_err(failed)?
            }
            Target::Dataset { .. } => self.open(configuration, options)?,
        };
        let mut local = setting(&configuration.compression)?;
        if let Target::Dataset { pool: name, .. } = self {
            fit(&pool, name, configuration)?;
            clear_left(&pool, name).map_err(failed)?;
            local.push((MARK.to_owned(), Value::Text("temporary".to_owned())));
        }
        local.push(("recordsize".to_owned(), Value::Number(configuration.recordsize)));
        // In a pool of the user nothing may come into view, nor inherit what would change the figures.
        for (name, value) in [
            ("canmount", "off"),
            ("mountpoint", "none"),
            ("checksum", "on"),
            ("copies", "1"),
            ("primarycache", "all"),
        ] {
            let value = property(name).parse_value(value).expect("these are values of these properties");
            local.push((name.to_owned(), value));
        }
        let created =
            pool.create_filesystem(&self.dataset(), local, NewFilesystem::plain(&host), zpl::initialiser());
        created.map_err(failed).map(|()| pool)
    }

    /// Opens the pool again.
    ///
    /// # Errors
    /// The pool cannot be opened.
    pub(crate) fn open(&self, configuration: &Configuration, options: Options) -> Result<Pool> {
        let opened = match self {
            Target::Image { path, .. } => Pool::import_disks(vec![self.disk(path, configuration)?], options),
            Target::Dataset { found, pool, .. } => {
                let new_name = (found.config.name != *pool).then(|| (*pool).to_owned());
                Pool::import(found, Options { new_name, ..options })
            }
        };
        opened.map_err(|source| self.failed("open", configuration, source))
    }

    /// Makes the next reads of the closed pool come from its devices.
    pub(crate) fn drop_caches(&self) {
        let drop_cache = |path: &Path| {
            if let Ok(disk) = FileDisk::open(path, Access::Peek) {
                disk.drop_cache();
            }
        };
        match self {
            Target::Image { path, .. } => drop_cache(path),
            Target::Dataset { found, .. } => found.devices.values().for_each(|path| drop_cache(path)),
        }
    }

    /// Removes the dataset from a pool of the user, in which it may or may not be.
    ///
    /// # Errors
    /// [`Error::LeftBehind`].
    pub(crate) fn remove(&self, configuration: &Configuration) -> Result<()> {
        let Target::Dataset { dataset, .. } = self else { return Ok(()) };
        let left_behind = |source: Box<dyn std::error::Error + Send + Sync>| Error::LeftBehind {
            dataset: dataset.clone(),
            source,
        };
        let pool = self.open(configuration, Options::default()).map_err(|error| left_behind(error.into()))?;
        match destroy(&pool, dataset) {
            Ok(()) | Err(pool::Error::NoDataset(_)) => {
                pool.export().map_err(|error| left_behind(error.into()))
            }
            Err(error) => Err(left_behind(error.into())),
        }
    }

    /// Remembers the dataset as it is, for [`Target::go_back`].
    pub(crate) fn remember(&self, pool: &Pool) -> pool::Result<()> {
        pool.snapshot(&[self.before()], &[])
    }

    /// Rolls the dataset back to its remembered state. It must not be open.
    pub(crate) fn go_back(&self, pool: &Pool) -> pool::Result<()> {
        pool.rollback(&self.before())
    }

    /// Drops what was remembered.
    pub(crate) fn forget(&self, pool: &Pool) -> pool::Result<()> {
        pool.destroy_snapshots(&[self.before()], false)
    }

    fn before(&self) -> String {
        format!("{}@{BEFORE}", self.dataset())
    }

    fn device(&self) -> Device {
        match self {
            Target::Image { device, .. } => *device,
            Target::Dataset { .. } => Device::default(),
        }
    }

    fn disk(&self, path: &Path, configuration: &Configuration) -> Result<Arc<dyn Disk>> {
        match pool::open_disk(path, Access::ReadWrite { exclusive: true }) {
            Ok(disk) => Ok(Throttled::over(Arc::new(disk), self.device())),
            Err(source) => Err(self.failed("open", configuration, source)),
        }
    }

    /// An error of the pool while `doing` something with it.
    pub(crate) fn failed(&self, doing: &str, configuration: &Configuration, source: pool::Error) -> Error {
        if is_full(&source) {
            return self.full(configuration);
        }
        let what = match self {
            Target::Image { .. } => "the temporary pool".to_owned(),
            Target::Dataset { pool, .. } => format!("'{pool}'"),
        };
        let (doing, configuration) = (format!("{doing} {what}"), configuration.to_string());
        Error::Pool { doing, configuration, source: source.into() }
    }

    /// An error of the file system while `doing` something with a file of the source.
    pub(crate) fn failed_at(
        &self,
        doing: String,
        configuration: &Configuration,
        source: zpl::Error,
    ) -> Error {
        match source {
            zpl::Error::NoSpace | zpl::Error::Quota => self.full(configuration),
            zpl::Error::Pool(source) if is_full(&source) => self.full(configuration),
            source => {
                Error::Filesystem { doing, configuration: configuration.to_string(), source: source.into() }
            }
        }
    }

    fn full(&self, configuration: &Configuration) -> Error {
        let place = match self {
            Target::Image { folder, .. } => folder.display().to_string(),
            Target::Dataset { pool, .. } => (*pool).to_owned(),
        };
        Error::Full { place, configuration: configuration.to_string() }
    }
}

impl Place {
    /// Whether there is room for all of `source` in any of `recordsizes`, uncompressed.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; [`Error::Temporary`]; the pool cannot be opened.
    pub(crate) fn check_room(&self, source: &Source, configurations: &[Configuration]) -> Result<()> {
        let footprints = configurations.iter().map(|c| source.footprint(c.recordsize));
        let needed = footprints.max().unwrap_or(0).saturating_add(SLACK_ON_DISK);
        let (place, free) = match self {
            Place::Folder(folder) => {
                let stat = rustix::fs::statvfs(folder);
                let stat =
                    stat.map_err(|errno| Error::Temporary { folder: folder.clone(), source: errno.into() })?;
                (folder.display().to_string(), stat.f_bavail.saturating_mul(stat.f_frsize))
            }
            Place::Pool { name, .. } => {
                let first = configurations.first().expect("a plan has configurations");
                let target = Target::new(self, 0, &Plan::usual())?;
                let pool = target.open(first, Options { read_only: true, ..Options::default() })?;
                let failed = |source| target.failed("read", first, source);
                let info = pool.dataset(name).map_err(failed)?;
                let available = match pool.property(&info, property("available")).map_err(failed)? {
                    Some((Value::Number(bytes), _)) => bytes,
                    _ => 0,
                };
                (name.clone(), available)
            }
        };
        if needed > free { Err(Error::NoRoom { place, needed, free }) } else { Ok(()) }
    }

    /// Whether a temporary pool can lie there, if it is a folder.
    ///
    /// # Errors
    /// [`Error::Temporary`].
    pub(crate) fn check_writable(&self) -> Result<()> {
        let Place::Folder(folder) = self else { return Ok(()) };
        let failed = |source| Error::Temporary { folder: folder.clone(), source: system_reason(source) };
        tempfile::tempfile_in(folder).map(drop).map_err(failed)
    }

    /// The disk or file system under the datasets, in words.
    pub(crate) fn backing(&self) -> String {
        match self {
            Place::Folder(folder) => {
                format!(
                    "file with ashift {ASHIFT} in '{}', {}",
                    folder.display(),
                    machine::file_system(folder)
                )
            }
            Place::Pool { found, name } => {
                let devices: Vec<_> = found.devices.values().map(|path| path.display().to_string()).collect();
                let under = match found.devices.values().next() {
                    Some(first) if first.is_file() => format!(", {}", machine::file_system(first)),
                    _ => String::new(),
                };
                format!("pool '{name}' on {}{under}", devices.join(", "))
            }
        }
    }
}

/// Removes the datasets that killed measurements left in a pool of the user. No other process has the pool open now.
fn clear_left(pool: &Pool, name: &str) -> pool::Result<()> {
    let ours = format!("{name}/{PREFIX}");
    for info in pool.list(name, Some(1), false)?.iter().filter(|info| info.name.starts_with(&ours)) {
        if pool.user_property(info, MARK)?.is_some() {
            destroy(pool, &info.name)?;
        }
    }
    Ok(())
}

/// Destroys a dataset of a measurement and its snapshots.
fn destroy(pool: &Pool, dataset: &str) -> pool::Result<()> {
    match pool.destroy_snapshots(&[format!("{dataset}@{BEFORE}")], false) {
        Ok(()) | Err(pool::Error::NoDataset(_)) => pool.destroy_dataset(dataset),
        failed => failed,
    }
}

/// Whether a pool of the user supports what the measurement needs.
fn fit(pool: &Pool, name: &str, configuration: &Configuration) -> Result<()> {
    let unfit = |reason| Err(Error::Unfit { pool: name.to_owned(), reason });
    if let Some(reason) = pool.read_only() {
        return unfit(reason);
    }
    let has = |feature| pool.info().feature(feature) != FeatureState::Disabled;
    if configuration.compression.starts_with("zstd") && !has(&ZSTD_COMPRESS) {
        return unfit(format!("compression={} needs the feature zstd_compress", configuration.compression));
    }
    let max = if has(&features::LARGE_BLOCKS) { BLOCK_MAX } else { pool::props::BLOCK_MAX_PLAIN };
    if configuration.recordsize > max {
        return unfit(format!("recordsize={} needs the feature large_blocks", configuration.recordsize));
    }
    Ok(())
}

fn spec(disk: Arc<dyn Disk>, host: &Host) -> CreateSpec {
    CreateSpec {
        ashift: Some(ASHIFT),
        ..CreateSpec::new(TEMPORARY_POOL, vec![disk], NewFilesystem::plain(host), zpl::initialiser())
    }
}
