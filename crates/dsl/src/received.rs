//! Properties that arrive with a stream, or are set instead of those.
//!
//! Source: docs/format/06-mos-dsl.md §10.

use dmu::zap;
use format::ObjectId;
use format::zap::Value as Stored;

use crate::change::Change;
use crate::props::{self, PropertyError, Value, names};
use crate::values::{self, INHERIT, RECEIVED, RECEIVED_ANY};
use crate::{Error, Result};

/// A property that a dataset cannot have, with the reason.
pub type PropertyRefusal = (String, PropertyError);

/// How a stream is received.
#[derive(Clone, Debug, Default)]
pub struct ReceiveOptions {
    /// `-F`: changes since the newest snapshot are dropped, and so is an existing destination without snapshots.
    pub force: bool,
    /// `-o`: local properties.
    pub local: Vec<(String, Value)>,
    /// Properties that came with the stream; `None` where it brings no list of them. What came with an earlier one goes.
    pub received: Option<Vec<(String, Value)>>,
    /// `-x`, and `-o` below the top of a package: what is inherited although it was received.
    pub inherited: Vec<String>,
    /// Properties of the snapshot itself that came with the stream.
    pub of_snapshot: Vec<(String, Value)>,
    /// `-n`: only check whether the receive is possible.
    pub dry_run: bool,
    /// `-o origin=`: the snapshot that a stream of a clone builds upon here; it must be the one that the sender had.
    pub origin: Option<String>,
    /// `-s`: the received part of an interrupted stream is kept, to be resumed.
    pub resumable: bool,
}

/// Properties whose checks need the complete contents. For a new dataset they are set at the end of the stream.
pub fn waits(name: &str) -> bool {
    name == "refquota"
}

/// Whether a dataset may get the value of its parent instead of what it received.
fn can_inherit(name: &str) -> bool {
    props::dataset::parse(name).is_none_or(props::Property::is_inheritable)
}

impl Change<'_> {
    /// Sets those properties of a receive for which `now` holds. Returns the ones that the dataset cannot have.
    pub(crate) fn set_received(
        &mut self,
        dir: ObjectId,
        options: &ReceiveOptions,
        now: impl Fn(&str) -> bool,
    ) -> Result<Vec<PropertyRefusal>> {
        let mut refused = Vec::new();
        for (name, value) in options.local.iter().filter(|(name, _)| now(name)) {
            match self.misfit(dir, name, value)? {
                Some(why) => refused.push((name.clone(), why)),
                None => self.set_property(dir, name, Some(value))?,
            }
        }
        if let Some(received) = &options.received {
            let left_out = |name: &String| options.inherited.contains(name) && !can_inherit(name);
            let wanted: Vec<_> = received.iter().filter(|(name, _)| now(name) && !left_out(name)).collect();
            self.replace_received(dir, &wanted, &now, &mut refused)?;
        }
        let object = self.mos().object(self.mos().dir(dir)?.props_zap)?;
        if zap::lookup(&object, RECEIVED_ANY)?.is_some() {
            for name in options.inherited.iter().filter(|name| now(name) && can_inherit(name)) {
                if zap::lookup(&object, name.as_bytes())?.is_none() {
                    let key = format!("{name}{INHERIT}");
                    zap::update(&object, self.tx, key.as_bytes(), &Stored::from_u64(0))?;
                }
            }
        }
        Ok(refused)
    }

    /// Received values of earlier streams are replaced by those of this one.
    fn replace_received(
        &mut self,
        dir: ObjectId,
        wanted: &[&(String, Value)],
        now: &impl Fn(&str) -> bool,
        refused: &mut Vec<PropertyRefusal>,
    ) -> Result<()> {
        let object = self.mos().object(self.mos().dir(dir)?.props_zap)?;
        zap::update(&object, self.tx, RECEIVED_ANY, &Stored::from_u64(0))?;
        let hidden = |name: &str| -> Result<bool> {
            let is_set = |key: String| Ok::<_, Error>(zap::lookup(&object, key.as_bytes())?.is_some());
            Ok(is_set(name.to_owned())? || is_set(format!("{name}{INHERIT}"))?)
        };
        for entry in zap::entries(&object).collect::<Vec<_>>() {
            let key = entry?.name;
            let key = String::from_utf8_lossy(&key);
            let Some(name) = key.strip_suffix(RECEIVED).filter(|name| now(name)) else { continue };
            if wanted.iter().any(|(wanted, _)| wanted == name) {
                continue;
            }
            zap::discard(&object, self.tx, key.as_bytes())?;
            if !hidden(name)? {
                self.heed_property(dir, name, None)?;
            }
        }
        for (name, value) in wanted {
            // The longest that ever follows it: to hide it must stay possible.
            if let Err(why) = names::check_storable(name, INHERIT, Some(value)) {
                refused.push((name.clone(), why));
                continue;
            }
            let hidden = hidden(name)?;
            if !hidden && let Some(why) = self.misfit(dir, name, value)? {
                refused.push((name.clone(), why));
                continue;
            }
            let key = format!("{name}{RECEIVED}");
            zap::update(&object, self.tx, key.as_bytes(), &values::stored(value))?;
            if !hidden {
                self.heed_property(dir, name, Some(value))?;
            }
        }
        Ok(())
    }

    /// Why a directory cannot have a property: one that no pool can keep, a quota or a reservation.
    fn misfit(&self, dir: ObjectId, name: &str, value: &Value) -> Result<Option<PropertyError>> {
        if let Err(why) = names::check_storable(name, "", Some(value)) {
            return Ok(Some(why));
        }
        let Value::Number(bytes) = value else { return Ok(None) };
        match self.check_limit(dir, name, *bytes, &[]) {
            Ok(()) => Ok(None),
            Err(Error::Property(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        }
    }

    /// Properties that the sender's snapshot has of its own, but for those that no pool can keep.
    pub(crate) fn set_received_of_snapshot(
        &mut self,
        id: ObjectId,
        received: &[(String, Value)],
    ) -> Result<()> {
        let fits =
            |(name, value): &&(String, Value)| names::check_storable(name, INHERIT, Some(value)).is_ok();
        let received: Vec<_> = received.iter().filter(fits).collect();
        if received.is_empty() {
            return Ok(());
        }
        let any = String::from_utf8_lossy(RECEIVED_ANY);
        self.set_snapshot_property(id, &any, Some(&Value::Number(0)))?;
        received.iter().try_for_each(|(name, value)| {
            self.set_snapshot_property(id, &format!("{name}{RECEIVED}"), Some(value))
        })
    }
}
