//! `cenote mkfs`: a pool image from a folder.
//!
//! From:   a folder, properties, and `SOURCE_DATE_EPOCH`, with which the same folder gives the same image.
//! To:     a file that holds a pool with one file system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::features::{self, Feature};
use format::label;
use pool::props::dataset::Asked;
use pool::props::names;
use pool::{CreateSpec, Options, Pool};
use serde_json::json;
use storage::host::{Access, Host};
use zpl::{FileKind, Filesystem, Time};

use super::Mkfs;
use super::copy::{Engine, Local, Node, Policy, Progress, Root, ToPool};
use super::unnamed::Unnamed;
use crate::args::{Assignments, assignment};
use crate::compat::dataset_values::{self, Creation};
use crate::compat::owner_quota;
use crate::files::pools::Kernel;
use crate::messages::{Failure, io_words};
use crate::out::{Console, counted};
use crate::stop::Stop;

/// Sectors of 4096 bytes, whatever the disk below: the image is made for others.
const ASHIFT: u32 = 12;
/// Bytes of changes collected before they are written. Fixed: the image follows from it.
const DIRTY_MAX: u64 = 256 << 20;
/// Space for each file or folder besides its contents: its dnode in two copies, its name, its attributes.
const PER_FILE: u64 = 4 << 10;
/// Space for the pool's own objects and for two txgs of them.
const OVERHEAD: u64 = 16 << 20;
/// Sizes of images are multiples of this.
const GRAIN: u64 = 1 << 20;
/// Reserve that keeps a full pool usable: a 32nd of the pool, at least this much, at most half of the pool.
const SLOP_MIN: u64 = 128 << 20;

/// Carries out `mkfs`. Returns the exit status.
///
/// # Errors
/// There is no image then.
pub fn run(mkfs: &Mkfs, console: &mut Console) -> Result<u8, Failure> {
    let image = mkfs.image.display().to_string();
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot make '{image}': {why}"));
    let stop = Stop::on_signals().map_err(|error| failed(&error))?;
    let epoch = epoch()?;
    let name = pool_name(mkfs)?;
    let Creation { local, mut filesystem, quotas, .. } = creation(mkfs)?;
    if !mkfs.dir.is_dir() {
        return Err(Failure::refused(format!("'{}' is not a folder", mkfs.dir.display())));
    }
    if lies_in(&mkfs.image, &mkfs.dir) {
        return Err(failed(&"it would be a file in the folder that it is made from"));
    }
    let size = match mkfs.size {
        Some(size) => size,
        None => size_to_fit(folder(&mkfs.dir).map_err(|error| failed(&io_words(&error)))?),
    };
    if size < label::MIN_DEVICE {
        return Err(failed(&"an image has at least 64M"));
    }
    let host = match epoch {
        Some(epoch) => Host::reproducible(seed(&name, epoch), epoch),
        None => Host::system(),
    };
    let options = Options {
        host: host.clone(),
        stepwise: epoch.is_some(),
        anonymous: epoch.is_some(),
        dirty_max: if epoch.is_some() { DIRTY_MAX } else { Options::default().dirty_max },
        ..Options::default()
    };
    filesystem.host = host;
    let unnamed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => failed(&"it exists already").hint("remove it first"),
        _ => failed(&io_words(&error)),
    };
    let unfinished = Unnamed::new(&mkfs.image).map_err(unnamed)?;
    unfinished.file().set_len(size).map_err(|error| failed(&io_words(&error)))?;
    {
        let disk = pool::open_disk(&unfinished.place(), Access::ReadWrite { exclusive: true })
            .map_err(|error| failed(&error))?
            .called(&mkfs.image);
        let spec = CreateSpec {
            ashift: Some(ASHIFT),
            root_properties: local,
            command: epoch.is_none().then(|| format!("cenote mkfs {image}")),
            ..CreateSpec::new(name.clone(), vec![Arc::new(disk)], filesystem, zpl::initialiser())
        };
        let pool = Pool::create(spec, options).map_err(|error| failed(&error))?;
        owner_quota::apply(&pool, &name, &quotas).map_err(|error| failed(&error))?;
        fill(mkfs, &pool, epoch, (&stop, mkfs.json || console.is_quiet())).map_err(|why| failed(&why))?;
        pool.export().map_err(|error| failed(&error))?;
    }
    if stop.asked() {
        console.remark(&format!("stopped: '{image}' was not made"));
        return Ok(stop.status());
    }
    unfinished.give().map_err(unnamed)?;
    let taken = std::fs::metadata(&mkfs.image).map_or(0, |data| data.blocks() * 512);
    if mkfs.json {
        let made = json!({ "schema": 1, "image": image, "pool": name, "size": size, "used": taken });
        console.line(&made.to_string())?;
    } else {
        let nice = pool::props::number::nice_bytes;
        console.note(&format!("'{image}': pool '{name}', {} with {} in use", nice(size), nice(taken)));
    }
    Ok(0)
}

