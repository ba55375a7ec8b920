//! Values of pool properties with their sources.
//!
//! From:   an open pool and how it is imported.
//! To:     `zpool get` and `zpool list`.

use std::collections::BTreeMap;

use format::config::VERSION_FEATURES;
use format::features::{self, Feature};
use format::label;
use pool::props::pool::Asked;
use pool::props::{Preset, Property, Source, Value, names};
use pool::{FeatureState, Info};
use scan::Scans as _;

use super::view::{Class, PoolView, State, VdevView};
use crate::dates;
use crate::messages::{Action, Failure};

/// Space of one or all vdevs of a class, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    pub size: u64,
    pub allocated: u64,
    /// Percent; `None` where it is not known.
    pub fragmentation: Option<u64>,
}

impl Space {
    pub const fn free(self) -> u64 {
        self.size.saturating_sub(self.allocated)
    }

    /// Hundredths of a percent in use.
    pub fn capacity(self) -> u64 {
        if self.size == 0 { 0 } else { (u128::from(self.allocated) * 10_000 / u128::from(self.size)) as u64 }
    }
}

/// Everything about a pool that its properties show, read once.
#[derive(Debug)]
pub struct PoolValues<'a> {
    view: &'a PoolView,
    /// By top-level vdev id.
    pub vdevs: BTreeMap<u32, (Class, Space)>,
    stored: BTreeMap<String, Value>,
    freeing: u64,
    last_scrubbed: u64,
    load_guid: u64,
    /// Bytes of the dedup tables on the disks.
    dedup_table: u64,
    state: State,
}

impl<'a> PoolValues<'a> {
    /// # Errors
    /// If the pool's own objects cannot be read.
    pub fn new(view: &'a PoolView) -> Result<PoolValues<'a>, Failure> {
        let mut values = PoolValues {
            view,
            vdevs: BTreeMap::new(),
            stored: BTreeMap::new(),
            freeing: 0,
            last_scrubbed: 0,
            load_guid: 0,
            dedup_table: 0,
            state: view.state(),
        };
        if let Some(session) = view.session() {
            let pool = session.pool();
            let failed = |error: pool::Error| Action::Open(&view.name).failed(error);
            values.stored = pool.pool_properties().map_err(failed)?.into_iter().collect();
            values.freeing = pool.freeing().map_err(failed)?;
            values.last_scrubbed = pool.last_scrubbed_txg().map_err(failed)?.0;
            values.dedup_table = pool.dedup().map_err(failed)?.figures.on_disk;
            values.load_guid = pool.host().entropy.u64();
            let fragmentation = pool.fragmentation().map_err(failed)?;
            let info = pool.info();
            let class_of = |vdev: &VdevView| vdev.top.map(|id| (id, vdev.class));
            let classes: BTreeMap<u32, Class> =
                view.tree(super::view::Naming::default()).iter().filter_map(class_of).collect();
            for (id, space) in &info.vdev_space {
                let class = classes.get(id).copied().unwrap_or(Class::Normal);
                let space = Space {
                    size: space.size,
                    allocated: space.allocated,
                    fragmentation: fragmentation.get(id).copied().flatten(),
                };
                values.vdevs.insert(*id, (class, space));
            }
        }
        Ok(values)
    }

    /// Space of the pool: logs are no part of it. It is as fragmented as its normal vdevs.
    pub fn whole(&self) -> Space {
        let mut whole = self.class(Class::Normal);
        for beside in [Class::Special, Class::Dedup] {
            let space = self.class(beside);
            whole.size += space.size;
            whole.allocated += space.allocated;
        }
        whole
    }

    /// Space of the vdevs of a class together.
    pub fn class(&self, class: Class) -> Space {
        let mut sum = Space::default();
        let (mut weighted, mut known) = (0u128, true);
        for (_, space) in self.vdevs.values().filter(|(c, _)| *c == class) {
            sum.size += space.size;
            sum.allocated += space.allocated;
            match space.fragmentation {
                Some(percent) => weighted += u128::from(percent) * u128::from(space.size),
                None => known = false,
            }
        }
        if known && sum.size > 0 {
            sum.fragmentation = Some((weighted / u128::from(sum.size)) as u64);
        }
        sum
    }

    /// The pool they are of.
    pub fn view(&self) -> &'a PoolView {
        self.view
    }

