//! State of initialize and trim of leaves, for `zpool status`.

use std::collections::BTreeMap;

use format::label;
use pool::{Course, Treated, Treatment};

use super::view::{PoolView, State, VdevView};
use crate::dates::{self, Form};

/// The treatments of a pool's leaves, by guid: initialization, trim.
#[derive(Debug, Default)]
pub struct TreatedLeaves([BTreeMap<u64, Treated>; 2]);

impl TreatedLeaves {
    /// The states on disk, as far as they are readable.
    pub fn of(view: &PoolView) -> TreatedLeaves {
        let Some(session) = view.session() else { return TreatedLeaves::default() };
        let all = |what| session.pool().treated(what).unwrap_or_default();
        TreatedLeaves(
            Treatment::ALL.map(|what| all(what).into_iter().map(|(guid, it)| (guid.0, it)).collect()),
        )
    }

    /// The text behind a leaf, in full where it was `asked` for.
    pub fn of_leaf(&self, vdev: &VdevView, asked: [bool; 2]) -> String {
        if vdev.state == State::Unavail {
            return String::new();
        }
        let bytes = vdev.device_bytes.map_or(0, label::asize_of);
        let words = [["initialized", "uninitialized", "initializing"], ["trimmed", "untrimmed", "trimming"]];
        let mut line = String::new();
        for ((known, words), asked) in self.0.iter().zip(words).zip(asked) {
            let it = known.get(&vdev.guid.0).copied().unwrap_or_default();
            line += &said(&it, words, asked, bytes);
        }
        line
    }
}

/// The text about one treatment of a device of so many bytes. The three words are for a treatment that is done, was
/// never done, and is going on.
fn said(it: &Treated, [done, never, now]: [&str; 3], asked: bool, bytes: u64) -> String {
    if !asked {
        return if it.course == Course::Active { format!("  ({now})") } else { String::new() };
    }
    let percent = match it.course {
        Course::None | Course::Canceled => return format!("  ({never})"),
        Course::Complete => 100,
        Course::Active | Course::Suspended => it.next.min(bytes) * 100 / (bytes + 1),
    };
    let how = match it.course {
        Course::Complete => "completed at",
        Course::Suspended => "suspended, started at",
        _ => "started at",
    };
    format!("  ({percent}% {done}, {how} {})", dates::show(it.since, Form::Scan))
}
