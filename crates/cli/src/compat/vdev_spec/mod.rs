//! The devices of a new pool, as the words behind its name group them.
//!
//! From:   the operands of `zpool create`.
//! To:     [`super::zpool_create`], which opens the devices; [`replication`], which compares the groups.

mod draid;
pub(super) mod replication;

use std::path::{Path, PathBuf};

use pool::{DraidLayout, Layout};

use super::view::Naming;
use crate::messages::Failure;
use crate::out::Console;
use crate::state;

/// Devices that a mirror or raidz vdev has at most.
const RAIDZ_MAX: usize = 255;

/// The class of a vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Data,
    Dedup,
    Special,
    Log,
}

/// The classes in the order in which layouts show them.
pub(super) const CLASSES: [Class; 4] = [Class::Data, Class::Dedup, Class::Special, Class::Log];

impl Class {
    /// The word before its vdevs.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Class::Data => "",
            Class::Dedup => "dedup",
            Class::Special => "special",
            Class::Log => "log",
        }
    }

    /// The class as the pool has it.
    pub(super) const fn of_vdev(self) -> storage::allocator::Class {
        match self {
            Class::Data => storage::allocator::Class::Normal,
            Class::Dedup => storage::allocator::Class::Dedup,
            Class::Special => storage::allocator::Class::Special,
            Class::Log => storage::allocator::Class::Log,
        }
    }

    /// The heading of its vdevs in a layout.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Class::Log => "logs",
            other => other.word(),
        }
    }
}

/// A top-level vdev.
#[derive(Clone, Debug)]
pub(super) struct Top {
    pub(super) layout: Layout,
    pub(super) class: Class,
    pub(super) devices: Vec<PathBuf>,
}

impl Top {
    /// The name of its kind in a layout; `None` for a single device.
    pub(super) fn kind(&self) -> Option<String> {
        match self.layout {
            Layout::Single => None,
            Layout::Mirror => Some("mirror".into()),
            Layout::Raidz(parity) => Some(format!("raidz{parity}")),
            Layout::Draid(DraidLayout { parity, data, spares }) => {
                Some(format!("draid{parity}:{data}d:{}c:{spares}s", self.devices.len()))
            }
        }
    }
}

/// All devices of a new pool.
#[derive(Debug, Default)]
pub(super) struct Spec {
    pub(super) tops: Vec<Top>,
    pub(super) caches: Vec<PathBuf>,
    pub(super) spares: Vec<PathBuf>,
}

/// How the word before devices says that they share blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Mirror,
    Raidz(u8),
    /// The rest of the word counts, too.
    Draid(u8),
}

/// A word that is no device.
enum Word {
    Group(Group),
    Class(Class),
    Spare,
    Cache,
}

/// The meaning of a word that is no device.
fn meaning(word: &str) -> Option<Word> {
    Some(match word {
        "mirror" => Word::Group(Group::Mirror),
        "raidz" | "raidz1" => Word::Group(Group::Raidz(1)),
        "raidz2" => Word::Group(Group::Raidz(2)),
        "raidz3" => Word::Group(Group::Raidz(3)),
        "log" => Word::Class(Class::Log),
        "special" => Word::Class(Class::Special),
        "dedup" => Word::Class(Class::Dedup),
        "spare" => Word::Spare,
        "cache" => Word::Cache,
        _ => Word::Group(Group::Draid(draid::parity(word)?)),
    })
}

fn invalid(why: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("invalid vdev specification: {why}"))
}

impl Spec {
    /// Groups `words` and finds the devices.
    ///
    /// # Errors
    /// The words describe no valid pool, or a device is missing.
    pub(super) fn parse(words: &[String]) -> Result<Spec, Failure> {
        let (mut spec, mut class, mut seen) = (Spec::default(), Class::Data, Vec::new());
        let mut rest = words;
        while let Some((word, behind)) = rest.split_first() {
            let Some(meant) = meaning(word) else {
                spec.tops.push(Top { layout: Layout::Single, class, devices: vec![device(word)?] });
                rest = behind;
                continue;
            };
            let once = match meant {
                Word::Class(Class::Log) | Word::Spare | Word::Cache => true,
                Word::Class(_) | Word::Group(_) => false,
            };
            if once && seen.contains(word) {
                return Err(invalid(format_args!("'{word}' can be specified only once")));
            }
            seen.push(word.clone());
            let count = behind.iter().take_while(|word| meaning(word).is_none()).count();
            let (devices, after) = behind.split_at(count);
            let group = match meant {
                Word::Class(new) => {
                    (class, rest) = (new, behind);
                    continue;
                }
                Word::Group(group) => Some(group),
                Word::Spare | Word::Cache => None,
            };
            check_group(word, group, class, count)?;
            let devices = devices.iter().map(|word| device(word)).collect::<Result<Vec<_>, _>>()?;
            rest = after;
            match (group, meant) {
                (Some(group), _) => {
                    let layout = match group {
                        Group::Mirror => Layout::Mirror,
                        Group::Raidz(parity) => Layout::Raidz(parity),
                        Group::Draid(parity) => Layout::Draid(draid::layout(word, parity, count)?),
                    };
                    spec.tops.push(Top { layout, class, devices });
                }
                (None, Word::Spare) => (spec.spares, class) = (devices, Class::Data),
                (None, _) => (spec.caches, class) = (devices, Class::Data),
            }
        }
        if seen.iter().any(|word| word == "log") && !spec.tops.iter().any(|top| top.class == Class::Log) {
            return Err(invalid("log requires at least 1 device"));
        }
        Ok(spec)
    }

