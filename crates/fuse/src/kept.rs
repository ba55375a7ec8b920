//! The data of a write that waits for a permit.
//!
//! From:   the buffer in which `fuser` received the kernel's message.
//! To:     the thread that carries the write out later.
//!
//! A thread that queues a write receives its next message in another buffer. So long data stay where they are, and are copied
//! once: into the dirty record.

use fuser::KeptMessage;

/// Shorter data are copied: a kept buffer always takes 1 MiB.
const KEPT_MIN: usize = 128 << 10;

/// The data of a write, beyond the call that brought them.
pub(crate) enum Kept {
    /// The message, and the length of the data at its end.
    Message(KeptMessage, usize),
    Copied(Vec<u8>),
}

impl Kept {
    /// Keeps `data` of the message that this thread serves. Without `has_room`, copies them: a copy takes less memory than a
    /// buffer.
    pub(crate) fn of(data: &[u8], has_room: bool) -> Kept {
        let message = if has_room && data.len() >= KEPT_MIN { KeptMessage::current() } else { None };
        match message.filter(|message| std::ptr::eq(tail(message.bytes(), data.len()), data)) {
            Some(message) => Kept::Message(message, data.len()),
            None => Kept::Copied(data.to_vec()),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Kept::Message(message, len) => tail(message.bytes(), *len),
            Kept::Copied(data) => data,
        }
    }

    pub(crate) fn is_copy(&self) -> bool {
        matches!(self, Kept::Copied(_))
    }

    /// Bytes of memory that this value holds.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Kept::Message(message, _) => message.held() as u64,
            Kept::Copied(data) => data.len() as u64,
        }
    }
}

/// The last `len` bytes, or fewer.
fn tail(bytes: &[u8], len: usize) -> &[u8] {
    &bytes[bytes.len().saturating_sub(len)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_that_no_message_of_this_thread_has_are_copied() {
        let data = vec![7; KEPT_MIN];
        let kept = Kept::of(&data, true);
        assert!(kept.is_copy());
        assert_eq!((kept.data(), kept.held()), (&data[..], KEPT_MIN as u64));
    }

    #[test]
    fn a_tail_is_no_longer_than_its_bytes() {
        assert_eq!((tail(b"abc", 2), tail(b"abc", 5), tail(b"abc", 0)), (&b"bc"[..], &b"abc"[..], &b""[..]));
    }
}
