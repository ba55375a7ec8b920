//! Unsynced additions to the accounting of users, groups and projects.
//!
//! The accounting ZAPs are as of the last sync. Between two syncs a program can write far more than a small quota. So quota
//! checks use the stored sums plus the bytes written since.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use dmu::rank::{MutexHeld, Rank, RankedMutex};
use format::Txg;

use crate::owner::{Amount, Owner};

/// Whose use of what.
pub(crate) type Account = (Owner, Amount, u64);

/// The unsynced additions to each account, by txg.
type Added = HashMap<Account, Vec<(Txg, u64)>>;

/// The unsynced additions to each account, and the newest txg in which something was freed.
#[derive(Debug)]
pub(crate) struct Pending {
    added: RankedMutex<Added>,
    freed_in: AtomicU64,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending { added: RankedMutex::new(Rank::Pending, Added::default()), freed_in: AtomicU64::default() }
    }
}

impl Pending {
    fn added(&self) -> MutexHeld<'_, Added> {
        self.added.lock()
    }

    /// Adds `amount` in `txg`. `synced` is the newest txg on disk.
    pub(crate) fn add(&self, account: Account, txg: Txg, amount: u64, synced: Txg) {
        let mut added = self.added();
        let by_txg = added.entry(account).or_default();
        by_txg.retain(|(txg, _)| *txg > synced);
        match by_txg.iter_mut().find(|(known, _)| *known == txg) {
            Some((_, sum)) => *sum = sum.saturating_add(amount),
            None => by_txg.push((txg, amount)),
        }
    }

    /// The sum of what was added to `account` since `synced`.
    pub(crate) fn sum(&self, account: Account, synced: Txg) -> u64 {
        let mut added = self.added();
        let Some(by_txg) = added.get_mut(&account) else { return 0 };
        by_txg.retain(|(txg, _)| *txg > synced);
        let sum = by_txg.iter().fold(0, |sum: u64, (_, amount)| sum.saturating_add(*amount));
        if by_txg.is_empty() {
            added.remove(&account);
        }
        sum
    }

    /// Something was freed in `txg`.
    pub(crate) fn note_free(&self, txg: Txg) {
        self.freed_in.fetch_max(txg.0, Ordering::AcqRel);
    }

    /// Whether space was freed since `synced`.
    pub(crate) fn frees_since(&self, synced: Txg) -> bool {
        self.freed_in.load(Ordering::Acquire) > synced.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_additions_of_an_owner_count_until_their_txg_is_synced() {
        let pending = Pending::default();
        let (one, other) = ((Owner::User, Amount::Bytes, 7), (Owner::Group, Amount::Bytes, 7));
        pending.add(one, Txg(5), 10, Txg(4));
        pending.add(one, Txg(5), 1, Txg(4));
        pending.add(one, Txg(6), 100, Txg(4));
        assert_eq!((pending.sum(one, Txg(4)), pending.sum(other, Txg(4))), (111, 0));
        assert_eq!(pending.sum(one, Txg(5)), 100);
        assert_eq!(pending.sum(one, Txg(6)), 0);
        assert!(pending.added().is_empty());
        pending.note_free(Txg(6));
        pending.note_free(Txg(5));
        assert!(pending.frees_since(Txg(5)) && !pending.frees_since(Txg(6)));
    }
}