    /// Whether a vdev of it takes data.
    pub(super) fn has_data(&self) -> bool {
        self.tops.iter().any(|top| top.class == Class::Data)
    }

    /// Every device: the devices of the vdevs, then caches, then spares.
    pub(super) fn devices(&self) -> Vec<PathBuf> {
        let of_tops = self.tops.iter().flat_map(|top| &top.devices);
        of_tops.chain(&self.caches).chain(&self.spares).cloned().collect()
    }

    /// Prints the layout of a pool called `name`.
    pub(super) fn show(&self, name: &str, console: &mut Console) -> Result<(), Failure> {
        let naming = Naming::default();
        console.line(&format!("\t{name}"))?;
        for class in CLASSES {
            if class != Class::Data && self.has(class) {
                console.line(&format!("\t{}", class.heading()))?;
            }
            self.show_tops(class, naming, console)?;
        }
        for (heading, devices) in [("cache", &self.caches), ("spares", &self.spares)] {
            if !devices.is_empty() {
                console.line(&format!("\t{heading}"))?;
            }
            show_devices(devices, naming, console)?;
        }
        Ok(())
    }

    /// Whether a vdev is of this class.
    pub(super) fn has(&self, class: Class) -> bool {
        self.tops.iter().any(|top| top.class == class)
    }

    /// Prints the vdevs of a class.
    pub(super) fn show_tops(
        &self,
        class: Class,
        naming: Naming,
        console: &mut Console,
    ) -> Result<(), Failure> {
        for top in self.tops.iter().filter(|top| top.class == class) {
            let deeper = if let Some(kind) = top.kind() {
                console.line(&format!("\t  {kind}"))?;
                "  "
            } else {
                ""
            };
            for device in &top.devices {
                console.line(&format!("\t  {deeper}{}", shown(device, naming)))?;
            }
        }
        Ok(())
    }
}

/// Prints caches or spares.
pub(super) fn show_devices(
    devices: &[PathBuf],
    naming: Naming,
    console: &mut Console,
) -> Result<(), Failure> {
    devices.iter().try_for_each(|device| console.line(&format!("\t  {}", shown(device, naming))))
}

/// A device as layouts show it.
fn shown(device: &Path, naming: Naming) -> String {
    let followed = naming.follow.then(|| device.canonicalize().ok()).flatten();
    let device = followed.as_deref().unwrap_or(device);
    let short = device.strip_prefix("/dev").ok().filter(|_| !naming.full);
    short.unwrap_or(device).display().to_string()
}

/// Refuses a group of `count` devices behind `word` that cannot be.
fn check_group(word: &str, group: Option<Group>, class: Class, count: usize) -> Result<(), Failure> {
    let is_mirror = group == Some(Group::Mirror);
    if class != Class::Data && group.is_some() && !is_mirror {
        let class = if class == Class::Log { "log" } else { "special" };
        let kind = if word.starts_with("draid") { "draid" } else { "raidz" };
        return Err(invalid(format_args!("unsupported '{class}' device: {kind}")));
    }
    let least = match group {
        Some(Group::Raidz(parity) | Group::Draid(parity)) => usize::from(parity) + 1,
        Some(_) => 2,
        None => 1,
    };
    if count < least {
        return Err(invalid(format_args!("{word} requires at least {least} devices")));
    }
    if matches!(group, Some(Group::Raidz(_))) && count > RAIDZ_MAX {
        return Err(invalid(format_args!("{word} supports no more than {RAIDZ_MAX} devices")));
    }
    Ok(())
}

/// The device that a word names.
fn device(word: &str) -> Result<PathBuf, Failure> {
    if word.starts_with('/') {
        let path = PathBuf::from(word);
        return match std::fs::metadata(storage::host::backing_file(&path)) {
            Ok(found) if found.is_dir() => {
                Err(Failure::refused(format!("cannot use '{word}': must be a block device or regular file")))
            }
            Ok(_) => Ok(path),
            Err(_) => Err(Failure::refused(format!("cannot resolve path '{word}'"))),
        };
    }
    let device = Path::new("/dev").join(word);
    if device.exists() {
        return Ok(device);
    }
    let failure = Failure::refused(format!("cannot open '{word}': no such device in /dev"))
        .hint("must be a full path or shorthand device name");
    // A bare name means an image in the working directory.
    let file = state::absolute(Path::new(word));
    Err(if file.is_file() { failure.hint(format!("the file here is '{}'", file.display())) } else { failure })
}
