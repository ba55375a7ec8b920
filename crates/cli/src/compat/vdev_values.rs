//! Values of vdev properties with their sources.
//!
//! From:   an open pool: its configuration, its space and the counters of its devices.
//! To:     `zpool get` of vdevs.

use std::collections::BTreeMap;
use std::path::Path;

use format::config::{VdevConfig, VdevKind};
use format::{Guid, label};
use pool::props::vdev::{Asked, HIDDEN, VISIBLE};
use pool::props::{Property, Source, Value};
use storage::IoStats;

use super::damaged::Trouble;
use super::pool_values::{PoolValues, Space};
use super::view::{Class, Naming, PoolView, State, VdevView};
use crate::dates;
use crate::messages::{Action, Failure};

/// The space before and behind the room for data on a device: four labels and the boot block.
const LABELS: u64 = label::DATA_START + label::DATA_END;
/// The name by which users ask for the root of the tree.
pub const ROOT: &str = "root-0";

/// The vdevs of an open pool, read once.
#[derive(Debug)]
pub struct Vdevs<'a> {
    values: &'a PoolValues<'a>,
    root: VdevConfig,
    tree: Vec<VdevView>,
    trouble: Trouble,
    /// The counts of requests to each leaf, by guid.
    did: BTreeMap<u64, IoStats>,
}

/// One vdev of the tree.
#[derive(Debug)]
pub struct Vdev<'a> {
    /// As users call it.
    pub name: String,
    pub config: &'a VdevConfig,
    /// The top-level vdev that it is or lies below; `None` for the root.
    top: Option<&'a VdevConfig>,
    parent: Option<&'a VdevConfig>,
    /// As tables show it; `None` for the root.
    pub view: Option<&'a VdevView>,
    /// The properties that were set on it.
    set: BTreeMap<String, Value>,
    space: Space,
    /// The sum of the statistics of the leaves below.
    did: IoStats,
    /// Reads, writes and checksums that failed.
    errors: [u64; 3],
}

impl<'a> Vdevs<'a> {
    /// # Errors
    /// The pool is not open, or cannot be read.
    pub fn new(view: &'a PoolView, values: &'a PoolValues<'a>) -> Result<Vdevs<'a>, Failure> {
        let Some(session) = view.session() else {
            return Err(Action::Open(&view.name).failed(crate::messages::reason::POOL_UNAVAILABLE));
        };
        let leaves = session.pool().leaves();
        let did = leaves.map(|leaf| (leaf.guid, leaf.meter.stats())).collect();
        Ok(Vdevs {
            values,
            root: session.pool().info().config.tree,
            tree: view.tree(Naming::default()),
            trouble: Trouble::of(view)?,
            did,
        })
    }

    /// All of them, parents first.
    ///
    /// # Errors
    /// The properties that were set on them cannot be read.
    pub fn all(&self) -> Result<Vec<Vdev<'_>>, Failure> {
        let mut all = vec![self.vdev(&self.root, None, None)?];
        for top in self.root.children.iter().filter(|top| top.kind != VdevKind::Hole) {
            self.add(top, top, &self.root, &mut all)?;
        }
        Ok(all)
    }