    /// Space of a top-level vdev or of a cache. Only the server that fills a cache knows its contents.
    pub fn space_of(&self, vdev: &VdevView) -> Option<Space> {
        match (vdev.class, vdev.device_bytes) {
            (Class::Cache, Some(bytes)) => {
                let held = self.view.figures.as_ref().map_or(&[][..], |figures| &figures.caches);
                let allocated =
                    held.iter().find(|(guid, _)| *guid == vdev.guid.0).map_or(0, |(_, used)| *used);
                Some(Space { size: label::asize_of(bytes), allocated, fragmentation: Some(0) })
            }
            _ => vdev.top.and_then(|id| self.vdevs.get(&id)).map(|(_, space)| *space),
        }
    }

    /// The value that a word asks for, as it is shown.
    pub fn show(&self, asked: &Asked, raw: bool) -> (String, Source) {
        match asked {
            Asked::Native(property) => self.native(property, raw),
            Asked::Feature(name) => {
                match features::by_name(name)
                    .or_else(|| features::by_guid(name))
                    .and_then(|f| self.feature(f))
                {
                    Some(state) => (state.word().to_owned(), Source::Local),
                    None => ("-".to_owned(), Source::None),
                }
            }
            Asked::User(name) => match self.stored.get(*name) {
                Some(Value::Text(text)) => (text.clone(), Source::Local),
                _ => ("-".to_owned(), Source::Default),
            },
            Asked::Unsupported(_) => ("-".to_owned(), Source::None),
        }
    }

    /// The state of a feature, if the pool is open.
    pub fn feature(&self, feature: &Feature) -> Option<FeatureState> {
        Some(self.view.session()?.pool().info().feature(feature))
    }

    /// Names of the user properties that the pool has.
    pub fn user_properties(&self) -> impl Iterator<Item = &str> {
        self.stored.keys().map(String::as_str).filter(|name| names::is_stored_user_property(name))
    }

    /// guids of active or enabled features that this build does not know: name and whether it can be read.
    pub fn unsupported(&self) -> Vec<(String, &'static str)> {
        let Some(session) = self.view.session() else { return Vec::new() };
        let info = session.pool().info();
        let unknown = info.features.iter().filter(|(guid, _)| features::by_guid(guid).is_none());
        unknown
            .map(|(guid, count)| (guid.clone(), if *count == 0 { "inactive" } else { "readonly" }))
            .collect()
    }

    fn native(&self, property: &'static Property, raw: bool) -> (String, Source) {
        let (value, source) = self.value(property);
        match value {
            Some(value) => (dates::value(property, &value, raw), source),
            None => ("-".to_owned(), source),
        }
    }

