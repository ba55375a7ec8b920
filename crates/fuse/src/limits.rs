//! Writes near a quota, a reservation or the end of the pool.
//!
//! With `FUSE_WRITEBACK_CACHE`, a `write` returns to the program when the kernel's page cache has taken the data. The data
//! arrives here later, and a refusal then would lose acknowledged data. So writes are refused before the cache takes them.
//! The kernel does not ask before it takes a page. But before each `write` it asks for the attributes of the file when those
//! it knows are no longer valid. After that it asks whether the file has capabilities (`security.capability`) to take off.
//! Near a limit we therefore let the attributes of a file that is written expire at once, and decide in the answer about the
//! capabilities. The kernel refuses a `write` when it cannot take off what that answer claims:
//!
//! ```text
//! GETATTR               attributes have expired
//! GETXATTR              how long is security.capability?   "20 bytes" when a limit is reached, else the truth
//! REMOVEXATTR           take it off                        done
//! SETATTR of nothing    that was all                       EDQUOT or ENOSPC: this is what `write` returns
//! ```
//!
//! A truncation asks the same, but its last message sets the size: it is carried out. Data whose `write` was allowed is
//! stored, even if a limit is reached by then (decision 0013).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::Errno;
use zpl::rank::{MutexHeld, RankedMutex};
use zpl::session::Change;
use zpl::{ObjectId, Reach};

use crate::errno::Answer;

/// The attribute that the kernel asks for before it takes pages of a `write`, and the length of its value.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
pub(crate) const CAPABILITY_LEN: u32 = 20;
/// The largest `write` of Linux, in bytes.
const LARGEST_WRITE: u64 = 0x7fff_f000;
/// Bytes that the kernel may hold of a file system before it hands them over, if it does not say.
const CACHE_DEFAULT: u64 = 64 << 20;
/// Maximal space, in bytes, that is kept free for the kernel's cache. A larger cache may exceed a limit by the rest.
const CACHE_MOST: u64 = 256 << 20;

/// State of the writes that the kernel's cache took.
pub(crate) struct Limits {
    files: RankedMutex<HashMap<ObjectId, Writer>>,
    /// Bytes that the kernel's cache may hold of this file system.
    cache: AtomicU64,
}

/// How the latest `write` to a file, or truncation, was answered.
#[derive(Clone, Copy, Default)]
struct Writer {
    /// Bytes from the kernel's cache that are stored even beyond a limit, because their `write` was allowed.
    promised: u64,
    /// The same before the latest answer.
    before: u64,
    /// The latest `write` is refused with this error.
    refused: Option<Errno>,
    /// The attributes were invalidated, so the kernel asks before the next `write`.
    asks: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { files: RankedMutex::default(), cache: AtomicU64::new(CACHE_DEFAULT) }
    }
}

