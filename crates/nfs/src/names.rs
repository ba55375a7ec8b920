//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use zpl::session::{Change, Creation, Name, Notice, Rename, Target, When};
use zpl::{FileKind, ObjectId, Time};

use crate::answers::{after, change, device, known, made};
use crate::attributes::{check_possible, read_change};
use crate::call::Call;
use crate::node::{Node, Spot};
use crate::status::{Answer, Status};
use crate::xdr::Writer;

/// Maximal bytes of a name in a message. Names in a file system are shorter.
const NAME_MAX: usize = 4096;
/// Maximal bytes of the target of a symbolic link in a message.
const TARGET_MAX: usize = 8192;
const UNCHECKED: u32 = 0;
const GUARDED: u32 = 1;
const EXCLUSIVE: u32 = 2;

pub(crate) fn lookup(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let (elsewhere, node) = spot.here.find(&spot.by, &spot.node, name)?;
    let there = elsewhere.as_ref().unwrap_or(&spot.here);
    out.bytes(&there.handle(&node).encode());
    known(out, there, &node);
    after(out, &spot.here, &spot.node);
    Ok(())
}

/// A new node with these attributes.
fn creation(dir: ObjectId, name: &[u8], kind: FileKind, wanted: &Change) -> Creation {
    Creation { dir, name: name.to_vec(), kind, mode: wanted.mode.unwrap_or(0), umask: 0, rdev: 0 }
}

/// Sets the other attributes of a new node, makes it durable, and writes the results.
fn finish(spot: &Spot, at: Name<'_>, id: ObjectId, wanted: &Change, out: &mut Writer) -> Answer<()> {
    let session = &spot.here.session;
    let mut rest = Change { mode: None, ..wanted.clone() };
    // The node has its owner already. A client that sends the same owner asks for no change. An owner or group that the user
    // may not give is left out, as Linux' server does: root of a client sends its own number, and counts as another user here.
    rest.uid = rest.uid.filter(|uid| *uid != spot.by.uid && spot.by.is_root());
    rest.gid = rest.gid.filter(|gid| spot.by.is_root() || spot.by.is_in(*gid));
    rest.gid = rest.gid.filter(|gid| session.stat(id).map_or(true, |stat| stat.gid != *gid));
    rest.size = rest.size.filter(|size| *size != 0);
    if !rest.is_nothing() {
        session.set_attributes(&spot.by, id, &rest)?;
    }
    spot.settle(at.dir, &[Notice::Name(at.dir, at.name), Notice::Node(at.dir)])?;
    made(out, &spot.here, &spot.here.object(id)?, &spot.node);
    Ok(())
}

pub(crate) fn create(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let how = call.arguments.u32()?;
    let wanted = match how {
        UNCHECKED | GUARDED => read_change(&mut call.arguments)?,
        EXCLUSIVE => verifier_as_times(call.arguments.u64()?),
        _ => return Err(crate::xdr::Garbage.into()),
    };
    check_possible(&wanted)?;
    let dir = spot.directory(name)?;
    let new = creation(dir, name, FileKind::Regular, &wanted);
    match spot.here.session.create(&spot.by, &new) {
        Err(zpl::Error::Exists) if how != GUARDED => found(&spot, Name { dir, name }, how, &wanted, out),
        created => finish(&spot, Name { dir, name }, created?, &wanted, out),
    }
}

/// The number by which a client knows an exclusive file again. It is stored in the times until the client sets them, and
/// distinguishes a repeated call from the call of another client.
fn verifier_as_times(verifier: u64) -> Change {
    let time = |word: u64| Some(When::At(Time { secs: (word & 0x7fff_ffff) as i64, nanos: 0 }));
    Change { atime: time(verifier >> 32), mtime: time(verifier), ..Change::default() }
}

/// Answers a CREATE of a name that exists.
fn found(spot: &Spot, at: Name<'_>, how: u32, wanted: &Change, out: &mut Writer) -> Answer<()> {
    let session = &spot.here.session;
    let Some(Target::Object(id)) = session.lookup(&spot.by, at.dir, at.name)? else {
        return Err(Status::EXIST.into());
    };
    let stat = session.stat(id)?;
    if stat.kind != FileKind::Regular {
        return Err(Status::EXIST.into());
    }
    if how == EXCLUSIVE {
        let times = [stat.atime, stat.mtime].map(|time| Some(When::At(time)));
        if times != [wanted.atime, wanted.mtime] {
            return Err(Status::EXIST.into());
        }
    } else if let Some(size) = wanted.size {
        session.set_attributes(&spot.by, id, &Change { size: Some(size), ..Change::default() })?;
        spot.settle(id, &[Notice::Node(id)])?;
    }
    made(out, &spot.here, &spot.here.object(id)?, &spot.node);
    Ok(())
}