    /// A native property: its value if it has one.
    fn value(&self, property: &'static Property) -> (Option<Value>, Source) {
        let number = |n: u64| (Some(Value::Number(n)), Source::None);
        let text = |t: &str| (Some(Value::Text(t.to_owned())), Source::None);
        let option = |value: Option<String>| match value {
            Some(value) => (Some(Value::Text(value)), Source::Local),
            None => (None, Source::Default),
        };
        let known = self.view.known.as_ref();
        match property.name {
            "name" => return text(&self.view.name),
            "health" => return text(self.state.word()),
            "guid" => return number(self.view.guid().0),
            "altroot" => return option(known.and_then(|known| known.altroot.clone())),
            "cachefile" => return option(known.and_then(|known| known.cachefile.clone())),
            _ => {}
        }
        let Some(session) = self.view.session() else { return (None, Source::None) };
        let info = session.pool().info();
        if let Some(rest) = property.name.strip_prefix("class_") {
            return (self.class_figure(rest).map(Value::Number), Source::None);
        }
        if let Some(figure) = self.shared_figure(property.name, &info) {
            return number(figure);
        }
        let whole = self.whole();
        match property.name {
            "size" | "usable" => number(whole.size),
            "allocated" | "used" => number(whole.allocated),
            "free" | "available" => number(whole.free()),
            "capacity" => number(whole.capacity() / 100),
            "fragmentation" => (whole.fragmentation.map(Value::Number), Source::None),
            "freeing" => number(self.freeing),
            "leaked" | "expandsize" => number(0),
            "checkpoint" => number(info.checkpoint.map_or(0, |kept| kept.bytes)),
            "last_scrubbed_txg" => number(self.last_scrubbed),
            "readonly" => {
                let asked = session.known.as_ref().is_some_and(|known| known.read_only);
                number(u64::from(asked || session.pool().refused().is_some()))
            }
            "load_guid" => number(self.load_guid),
            "version" if info.config.version >= VERSION_FEATURES => (None, Source::Default),
            "version" => (Some(Value::Number(info.config.version)), Source::Local),
            "comment" => option(info.config.comment.clone()),
            "compatibility" => match info.config.compatibility {
                Some(name) => (Some(Value::Text(name)), Source::Local),
                None => (property.default_value(), Source::Default),
            },
            "bootfs" => match self.stored.get("bootfs") {
                Some(Value::Number(id)) if *id != 0 => {
                    let list = session.pool().list(&self.view.name, None, false).unwrap_or_default();
                    option(list.into_iter().find(|dataset| dataset.id.0 == *id).map(|dataset| dataset.name))
                }
                _ => (None, Source::Default),
            },
            "maxblocksize" => {
                let large = info.feature(&features::LARGE_BLOCKS) != FeatureState::Disabled;
                number(if large { pool::props::BLOCK_MAX } else { pool::props::BLOCK_MAX_PLAIN })
            }
            "maxdnodesize" => {
                let large = info.feature(&features::LARGE_DNODE) != FeatureState::Disabled;
                number(if large { 16 << 10 } else { 512 })
            }
            "tname" => number(u64::from(known.is_some_and(|known| known.temporary))),
            name => match self.stored.get(name) {
                Some(value) => (Some(value.clone()), Source::Local),
                None if matches!(property.preset, Preset::Derived) => (None, Source::Default),
                None => (property.default_value(), Source::Default),
            },
        }
    }

    /// `dedupratio` and the like: a figure of blocks that are stored once and referred to several times.
    fn shared_figure(&self, name: &str, info: &Info) -> Option<u64> {
        let Info { dedup, clones, .. } = info;
        Some(match name {
            "dedup_table_size" => self.dedup_table,
            "dedupused" => dedup.dsize,
            "dedupsaved" => dedup.saved(),
            "dedupratio" => dedup.ratio_percent(),
            "bcloneused" => clones.used,
            "bclonesaved" => clones.saved,
            "bcloneratio" => clones.ratio_percent(),
            _ => return None,
        })
    }

    /// `normal_size` and the like: a figure of an allocation class.
    fn class_figure(&self, name: &str) -> Option<u64> {
        let (class, figure) = name.rsplit_once('_')?;
        let space = match class {
            "normal" => self.class(Class::Normal),
            "special" => self.class(Class::Special),
            "dedup" => self.class(Class::Dedup),
            "log" => self.class(Class::Log),
            _ => Space::default(),
        };
        match figure {
            "size" | "usable" => Some(space.size),
            "capacity" => Some(space.capacity() / 100),
            "free" | "available" => Some(space.free()),
            "allocated" | "used" => Some(space.allocated),
            "expandsize" => Some(0),
            _ => space.fragmentation,
        }
    }
}
