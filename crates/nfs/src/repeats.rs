//! Answers that a client may ask for again.
//!
//! A client that loses its connection sends a call again, and does not know whether the server carried it out. A name cannot
//! be removed twice, so the answers of such calls are kept for a while.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Condvar, PoisonError};
use std::time::{Duration, Instant};

use zpl::rank::{MutexHeld, RankedMutex};

/// Maximal number of kept answers. Each has a few hundred bytes at most.
const KEPT_MAX: usize = 1024;
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(120);

struct Kept {
    call: (IpAddr, u64),
    /// `None` while the call is under way.
    answer: Option<Vec<u8>>,
    at: Instant,
}

/// The answers that are kept, the newest last.
#[derive(Default)]
pub(crate) struct Repeats {
    kept: RankedMutex<VecDeque<Kept>>,
    answered: Condvar,
    state: RandomState,
}

impl Repeats {
    fn call(&self, client: IpAddr, record: &[u8]) -> (IpAddr, u64) {
        (client, self.state.hash_one(record))
    }

    fn kept(&self) -> MutexHeld<'_, VecDeque<Kept>> {
        self.kept.lock_after_panics()
    }

    /// The answer to the same message of this client. While that call is under way, this waits for its answer. `None` for a new
    /// message: the caller carries it out and calls [`Repeats::keep`].
    pub(crate) fn begin(&self, client: IpAddr, record: &[u8]) -> Option<Vec<u8>> {
        let call = self.call(client, record);
        let mut kept = self.kept();
        loop {
            let found = kept.iter().rev().find(|kept| kept.call == call);
            match found.filter(|kept| kept.answer.is_none() || kept.at.elapsed() < KEPT) {
                Some(Kept { answer: Some(answer), .. }) => return Some(answer.clone()),
                Some(_) => {
                    let wait = |kept| self.answered.wait(kept).unwrap_or_else(PoisonError::into_inner);
                    kept = kept.wait(wait);
                }
                None => break,
            }
        }
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { call, answer: None, at: Instant::now() });
        None
    }

    /// Keeps the answer to a call that [`Repeats::begin`] began.
    pub(crate) fn keep(&self, client: IpAddr, record: &[u8], answer: &[u8]) {
        let call = self.call(client, record);
        if let Some(kept) = self.kept().iter_mut().rev().find(|kept| kept.call == call) {
            (kept.answer, kept.at) = (Some(answer.to_vec()), Instant::now());
        }
        self.answered.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_of_the_same_client_has_the_same_answer() {
        let repeats = Repeats::default();
        let [a, b] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(repeats.begin(a, b"call"), None);
        repeats.keep(a, b"call", b"answer");
        assert_eq!(repeats.begin(a, b"call").as_deref(), Some(&b"answer"[..]));
        assert_eq!((repeats.begin(b, b"call"), repeats.begin(a, b"other")), (None, None));
        for n in 0..KEPT_MAX {
            assert_eq!(repeats.begin(a, &n.to_be_bytes()), None);
            repeats.keep(a, &n.to_be_bytes(), b"");
        }
        assert_eq!(repeats.begin(a, b"call"), None);
    }

    #[test]
    fn a_repeated_message_waits_for_the_call_under_way() {
        let (repeats, client) = (Repeats::default(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(repeats.begin(client, b"call"), None);
        std::thread::scope(|scope| {
            let again = scope.spawn(|| repeats.begin(client, b"call"));
            std::thread::sleep(Duration::from_millis(30));
            assert!(!again.is_finished());
            repeats.keep(client, b"call", b"answer");
            assert_eq!(again.join().unwrap().as_deref(), Some(&b"answer"[..]));
        });
    }
}
