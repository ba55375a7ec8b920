//! Pages of the kernel's cache: storing them, and deciding what the cache may take (`limits.rs`).

use fuser::{Errno, ReplyXattr};
use zpl::ObjectId;
use zpl::session::Caller;

use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::limits::{CAPABILITY, CAPABILITY_LEN};
use crate::replies::reply_sized;
use crate::shared::Shared;

impl Shared {
    /// Bytes that may still be written to `id`. If this is unknown, 0, so that each write is checked.
    fn space_left(&self, id: ObjectId) -> u64 {
        self.fs().ok().and_then(|fs| fs.space_left(id).ok()).unwrap_or(0)
    }

    /// Whether the kernel must ask before each `write` when this many bytes are left.
    fn is_near(&self, left: u64) -> bool {
        left < 2 * self.kernel.limits.cache()
    }

    /// Stores pages of the kernel's cache.
    ///
    /// # Errors
    /// `ENOSPC`, even if a quota is reached: when the file is closed, the kernel replaces all other errors by `EIO`.
    pub(crate) fn store_pages(&self, id: ObjectId, offset: u64, data: &[u8]) -> Answer<()> {
        let len = data.len() as u64;
        let left = self.space_left(id);
        if self.is_near(left) && self.kernel.limits.must_ask(id) {
            self.kernel.forget_attributes(id);
        }
        let reach = self.kernel.limits.reach(id, len, left);
        self.fs()?.write_back(id, offset, data, reach).map_err(|error| {
            let errno = match errno::of(&error) {
                Errno::EDQUOT => Errno::ENOSPC,
                errno => errno,
            };
            self.lost.note(id, errno);
            self.kernel.forget_attributes(id);
            errno
        })
    }

    /// Decides whether the kernel's cache may take a `write` to `id`. Do not call it from a thread that serves requests.
    fn judge_write(&self, id: ObjectId, left: u64) -> Answer<()> {
        // This answer consumes the earlier notice, so another one is always sent.
        self.kernel.limits.must_ask(id);
        if left < self.kernel.limits.cache() {
            // The cache may hold more data of the file than there is space left, so this data is counted first.
            self.kernel.call_back_pages(id);
        } else {
            self.kernel.forget_attributes(id);
        }
        match self.fs()?.check_write(id).map_err(errno::from) {
            Err(errno @ (Errno::EDQUOT | Errno::ENOSPC)) => {
                self.kernel.limits.refuse(id, errno);
                Err(errno)
            }
            // Other errors are reported when the data arrives.
            _ => {
                self.kernel.limits.admit(id);
                Ok(())
            }
        }
    }
}

impl Bridge {
    /// Answers the length of the capabilities of `id`, which the kernel asks for before it takes a `write`.
    pub(crate) fn capability_len(&self, by: &Caller, id: ObjectId, reply: ReplyXattr) {
        let left = self.answer(|| Ok(self.space_left(id))).unwrap_or(0);
        let truth = self.answer_at(id, || self.session.xattr(by, id, CAPABILITY).map_err(errno::from));
        if !self.is_near(left) {
            self.kernel.limits.let_off(id);
            self.kernel.limits.admit(id);
            return reply_sized(truth, 0, reply);
        }
        let shared = self.shared.clone();
        self.seeker.run(Box::new(move || match shared.answer_at(id, || shared.judge_write(id, left)) {
            Ok(()) => reply_sized(truth, 0, reply),
            Err(_) => reply.size(CAPABILITY_LEN),
        }));
    }
}