/// The file system that the options ask for.
fn creation(mkfs: &Mkfs) -> Result<Creation, Failure> {
    let image = mkfs.image.display();
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot make '{image}': {why}"));
    let mut given = Assignments::default();
    for text in &mkfs.options {
        let (word, value) = assignment(text)?;
        let property = pool::props::dataset::parse(word).map(|property| property.name);
        let is_account = matches!(pool::props::dataset::ask(word), Some(Asked::Account(_)));
        if property.is_none() && !is_account && !names::is_user_property(word) {
            let failure = failed(&format!("'{word}' is no property of file systems"));
            let all = pool::props::dataset::VISIBLE.iter().map(|property| property.name);
            return Err(match crate::suggest::nearest(word, all) {
                Some(near) => failure.hint(format!("did you mean '{near}'?")),
                None => failure,
            });
        }
        given.add(property.unwrap_or(word), value)?;
    }
    let has = |feature: &Feature| features::of_new_pools().any(|other| other.name == feature.name);
    let version = format::config::VERSION_FEATURES;
    let offered = dataset_values::Offered { version, enabled: Box::new(has) };
    let words: Vec<(&str, &str)> = given.iter().collect();
    let made = dataset_values::creation(&words, None, &offered).map_err(|error| failed(&error))?;
    match made.key_words.ask_for_something() {
        true => Err(failed(&"encryption is not supported yet")),
        false => Ok(made),
    }
}

/// Whether `image`, which need not exist, is or will be in `folder` or below it.
fn lies_in(image: &Path, folder: &Path) -> bool {
    let above = image.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(above), std::fs::canonicalize(folder)) {
        (Ok(above), Ok(folder)) => above.starts_with(folder),
        _ => false,
    }
}

/// Copies the folder into the root file system.
fn fill(mkfs: &Mkfs, pool: &Pool, epoch: Option<u64>, (stop, is_quiet): (&Stop, bool)) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let dataset = pool.open(&pool.name()).map_err(|error| text(&error))?;
    let fs = Filesystem::open(dataset).map_err(|error| text(&error))?;
    let progress = Progress::new(is_quiet, None);
    let policy = Policy {
        preserve: true,
        umask: 0,
        latest: epoch.map(|secs| Time { secs: secs.min(i64::MAX as u64) as i64, nanos: 0 }),
        resume: false,
    };
    let sink = ToPool::new(fs.clone(), (0, 0), None, Kernel::default(), false).naming_first();
    let dir = sink.dir(fs.root());
    let workers = match epoch {
        Some(_) => 0,
        None => 2 * std::thread::available_parallelism().map_or(1, usize::from),
    };
    let root = Root { node: folder(&mkfs.dir).map_err(|error| io_words(&error))?, dir, name: Vec::new() };
    Engine::new(&sink, policy, &progress, stop, workers).run(vec![root]);
    progress.settle();
    match progress.errors.load(Ordering::Relaxed) {
        0 => Ok(()),
        n => Err(format!("{} could not be copied into it", counted(n, "file"))),
    }
}

/// `SOURCE_DATE_EPOCH`, seconds since 1970.
fn epoch() -> Result<Option<u64>, Failure> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let secs = text.to_str().and_then(|text| text.parse().ok());
    let wrong = || Failure::refused(format!("SOURCE_DATE_EPOCH is no number: '{}'", text.to_string_lossy()));
    secs.map(Some).ok_or_else(wrong)
}

/// The name of the pool: the given name, else the name of the folder, without characters that pool names cannot have.
/// It is not the name of the image: the same folder gives the same image, wherever it is written.
fn pool_name(mkfs: &Mkfs) -> Result<String, Failure> {
    let check = |name: &str| names::check_pool(name, true);
    if let Some(name) = &mkfs.name {
        return match check(name) {
            Ok(()) => Ok(name.clone()),
            Err(error) => Err(Failure::refused(format!("cannot call a pool '{name}': {error}"))),
        };
    }
    let dir = std::fs::canonicalize(&mkfs.dir).unwrap_or_default();
    let name: String = dir
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .take(200)
        .collect();
    Ok(if check(&name).is_ok() { name } else { "image".to_owned() })
}

/// Randomness of a reproducible image: follows from its name and its moment (FNV-1a).
fn seed(name: &str, epoch: u64) -> u64 {
    let bytes = name.as_bytes().iter().copied().chain(epoch.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// The folder that the image is made from.
fn folder(path: &Path) -> std::io::Result<Node> {
    Local::named(path, true).map(Node::Local)
}

/// Bytes of an image into which the folder fits even if nothing can be compressed.
fn size_to_fit(folder: Node) -> u64 {
    let mut todo = vec![folder];
    let mut need = OVERHEAD;
    while let Some(folder) = todo.pop() {
        // The copy itself reports read errors.
        let Ok(children) = folder.children() else { continue };
        for child in children.flatten() {
            let Ok(facts) = child.node.facts() else { continue };
            need += PER_FILE + 2 * child.name.len() as u64;
            match facts.kind {
                FileKind::Directory => todo.push(child.node),
                FileKind::Regular => {
                    // Holes take nothing; indirect blocks and checksums a little.
                    let bytes = facts.size.min(facts.stored + (1 << 17)).next_multiple_of(4096);
                    need += bytes + bytes / 64;
                }
                _ => {}
            }
        }
    }
    image_size(need)
}

/// Bytes of a device that leaves `need` bytes to its user.
fn image_size(need: u64) -> u64 {
    // A little free space, so that the image can be changed later.
    let need = need + need / 32 + label::MIN_DEVICE / 8;
    let with_reserve = need + (need / 31).max(SLOP_MIN.min(need));
    with_reserve.max(label::MIN_DEVICE).next_multiple_of(GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_leaves_room_for_its_contents_and_the_reserve() {
        for need in [0, 1 << 20, 100 << 20, 1 << 30, 1 << 40] {
            let size = image_size(need);
            let slop = (size / 32).max((size / 2).min(SLOP_MIN));
            assert!(size - slop >= need && size.is_multiple_of(GRAIN), "{need}");
        }
    }
}
