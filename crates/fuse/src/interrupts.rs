//! Interrupted requests: the running requests, and how each of them can end early.
//!
//! From:   the kernel's message `FUSE_INTERRUPT`: the program that waits for a request got a signal.
//! To:     `EINTR` for that request, where nothing was changed, or where the program dies and cannot see the answer.
//!
//! The kernel sends one such message for a request, whatever signals follow, and does not say which signal it was. So
//! the signals are read from `/proc`, again and again until the request is done. A signal that does not end a program
//! (SIGCHLD, SIGALRM, SIGWINCH …) changes nothing: programs do not expect `EINTR` from files.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use fuser::{EarlyReply, Errno, Request, RequestId};
use zpl::interrupt::{self, Interrupt, Wish};
use zpl::rank::{MutexHeld, RankedMutex};

/// The time between two looks at the signals of programs whose requests are interrupted.
const LOOK: Duration = Duration::from_millis(100);
/// A program that handles its signal gets `EINTR` once its request has taken so long. Below that, files behave as on
/// other file systems, where a request is not interrupted.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximal number of interrupts that are kept although their request has not come yet. Another thread is about to take
/// that request.
const EARLY_MAX: usize = 256;

/// SIGINT, SIGQUIT and SIGTERM, as bits of a set of signals.
const ENDING: u64 = 1 << 1 | 1 << 2 | 1 << 14;
/// SIGKILL. The kernel also sets it for a program that dies of another signal.
const KILLED: u64 = 1 << 8;

/// The request reads: it can be answered at any time. The thread that serves it continues, and its answer is ignored. If
/// it was a lookup, the node stays known until the unmount, because the kernel does not count the lookup.
const LOOKS: u8 = 0;
/// The request changes something and has not begun.
const QUEUED: u8 = 1;
/// A thread carries the change out.
const CHANGES: u8 = 2;
/// It was answered with `EINTR`.
const ENDED: u8 = 3;

thread_local! {
    /// The request that this thread took from the kernel.
    static CURRENT: RefCell<Option<Arc<Asked>>> = const { RefCell::new(None) };
}

/// A request under way.
#[derive(Debug)]
pub(crate) struct Asked {
    unique: u64,
    pid: u32,
    since: Instant,
    phase: AtomicU8,
    is_done: AtomicBool,
    interrupt: Arc<Interrupt>,
    /// An answer that another thread gives.
    early: RankedMutex<Option<EarlyReply>>,
}

impl Asked {
    fn goes(&self, from: u8, to: u8) -> bool {
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Answers with `EINTR`.
    fn end(&self) {
        let reply = self.early.lock().take();
        if let Some(reply) = reply {
            reply.error(Errno::EINTR);
        }
    }

    fn is_over(&self) -> bool {
        self.is_done.load(Ordering::Acquire) || self.phase.load(Ordering::Acquire) == ENDED
    }
}

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<u64, Arc<Asked>>,
    early: VecDeque<u64>,
    interrupted: Vec<Arc<Asked>>,
    /// A thread looks after `interrupted`.
    is_watched: bool,
}

/// The requests of a mount.
#[derive(Debug, Default)]
pub(crate) struct Interrupts(RankedMutex<State>);

