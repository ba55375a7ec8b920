//! Listings: READDIR and READDIRPLUS.

use zpl::session::permission::Access;
use zpl::{CONTROL, DirEntry};

use crate::answers::{ATTRIBUTES, HANDLE, known};
use crate::call::Call;
use crate::node::{Node, Spot};
use crate::status::{Answer, Status};
use crate::xdr::Writer;

/// Maximal bytes of a listing in one answer.
const LISTING_MAX: usize = 64 << 10;
/// Bytes of a result around its entries: attributes of the directory, the verifier, the end.
const AROUND: usize = 4 + ATTRIBUTES + 8 + 8;
/// Bytes of an entry without its name: that it follows, its number, the length of the name, its cookie.
const ENTRY: usize = 4 + 8 + 4 + 8;

/// The requested size of a listing.
struct Room {
    /// Bytes of names, numbers and cookies.
    names: usize,
    /// Bytes in all.
    all: usize,
    /// With attributes and handles.
    is_plus: bool,
}

pub(crate) fn readdir(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let (cookie, _verifier) = (call.arguments.u64()?, call.arguments.u64()?);
    let all = (call.arguments.u32()? as usize).min(LISTING_MAX);
    list(&spot, cookie, Room { names: all, all, is_plus: false }, out)
}

pub(crate) fn readdirplus(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let (cookie, _verifier) = (call.arguments.u64()?, call.arguments.u64()?);
    let (names, all) = (call.arguments.u32()? as usize, call.arguments.u32()? as usize);
    let all = all.min(LISTING_MAX);
    list(&spot, cookie, Room { names: names.clamp(1 << 10, LISTING_MAX), all, is_plus: true }, out)
}

fn next(spot: &Spot, cookie: u64) -> Answer<Vec<DirEntry>> {
    let session = &spot.here.session;
    Ok(match &spot.node {
        Node::Folder(folder, _) => session.list_control(*folder, cookie)?,
        Node::Object(stat) => session.list(&spot.by, stat.id, cookie)?,
    })
}

fn list(spot: &Spot, mut cookie: u64, room: Room, out: &mut Writer) -> Answer<()> {
    known(out, &spot.here, &spot.node);
    out.u64(0);
    let mut left = (room.names, room.all.saturating_sub(AROUND));
    let mut is_first = true;
    let may_search = may_search(spot);
    loop {
        let entries = next(spot, cookie)?;
        if entries.is_empty() {
            out.bool(false);
            out.bool(true);
            return Ok(());
        }
        for entry in entries {
            let name = ENTRY + entry.name.len().next_multiple_of(4);
            let size = name + if room.is_plus { ATTRIBUTES + HANDLE } else { 0 };
            if name > left.0 || size > left.1 {
                if is_first {
                    return Err(Status::TOOSMALL.into());
                }
                out.bool(false);
                out.bool(false);
                return Ok(());
            }
            left = (left.0 - name, left.1 - size);
            is_first = false;
            cookie = entry.cookie;
            out.bool(true);
            out.u64(entry.id.0);
            out.bytes(&entry.name);
            out.u64(entry.cookie);
            if room.is_plus {
                about(spot, &entry, may_search, out);
            }
        }
    }
}

/// Whether the user may reach the entries of the directory, and not only read their names.
fn may_search(spot: &Spot) -> bool {
    match &spot.node {
        Node::Folder(..) => true,
        Node::Object(stat) => spot.here.session.demand(&spot.by, stat.id, Access::EXECUTE).is_ok(),
    }
}

/// Attributes and handle of an entry, unless the user could not look it up, or a snapshot would have to be opened for them.
fn about(spot: &Spot, entry: &DirEntry, may_search: bool, out: &mut Writer) {
    let node = match (&spot.node, entry.name.as_slice()) {
        (node, b".") => Some(node.clone()),
        _ if !may_search => None,
        (Node::Folder(..), _) => None,
        (Node::Object(dir), name)
            if name == b".." || name == CONTROL && dir.id == spot.here.session.root() =>
        {
            None
        }
        // A damaged object is listed without attributes.
        (Node::Object(_), _) => spot.here.object(entry.id).ok(),
    };
    match node {
        None => {
            out.bool(false);
            out.bool(false);
        }
        Some(node) => {
            known(out, &spot.here, &node);
            out.bool(true);
            out.bytes(&spot.here.handle(&node).encode());
        }
    }
}
