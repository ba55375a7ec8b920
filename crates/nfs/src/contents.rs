//! Contents of files: READ, WRITE, COMMIT.

use zpl::session::permission::Access;
use zpl::session::{Notice, Position};
use zpl::{Error, Stat};

use crate::answers::{change, known};
use crate::call::Call;
use crate::node::Spot;
use crate::status::{Answer, Status};
use crate::xdr::Writer;

/// Maximal bytes of one read or write.
pub(crate) const DATA_MAX: usize = 1 << 20;
const UNSTABLE: u32 = 0;
const DATA_SYNC: u32 = 1;
const FILE_SYNC: u32 = 2;

pub(crate) fn read(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let (offset, count) = (call.arguments.u64()?, call.arguments.u32()?);
    let stat = spot.file()?;
    let want = u64::from(count).min(DATA_MAX as u64).min(stat.size.saturating_sub(offset)) as usize;
    known(out, &spot.here, &spot.node);
    let at = out.len();
    out.u32(0);
    out.bool(false);
    let got = out.fill(want, |room| read_at(&spot, Position { file: stat.id, offset }, room))?;
    out.set_u32(at, got as u32);
    out.set_u32(at + 4, u32::from(got < want || offset.saturating_add(got as u64) >= stat.size));
    spot.here.session.note_access(stat.id);
    Ok(())
}

/// Reads for a user with permission to read or to run the file. Programs run on the client, so it must read them.
fn read_at(spot: &Spot, at: Position, room: &mut [u8]) -> Result<usize, Error> {
    let session = &spot.here.session;
    match session.read(&spot.by, at, room) {
        Err(Error::Denied) if session.demand(&spot.by, at.file, Access::EXECUTE).is_ok() => {
            session.fs()?.read(at.file, at.offset, room)
        }
        read => read,
    }
}

pub(crate) fn write(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let (offset, count, stable) = (call.arguments.u64()?, call.arguments.u32()?, call.arguments.u32()?);
    let data = call.arguments.bytes(DATA_MAX)?;
    let data = data.get(..count as usize).ok_or(Status::INVAL)?;
    if stable > FILE_SYNC {
        return Err(crate::xdr::Garbage.into());
    }
    let id = spot.changeable()?;
    spot.file()?;
    if !data.is_empty() {
        spot.here.session.write(&spot.by, Position { file: id, offset }, data)?;
        spot.tell(&[Notice::Node(id)]);
    }
    let is_safe = matches!(stable, DATA_SYNC | FILE_SYNC);
    if is_safe {
        spot.here.session.fsync(id)?;
    }
    change(out, &spot.here, &spot.node);
    out.u32(count);
    out.u32(if is_safe { FILE_SYNC } else { UNSTABLE });
    out.u64(spot.here.entered.opened.verifier);
    Ok(())
}

pub(crate) fn commit(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let _range = (call.arguments.u64()?, call.arguments.u32()?);
    let id = spot.changeable()?;
    let _file: &Stat = spot.file()?;
    spot.here.session.fsync(id)?;
    change(out, &spot.here, &spot.node);
    out.u64(spot.here.entered.opened.verifier);
    Ok(())
}
