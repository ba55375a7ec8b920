//! Values of dataset properties: checks when they are set, and display with their sources.
//!
//! From:   `property=value` words; open pools.
//! To:     `zfs create`, `set`, `get`, `list`, and `zpool create -O`.

use format::compression::CompressionSetting;
use format::features::{self, Feature};
use format::{ChecksumKind, Compression};
use pool::props::dataset::{self as props, Asked};
use pool::props::{
    BLOCK_MAX, BLOCK_MAX_PLAIN, DatasetKind, Property, PropertyError, Source, Value, names, number,
};
use pool::{DatasetInfo, Encryption, FeatureState, NewEncryption, NewFilesystem, Pool, Wanted};
use server::mountinfo::{Mounted, NOXATTR};

use super::dataset_value::{Refusal, Shown};
use super::key_words::{KeyWords, NewKey};
use super::owner_quota;
use crate::dates;

fn refuse<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Reason(text.into()))
}

/// Options of a new file system.
#[derive(Debug)]
pub struct Creation {
    /// Local properties, by name.
    pub local: Vec<(String, Value)>,
    /// The properties that are fixed for ever at its creation.
    pub filesystem: NewFilesystem,
    /// Quotas that it keeps itself, by name.
    pub quotas: Vec<(String, u64)>,
    /// The words of the command line about its encryption.
    pub key_words: KeyWords,
}

impl Creation {
    /// Checks its encryption below a file system that is encrypted like `above`. Returns the key to ask for.
    ///
    /// # Errors
    /// Why there can be no such file system.
    pub fn encrypt(
        &mut self,
        above: Option<&Encryption>,
        offered: &Offered<'_>,
    ) -> Result<Option<NewKey>, Refusal> {
        let words = std::mem::take(&mut self.key_words);
        let (encryption, key) = encrypt(words, &mut self.local, above, offered)?;
        self.filesystem.encryption = encryption;
        Ok(key)
    }
}

/// Judges how a new dataset with these local properties is to be encrypted, below a file system that is encrypted like `above`. Returns the
/// key that is to be asked for, too.
///
/// # Errors
/// Why there can be no such dataset.
pub fn encrypt(
    words: KeyWords,
    local: &mut Vec<(String, Value)>,
    above: Option<&Encryption>,
    offered: &Offered<'_>,
) -> Result<(NewEncryption, Option<NewKey>), Refusal> {
    let is_enabled = offered.needs(&features::ENCRYPTION).is_ok();
    let (encryption, key) = words.judge(above, is_enabled).or_else(refuse)?;
    let is_on = match encryption.wanted {
        Wanted::Inherit => above.is_some(),
        Wanted::Off => false,
        Wanted::On(_) => true,
    };
    if is_on && local.iter().any(|(name, value)| name == "copies" && *value == Value::Number(3)) {
        return refuse(THREE_COPIES);
    }
    if let Some(key) = &key {
        local.push(("keylocation".to_owned(), Value::Text(key.location().to_owned())));
    }
    Ok((encryption, key))
}

/// Why an encrypted dataset cannot have `copies=3`.
const THREE_COPIES: &str = "encrypted datasets cannot have 3 copies";

/// Makes the objects of a new file system, whose root directory belongs to its creator.
pub fn initialiser() -> pool::Initialise {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    zpl::initialiser_for([user.as_raw(), group.as_raw()])
}

/// Features and version of the file system's pool.
pub struct Offered<'a> {
    /// Version of the pool.
    pub version: u64,
    /// Which features it has enabled.
    pub enabled: Box<dyn Fn(&Feature) -> bool + 'a>,
}

impl Offered<'_> {
    fn needs(&self, feature: &Feature) -> Result<(), PropertyError> {
        if (self.enabled)(feature) { Ok(()) } else { Err(PropertyError::NeedsFeature) }
    }

    /// Refuses a value that pools have only from `version` on.
    fn needs_version(&self, version: u64) -> Result<(), PropertyError> {
        if self.version >= version { Ok(()) } else { Err(PropertyError::NeedsFeature) }
    }
}

/// The values that the assignments of a new file system give.
#[derive(Default)]
struct Given {
    local: Vec<(String, Value)>,
    quotas: Vec<(String, u64)>,
    /// `casesensitivity`, `normalization`, `utf8only`.
    fixed: [Option<u64>; 3],
    version: Option<u64>,
    key_words: KeyWords,
}

