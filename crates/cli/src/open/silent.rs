//! Pools with a device that does not answer: a read from that device would hang.
//!
//! From:   the server of the pool, which is asked before this process touches a device: one connection more for each pool
//!         and command, which takes less than a millisecond.
//! To:     commands that read: the server carries them out, from what it has in memory, or they report the reason.

use pool::known::KnownPool;
use server::{Client, Silence};

use super::NotOpen;
use crate::connect;

/// The server of an imported pool, if a device of it does not answer, and which one; `None` if all answer, or if there is
/// no server.
pub fn server_of(known: &KnownPool) -> Option<(Client, Silence)> {
    if !connect::is_used() {
        return None;
    }
    let client = connect::connect_to(known).ok()??;
    let silence = client.silent_devices().ok()?.into_iter().next()?;
    (client.guid == known.guid.0).then_some((client, silence))
}

/// The reason why a pool is not open of which no device was found.
pub fn why_unavailable(name: String, known: Option<&KnownPool>) -> NotOpen {
    match known.and_then(server_of) {
        Some((_, silence)) => NotOpen::Silent { name, silence },
        None => NotOpen::Unavailable(name),
    }
}
