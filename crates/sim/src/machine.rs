//! The machine of a story: some scripted disks, and the habits of the pool on them.

use std::sync::Arc;

use format::crypt::{KeyFormat, Suite};
use format::features::{self, Feature};
use pool::props::Value;
use pool::{
    CreateSpec, Layout, LivelistRules, NewEncryption, NewFilesystem, NewTop, Options, OwnKey, Pool, UserKey,
    Wanted, WrappingKey,
};
use storage::allocator::Class;
use storage::host::{Disk, Host, Script, ScriptedDisk};
use zpl::Filesystem;

/// The pool of every story, and its file system.
pub(crate) const POOL: &str = "tank";
pub(crate) const DATASET: &str = "tank/fs";
/// When stories begin: a Tuesday in November 2023.
const START_SECS: u64 = 1_700_000_000;

/// The form of the user's key for an encrypted file system: 32 bytes.
const USER_KEY: UserKey = UserKey { format: KeyFormat::Raw, salt: 0, iterations: 0 };

fn user_key() -> WrappingKey {
    USER_KEY.wrapping(&[7; 32]).expect("a key of 32 bytes")
}

/// Disks and limits of a simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Number of disks for data.
    pub disks: usize,
    /// Number of further disks, each for intent logs.
    pub logs: usize,
    /// Number of consecutive disks that become one top-level vdev.
    pub width: usize,
    /// The layout of blocks on these disks.
    pub layout: Layout,
    /// Bytes of each disk.
    pub disk_bytes: u64,
    /// log2 of the sector size.
    pub ashift: u32,
    /// Threads that compress and checksum.
    pub workers: usize,
    /// Bytes of changes after which the story's calls sync by themselves.
    pub dirty_max: u64,
    /// Blocks of so many bytes or more are written in pieces.
    pub force_ganging: u64,
    /// Blocks of destroyed datasets that one txg frees.
    pub async_blocks: u64,
    /// The rules for new parts of livelists, and for dropping them.
    pub livelists: LivelistRules,
    /// Bytes of a vdev that is being removed that one txg copies.
    pub copied_at_once: u64,
    /// Entries of a mapping that is condensed, however short it is, that one txg looks at; 0: none is condensed.
    pub condensed_at_once: u64,
    /// Local properties of the file system, by name, as stored.
    pub properties: Vec<(&'static str, u64)>,
    /// The encryption of the file system.
    pub suite: Option<Suite>,
    /// Features that the pool has besides those of any new pool.
    pub features: Vec<&'static Feature>,
}

impl Default for Machine {
    /// One disk of 64 MiB with sectors of 512 bytes; records of 16 KiB, so that small files have several.
    fn default() -> Machine {
        Machine {
            disks: 1,
            logs: 0,
            width: 1,
            layout: Layout::Single,
            disk_bytes: 64 << 20,
            ashift: 9,
            workers: 1,
            dirty_max: 256 << 20,
            force_ganging: u64::MAX,
            async_blocks: 100_000,
            livelists: LivelistRules::default(),
            copied_at_once: 64 << 20,
            condensed_at_once: 0,
            properties: vec![("recordsize", 16 << 10)],
            suite: None,
            features: Vec::new(),
        }
    }
}

impl Machine {
    /// The default machine, whose pool lets files share blocks.
    #[must_use]
    pub fn cloning() -> Machine {
        Machine { features: vec![&features::BLOCK_CLONING], ..Machine::default() }
    }

    /// The default machine with `disks` disks.
    #[must_use]
    pub fn striped(disks: usize) -> Machine {
        Machine { disks, ..Machine::default() }
    }

    /// The default machine with one mirror of `sides` disks.
    #[must_use]
    pub fn mirrored(sides: usize) -> Machine {
        Machine { disks: sides, width: sides, layout: Layout::Mirror, ..Machine::default() }
    }

    /// The default machine with one raidz vdev of `width` disks, `parity` of which may be lost.
    #[must_use]
    pub fn raidz(parity: u8, width: usize) -> Machine {
        Machine { disks: width, width, layout: Layout::Raidz(parity), ..Machine::default() }
    }