/// Reads the assignments of a new file system or volume, in their order.
fn given(assignments: &[(&str, &str)], kind: DatasetKind, offered: &Offered<'_>) -> Result<Given, Refusal> {
    let mut given = Given::default();
    for &(word, text) in assignments {
        let Some(property) = props::parse(word) else {
            if let Some(quota) = owner_quota::parse(word, text, kind)? {
                given.quotas.push((word.to_owned(), quota));
                continue;
            }
            names::check_user_property(word, text)?;
            given.local.push((word.to_owned(), Value::Text(text.to_owned())));
            continue;
        };
        property.check_settable(kind, true)?;
        let value = property.parse_value(text)?;
        check_value(property, &value, kind, offered)?;
        match (property.name, &value) {
            ("casesensitivity", Value::Number(n)) => given.fixed[0] = Some(*n),
            ("normalization", Value::Number(n)) => given.fixed[1] = Some(*n),
            ("utf8only", Value::Number(n)) => given.fixed[2] = Some(*n),
            (name, Value::Number(n)) if owner_quota::is_default(name) => {
                given.quotas.push((name.to_owned(), *n))
            }
            ("version", Value::Number(n)) => {
                offered.needs_version(pool::version::oldest_pool(*n))?;
                given.version = Some(*n);
            }
            ("version", _) => {}
            (name, value) if given.key_words.take(name, value) => {}
            _ => given.local.push((property.name.to_owned(), value)),
        }
    }
    Ok(given)
}

/// Reads the properties of a new file system. It inherits from `parent`; `offered` are the features of the pool.
///
/// # Errors
/// The first that is refused, in the order given.
pub fn creation(
    assignments: &[(&str, &str)],
    parent: Option<(&Pool, &DatasetInfo)>,
    offered: &Offered<'_>,
) -> Result<Creation, Refusal> {
    let Given { local, quotas, fixed, version, key_words } =
        given(assignments, DatasetKind::Filesystem, offered)?;
    let version = version.unwrap_or(pool::version::newest_filesystem(offered.version));
    check_names_known(version, &fixed, &quotas)?;
    // Children of a file system have their names judged as it does, unless told otherwise.
    let inherited = |name: &str| -> u64 {
        let property = props::parse(name).expect("the table has it");
        match parent.and_then(|(pool, info)| pool.property(info, property).ok().flatten()) {
            Some((Value::Number(n), _)) => n,
            _ => 0,
        }
    };
    let normalization = fixed[1].unwrap_or_else(|| inherited("normalization"));
    let utf8only = match (fixed[1], fixed[2]) {
        (Some(form), Some(0)) if form != 0 => return Err(PropertyError::Utf8Only.into()),
        // A normalization, also an inherited one, works on UTF-8 names only.
        _ if normalization != 0 => true,
        (_, Some(flag)) => flag != 0,
        _ => inherited("utf8only") != 0,
    };
    let filesystem = NewFilesystem {
        host: parent.map_or_else(storage::host::Host::system, |(pool, _)| pool.host().clone()),
        normalization,
        utf8only,
        casesensitivity: fixed[0].unwrap_or_else(|| inherited("casesensitivity")),
        project_quota: (offered.enabled)(&features::PROJECT_QUOTA),
        version,
        encryption: Default::default(),
    };
    Ok(Creation { local, filesystem, quotas, key_words })
}

/// The local properties of a new dataset of this kind, by name, with those that are fixed for ever at its creation, and what is said about
/// its encryption.
///
/// # Errors
/// The first that is refused, in the order given.
pub fn local_values(
    assignments: &[(&str, &str)],
    kind: DatasetKind,
    offered: &Offered<'_>,
) -> Result<(Vec<(String, Value)>, KeyWords), Refusal> {
    let Given { local, key_words, .. } = given(assignments, kind, offered)?;
    Ok((local, key_words))
}

/// `aclinherit=passthrough-x`, as stored.
const PASSTHROUGH_X: u64 = 5;

