//! Errors of acknowledged writes that could not be stored, until their writer gets them.
//!
//! A `write` returns when the page cache has the data. A lack of space shows only when the kernel writes the pages back.
//! `fsync` and `close` report it, but a program that only writes on would not learn of it. Before a write the kernel needs
//! the file's attributes, and asks for them if it had to drop them; an error in that answer reaches the program. The kernel
//! asks in the same way before a read beyond the end of a file. So an error that no write picks up soon is left to `close`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use fuser::Errno;
use zpl::ObjectId;
use zpl::rank::{MutexHeld, RankedMutex};

use crate::errno::Answer;

/// Time within which a program's next write gets the error.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The latest error of each file whose pages could not be written back.
#[derive(Default)]
pub(crate) struct Lost {
    files: RankedMutex<HashMap<ObjectId, (Errno, Instant)>>,
}

impl Lost {
    fn files(&self) -> MutexHeld<'_, HashMap<ObjectId, (Errno, Instant)>> {
        self.files.lock()
    }

    /// A write-back of `id` failed.
    pub(crate) fn note(&self, id: ObjectId, errno: Errno) {
        let now = Instant::now();
        let mut files = self.files();
        files.retain(|_, (_, since)| now.duration_since(*since) < TOLD_WITHIN);
        files.insert(id, (errno, now));
    }

    /// The error to report to a program that is about to use `id`, if there is one.
    pub(crate) fn tell(&self, id: ObjectId) -> Answer<()> {
        match self.files().remove(&id) {
            Some((errno, since)) if since.elapsed() < TOLD_WITHIN => Err(errno),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_reported_once_and_soon() {
        let lost = Lost::default();
        let (one, other) = (ObjectId(1), ObjectId(2));
        lost.note(one, Errno::ENOSPC);
        assert!(lost.tell(other).is_ok());
        assert_eq!(lost.tell(one).unwrap_err().code(), Errno::ENOSPC.code());
        assert!(lost.tell(one).is_ok());
        let long_ago = Instant::now().checked_sub(TOLD_WITHIN).unwrap();
        lost.files().insert(one, (Errno::ENOSPC, long_ago));
        assert!(lost.tell(one).is_ok());
    }
}
