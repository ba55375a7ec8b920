//! Encoding records in advance, with cores that are idle while a txg is written to the disks.
//!
//! From:   `dmu`, which names records of the open txg that will hardly change any more.
//! To:     the sync of that txg. The result is kept with the record's draft. Encoding is pure, so what is written is the
//!         same either way.

use std::sync::Arc;

use codec::Salt;

use crate::draft::{Draft, Made, Prepared, Progress};
use crate::write::{Encoded, Encoding, Recipe};
use crate::{Deflate, Guard, Storage};

/// Encodes the record that waits in `prepared`, unless the sync was faster or the record was changed.
fn encode_waiting(prepared: &Prepared, deflate: &Deflate, salt: Arc<Salt>) {
    let (record, recipe) = {
        let mut progress = prepared.progress();
        if !matches!(*progress, Progress::Waiting(..)) {
            return;
        }
        let Progress::Waiting(record, recipe) = std::mem::replace(&mut *progress, Progress::Begun) else {
            return;
        };
        (record, recipe)
    };
    let encoding = Encoding { recipe, deflate, salt: &salt, guard: Guard::default() };
    let packed = encoding.pack(&record);
    let made = match recipe.protection {
        None => Made::Encoded(encoding.complete(packed, &record)),
        // The encryption parameters depend on the order of the blocks.
        Some(_) => Made::Packed(packed),
    };
    // The sync that takes the result is the only user of the record.
    drop(record);
    let mut progress = prepared.progress();
    if matches!(*progress, Progress::Begun) {
        *progress = Progress::Done(recipe, salt, made);
    }
}

impl Storage {
    /// Encodes the records of `drafts` on the workers while the caller does something else.
    pub fn encode_ahead(&self, drafts: impl IntoIterator<Item = (Draft, Recipe)>) {
        let salt = self.salt();
        for (draft, recipe) in drafts {
            let prepared = draft.prepare().clone();
            let mut progress = prepared.progress();
            if !matches!(*progress, Progress::None) {
                continue;
            }
            *progress = Progress::Waiting(draft.into_record(), recipe);
            drop(progress);
            // It does not hold the storage itself, because the devices must close with its last user and not with a job.
            let (deflate, salt) = (self.deflate.clone(), salt.clone());
            self.workers().spawn(move || encode_waiting(&prepared, &deflate, salt));
        }
    }

    /// `recipe` with the parameters of this pool.
    #[must_use]
    pub fn encoding<'a>(&'a self, recipe: Recipe, salt: &'a Salt) -> Encoding<'a> {
        Encoding { recipe, deflate: &self.deflate, salt, guard: Guard::default() }
    }

    /// Encodes the record of `draft` by `recipe`, or takes the result that was made ahead.
    #[must_use]
    pub fn encode(&self, draft: &Draft, recipe: Recipe, salt: &Arc<Salt>, guard: Guard<'_>) -> Encoded {
        let encoding = Encoding { guard, ..self.encoding(recipe, salt) };
        if let Some(moved) = draft.as_moved() {
            return encoding.encode_moved(draft.record(), moved);
        }
        let progress = draft.prepared().map(|prepared| std::mem::take(&mut *prepared.progress()));
        match progress {
            Some(Progress::Done(known, made_with, made))
                if known == recipe && Arc::ptr_eq(&made_with, salt) =>
            {
                match made {
                    Made::Encoded(encoded) => encoded,
                    Made::Packed(packed) => encoding.complete(packed, draft.record()),
                }
            }
            _ => encoding.encode(draft.record()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GzipEngine, Options, Record, Vdevs};
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
            second: Default::default(),
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
            protection: None,
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
    fn is_done(draft: &Draft) -> bool {
        draft.prepared().is_some_and(|prepared| matches!(*prepared.progress(), Progress::Done(..)))
    }

    fn finish(draft: &Draft) {
        while !is_done(draft) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_record_encoded_ahead_has_the_same_bytes_and_is_used_once() {
        let storage = storage();
        let salt = storage.salt();
        let drafts = [record(1), record(2), record(3)].map(Draft::from);
        storage.encode_ahead(drafts.iter().map(|draft| (draft.share(), recipe())));
        for draft in &drafts {
            finish(draft);
            let made = storage.encode(draft, recipe(), &salt, Guard::default());
            assert!(!is_done(draft), "it was taken");
            let now = storage.encode(draft, recipe(), &salt, Guard::default());
            assert_eq!(bytes(&made), bytes(&now));
            assert_eq!(Arc::strong_count(draft.record()), 1, "nothing holds a record that was taken");
        }
    }

    #[test]
    fn a_new_recipe_a_new_salt_and_a_changed_record_are_encoded_again() {
        let storage = storage();
        let salt = storage.salt();
        let mut changed = Draft::from(record(4));
        let other = Recipe { compression: CompressionSetting::OFF, ..recipe() };
        storage.encode_ahead([(changed.share(), recipe())]);
        finish(&changed);
        assert_eq!(bytes(&storage.encode(&changed, other, &salt, Guard::default())), &changed.record()[..]);
        let salted =
            Recipe { compression: CompressionSetting::OFF, checksum: ChecksumKind::Skein, ..recipe() };
        let sum = |encoded: Encoded| match encoded {
            Encoded::Stored { checksum, .. } => checksum,
            other => panic!("{other:?}"),
        };
        storage.encode_ahead([(changed.share(), salted)]);
        finish(&changed);
        storage.set_salt([9; 32]);
        let wanted = sum(storage.encoding(salted, &storage.salt()).encode(changed.record()));
        assert_eq!(sum(storage.encode(&changed, salted, &storage.salt(), Guard::default())), wanted);
        storage.encode_ahead([(changed.share(), other)]);
        let _unchanged = changed.record().clone();
        changed.edit()[5] ^= 1;
        assert!(!is_done(&changed));
        assert_eq!(
            bytes(&storage.encode(&changed, other, &storage.salt(), Guard::default())),
            &changed.record()[..]
        );
    }

    #[test]
    fn a_record_that_waits_for_a_worker_is_changed_without_a_copy() {
        let mut draft = Draft::from(record(5));
        *draft.prepare().progress() = Progress::Waiting(draft.record().clone(), recipe());
        let before = draft.record().as_ptr();
        draft.edit()[0] = 1;
        assert_eq!(draft.record().as_ptr(), before);
    }
}
