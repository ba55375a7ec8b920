//! Entries of blocks with one reference that leave a table for good: the blocks stay, but are not shared any more.
//!
//! Source: docs/format/14-dedup-and-cloning.md §7.

use format::ChecksumKind;
use format::ddt::{Class, Key};

use super::{Ddt, Found, Means, counts};

/// Which entries leave, by when they changed last.
#[derive(Clone, Copy)]
pub(crate) struct Cut {
    /// Seconds since 1970: those that changed earlier leave.
    pub(crate) before: u64,
    /// So many of those leave that changed in that second.
    pub(crate) ties: u64,
}

impl Cut {
    /// Whether the entry leaves. To be asked once for each entry.
    pub(crate) fn takes(&mut self, changed: u64) -> bool {
        if changed == self.before && self.ties > 0 {
            self.ties -= 1;
            return true;
        }
        changed < self.before
    }
}

impl Ddt {
    /// Whether everything is in the stores.
    pub(crate) fn is_flushed(&self) -> bool {
        self.logged().next().is_none()
    }

    /// Takes an entry out of its store. `false` if it is not there any more, or does not have one reference.
    pub(crate) fn prune(
        &mut self,
        means: &Means<'_>,
        kind: ChecksumKind,
        key: &Key,
    ) -> Result<bool, dmu::Error> {
        let number = kind.to_disk();
        let Some(table) = self.tables.get_mut(&number) else { return Ok(false) };
        if table.flat.is_none() || self.live.contains_key(&(number, *key)) {
            return Ok(false);
        }
        let (entry, found) = table.find(key)?;
        let Some(store) = table.stores.get_mut(&Class::Unique) else { return Ok(false) };
        if found != Found::Store(Class::Unique) || entry.refs() != 1 {
            return Ok(false);
        }
        store.remove(means.tx, key)?;
        store.histogram.remove(&counts(means.vdevs, kind, key, &entry));
        self.counted = true;
        Ok(true)
    }
}
