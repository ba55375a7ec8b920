//! Setting and removing local properties of a directory, and the effects on its accounting.
//!
//! Source: docs/format/06-mos-dsl.md §8.3, §10.

use dmu::zap;
use format::ObjectId;

use crate::change::Change;
use crate::sizes::Sizes;
use crate::space::{Category, add_space, has_breakdown};
use crate::{Error, Result, props, values};

impl Change<'_> {
    /// Stores a local property of a directory, or removes it.
    pub fn set_property(&mut self, dir: ObjectId, name: &str, value: Option<&props::Value>) -> Result<()> {
        let mos = self.mos();
        let zap_id = mos.dir(dir)?.props_zap;
        let object = mos.object(zap_id)?;
        // Removes a value that only newer software knows, because it would override the new one.
        zap::discard(&object, self.tx, format!("{name}$iuv").as_bytes())?;
        match value {
            Some(value) => zap::update(&object, self.tx, name.as_bytes(), &values::stored(value))?,
            None => zap::discard(&object, self.tx, name.as_bytes())?,
        }
        self.heed_property(dir, name, value)
    }

    /// The number that a property has after it is set to `value`. Without a value, the received one is in effect.
    pub fn number_after(&self, dir: ObjectId, name: &str, value: Option<&props::Value>) -> Result<u64> {
        let mos = self.mos();
        Ok(match value {
            Some(props::Value::Number(number)) => *number,
            Some(props::Value::Text(_)) => 0,
            None => match values::received_here(mos, mos.dir(dir)?.props_zap, name)? {
                Some(props::Value::Number(number)) => number,
                _ => 0,
            },
        })
    }

    /// Updates the accounting of a directory for a property's new value.
    pub(crate) fn heed_property(
        &mut self,
        dir: ObjectId,
        name: &str,
        value: Option<&props::Value>,
    ) -> Result<()> {
        if !matches!(name, "quota" | "filesystem_limit" | "snapshot_limit" | "reservation" | "refreservation")
        {
            return Ok(());
        }
        let mos = self.mos();
        let number = self.number_after(dir, name, value)?;
        match name {
            "quota" => {
                let mut phys = mos.dir(dir)?;
                phys.quota = number;
                mos.put_dir(self.tx, dir, &phys)?;
            }
            "filesystem_limit" | "snapshot_limit" => {
                let received = values::received_here(mos, mos.dir(dir)?.props_zap, name)?;
                self.start_counting(dir, value.or(received.as_ref()))?;
            }
            "reservation" => self.set_reservation(dir, number)?,
            "refreservation" => self.set_refreservation(dir, number)?,
            _ => {}
        }
        Ok(())
    }

    fn set_reservation(&mut self, dir: ObjectId, bytes: u64) -> Result<()> {
        let mos = self.mos();
        let mut phys = mos.dir(dir)?;
        let charged = |reserved: u64| phys.used_bytes.max(reserved) as i64;
        let delta = charged(bytes) - charged(phys.reserved);
        phys.reserved = bytes;
        let parent = phys.parent;
        mos.put_dir(self.tx, dir, &phys)?;
        if parent.0 == 0 {
            return Ok(());
        }
        let sizes = Sizes { used: delta, ..Default::default() };
        add_space(mos, self.tx, parent, Category::ChildReserved, sizes)
    }

    fn set_refreservation(&mut self, dir: ObjectId, bytes: u64) -> Result<()> {
        let mos = self.mos();
        let phys = mos.dir(dir)?;
        if phys.head_dataset.0 == 0 {
            return Ok(());
        }
        if !has_breakdown(&phys) {
            return Err(Error::Unsupported("refreservation of datasets from before pool version 13".into()));
        }
        let unique = mos.dataset(phys.head_dataset)?.unique_bytes;
        let delta = bytes.saturating_sub(unique) as i64 - phys.used_breakdown.refrsrv as i64;
        let sizes = Sizes { used: delta, ..Default::default() };
        add_space(mos, self.tx, dir, Category::Reserved, sizes)
    }
}