    /// The default machine with an encrypted file system.
    #[must_use]
    pub fn encrypted(suite: Suite) -> Machine {
        Machine { suite: Some(suite), ..Machine::default() }
    }

    fn encryption(&self) -> NewEncryption {
        let Some(suite) = self.suite else { return NewEncryption::default() };
        let key = OwnKey { user_key: USER_KEY, key: user_key() };
        NewEncryption { wanted: Wanted::On(suite), own: Some(Arc::new(key)) }
    }

    pub(crate) fn options(&self, seed: u64) -> Options {
        Options {
            cache_bytes: 8 << 20,
            dirty_max: self.dirty_max,
            force_ganging: self.force_ganging,
            async_blocks: self.async_blocks,
            livelists: self.livelists,
            copied_at_once: self.copied_at_once,
            condense_min_mapping: if self.condensed_at_once > 0 { 0 } else { u64::MAX },
            condensed_at_once: self.condensed_at_once,
            workers: self.workers,
            io_threads: 0,
            stepwise: true,
            anonymous: true,
            host: Host::seeded(seed, START_SECS),
            ..Options::default()
        }
    }

    /// New disks with a new pool on them, whose file system is empty and synced.
    pub(crate) fn create(&self, seed: u64) -> pool::Result<(Script, Pool)> {
        let script = Script::new();
        for i in 0..self.disks + self.logs {
            let _ = script.disk(format!("/scripted/{i}"), self.disk_bytes);
        }
        let options = self.options(seed);
        let filesystem = NewFilesystem::plain(&options.host);
        let disks: Vec<_> = script.disks().into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
        let (data, logs) = disks.split_at(self.disks);
        let of_data = data.chunks(self.width).map(|disks| NewTop::new(self.layout, disks.to_vec()));
        let log = |disk: &Arc<dyn Disk>| NewTop {
            class: Class::Log,
            ..NewTop::new(Layout::Single, vec![disk.clone()])
        };
        let tops = of_data.chain(logs.iter().map(log)).collect();
        let plain = CreateSpec::new(POOL, Vec::new(), filesystem.clone(), zpl::initialiser());
        let features = plain.features.iter().chain(&self.features).copied().collect();
        let command = Some("zpool create tank".into());
        let spec = CreateSpec { ashift: Some(self.ashift), tops, command, features, ..plain };
        let pool = Pool::create(spec, options)?;
        let local = self.properties.iter().map(|&(name, value)| (name.to_owned(), Value::Number(value)));
        let filesystem = NewFilesystem { encryption: self.encryption(), ..filesystem };
        pool.create_filesystem(DATASET, local.collect(), filesystem, zpl::initialiser())?;
        Ok((script, pool))
    }

    /// The findings of a check on the pool as a crash left it.
    ///
    /// # Errors
    /// The error of the import or of the check.
    pub(crate) fn check_as_left(&self, disks: Vec<ScriptedDisk>, seed: u64) -> Result<Vec<String>, String> {
        let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
        let options = Options { read_only: true, ..self.options(seed) };
        let pool = Pool::import_disks(disks, options).map_err(|e| format!("import for reading: {e}"))?;
        let mut found = Vec::new();
        scan::check::check(&pool, &mut |finding| found.push(finding.to_string()))
            .map_err(|e| e.to_string())?;
        Ok(found)
    }

    /// Opens the pool on some disks, and its file system.
    ///
    /// # Errors
    /// The error of the import or of the file system.
    pub fn open(&self, disks: Vec<ScriptedDisk>, seed: u64) -> Result<(Pool, Filesystem), String> {
        let disks = disks.into_iter().map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
        let pool = Pool::import_disks(disks, self.options(seed)).map_err(|e| format!("import: {e}"))?;
        if self.suite.is_some() {
            let info = pool.dataset(DATASET).map_err(|e| format!("dataset: {e}"))?;
            pool.load_key(&info, user_key(), false).map_err(|e| format!("key: {e}"))?;
        }
        let dataset = pool.open(DATASET).map_err(|e| format!("dataset: {e}"))?;
        let fs = Filesystem::open(dataset).map_err(|e| format!("file system: {e}"))?;
        Ok((pool, fs))
    }
}
