//! Answers that a client may ask for again.
//!
//! A client that loses its connection sends a call again, and does not know whether the server carried it out. A name cannot
//! be removed twice, so the answers of such calls are kept for a while.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximal number of kept answers. Each has a few hundred bytes at most.
const KEPT_MAX: usize = 1024;
/// How long an answer is kept.
const KEPT: Duration = Duration::from_secs(120);

struct Kept {
    call: (IpAddr, u64),
    answer: Vec<u8>,
    at: Instant,
}

/// The answers that are kept, the newest last.
#[derive(Default)]
pub(crate) struct Repeats {
    kept: Mutex<VecDeque<Kept>>,
    state: RandomState,
}

impl Repeats {
    fn call(&self, client: IpAddr, record: &[u8]) -> (IpAddr, u64) {
        (client, self.state.hash_one(record))
    }

    /// The answer to the same message of this client.
    pub(crate) fn find(&self, client: IpAddr, record: &[u8]) -> Option<Vec<u8>> {
        let call = self.call(client, record);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().rev().find(|kept| kept.call == call);
        found.filter(|kept| kept.at.elapsed() < KEPT).map(|kept| kept.answer.clone())
    }

    pub(crate) fn keep(&self, client: IpAddr, record: &[u8], answer: &[u8]) {
        let call = self.call(client, record);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(Kept { call, answer: answer.to_vec(), at: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_of_the_same_client_has_the_same_answer() {
        let repeats = Repeats::default();
        let [a, b] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        assert_eq!(repeats.find(a, b"call"), None);
        repeats.keep(a, b"call", b"answer");
        assert_eq!(repeats.find(a, b"call").as_deref(), Some(&b"answer"[..]));
        assert_eq!((repeats.find(b, b"call"), repeats.find(a, b"other")), (None, None));
        (0..KEPT_MAX).for_each(|n| repeats.keep(a, &n.to_be_bytes(), b""));
        assert_eq!(repeats.find(a, b"call"), None);
    }
}
