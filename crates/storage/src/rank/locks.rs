//! Locks that know their rank.
//!
//! The plain methods panic if a thread panicked while it held the lock, because the guarded value may be half changed.
//! The methods `…_after_panics` are for values that are never half changed.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

use super::{Place, Rank, Ranked};

/// A mutex that a thread holds.
pub type MutexHeld<'a, T> = Ranked<MutexGuard<'a, T>>;
/// A lock that a thread holds for reading.
pub type ReadHeld<'a, T> = Ranked<RwLockReadGuard<'a, T>>;
/// A lock that a thread holds for writing.
pub type WriteHeld<'a, T> = Ranked<RwLockWriteGuard<'a, T>>;

/// A mutex with its place in the order of locks. The default is a leaf.
#[derive(Debug)]
pub struct RankedMutex<T> {
    place: Place,
    mutex: Mutex<T>,
}

impl<T: Default> Default for RankedMutex<T> {
    fn default() -> RankedMutex<T> {
        RankedMutex::leaf(T::default())
    }
}

impl<T> RankedMutex<T> {
    /// A mutex of `rank`.
    pub const fn new(rank: Rank, value: T) -> RankedMutex<T> {
        RankedMutex { place: Place::of(rank), mutex: Mutex::new(value) }
    }

    /// A mutex of the rank [`Rank::Leaf`].
    pub const fn leaf(value: T) -> RankedMutex<T> {
        RankedMutex::new(Rank::Leaf, value)
    }

    /// Takes the lock.
    ///
    /// # Panics
    /// A thread panicked while it held the lock. In debug builds also if this thread holds a lock that comes after this one.
    pub fn lock(&self) -> MutexHeld<'_, T> {
        Ranked::lock(self.place, || self.mutex.lock().unwrap_or_else(|_| broken(self.place)))
    }

    /// The guarded value.
    ///
    /// # Panics
    /// A thread panicked while it held the lock.
    pub fn into_inner(self) -> T {
        self.mutex.into_inner().unwrap_or_else(|_| broken(self.place))
    }

    /// As [`RankedMutex::lock`], also after a panic.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that comes after this one.
    pub fn lock_after_panics(&self) -> MutexHeld<'_, T> {
        Ranked::lock(self.place, || self.mutex.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`RankedMutex::lock_after_panics`]; `None` if another thread holds the lock.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that comes after this one: a caller that tries again would wait.
    pub fn try_lock_after_panics(&self) -> Option<MutexHeld<'_, T>> {
        Ranked::try_lock(self.place, || taken(self.mutex.try_lock()))
    }
}

/// A readers-writer lock with its place in the order of locks. The default is a leaf.
#[derive(Debug)]
pub struct RankedRwLock<T> {
    place: Place,
    lock: RwLock<T>,
}

impl<T: Default> Default for RankedRwLock<T> {
    fn default() -> RankedRwLock<T> {
        RankedRwLock::leaf(T::default())
    }
}

impl<T> RankedRwLock<T> {
    /// A lock of `rank`.
    pub const fn new(rank: Rank, value: T) -> RankedRwLock<T> {
        RankedRwLock { place: Place::of(rank), lock: RwLock::new(value) }
    }

    /// A lock of the rank [`Rank::Leaf`].
    pub const fn leaf(value: T) -> RankedRwLock<T> {
        RankedRwLock::new(Rank::Leaf, value)
    }

    /// Takes the lock for reading.
    ///
    /// # Panics
    /// As [`RankedMutex::lock`].
    pub fn read(&self) -> ReadHeld<'_, T> {
        Ranked::lock(self.place, || self.lock.read().unwrap_or_else(|_| broken(self.place)))
    }

    /// Takes the lock for writing.
    ///
    /// # Panics
    /// As [`RankedMutex::lock`].
    pub fn write(&self) -> WriteHeld<'_, T> {
        Ranked::lock(self.place, || self.lock.write().unwrap_or_else(|_| broken(self.place)))
    }

    /// As [`RankedRwLock::read`], also after a panic.
    ///
    /// # Panics
    /// As [`RankedMutex::lock_after_panics`].
    pub fn read_after_panics(&self) -> ReadHeld<'_, T> {
        Ranked::lock(self.place, || self.lock.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`RankedRwLock::write`], also after a panic.
    ///
    /// # Panics
    /// As [`RankedMutex::lock_after_panics`].
    pub fn write_after_panics(&self) -> WriteHeld<'_, T> {
        Ranked::lock(self.place, || self.lock.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The guard after an attempt to take a lock; `None` if another thread holds the lock.
fn taken<G>(tried: TryLockResult<G>) -> Option<G> {
    match tried {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn broken(place: Place) -> ! {
    panic!("a thread panicked while it held this lock ({place:?}): what the lock guards may be half changed")
}

// A rank costs nothing where it is not checked.
#[cfg(not(debug_assertions))]
const _: () = {
    assert!(size_of::<RankedMutex<u64>>() == size_of::<Mutex<u64>>());
    assert!(size_of::<RankedRwLock<u64>>() == size_of::<RwLock<u64>>());
    assert!(size_of::<MutexHeld<'static, u64>>() == size_of::<MutexGuard<'static, u64>>());
    assert!(size_of::<WriteHeld<'static, u64>>() == size_of::<RwLockWriteGuard<'static, u64>>());
};

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    fn no_lock_is_taken_under_a_leaf() {
        let (leaf, other) = (RankedMutex::leaf(1), RankedRwLock::leaf(2));
        let outer = RankedMutex::new(Rank::Trees, 3);
        // Each guard is dropped at the end of its statement.
        assert_eq!(*outer.lock(), 3);
        assert_eq!(*leaf.lock(), 1);
        assert_eq!(*other.read(), 2);
        let fault = catch_unwind(|| *leaf.lock() + *outer.lock());
        assert!(fault.is_err(), "an outer lock under a leaf");
        let fault = catch_unwind(|| *leaf.lock_after_panics() + *other.read_after_panics());
        assert!(fault.is_err(), "a leaf under a leaf");
        assert_eq!(*outer.lock() + *leaf.lock_after_panics(), 4);
    }

    #[test]
    fn a_lock_is_broken_by_a_panic_unless_the_caller_says_otherwise() {
        let (mutex, lock) = (RankedMutex::leaf(1), RankedRwLock::leaf(2));
        let fault = catch_unwind(|| {
            let _held = mutex.lock();
            panic!("on purpose");
        });
        assert!(fault.is_err() && catch_unwind(|| drop(mutex.lock())).is_err());
        assert_eq!(*mutex.lock_after_panics(), 1);
        let fault = catch_unwind(|| {
            let _held = lock.write();
            panic!("on purpose");
        });
        assert!(fault.is_err() && catch_unwind(|| drop(lock.read())).is_err());
        assert!(catch_unwind(|| drop(lock.write())).is_err());
        assert_eq!(*lock.read_after_panics(), 2);
        assert_eq!(*lock.write_after_panics(), 2);
    }

    #[test]
    fn a_lock_that_another_thread_holds_is_not_waited_for() {
        let mutex = RankedMutex::new(Rank::CommandTurn, ());
        let held = mutex.try_lock_after_panics();
        assert!(held.is_some());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(mutex.try_lock_after_panics().is_none()));
        });
        drop(held);
        assert!(mutex.try_lock_after_panics().is_some());
    }
}
