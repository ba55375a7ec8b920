//! Changes of attributes: SETATTR, and the attributes of new files.

use zpl::Time;
use zpl::session::{Change, Notice, When};

use crate::answers::change;
use crate::call::Call;
use crate::rules::NO_ID;
use crate::status::{Answer, Status};
use crate::xdr::{Garbage, Reader, Writer};

fn read_time(reader: &mut Reader<'_>) -> Result<Time, Garbage> {
    Ok(Time { secs: reader.u32()?.into(), nanos: reader.u32()?.into() })
}

fn read_when(reader: &mut Reader<'_>) -> Result<Option<When>, Garbage> {
    match reader.u32()? {
        0 => Ok(None),
        1 => Ok(Some(When::Now)),
        2 => read_time(reader).map(|time| Some(When::At(time))),
        _ => Err(Garbage),
    }
}

/// The number of a user or group to set. [`NO_ID`] changes nothing, as with `chown`.
fn read_id(reader: &mut Reader<'_>) -> Result<Option<u32>, Garbage> {
    Ok(reader.option(Reader::u32)?.filter(|id| *id != NO_ID))
}

/// Attributes to set.
pub(crate) fn read_change(reader: &mut Reader<'_>) -> Result<Change, Garbage> {
    Ok(Change {
        mode: reader.option(Reader::u32)?.map(|mode| mode & 0o7777),
        uid: read_id(reader)?,
        gid: read_id(reader)?,
        size: reader.option(Reader::u64)?,
        atime: read_when(reader)?,
        mtime: read_when(reader)?,
        ctime: None,
    })
}

/// Refuses times and sizes that cannot be stored. The check comes before a file is made, because the new file would
/// stay.
pub(crate) fn check_possible(wanted: &Change) -> Result<(), Status> {
    if wanted.size.is_some_and(|size| i64::try_from(size).is_err()) {
        return Err(Status::FBIG);
    }
    let is_good = |when: Option<When>| !matches!(when, Some(When::At(time)) if time.nanos > 999_999_999);
    if is_good(wanted.atime) && is_good(wanted.mtime) { Ok(()) } else { Err(Status::INVAL) }
}

pub(crate) fn setattr(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let wanted = read_change(&mut call.arguments)?;
    let guard = call.arguments.option(read_time)?;
    let id = spot.changeable()?;
    check_possible(&wanted)?;
    if wanted.size.is_some() {
        spot.file()?;
    }
    let ctime = spot.node.stat().ctime;
    if guard.is_some_and(|guard| (guard.secs as u32, guard.nanos) != (ctime.secs as u32, ctime.nanos)) {
        return Err(Status::NOT_SYNC.into());
    }
    if !wanted.is_nothing() {
        spot.here.session.set_attributes(&spot.by, id, &wanted)?;
        spot.settle(id, &[Notice::Node(id)])?;
    }
    change(out, &spot.here, &spot.node);
    Ok(())
}
