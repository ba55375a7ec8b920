//! The rights and attributes of a node: ACCESS, GETATTR, READLINK.

use zpl::FileKind;
use zpl::session::permission::Access;

use crate::answers::{after, known};
use crate::call::Call;
use crate::node::{Node, Spot};
use crate::status::Answer;
use crate::xdr::Writer;

const READ: u32 = 1;
const LOOKUP: u32 = 2;
const MODIFY: u32 = 4;
const EXTEND: u32 = 8;
const DELETE: u32 = 16;
const EXECUTE: u32 = 32;

pub(crate) fn access(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let wanted = call.arguments.u32()?;
    known(out, &spot.here, &spot.node);
    out.u32(granted(&spot, wanted));
    Ok(())
}

fn granted(spot: &Spot, wanted: u32) -> u32 {
    let stat = match &spot.node {
        Node::Folder(..) => return wanted & (READ | LOOKUP),
        Node::Object(stat) => stat,
    };
    let changes = MODIFY | EXTEND | DELETE;
    let (of_write, of_execute) = match stat.kind {
        FileKind::Directory => (changes, LOOKUP),
        _ => (MODIFY | EXTEND, EXECUTE),
    };
    let session = &spot.here.session;
    let is_read_only = spot.is_read_only || session.check_writable().is_err();
    let rights = [(Access::READ, READ), (Access::WRITE, of_write), (Access::EXECUTE, of_execute)];
    let mut granted = 0;
    for (right, bits) in rights {
        let is_there = !(is_read_only && right == Access::WRITE);
        if wanted & bits != 0 && is_there && session.demand(&spot.by, stat.id, right).is_ok() {
            granted |= wanted & bits;
        }
    }
    granted
}

/// The attributes of a node: GETATTR.
pub(crate) fn getattr(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    crate::answers::attributes(out, spot.here.fsid(), spot.node.stat());
    Ok(())
}

/// The target of a symbolic link: READLINK.
pub(crate) fn readlink(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let target = spot.here.session.readlink(spot.object()?)?;
    after(out, &spot.here, &spot.node);
    out.bytes(&target);
    Ok(())
}