impl Interrupts {
    fn lock(&self) -> MutexHeld<'_, State> {
        self.0.lock()
    }

    /// Carries out `dispatch`, which serves `request` or leaves it to another thread as a [`Change`].
    pub(crate) fn dispatching(
        self: &Arc<Self>,
        request: &Request,
        early: EarlyReply,
        dispatch: &mut dyn FnMut(),
    ) {
        let asked = Arc::new(Asked {
            unique: request.unique().into(),
            pid: request.pid(),
            since: Instant::now(),
            phase: LOOKS.into(),
            is_done: false.into(),
            interrupt: Arc::default(),
            early: RankedMutex::leaf(Some(early)),
        });
        let is_interrupted = {
            let mut state = self.lock();
            state.under_way.insert(asked.unique, asked.clone());
            let at = state.early.iter().position(|unique| *unique == asked.unique);
            at.and_then(|at| state.early.remove(at)).is_some()
        };
        if is_interrupted {
            self.interrupt(request.unique());
        }
        CURRENT.set(Some(asked.clone()));
        dispatch();
        CURRENT.set(None);
        if asked.phase.load(Ordering::Acquire) == LOOKS || asked.is_over() {
            self.finish(&asked);
        }
    }

    fn finish(&self, asked: &Asked) {
        asked.is_done.store(true, Ordering::Release);
        self.lock().under_way.remove(&asked.unique);
    }

    /// The session is over: drops the requests, which would keep its connection open.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.under_way.clear();
        state.interrupted.clear();
    }

    /// Handles the kernel's notice that the program that waits for a request got a signal.
    pub(crate) fn interrupt(self: &Arc<Self>, request: RequestId) {
        let mut state = self.lock();
        let Some(asked) = state.under_way.get(&request.into()).cloned() else {
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            return state.early.push_back(request.into());
        };
        state.interrupted.push(asked);
        if !state.is_watched {
            let requests = self.clone();
            let watch = std::thread::Builder::new().name("cenote-fuse-int".into());
            state.is_watched = watch.spawn(move || requests.watch()).is_ok();
        }
    }

    /// Ends interrupted requests when they can end, until all are finished.
    fn watch(&self) {
        loop {
            let mut some = {
                let mut state = self.lock();
                state.interrupted.retain(|asked| !asked.is_over());
                state.is_watched = !state.interrupted.is_empty();
                if !state.is_watched {
                    return;
                }
                std::mem::take(&mut state.interrupted)
            };
            some.iter().for_each(|asked| self.look(asked));
            self.lock().interrupted.append(&mut some);
            std::thread::sleep(LOOK);
        }
    }

    fn look(&self, asked: &Asked) {
        let wish = wish(asked.pid);
        if wish == Wish::Stay || wish == Wish::Asked && asked.since.elapsed() < PATIENCE {
            return;
        }
        if asked.goes(LOOKS, ENDED) || asked.goes(QUEUED, ENDED) {
            asked.end();
            self.finish(asked);
        } else {
            asked.interrupt.set(wish);
        }
    }
}

/// The reaction that the pending signals of the thread `pid` ask for. A thread in another PID namespace is not visible
/// and counts as waiting.
fn wish(pid: u32) -> Wish {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    status.map_or(Wish::Stay, |status| wish_of(&status))
}

/// The same from the text of `/proc/PID/status`.
fn wish_of(status: &str) -> Wish {
    let set = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok()).unwrap_or(0)
    };
    let pending = (set("SigPnd") | set("ShdPnd")) & !set("SigBlk");
    match pending {
        _ if pending & KILLED != 0 => Wish::Dying,
        _ if pending & ENDING != 0 => Wish::Asked,
        _ => Wish::Stay,
    }
}

/// A change that a request asks for. It is carried out once, on any thread, or not at all.
pub(crate) struct Change {
    requests: Arc<Interrupts>,
    asked: Option<Arc<Asked>>,
}

impl Change {
    /// Registers the request that the calling thread has just taken as a change.
    pub(crate) fn of_current(requests: &Arc<Interrupts>) -> Change {
        let asked = CURRENT.take();
        if let Some(asked) = &asked {
            // Otherwise it was answered already, and `run` sees that.
            asked.goes(LOOKS, QUEUED);
        }
        Change { requests: requests.clone(), asked }
    }

    /// Carries out `change`, unless the request was answered meanwhile.
    pub(crate) fn run(self, change: impl FnOnce()) {
        let Some(asked) = self.asked else { return change() };
        if asked.goes(QUEUED, CHANGES) {
            interrupt::serving(&asked.interrupt, change);
        }
        self.requests.finish(&asked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_end_programs_are_told_from_others() {
        let status = |pending: u64, shared: u64, blocked: u64| {
            format!("Name:\tcp\nSigPnd:\t{pending:016x}\nShdPnd:\t{shared:016x}\nSigBlk:\t{blocked:016x}\n")
        };
        let (child, interrupted) = (1 << 16, 1 << 1);
        assert_eq!(wish_of(&status(child, child, 0)), Wish::Stay);
        assert_eq!(wish_of(&status(0, interrupted, 0)), Wish::Asked);
        assert_eq!(wish_of(&status(0, interrupted, interrupted)), Wish::Stay, "the program blocks it");
        assert_eq!(wish_of(&status(KILLED, interrupted, 0)), Wish::Dying);
        assert_eq!(wish_of(""), Wish::Stay);
        assert_eq!(wish(std::process::id()), Wish::Stay);
    }
}
