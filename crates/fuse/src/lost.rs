//! Writes that programs took for done and that could not be carried out, until their writer is told.
//!
//! A write is over for a program when the page cache has it; that there is no room turns out when the kernel writes it
//! back. `fsync` and `close` report that by themselves, but who only goes on writing would never hear of it. Before a
//! write the kernel makes sure of the file's attributes, asks for them when it had to forget them, and gives an error in
//! that answer to the program. It asks in the same way before it reads over the end of a file, so what is not told
//! soon is left to `close`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fuser::Errno;
use zpl::ObjectId;

use crate::errno::Answer;

/// How long a writer that goes on writing may take for its next write.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// The latest error of each file whose pages could not be written back.
#[derive(Default)]
pub(crate) struct Lost {
    files: Mutex<HashMap<ObjectId, (Errno, Instant)>>,
}

impl Lost {
    fn files(&self) -> MutexGuard<'_, HashMap<ObjectId, (Errno, Instant)>> {
        self.files.lock().expect("no code panics while holding the lost writes")
    }

    /// A write-back of `id` failed.
    pub(crate) fn note(&self, id: ObjectId, errno: Errno) {
        let now = Instant::now();
        let mut files = self.files();
        files.retain(|_, (_, since)| now.duration_since(*since) < TOLD_WITHIN);
        files.insert(id, (errno, now));
    }

    /// Somebody who has `id` open is about to use it: if there is an error to be told, this is it.
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
    fn an_error_is_told_once_and_soon() {
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
