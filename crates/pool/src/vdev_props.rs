//! Properties that users give to vdevs: kept in the vdevs' ZAPs.
//!
//! From:   names and values that [`crate::props::vdev`] judged.
//! To:     the ZAP of the root, of a top-level vdev, or of a leaf below one.
//! Source: docs/format/05-space-maps.md §7; the root's ZAP and its feature, 06-mos-dsl.md §1 and §2.

use format::config::VdevConfig;
use format::features::VDEV_ZAPS_V2;
use format::nvlist::NvValue;
use format::{Guid, ObjectId, ObjectType, VdevId};
use storage::allocator::Class;

use crate::evacuation::{NON_ALLOCATING, non_allocating};
use crate::pool::Pool;
use crate::props::{Value, names};
use crate::state::Syncing;
use crate::{Error, Result};

/// The vdev of this guid: the root (which has the pool's guid) or one below it.
fn find(vdev: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    if vdev.guid == guid { Some(vdev) } else { vdev.children.iter().find_map(|child| find(child, guid)) }
}

/// Where the properties of a vdev are kept.
fn zap_of(vdev: &VdevConfig) -> Option<ObjectId> {
    let there = |id: Option<ObjectId>| id.filter(|id| id.0 != 0);
    there(vdev.zap_root).or(there(vdev.zap_top)).or(there(vdev.zap_leaf))
}

impl Pool {
    /// All numbers and strings in the ZAP of a vdev, by name. The ZAP also holds values that are no properties, so the
    /// caller picks the names that it knows.
    ///
    /// # Errors
    /// If the vdev's ZAP cannot be read.
    pub fn vdev_properties(&self, guid: Guid) -> Result<Vec<(String, Value)>> {
        let config = self.info().config;
        let Some(zap) = find(&config.tree, guid).and_then(zap_of) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in dmu::zap::entries(&*self.inner.mos.object(zap)?) {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let text = || entry.value.as_text().map(|text| Value::Text(text.to_owned()));
            if let Some(value) = entry.value.as_u64().map(Value::Number).or_else(text) {
                found.push((name, value));
            }
        }
        Ok(found)
    }

    /// Sets a property of a vdev, or removes it with `None`.
    ///
    /// # Errors
    /// [`Error::NoVdevZap`] for a vdev that has no place for properties; [`Error::LastVdev`]; [`Error::Property`] for a
    /// name or value that is too long; or it cannot be written.
    pub fn set_vdev_property(&self, guid: Guid, name: &str, value: Option<Value>) -> Result<()> {
        names::check_storable(name, "", value.as_ref())?;
        let name = name.to_owned();
        self.run(move |syncing| {
            if name == "allocating" {
                let closes = matches!(&value, Some(Value::Number(0)));
                find(&syncing.state.config.tree, guid).and_then(zap_of).ok_or(Error::NoVdevZap)?;
                syncing.set_allocating(guid, !closes)?;
            }
            syncing.set_vdev_property(guid, &name, value.as_ref())
        })
    }
}

impl Syncing<'_> {
    /// Opens or closes a top-level vdev for new blocks. At least one vdev must stay open, with enough free space.
    fn set_allocating(&mut self, guid: Guid, allocating: bool) -> Result<()> {
        let of_data: Vec<u64> = self
            .inner
            .storage
            .vdevs()
            .tops()
            .iter()
            .filter(|top| top.class == Class::Normal)
            .map(|top| top.guid)
            .collect();
        let is_normal = |vdev: &VdevConfig| vdev.top.is_some() && of_data.contains(&vdev.guid.0);
        let before = non_allocating(&self.state.config);
        let tops = &mut self.state.config.tree.children;
        let Some(index) = tops.iter().position(|vdev| vdev.guid == guid && is_normal(vdev)) else {
            return Err(Error::VdevKind);
        };
        let id = tops[index].id as u32;
        if before.contains(&id) != allocating {
            return Ok(());
        }
        if !allocating
            && !tops
                .iter()
                .any(|vdev| is_normal(vdev) && vdev.id as u32 != id && !before.contains(&(vdev.id as u32)))
        {
            return Err(Error::LastVdev);
        }
        match allocating {
            true => drop(tops[index].extra.remove(NON_ALLOCATING)),
            false => {
                tops[index].extra.insert(NON_ALLOCATING, NvValue::Uint64(1));
            }
        }
        self.state.allocator.set_allocating(VdevId(id), allocating);
        self.state.config_dirty = true;
        self.inner.accounts.close_vdevs(non_allocating(&self.state.config));
        Ok(())
    }

    fn set_vdev_property(&mut self, guid: Guid, name: &str, value: Option<&Value>) -> Result<()> {
        if guid == self.state.config.tree.guid && zap_of(&self.state.config.tree).is_none() {
            if value.is_none() {
                return Ok(());
            }
            self.create_root_zap()?;
        }
        let zap = find(&self.state.config.tree, guid).and_then(zap_of).ok_or(Error::NoVdevZap)?;
        let object = self.mos().object(zap)?;
        match value {
            Some(value) => {
                let stored = dsl::values::stored(value);
                dmu::zap::update(&object, &self.tx, name.as_bytes(), &stored)?;
            }
            None => dmu::zap::discard(&object, &self.tx, name.as_bytes())?,
        }
        Ok(())
    }

    /// Gives the root vdev a ZAP, which a feature allows. The ZAP is listed with those of the other vdevs.
    fn create_root_zap(&mut self) -> Result<()> {
        let mos = &self.inner.mos;
        let list = mos.directory_object("com.delphix:vdev_zap_map")?.ok_or(Error::NoVdevZap)?;
        let features = self.state.features.as_mut().ok_or(Error::NoVdevZap)?;
        if !features.is_enabled(&VDEV_ZAPS_V2) || !self.state.config.has_per_vdev_zaps {
            return Err(Error::NoVdevZap);
        }
        let id = mos.create_zap(&self.tx, ObjectType::ZAP_METADATA, 0)?.id();
        mos.add_int(&self.tx, list, id.0)?;
        features.adjust(&self.tx, &VDEV_ZAPS_V2, 1)?;
        self.state.config.tree.zap_root = Some(id);
        self.state.config_dirty = true;
        Ok(())
    }
}