    fn add<'v>(
        &'v self,
        config: &'v VdevConfig,
        top: &'v VdevConfig,
        parent: &'v VdevConfig,
        all: &mut Vec<Vdev<'v>>,
    ) -> Result<(), Failure> {
        all.push(self.vdev(config, Some(top), Some(parent))?);
        config.children.iter().try_for_each(|child| self.add(child, top, config, all))
    }

    fn vdev<'v>(
        &'v self,
        config: &'v VdevConfig,
        top: Option<&'v VdevConfig>,
        parent: Option<&'v VdevConfig>,
    ) -> Result<Vdev<'v>, Failure> {
        let view = self.tree.iter().find_map(|vdev| by_guid(vdev, config.guid));
        let name = view.map_or_else(|| ROOT.to_owned(), |view| view.name.clone());
        let set = match self.values.view().session() {
            Some(session) => session.pool().vdev_properties(config.guid),
            None => Ok(Vec::new()),
        };
        let set = set.map_err(|error| Action::Open(&self.values.view().name).failed(error))?;
        let errors = view.map_or([0; 3], |view| self.trouble.counts(view));
        Ok(Vdev {
            name,
            config,
            top,
            parent,
            view,
            set: set.into_iter().collect(),
            space: self.space(config, top),
            did: self.did(config),
            errors,
        })
    }

    /// The properties that `all` asks for: native ones that the vdev has, then those of users.
    pub fn words(&self, vdev: &Vdev) -> Vec<String> {
        let native = VISIBLE.iter().chain(HIDDEN.iter().filter(|p| p.name == "raidz_expanding"));
        let native = native.filter(|property| self.native(vdev, property).is_some());
        let user = vdev.set.keys().filter(|name| pool::props::names::is_stored_user_property(name));
        // Values that OpenZFS notes beside the properties have the form of a user property, too.
        let user = user.filter(|name| matches!(vdev.set[*name], Value::Text(_)) && !is_internal(name));
        native.map(|property| property.name.to_owned()).chain(user.cloned()).collect()
    }

    /// A property as it is shown; `None` if the vdev has no such property.
    pub fn show(&self, vdev: &Vdev, asked: &Asked, raw: bool) -> Option<(String, Source)> {
        match asked {
            Asked::User(name) => match vdev.set.get(*name) {
                Some(Value::Text(text)) => Some((text.clone(), Source::Local)),
                _ => Some(("-".to_owned(), Source::Default)),
            },
            Asked::Native(property) => {
                let (value, source) = self.native(vdev, property)?;
                Some((value.map_or("-".to_owned(), |value| dates::value(property, &value, raw)), source))
            }
        }
    }

    /// A native property: its value, `Some(None)` where it has none, `None` where there is no such property.
    fn native(&self, vdev: &Vdev, property: &'static Property) -> Option<(Option<Value>, Source)> {
        let number = |n: u64| Some((Some(Value::Number(n)), Source::None));
        let text = |text: Option<String>| match text {
            Some(text) => Some((Some(Value::Text(text)), Source::None)),
            None => Some((None, Source::Default)),
        };
        let Vdev { space, did, errors, .. } = vdev;
        let leaf = vdev.config.children.is_empty();
        match property.name {
            "name" => text(Some(self.kernel_name(vdev.config))),
            "capacity" => number(space.capacity() / 100),
            "state" => number(state_number(vdev.view.map_or(self.values.view().state(), |view| view.state))),
            "guid" => number(vdev.config.guid.0),
            "asize" => number(self.asize(vdev)),
            "psize" => number(self.psize(vdev)),
            "ashift" => number(vdev.top.and_then(|top| top.top).map_or(0, |top| u64::from(top.ashift))),
            "size" => number(space.size),
            "free" => number(space.free()),
            "allocated" => number(space.allocated),
            "expandsize" | "initialize_errors" | "trim_errors" | "removing" => number(0),
            "slow_ios" => number(did.slow),
            "fragmentation" => match space.fragmentation {
                Some(percent) => number(percent),
                None => Some((None, Source::None)),
            },
            "parity" => number(match vdev.config.kind {
                VdevKind::Raidz { nparity, .. } | VdevKind::Draid { nparity, .. } => u64::from(nparity),
                _ => 0,
            }),
            "path" => text(vdev.view.and_then(|view| view.path.clone())),
            "devid" | "physpath" | "fru" => text(string(vdev.config, property.name)),
            "encpath" => text(string(vdev.config, "vdev_enc_sysfs_path")),
            "parent" => text(vdev.parent.map(|parent| self.kernel_name(parent))),
            "children" if leaf => text(None),
            "children" => {
                let names: Vec<String> = vdev.config.children.iter().map(|c| self.kernel_name(c)).collect();
                text(Some(names.join(",")))
            }
            "numchildren" => number(vdev.config.children.len() as u64),
            "read_errors" => number(errors[0]),
            "write_errors" => number(errors[1]),
            "checksum_errors" => number(errors[2]),
            "read_ops" => number(did.reads),
            "write_ops" => number(did.writes),
            "read_bytes" => number(did.read_bytes),
            "write_bytes" => number(did.write_bytes),
            "null_ops" | "free_ops" | "claim_ops" | "trim_ops" => number(0),
            "null_bytes" | "free_bytes" | "claim_bytes" | "trim_bytes" => number(0),
            "raidz_expanding" => {
                matches!(vdev.config.kind, VdevKind::Raidz { .. }).then_some(()).and_then(|()| number(0))
            }
            "trim_support" if leaf => number(u64::from(device_says(vdev, "discard_max_bytes", true))),
            "trim_support" | "sit_out" | "autosit" => None,
            "rotational" => number(u64::from(device_says(vdev, "rotational", false))),
            "alloc_bias" => number(match vdev.view.map(|view| view.class) {
                Some(Class::Log) => 1,
                Some(Class::Special) => 2,
                Some(Class::Dedup) => 3,
                _ => 0,
            }),
            // A vdev below a top-level one has no such setting.
            "allocating" if vdev.top.is_some_and(|top| top.guid != vdev.config.guid) => number(2),
            name => Some(match vdev.set.get(name) {
                Some(value) if Some(value) != property.default_value().as_ref() => {
                    (Some(value.clone()), Source::Local)
                }
                _ => (property.default_value(), Source::Default),
            }),
        }
    }

    /// Space as the vdev's class counts it; that of devices below a top-level vdev is counted there.
    fn space(&self, config: &VdevConfig, top: Option<&VdevConfig>) -> Space {
        match top {
            None => self.values.class(Class::Normal),
            Some(top) if top.guid == config.guid => {
                self.values.vdevs.get(&(top.id as u32)).map(|(_, space)| *space).unwrap_or_default()
            }
            Some(_) => Space { fragmentation: Some(0), ..Space::default() },
        }
    }

    fn psize(&self, vdev: &Vdev) -> u64 {
        vdev.view.and_then(|view| view.device_bytes).unwrap_or_else(|| match vdev.config.top {
            Some(top) => top.asize + LABELS,
            None => 0,
        })
    }

    fn asize(&self, vdev: &Vdev) -> u64 {
        match (vdev.config.top, vdev.top.and_then(|top| top.top)) {
            (Some(top), _) => top.asize,
            (None, Some(top)) => self.psize(vdev).saturating_sub(LABELS) >> top.ashift << top.ashift,
            (None, None) => 0,
        }
    }

    fn did(&self, config: &VdevConfig) -> IoStats {
        let own = self.did.get(&config.guid.0).copied().unwrap_or_default();
        config.children.iter().fold(own, |sum, child| sum.plus(self.did(child)))
    }

    /// As OpenZFS names vdevs among themselves: the path of a leaf, type and number of others, the pool for the root.
    fn kernel_name(&self, config: &VdevConfig) -> String {
        if config.guid == self.root.guid {
            return self.values.view().name.clone();
        }
        let view = self.tree.iter().find_map(|vdev| by_guid(vdev, config.guid));
        let plain = || format!("{}-{}", config.kind.as_str(), config.id);
        view.and_then(|view| view.path.clone()).unwrap_or_else(plain)
    }
}

