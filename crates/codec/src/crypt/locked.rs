//! Memory for keys: pages of their own, which the kernel does not write to swap space where the limit for that allows it.

/// Bytes of a page, at most, on the machines that are supported.
const PAGE: usize = 4096;

/// A value on pages of its own, so that unlocking it unlocks no other.
#[repr(align(4096))]
struct Paged<T>(T);

const _: () = assert!(align_of::<Paged<u8>>() == PAGE);

/// Keys in memory that stays out of swap space, if the limit (`RLIMIT_MEMLOCK`) allows it. Keys zero themselves when they
/// are dropped, and this happens before the memory is unlocked.
pub(super) struct Locked<T> {
    /// Unlocks the memory before it is given back; `None` where locking was refused.
    _lock: Option<region::LockGuard>,
    /// Empty at the end only.
    value: Box<Paged<Option<T>>>,
}

impl<T> Locked<T> {
    /// Moves the value to pages of its own, and locks them. Fill the value in place: a move leaves a copy behind.
    pub(super) fn new(value: T) -> Locked<T> {
        let value = Box::new(Paged(Some(value)));
        let lock = region::lock(core::ptr::from_ref(&*value), size_of::<Paged<Option<T>>>()).ok();
        Locked { _lock: lock, value }
    }

    /// Whether the kernel took the lock.
    #[cfg(test)]
    fn is_locked(&self) -> bool {
        self._lock.is_some()
    }
}

impl<T> core::ops::Deref for Locked<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.0.as_ref().expect("it is there until the end")
    }
}

impl<T> core::ops::DerefMut for Locked<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.0.as_mut().expect("it is there until the end")
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        self.value.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kilobytes of this process that are locked.
    fn locked_kilobytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("the kernel tells");
        let line = status.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("it is there");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn keys_are_locked_as_long_as_they_live_where_the_limit_allows_it() {
        let before = locked_kilobytes();
        let all: Vec<_> = (0..3).map(|number| Locked::new([number; 32])).collect();
        if all.iter().all(Locked::is_locked) {
            assert!(locked_kilobytes() >= before + 12, "{before} and {}", locked_kilobytes());
        }
        assert_eq!(*all[2], [2; 32]);
        drop(all);
    }
}