/// Checks the rules for a value that hold on any file system or volume of a pool with these features.
fn check_value(
    property: &'static Property,
    value: &Value,
    kind: DatasetKind,
    offered: &Offered<'_>,
) -> Result<(), Refusal> {
    let needs = |feature: &Feature| offered.needs(feature);
    let Value::Number(number) = *value else { return Ok(()) };
    match property.name {
        "recordsize" | "volblocksize" => {
            let max = if (offered.enabled)(&features::LARGE_BLOCKS) { BLOCK_MAX } else { BLOCK_MAX_PLAIN };
            property.check_block_size(number, max)?;
        }
        "compression" => match CompressionSetting::from_property(number).map(|setting| setting.algorithm) {
            Ok(Compression::Zstd) => needs(&features::ZSTD_COMPRESS)?,
            Ok(Compression::Lz4) => needs(&features::LZ4_COMPRESS)?,
            Ok(Compression::Gzip(_)) => offered.needs_version(5)?,
            Ok(Compression::Zle) => offered.needs_version(20)?,
            _ => {}
        },
        "dedup" if offered.version < 21 => offered.needs_version(21)?,
        "copies" => offered.needs_version(2)?,
        "refquota" => offered.needs_version(9)?,
        "refreservation" if offered.version < 9 => offered.needs_version(9)?,
        "aclinherit" if number == PASSTHROUGH_X => offered.needs_version(14)?,
        "checksum" | "dedup" => match ChecksumKind::from_disk(number & 0xff) {
            Ok(ChecksumKind::Sha512) => needs(&features::SHA512)?,
            Ok(ChecksumKind::Skein) => needs(&features::SKEIN)?,
            Ok(ChecksumKind::Edonr) => needs(&features::EDONR)?,
            Ok(ChecksumKind::Blake3) => needs(&features::BLAKE3)?,
            _ => {}
        },
        "dnodesize" if number != 0 => needs(&features::LARGE_DNODE)?,
        "longname" if number != 0 => needs(&features::LONGNAME)?,
        "filesystem_limit" | "snapshot_limit" => needs(&features::FILESYSTEM_LIMITS)?,
        "refreservation" if number == pool::props::AUTO && kind != DatasetKind::Volume => {
            return Err(PropertyError::AutoOnlyOnVolumes { name: property.name }.into());
        }
        _ => {}
    }
    Ok(())
}

/// Refuses rules for names in file systems before version 3, and quotas of owners in those before version 4.
fn check_names_known(version: u64, rules: &[Option<u64>], quotas: &[(String, u64)]) -> Result<(), Refusal> {
    if version < 3 && rules.iter().any(Option::is_some) || version < 4 && !quotas.is_empty() {
        return Err(PropertyError::NeedsFeature.into());
    }
    Ok(())
}

/// The features that a pool offers its file systems.
pub fn enabled_in(pool: &Pool) -> Offered<'static> {
    let info = pool.info();
    let version = info.config.version;
    Offered { version, enabled: Box::new(move |feature| info.feature(feature) != FeatureState::Disabled) }
}

/// The version of a file system.
fn version_of(pool: &Pool, info: &DatasetInfo) -> u64 {
    let property = props::parse("version").expect("the table has it");
    match pool.property(info, property) {
        Ok(Some((Value::Number(version), _))) => version,
        _ => 5,
    }
}

/// Reads one assignment for an existing dataset. Returns the name and the value to store; `None` when the value is the
/// fixed one that the dataset has already.
///
/// # Errors
/// Why it is refused.
pub fn change(
    pool: &Pool,
    info: &DatasetInfo,
    word: &str,
    text: &str,
) -> Result<Option<(String, Option<Value>)>, Refusal> {
    let Some(property) = props::parse(word) else {
        if let Some(quota) = owner_quota::parse(word, text, info.kind)? {
            if version_of(pool, info) < 4 {
                return Err(PropertyError::NeedsFeature.into());
            }
            return Ok(Some((word.to_owned(), Some(Value::Number(quota)))));
        }
        names::check_user_property(word, text)?;
        return Ok(Some((word.to_owned(), Some(Value::Text(text.to_owned())))));
    };
    property.check_settable(info.kind, false)?;
    let value = property.parse_value(text)?;
    check_value(property, &value, info.kind, &enabled_in(pool))?;
    match (property.name, &value) {
        ("version", Value::Number(n)) => {
            let at = version_of(pool, info);
            if *n < at {
                return Err(PropertyError::Downgrade { at }.into());
            }
            enabled_in(pool).needs_version(pool::version::oldest_pool(*n))?;
            Ok((*n > at).then(|| (property.name.to_owned(), Some(value))))
        }
        ("version", _) => Ok(None),
        ("keylocation", Value::Text(text)) => {
            check_keylocation(pool, info, text)?;
            Ok((text != "none").then(|| (property.name.to_owned(), Some(value))))
        }
        ("copies", Value::Number(3)) if pool.is_encrypted(info).unwrap_or(false) => refuse(THREE_COPIES),
        ("keylocation", _) => Ok(None),
        _ => Ok(Some((property.name.to_owned(), Some(value)))),
    }
}

