//! Suspended I/O: a device that the pool needs refuses a write, and the write waits for a retry.
//!
//! From:   the I/O threads and the sync thread, whose writes (and reads) of a txg must succeed.
//! To:     the user who repairs the cause, and then [`Suspension::retry`] (`zpool clear`).
//!
//! Only the refused operation waits and is repeated. Everything else of the txg stays as it is, so a txg that was
//! suspended is the same on the disks as one that was not.

use std::path::PathBuf;
use std::sync::Condvar;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use crate::rank::{MutexHeld, Rank, RankedMutex};
use crate::{ReadError, WriteError, interrupt};

/// The effect of a refused write (the pool property `failmode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailMode {
    /// The pool is suspended; writers wait.
    #[default]
    Wait,
    /// The pool is suspended; writers get an error.
    Continue,
    /// The process that holds the pool ends.
    Panic,
}

impl FailMode {
    /// The mode that the pool property's number stands for.
    #[must_use]
    pub const fn from_number(number: u64) -> FailMode {
        match number {
            1 => FailMode::Continue,
            2 => FailMode::Panic,
            _ => FailMode::Wait,
        }
    }

    /// The mode as the pool property spells it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FailMode::Wait => "wait",
            FailMode::Continue => "continue",
            FailMode::Panic => "panic",
        }
    }
}

/// Why I/O is suspended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The request that the device refused, and its reason.
    pub why: String,
    /// The device.
    pub path: PathBuf,
    /// The first refusal since I/O was last resumed.
    pub at: Instant,
}

#[derive(Debug, Default)]
struct State {
    enabled: bool,
    mode: FailMode,
    refused: Option<Refused>,
    /// How often [`Suspension::retry`] was called.
    retries: u64,
    /// Refused operations that wait for a retry.
    waiting: u64,
    /// Operations that were waiting and are being tried again.
    retrying: u64,
    /// Nothing waits any more: every refusal is an error.
    given_up: bool,
    /// How often I/O was suspended, and the last time.
    suspensions: u64,
    last: Option<Refused>,
    sync_thread: Option<ThreadId>,
}

/// The suspended operations of a pool. Disabled at first: then every refusal is an error at once.
#[derive(Debug)]
pub struct Suspension {
    state: RankedMutex<State>,
    changed: Condvar,
}

impl Default for Suspension {
    fn default() -> Suspension {
        let state = RankedMutex::new(Rank::Suspended, State::default());
        Suspension { state, changed: Condvar::new() }
    }
}

/// An error that may be a device's refusal.
pub trait MaybeRefused {
    /// The device and its reason; `None` for an error that another try would only repeat.
    fn refusal(&self) -> Option<(PathBuf, String)>;
}

impl MaybeRefused for WriteError {
    fn refusal(&self) -> Option<(PathBuf, String)> {
        match self {
            WriteError::Device { path, .. } => Some((path.clone(), self.to_string())),
            WriteError::Read(error) => error.refusal(),
            WriteError::NoSpace | WriteError::Unwritable { .. } => None,
        }
    }
}

impl MaybeRefused for ReadError {
    fn refusal(&self) -> Option<(PathBuf, String)> {
        match self {
            ReadError::Device { path, .. } => Some((path.clone(), self.to_string())),
            _ => None,
        }
    }
}

/// The state, held.
type Locked<'a> = MutexHeld<'a, State>;

