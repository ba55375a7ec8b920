//! Records encoded before their turn: while a txg is on its way to the disks, the cores have little else to do.
//!
//! From:   `dmu`, which names records of the open txg that will hardly change any more.
//! To:     the sync of that txg. A record that did change is another record by then, and encoded anew; what is
//!         written is the same either way, since encoding is pure.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use codec::Salt;

use crate::write::{Encoded, Encoding, Recipe};
use crate::{Deflate, Record, Storage};

enum Progress {
    /// Nobody has begun.
    Waiting,
    /// A worker is at it.
    Begun,
    Done(Encoded),
}

struct Slot {
    /// Held, so that its address stays its own.
    record: Record,
    recipe: Recipe,
    progress: Progress,
}

/// Encoded records, by the address of the record.
#[derive(Default)]
pub(crate) struct Ahead {
    slots: Mutex<HashMap<usize, Slot>>,
}

fn address(record: &Record) -> usize {
    Arc::as_ptr(record) as usize
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Slot>> {
        self.slots.lock().expect("no code panics while holding the records encoded ahead")
    }

    fn encode(&self, address: usize, deflate: &Deflate, salt: &Salt) {
        let (record, recipe) = {
            let mut slots = self.lock();
            // The sync was faster, or the record is not wanted any more.
            let Some(slot) = slots.get_mut(&address) else { return };
            if !matches!(slot.progress, Progress::Waiting) {
                return;
            }
            slot.progress = Progress::Begun;
            (slot.record.clone(), slot.recipe)
        };
        let encoded = Encoding { recipe, deflate, salt }.encode(&record);
        let mut slots = self.lock();
        // This holds the record: a slot at its address is still its own.
        if let Some(slot) = slots.get_mut(&address).filter(|slot| slot.recipe == recipe) {
            slot.progress = Progress::Done(encoded);
        }
        // Below the lock: whoever takes what was made has the record to itself.
        drop(record);
    }

    fn take(&self, record: &Record, recipe: Recipe) -> Option<Encoded> {
        let slot = self.lock().remove(&address(record))?;
        match slot.progress {
            Progress::Done(encoded) if slot.recipe == recipe => Some(encoded),
            _ => None,
        }
    }

    pub(crate) fn clear(&self) {
        let stale = std::mem::take(&mut *self.lock());
        drop(stale);
    }
}

impl Storage {
    /// Encodes `records` on the workers while the caller does something else.
    pub fn encode_ahead(&self, records: impl IntoIterator<Item = (Record, Recipe)>) {
        let salt = self.salt();
        for (record, recipe) in records {
            let at = address(&record);
            self.ahead.lock().insert(at, Slot { record, recipe, progress: Progress::Waiting });
            // Not the storage itself: the devices are closed when its last user lets go, not some job.
            let (ahead, deflate, salt) = (self.ahead.clone(), self.deflate.clone(), salt.clone());
            self.workers().spawn(move || ahead.encode(at, &deflate, &salt));
        }
    }

    /// Drops what was encoded ahead and nobody took.
    pub fn forget_ahead(&self) {
        self.ahead.clear();
    }

    /// `recipe` with what it needs of this pool.
    #[must_use]
    pub fn encoding<'a>(&'a self, recipe: Recipe, salt: &'a Salt) -> Encoding<'a> {
        Encoding { recipe, deflate: &self.deflate, salt }
    }

    /// What `recipe` makes of `record`: made ahead, or now.
    #[must_use]
    pub fn encode(&self, record: &Record, recipe: Recipe, salt: &Salt) -> Encoded {
        self.ahead.take(record, recipe).unwrap_or_else(|| self.encoding(recipe, salt).encode(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GzipEngine, Options, Vdevs};
    use format::ChecksumKind;
    use format::compression::CompressionSetting;

    fn storage() -> Storage {
        let options = Options {
            cache_bytes: 1 << 20,
            free_bytes: 0,
            io_threads: 0,
            workers: 2,
            gzip_engine: None,
            slow_io: std::time::Duration::MAX,
        };
        Storage::new(Vdevs::new(Vec::new()), options)
    }

    fn recipe() -> Recipe {
        Recipe {
            compression: CompressionSetting::LZ4,
            gzip_engine: GzipEngine::DEFAULT,
            checksum: ChecksumKind::Fletcher4,
            min_alloc: 4096,
            embed: false,
        }
    }

    fn record(n: u8) -> Record {
        Arc::new((0..128 << 10).map(|i: u32| (i / 7) as u8 ^ n).collect())
    }

    fn bytes(encoded: &Encoded) -> &[u8] {
        match encoded {
            Encoded::Stored { payload, .. } => payload.bytes(),
            other => panic!("{other:?}"),
        }
    }

    /// Whether a worker has finished the record.
    fn is_done(storage: &Storage, record: &Record) -> bool {
        let slots = storage.ahead.lock();
        matches!(slots.get(&address(record)), Some(Slot { progress: Progress::Done(_), .. }))
    }

    #[test]
    fn what_was_made_ahead_is_what_is_made_now_and_is_given_once() {
        let (storage, records) = (storage(), [record(1), record(2), record(3)]);
        storage.encode_ahead(records.iter().map(|record| (record.clone(), recipe())));
        while !records.iter().all(|record| is_done(&storage, record)) {
            std::thread::yield_now();
        }
        for record in &records {
            let made = storage.ahead.take(record, recipe()).unwrap();
            let now = storage.encode(record, recipe(), &Salt::none());
            assert_eq!(bytes(&made), bytes(&now));
            assert!(storage.ahead.take(record, recipe()).is_none());
            assert_eq!(Arc::strong_count(record), 1, "nothing holds a record that was taken");
        }
    }

    #[test]
    fn another_recipe_and_a_changed_record_are_encoded_anew() {
        let storage = storage();
        let mut changed = record(4);
        storage.encode_ahead([(changed.clone(), recipe())]);
        let other = Recipe { compression: CompressionSetting::OFF, ..recipe() };
        assert_eq!(bytes(&storage.encode(&changed, other, &Salt::none())), &changed[..]);
        storage.encode_ahead([(changed.clone(), recipe())]);
        let _unchanged = changed.clone();
        Arc::make_mut(&mut changed)[5] ^= 1;
        let now = storage.encode(&changed, other, &Salt::none());
        assert_eq!(bytes(&now), &changed[..]);
        storage.forget_ahead();
        assert!(storage.ahead.lock().is_empty());
    }
}