pub(crate) fn mkdir(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let wanted = read_change(&mut call.arguments)?;
    check_possible(&wanted)?;
    let dir = spot.directory(name)?;
    let id = spot.here.session.create(&spot.by, &creation(dir, name, FileKind::Directory, &wanted))?;
    let wanted = Change { size: None, ..wanted };
    finish(&spot, Name { dir, name }, id, &wanted, out)
}

pub(crate) fn symlink(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let wanted = read_change(&mut call.arguments)?;
    let target = call.arguments.bytes(TARGET_MAX)?;
    check_possible(&wanted)?;
    let dir = spot.directory(name)?;
    let new = Creation { mode: 0o777, ..creation(dir, name, FileKind::Symlink, &wanted) };
    let id = spot.here.session.symlink(&spot.by, &new, target)?;
    let wanted = Change { size: None, ..wanted };
    finish(&spot, Name { dir, name }, id, &wanted, out)
}

pub(crate) fn mknod(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let kind = match call.arguments.u32()? {
        3 => FileKind::BlockDevice,
        4 => FileKind::CharDevice,
        6 => FileKind::Socket,
        7 => FileKind::Fifo,
        _ => return Err(Status::BADTYPE.into()),
    };
    let wanted = read_change(&mut call.arguments)?;
    let rdev = match kind.is_device() {
        true => device(call.arguments.u32()?, call.arguments.u32()?).ok_or(Status::INVAL)?,
        false => 0,
    };
    check_possible(&wanted)?;
    let dir = spot.directory(name)?;
    let new = Creation { rdev, ..creation(dir, name, kind, &wanted) };
    let id = spot.here.session.create(&spot.by, &new)?;
    let wanted = Change { size: None, ..wanted };
    finish(&spot, Name { dir, name }, id, &wanted, out)
}

pub(crate) fn remove(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let dir = spot.directory(name)?;
    spot.here.session.unlink(&spot.by, dir, name)?;
    spot.settle(dir, &[Notice::Name(dir, name), Notice::Node(dir)])?;
    change(out, &spot.here, &spot.node);
    Ok(())
}

pub(crate) fn rmdir(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let name = call.arguments.bytes(NAME_MAX)?;
    let dir = spot.directory(name)?;
    spot.here.session.rmdir(&spot.by, dir, name)?;
    spot.settle(dir, &[Notice::Name(dir, name), Notice::Node(dir)])?;
    change(out, &spot.here, &spot.node);
    Ok(())
}

/// Whether two nodes are in one file system.
fn check_together(a: &Spot, b: &Spot) -> Result<(), Status> {
    let of = |spot: &Spot| (spot.here.entered.export().guid(), spot.here.snapshot);
    if of(a) == of(b) { Ok(()) } else { Err(Status::XDEV) }
}

pub(crate) fn rename(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let from = call.spot()?;
    let old = call.arguments.bytes(NAME_MAX)?;
    let to = call.spot_beside(&from)?;
    let new = call.arguments.bytes(NAME_MAX)?;
    check_together(&from, &to)?;
    let source = Name { dir: from.directory(old)?, name: old };
    let target = Name { dir: to.directory(new)?, name: new };
    from.here.session.rename(&from.by, source, target, Rename::Replace)?;
    from.settle(
        source.dir,
        &[
            Notice::Name(source.dir, old),
            Notice::Node(source.dir),
            Notice::Name(target.dir, new),
            Notice::Node(target.dir),
        ],
    )?;
    change(out, &from.here, &from.node);
    change(out, &to.here, &to.node);
    Ok(())
}

pub(crate) fn link(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let file = call.spot()?;
    let dir = call.spot_beside(&file)?;
    let name = call.arguments.bytes(NAME_MAX)?;
    check_together(&file, &dir)?;
    let (id, at) = (file.changeable()?, dir.directory(name)?);
    if let Node::Object(stat) = &file.node
        && stat.kind == FileKind::Directory
    {
        return Err(Status::PERM.into());
    }
    dir.here.session.link(&dir.by, id, at, name)?;
    dir.settle(at, &[Notice::Name(at, name), Notice::Node(at), Notice::Attributes(id)])?;
    after(out, &file.here, &file.node);
    change(out, &dir.here, &dir.node);
    Ok(())
}