impl Suspension {
    fn lock(&self) -> Locked<'_> {
        self.state.lock()
    }

    fn wait<'a>(&self, state: Locked<'a>) -> Locked<'a> {
        let wait =
            |state| self.changed.wait(state).expect("no code panics while holding the suspension state");
        state.wait(wait)
    }

    /// From now on refused operations wait. Some thread must be able to call [`Suspension::retry`].
    pub fn enable(&self) {
        self.lock().enabled = true;
    }

    /// Whether refused operations wait.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        let state = self.lock();
        state.enabled && !state.given_up
    }

    /// Sets the effect of a refused write.
    pub fn set_mode(&self, mode: FailMode) {
        self.lock().mode = mode;
        self.changed.notify_all();
    }

    /// The effect of a refused write.
    #[must_use]
    pub fn mode(&self) -> FailMode {
        self.lock().mode
    }

    /// Why I/O is suspended; `None` if it is not.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        self.lock().refused.clone()
    }

    /// How often I/O was suspended so far, and why the last time.
    #[must_use]
    pub fn history(&self) -> (u64, Option<Refused>) {
        let state = self.lock();
        (state.suspensions, state.last.clone())
    }

    /// Marks the calling thread as the sync thread. Its refused reads wait, too, because the sync cannot continue without
    /// them.
    pub fn set_sync_thread(&self) {
        self.lock().sync_thread = Some(std::thread::current().id());
    }

    /// Whether the calling thread is the sync thread (see [`Suspension::set_sync_thread`]).
    pub(crate) fn is_sync_thread(&self) -> bool {
        self.lock().sync_thread == Some(std::thread::current().id())
    }

    /// Runs `operation`, and repeats it after each [`Suspension::retry`] as long as a device refuses it.
    ///
    /// # Errors
    /// Errors of another kind; a refusal where refused operations do not wait (any more), or where the request that the
    /// thread serves is interrupted: it writes to an intent log, and what does not get there a sync makes safe.
    pub fn attempt<T, E: MaybeRefused>(&self, mut operation: impl FnMut() -> Result<T, E>) -> Result<T, E> {
        let mut is_retry = false;
        loop {
            let done = operation();
            let refusal = done.as_ref().err().and_then(MaybeRefused::refusal);
            let mut state = self.lock();
            if is_retry {
                state.retrying -= 1;
                self.changed.notify_all();
            }
            let Some((path, why)) = refusal.filter(|_| state.enabled && !state.given_up) else {
                return done;
            };
            state.suspend(Refused { why, path, at: Instant::now() });
            self.changed.notify_all();
            let seen = state.retries;
            state.waiting += 1;
            while state.retries == seen && !state.given_up && !interrupt::is_wanted() {
                state = state.wait(|state| interrupt::wait(&self.changed, state));
            }
            state.waiting -= 1;
            // A retry counts the waiting operations, so an interrupt ends a wait only before the retry.
            if state.given_up || state.retries == seen {
                return done;
            }
            is_retry = true;
        }
    }

    /// Retries all suspended operations and waits for the result, up to `patience`. Returns the new reason if I/O is
    /// suspended again; `None` if it continues.
    #[must_use]
    pub fn retry(&self, patience: Duration) -> Option<Refused> {
        let until = Instant::now() + patience;
        let mut state = self.lock();
        state.refused.take()?;
        state.retries += 1;
        state.retrying += state.waiting;
        self.changed.notify_all();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.retrying == 0 || left.is_zero() {
                return state.refused.clone();
            }
            state = state.wait(|state| {
                let waited = self.changed.wait_timeout(state, left);
                waited.expect("no code panics while holding the suspension state").0
            });
        }
    }

    /// Ends all waits for good: suspended operations fail, and so do all later refused ones.
    pub fn give_up(&self) {
        self.lock().given_up = true;
        self.changed.notify_all();
    }

    /// Whether the refused operations were dropped: they are not tried again.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// Whether I/O is suspended and writers get an error instead of waiting.
    #[must_use]
    pub fn refuses_writers(&self) -> bool {
        let state = self.lock();
        state.refused.is_some() && (state.mode != FailMode::Wait || state.given_up)
    }

    /// Blocks the caller while I/O is suspended and the mode is [`FailMode::Wait`], or until its request is
    /// interrupted. Returns whether I/O is resumed.
    pub fn wait_for_resume(&self) -> bool {
        let mut state = self.lock();
        let waits = |state: &State| {
            state.refused.is_some()
                && state.mode == FailMode::Wait
                && !state.given_up
                && !interrupt::is_wanted()
        };
        while waits(&state) {
            state = state.wait(|state| interrupt::wait(&self.changed, state));
        }
        state.refused.is_none()
    }

    /// Blocks the caller until I/O is suspended for the `count`th time; `None` when no operation waits any more.
    #[must_use]
    pub fn await_suspension(&self, count: u64) -> Option<(Refused, FailMode)> {
        let mut state = self.lock();
        while state.suspensions < count && !state.given_up {
            state = self.wait(state);
        }
        state.last.clone().filter(|_| !state.given_up).map(|refused| (refused, state.mode))
    }
}

