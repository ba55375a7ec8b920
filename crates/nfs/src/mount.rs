//! The MOUNT protocol: the handle of the directory that a client mounts.
//!
//! Source: RFC 1813 appendix I.

use zpl::session::Caller;

use crate::call::Call;
use crate::node::Spot;
use crate::rpc::Refusal;
use crate::status::{Answer, Fail, Status};
use crate::table::Table;
use crate::xdr::Writer;

const PATH_MAX: usize = 1024;
const AUTH_SYS: u32 = 1;

pub(crate) fn run(number: u32, call: &mut Call<'_>, out: &mut Writer) -> Result<(), Refusal> {
    match number {
        1 => mnt(call, out),
        // The server does not record mounts: the list is empty, and a client may unmount at any time.
        2 => {
            out.bool(false);
            Ok(())
        }
        3 | 4 => Ok(()),
        5 => {
            exports(call, out);
            Ok(())
        }
        _ => Err(Refusal::NoProcedure),
    }
}

fn mnt(call: &mut Call<'_>, out: &mut Writer) -> Result<(), Refusal> {
    let path = call.arguments.bytes(PATH_MAX).map_err(|_| Refusal::Garbage)?;
    let found = std::str::from_utf8(path).map_err(|_| Status::NOENT.into());
    match found.and_then(|path| find(call, path)) {
        Ok(spot) => {
            out.u32(0);
            out.bytes(&spot.here.handle(&spot.node).encode());
            out.u32(1);
            out.u32(AUTH_SYS);
            Ok(())
        }
        Err(Fail::Garbage) => Err(Refusal::Garbage),
        Err(Fail::Status(status)) => {
            // MOUNT knows fewer statuses.
            let known = [1, 2, 5, 13, 20, 22, 63, 10004];
            out.u32(if known.contains(&status.0) { status.0 } else { 10006 });
            Ok(())
        }
    }
}

/// The directory at `path`: of an export, or below one.
fn find(call: &Call<'_>, path: &str) -> Answer<Spot> {
    let trimmed = path.trim_end_matches('/');
    let path = if trimmed.starts_with('/') { trimmed.to_owned() } else { format!("/{trimmed}") };
    let exports = call.table.all().into_iter();
    let found = exports.filter_map(|export| export.below(&path).map(|below| (below, export)));
    let ((_, below), export) = found.max_by_key(|((len, _), _)| *len).ok_or(Status::NOENT)?;
    if let Err(status) = Table::grant(&export, call.asker) {
        let client = call.asker.client;
        let hint = if export.rules().wants_reserved_port(client.port()) {
            "it comes from a port that any program may use, and sharenfs does not have 'insecure'"
        } else {
            "sharenfs names other clients"
        };
        tracing::warn!(dataset = export.name(), %client, "an NFS client is refused: {hint}");
        return Err(status.into());
    }
    let mut spot = call.table.root(call.asker, &export)?;
    // The server looks the directory up with its own rights, for clients that may use the export.
    let server = Caller::root();
    for name in below.split('/').filter(|name| !name.is_empty()) {
        let (elsewhere, node) = spot.here.find(&server, &spot.node, name.as_bytes())?;
        spot.node = node;
        if let Some(there) = elsewhere {
            spot.here = there;
        }
    }
    match spot.node.stat().kind {
        zpl::FileKind::Directory => Ok(spot),
        _ => Err(Status::NOTDIR.into()),
    }
}

/// The exports that the client may use.
fn exports(call: &Call<'_>, out: &mut Writer) {
    for export in call.table.all() {
        if Table::grant(&export, call.asker).is_ok() {
            out.bool(true);
            out.bytes(export.path().as_bytes());
            // The list of other clients is not sent.
            out.bool(false);
        }
    }
    out.bool(false);
}
