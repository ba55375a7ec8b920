//! Answers in the form of the protocol.

use std::time::Duration;

use fuser::{
    Errno, FileAttr, FileHandle, FopenFlags, Generation, ReplyCreate, ReplyEmpty, ReplyEntry, ReplyWrite,
    ReplyXattr,
};

use crate::errno::Answer;

/// A node in an answer to the kernel.
pub(crate) struct Entry {
    pub(crate) attr: FileAttr,
    pub(crate) generation: Generation,
    pub(crate) attr_ttl: Duration,
    pub(crate) entry_ttl: Duration,
}

pub(crate) fn reply_entry(answer: Answer<Entry>, reply: ReplyEntry) {
    match answer {
        Ok(entry) => reply.entry_with_ttls(&entry.attr_ttl, &entry.entry_ttl, &entry.attr, entry.generation),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_created(answer: Answer<Entry>, reply: ReplyCreate) {
    match answer {
        Ok(entry) => {
            let ttl = entry.entry_ttl.min(entry.attr_ttl);
            let flags = FopenFlags::FOPEN_KEEP_CACHE;
            reply.created(&ttl, &entry.attr, entry.generation, FileHandle(0), flags);
        }
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub(crate) fn reply_written(answer: Answer<u32>, reply: ReplyWrite) {
    match answer {
        Ok(written) => reply.written(written),
        Err(errno) => reply.error(errno),
    }
}

/// Sends a value whose length was asked for, or which has to fit in `size` bytes.
pub(crate) fn reply_sized(answer: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}