/// Whether an existing dataset can have this `keylocation`.
fn check_keylocation(pool: &Pool, info: &DatasetInfo, text: &str) -> Result<(), Refusal> {
    let encryption = pool.encryption(info).map_err(|error| Refusal::Reason(error.to_string()))?;
    match encryption {
        None if text != "none" => refuse("keylocation must be 'none' for unencrypted datasets"),
        None => Ok(()),
        Some(_) if text == "none" => refuse("keylocation must not be 'none' for encrypted datasets"),
        Some(encryption) if encryption.root != info.name => {
            refuse("keylocation may only be set on encryption roots")
        }
        Some(_) => Ok(()),
    }
}

/// Whether mount options affect the value of `asked`.
pub fn depends_on_mount(asked: &Asked) -> bool {
    matches!(asked, Asked::Native(property) if property.name == "mounted" || denial(property).is_some())
}

/// The mount option that denies the right that a property is about, and the value of the property then.
fn denial(property: &Property) -> Option<(&'static str, u64)> {
    Some(match property.name {
        "readonly" => ("ro", 1),
        "exec" => ("noexec", 0),
        "setuid" => ("nosuid", 0),
        "devices" => ("nodev", 0),
        "atime" => ("noatime", 0),
        "xattr" => (NOXATTR, 0),
        _ => return None,
    })
}

/// Value of a property in the mount; `None` if mount options do not affect it.
fn as_mounted(property: &Property, mount: &Mounted) -> Option<Value> {
    let (option, denied) = denial(property)?;
    // With attributes, how they are stored is up to the property.
    let has_say = option != NOXATTR || mount.denied.contains(&option);
    has_say.then(|| Value::Number(if mount.denied.contains(&option) { denied } else { 1 - denied }))
}

/// The value that a word asks for, of a dataset; `mount` is how it is mounted, if it is.
///
/// # Errors
/// If the pool cannot be read.
pub fn show(
    pool: &Pool,
    info: &DatasetInfo,
    asked: &Asked,
    raw: bool,
    mount: Option<&Mounted>,
) -> pool::Result<Shown> {
    Ok(match asked {
        // The kernel knows, not the pool.
        Asked::Native(property) if property.name == "mounted" && info.kind == DatasetKind::Filesystem => {
            Shown::text(if mount.is_some() { "yes" } else { "no" }.to_owned(), Source::None)
        }
        Asked::Native(property) => match pool.property(info, property)? {
            Some((value, source)) => {
                let (value, source) = match mount.and_then(|mount| as_mounted(property, mount)) {
                    Some(mounted) if mounted != value => (mounted, Source::Temporary),
                    _ => (value, source),
                };
                // These values are stored in the file system itself, without their source.
                let source = if owner_quota::is_default(property.name) { Source::None } else { source };
                let human = dates::value(property, &value, false);
                let text = if raw { dates::value(property, &value, true) } else { human.clone() };
                Shown { text, human, value: Some(value), source }
            }
            None => Shown::absent(),
        },
        Asked::User(name) => match pool.user_property(info, name)? {
            Some((text, source)) => Shown::text(text, source),
            None => Shown::absent(),
        },
        Asked::Account(account) => owner_quota::show(pool, info, account, raw)?,
        Asked::WrittenSince(snapshot) => match pool.written_since(info, snapshot)? {
            Some(bytes) => {
                let human = number::nice_bytes(bytes);
                let text = if raw { bytes.to_string() } else { human.clone() };
                Shown { text, human, value: Some(Value::Number(bytes)), source: Source::Local }
            }
            None => Shown::absent(),
        },
    })
}
