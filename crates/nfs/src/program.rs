//! The programs and their procedures, by number.

use crate::call::Call;
use crate::rpc::Refusal;
use crate::status::{Answer, Fail};
use crate::xdr::Writer;
use crate::{about, access, attributes, contents, listing, mount, names};

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;
/// Of both programs.
const VERSION: u32 = 3;

/// A procedure that may fail with a status.
struct Procedure {
    run: fn(&mut Call<'_>, &mut Writer) -> Answer<()>,
    /// Words after the status of a failure: absent attributes.
    tail: usize,
    /// A repeated call must get the answer of the first one, which is kept.
    is_once: bool,
}

const fn plain(run: fn(&mut Call<'_>, &mut Writer) -> Answer<()>, tail: usize) -> Option<Procedure> {
    Some(Procedure { run, tail, is_once: false })
}

const fn once(run: fn(&mut Call<'_>, &mut Writer) -> Answer<()>, tail: usize) -> Option<Procedure> {
    Some(Procedure { run, tail, is_once: true })
}

const fn nfs(number: u32) -> Option<Procedure> {
    match number {
        1 => plain(access::getattr, 0),
        2 => once(attributes::setattr, 2),
        3 => plain(names::lookup, 1),
        4 => plain(access::access, 1),
        5 => plain(access::readlink, 1),
        6 => plain(contents::read, 1),
        7 => plain(contents::write, 2),
        8 => once(names::create, 2),
        9 => once(names::mkdir, 2),
        10 => once(names::symlink, 2),
        11 => once(names::mknod, 2),
        12 => once(names::remove, 2),
        13 => once(names::rmdir, 2),
        14 => once(names::rename, 4),
        15 => once(names::link, 3),
        16 => plain(listing::readdir, 1),
        17 => plain(listing::readdirplus, 1),
        18 => plain(about::fsstat, 1),
        19 => plain(about::fsinfo, 1),
        20 => plain(about::pathconf, 1),
        21 => plain(contents::commit, 2),
        _ => None,
    }
}

/// Whether the answer to a call must be kept.
pub(crate) fn is_once(program: u32, number: u32) -> bool {
    program == NFS && nfs(number).is_some_and(|procedure| procedure.is_once)
}

/// Carries out a procedure; its results go into `out`.
pub(crate) fn run(
    (program, version, number): (u32, u32, u32),
    call: &mut Call<'_>,
    out: &mut Writer,
) -> Result<(), Refusal> {
    let procedure = match program {
        NFS | MOUNT if version != VERSION => return Err(Refusal::Version(VERSION)),
        NFS | MOUNT if number == 0 => return Ok(()),
        MOUNT => return mount::run(number, call, out),
        NFS => nfs(number).ok_or(Refusal::NoProcedure)?,
        _ => return Err(Refusal::NoProgram),
    };
    let at = out.len();
    out.u32(0);
    match (procedure.run)(call, out) {
        Ok(()) => Ok(()),
        Err(Fail::Garbage) => Err(Refusal::Garbage),
        Err(Fail::Status(status)) => {
            out.truncate(at);
            out.u32(status.0);
            (0..procedure.tail).for_each(|_| out.u32(0));
            Ok(())
        }
    }
}