impl State {
    fn suspend(&mut self, refused: Refused) {
        if self.refused.is_none() {
            self.suspensions += 1;
            self.last = Some(refused.clone());
            self.refused = Some(refused);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn refusal() -> WriteError {
        let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
        WriteError::Device { path: "/disk".into(), offset: 4096, source }
    }

    #[test]
    fn a_refused_operation_fails_at_once_until_suspension_is_enabled() {
        let suspension = Suspension::default();
        assert!(suspension.attempt(|| Err::<(), _>(refusal())).is_err());
        assert_eq!(suspension.refused(), None);
    }

    #[test]
    fn a_refused_operation_is_repeated_after_each_retry_until_it_succeeds() {
        let suspension = Suspension::default();
        suspension.enable();
        let (tries, good_from) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                suspension.attempt(|| {
                    let number = tries.fetch_add(1, Ordering::Relaxed);
                    if number < good_from.load(Ordering::Relaxed) { Err(refusal()) } else { Ok(number) }
                })
            });
            let (refused, mode) = suspension.await_suspension(1).expect("it is suspended");
            assert_eq!((refused.path, mode), (PathBuf::from("/disk"), FailMode::Wait));
            assert!(suspension.retry(Duration::from_secs(60)).is_some(), "the device refuses still");
            good_from.store(0, Ordering::Relaxed);
            assert_eq!(suspension.retry(Duration::from_secs(60)), None);
            assert_eq!(writer.join().expect("no panic").expect("written"), 2);
        });
        assert_eq!((suspension.refused(), suspension.history().0), (None, 2));
    }

    #[test]
    fn giving_up_ends_every_wait_with_the_devices_error() {
        let suspension = Suspension::default();
        suspension.enable();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| suspension.attempt(|| Err::<(), _>(refusal())));
            assert!(suspension.await_suspension(1).is_some());
            let waiting = scope.spawn(|| suspension.wait_for_resume());
            suspension.give_up();
            assert!(writer.join().expect("no panic").is_err());
            assert!(!waiting.join().expect("no panic"));
        });
        assert!(suspension.attempt(|| Err::<(), _>(refusal())).is_err());
    }

    #[test]
    fn an_interrupted_request_does_not_wait_for_a_retry_and_a_later_retry_does_not_wait_for_it() {
        let suspension = Suspension::default();
        suspension.enable();
        let request = std::sync::Arc::new(interrupt::Interrupt::default());
        std::thread::scope(|scope| {
            let writer = scope
                .spawn(|| interrupt::serving(&request, || suspension.attempt(|| Err::<(), _>(refusal()))));
            assert!(suspension.await_suspension(1).is_some());
            request.set(interrupt::Wish::Dying);
            assert!(writer.join().expect("no panic").is_err());
        });
        assert_eq!(suspension.retry(Duration::from_secs(60)), None, "nothing waits any more");
    }

    #[test]
    fn errors_that_a_retry_would_repeat_do_not_suspend() {
        let suspension = Suspension::default();
        suspension.enable();
        assert!(suspension.attempt(|| Err::<(), _>(WriteError::NoSpace)).is_err());
        assert_eq!(suspension.history().0, 0);
    }
}