/// The vdev that a user calls `name`: `root`, the name in `zpool status`, a path or a guid.
pub fn find<'v, 'a>(all: &'v [Vdev<'a>], name: &str) -> Option<&'v Vdev<'a>> {
    all.iter().find(|vdev| match name {
        "root" => vdev.name == ROOT,
        name => {
            let path = vdev.view.and_then(|view| view.path.as_deref());
            vdev.name == name || path == Some(name) || vdev.config.guid.0.to_string() == name
        }
    })
}

fn by_guid(vdev: &VdevView, guid: Guid) -> Option<&VdevView> {
    if vdev.guid == guid { Some(vdev) } else { vdev.children.iter().find_map(|child| by_guid(child, guid)) }
}

fn string(config: &VdevConfig, key: &str) -> Option<String> {
    config.extra.get_str(key).map(str::to_owned)
}

/// Whether OpenZFS keeps this value beside the properties: `com.delphix:…` and the like, never from a user.
fn is_internal(name: &str) -> bool {
    ["com.delphix:", "org.openzfs:", "org.zfsonlinux:"].iter().any(|prefix| name.starts_with(prefix))
}

/// The number of a state, as `-p` shows it.
const fn state_number(state: State) -> u64 {
    match state {
        State::Offline => 2,
        State::Unavail => 4,
        State::Faulted | State::Suspended => 5,
        State::Degraded => 6,
        State::Online | State::Avail | State::InUse => 7,
    }
}

/// Whether the system has a number other than 0 for a block device under this name; what is no block device answers
/// `otherwise`.
fn device_says(vdev: &Vdev, name: &str, otherwise: bool) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Some(path) = vdev.view.and_then(|view| view.path.as_deref()) else { return false };
    let Ok(data) = Path::new(path).metadata() else { return false };
    if !data.file_type().is_block_device() {
        return otherwise;
    }
    let (major, minor) = (rustix::fs::major(data.rdev()), rustix::fs::minor(data.rdev()));
    // A partition has its queue at the disk it is of.
    ["queue", "../queue"].iter().any(|queue| {
        let file = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
        std::fs::read_to_string(file).is_ok_and(|text| text.trim() != "0")
    })
}
