//! The space, limits and properties of a file system: FSSTAT, FSINFO, PATHCONF.

use crate::answers::known;
use crate::call::Call;
use crate::contents::DATA_MAX;
use crate::status::Answer;
use crate::xdr::Writer;

/// Hard links, symbolic links, the same for all files, and times can be set.
const PROPERTIES: u32 = 1 | 2 | 8 | 16;
/// Preferred bytes of a listing.
const LISTING: u32 = 64 << 10;

pub(crate) fn fsstat(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    let space = spot.here.session.fs()?.space()?;
    known(out, &spot.here, &spot.node);
    // A new file takes a dnode of 512 bytes.
    let more_files = space.available >> 9;
    out.u64(space.referenced.saturating_add(space.available));
    out.u64(space.available);
    out.u64(space.available);
    out.u64(more_files.saturating_add(space.objects));
    out.u64(more_files);
    out.u64(more_files);
    out.u32(0);
    Ok(())
}

pub(crate) fn fsinfo(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    known(out, &spot.here, &spot.node);
    let most = DATA_MAX as u32;
    // For reads and for writes: maximum, preferred size, and unit.
    [most, most, 4096, most, most, 4096, LISTING].iter().for_each(|word| out.u32(*word));
    out.u64(i64::MAX as u64);
    // Times are exact to the nanosecond.
    out.u32(0);
    out.u32(1);
    out.u32(PROPERTIES);
    Ok(())
}

pub(crate) fn pathconf(call: &mut Call<'_>, out: &mut Writer) -> Answer<()> {
    let spot = call.spot()?;
    known(out, &spot.here, &spot.node);
    out.u32(u32::MAX);
    out.u32(zpl::NAME_MAX as u32);
    // Names that are too long are refused, only root changes owners, and names are compared as the dataset says.
    out.bool(true);
    out.bool(true);
    out.bool(!spot.here.session.exact_names());
    out.bool(true);
    Ok(())
}
