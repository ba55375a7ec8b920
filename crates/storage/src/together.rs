//! Reads from several leaves at the same time: the columns of one block take as long as the slowest of them, not as long as all.
//!
//! From:   `columns`, which knows which leaves hold a block.
//! To:     the leaves. On files and devices of the machine the reads are under way together, made by one thread (`host::ring`).

use crate::error::ReadError;
use crate::host::ring::{self, Request};
use crate::leaf::Leaf;
use crate::meter::Purpose;

/// A read from a leaf.
pub(crate) struct Wanted<'a> {
    pub(crate) leaf: &'a Leaf,
    /// In the allocatable area.
    pub(crate) offset: u64,
    pub(crate) buf: &'a mut [u8],
}

/// Carries out the reads that can be under way at the same time. Returns their results in the order of `wanted`, with
/// `None` for reads that the
/// caller must make by itself: their device is no file of the machine, has enough to do already, or the kernel has no io_uring.
pub(crate) fn read(purpose: Purpose, wanted: &mut [Wanted<'_>]) -> Vec<Option<Result<(), ReadError>>> {
    let mut results: Vec<Option<Result<(), ReadError>>> = wanted.iter().map(|_| None).collect();
    if !ring::is_available() {
        // The device begins to read while the caller waits for another one.
        for Wanted { leaf, offset, buf } in wanted.iter().skip(1) {
            leaf.hint_willneed(*offset, buf.len() as u64);
        }
        return results;
    }
    let (mut requests, mut under_way) = (Vec::new(), Vec::new());
    for (number, Wanted { leaf, offset, buf }) in wanted.iter_mut().enumerate() {
        // The request is made before the read counts as begun: there may be no file.
        let Some(from) = leaf.backing() else { continue };
        let at = Leaf::place_of(*offset);
        // A thread that waits for its turn at one device must not keep others from theirs.
        let Some(read) = leaf.begin_read(purpose, (at, buf.len() as u64)) else { continue };
        requests.push(Request { from, offset: at, buf });
        under_way.push((number, *leaf, at, Some(read)));
    }
    ring::read_all(&mut requests, &mut |request, result| {
        let (number, leaf, at, read) = &mut under_way[request];
        // A read that was not begun has no result.
        let ended = read.take().map(|read| read.end(result));
        results[*number] = ended.map(|result| result.map_err(|source| leaf.unread(*at, source)));
    });
    results
}