impl Limits {
    fn files(&self) -> MutexHeld<'_, HashMap<ObjectId, Writer>> {
        self.files.lock()
    }

    /// The kernel reports how much its cache may hold. The number follows the free memory, so a margin is added.
    pub(crate) fn set_cache(&self, bytes: u64) {
        self.cache.store((bytes + bytes / 4).min(CACHE_MOST), Ordering::Release);
    }

    /// A `write` to `id` may go to the kernel's cache.
    pub(crate) fn admit(&self, id: ObjectId) {
        let mut files = self.files();
        let writer = files.entry(id).or_default();
        *writer = Writer { promised: LARGEST_WRITE, before: writer.promised, refused: None, ..*writer };
    }

    /// Whether the kernel must be notified to ask before the next `write` to `id`. It must not if a notice was sent and is
    /// still in force. A second notice does harm: the kernel drops the answer with the attributes that is on its way, does
    /// not ask for the capabilities, and takes that `write` without a question.
    pub(crate) fn must_ask(&self, id: ObjectId) -> bool {
        !std::mem::replace(&mut self.files().entry(id).or_default().asks, true)
    }

    /// From now on the kernel may use its cached attributes of `id`.
    pub(crate) fn let_off(&self, id: ObjectId) {
        self.files().entry(id).or_default().asks = false;
    }

    pub(crate) fn refuse(&self, id: ObjectId, errno: Errno) {
        let mut files = self.files();
        let writer = files.entry(id).or_default();
        *writer = Writer { before: writer.promised, refused: Some(errno), ..*writer };
    }

    /// Whether the answer claims capabilities that do not exist, so that the kernel removes them.
    pub(crate) fn refuses(&self, id: ObjectId) -> bool {
        self.files().get(&id).is_some_and(|writer| writer.refused.is_some())
    }

    /// The error for the `write` whose last message this is, if it is refused.
    pub(crate) fn refusal(&self, id: ObjectId, wanted: &Change) -> Answer<()> {
        let mut files = self.files();
        let Some(writer) = files.get_mut(&id) else { return Ok(()) };
        if wanted.size.is_some() {
            // The question did not come from a `write`, so no other message follows.
            (writer.promised, writer.refused) = (writer.before, None);
        }
        match writer.refused {
            Some(errno) if wanted.is_nothing() => {
                writer.refused = None;
                Err(errno)
            }
            _ => Ok(()),
        }
    }

    /// How far `len` bytes from the page cache for `id` may exceed the limits; `left` are the bytes left within the limits.
    pub(crate) fn reach(&self, id: ObjectId, len: u64, left: u64) -> Reach {
        let mut files = self.files();
        // Pages of which the kernel did not ask before came from a shared mapping; `msync` reports their errors.
        let Some(writer) = files.get_mut(&id) else { return Reach::Limits };
        if writer.promised < len {
            return Reach::Limits;
        }
        if left <= len {
            writer.promised -= len;
        }
        Reach::Acknowledged
    }

    /// Bytes that the kernel's cache may hold.
    pub(crate) fn cache(&self) -> u64 {
        self.cache.load(Ordering::Acquire)
    }

    /// Files that the kernel knows and that were written.
    pub(crate) fn written(&self) -> Vec<ObjectId> {
        self.files().keys().copied().collect()
    }

    /// The kernel forgot `id`.
    pub(crate) fn forget(&self, id: ObjectId) {
        self.files().remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Change =
        Change { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, ctime: None };

    #[test]
    fn only_the_last_message_of_a_write_is_refused() {
        let (limits, id) = (Limits::default(), ObjectId(7));
        assert!(limits.refusal(id, &NOTHING).is_ok());
        limits.refuse(id, Errno::EDQUOT);
        assert!(limits.refuses(id));
        assert!(limits.refusal(id, &Change { mode: Some(0o600), ..NOTHING }).is_ok());
        assert_eq!(limits.refusal(id, &NOTHING), Err(Errno::EDQUOT));
        assert!(!limits.refuses(id));
        limits.refuse(id, Errno::EDQUOT);
        assert!(limits.refusal(id, &Change { size: Some(0), ..NOTHING }).is_ok(), "a truncation");
        assert!(limits.refusal(id, &NOTHING).is_ok());
    }

    #[test]
    fn the_kernel_gets_one_notice_until_its_attributes_are_valid_again() {
        let (limits, id) = (Limits::default(), ObjectId(7));
        assert!(limits.must_ask(id));
        limits.admit(id);
        limits.refuse(id, Errno::EDQUOT);
        assert!(!limits.must_ask(id), "each more makes an answer void that is on its way");
        limits.let_off(id);
        assert!(limits.must_ask(id));
    }

    #[test]
    fn admitted_writes_are_stored_beyond_a_limit_and_mappings_are_not() {
        let (limits, id) = (Limits::default(), ObjectId(7));
        assert_eq!(limits.reach(id, 1, u64::MAX), Reach::Limits, "nobody asked");
        limits.admit(id);
        assert!(limits.refusal(id, &Change { size: Some(9), ..NOTHING }).is_ok());
        assert_eq!(limits.reach(id, 1, 0), Reach::Limits, "a truncation asked");
        limits.admit(id);
        assert_eq!(limits.reach(id, LARGEST_WRITE, u64::MAX), Reach::Acknowledged);
        assert_eq!(limits.reach(id, LARGEST_WRITE - 1, 0), Reach::Acknowledged);
        limits.refuse(id, Errno::ENOSPC);
        assert_eq!(limits.reach(id, 1, 0), Reach::Acknowledged, "its write was let through before");
        assert_eq!(limits.reach(id, 1, 0), Reach::Limits);
        limits.forget(id);
        assert!(limits.files().is_empty());
    }
}
