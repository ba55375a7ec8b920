//! Attributes and handles in results.

use zpl::{FileKind, Stat, Time};

use crate::node::{Here, Node};
use crate::xdr::Writer;

/// Bytes of attributes with the word that says that they follow.
pub(crate) const ATTRIBUTES: usize = 4 + 84;
/// Bytes of a handle with the word that says that it follows.
pub(crate) const HANDLE: usize = 4 + 4 + crate::handle::SIZE;

const fn kind_of(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => 1,
        FileKind::Directory => 2,
        FileKind::BlockDevice => 3,
        FileKind::CharDevice => 4,
        FileKind::Symlink => 5,
        FileKind::Socket => 6,
        FileKind::Fifo => 7,
    }
}

/// The major and minor number of a device.
const fn device_parts(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & !0xfff);
    let minor = (rdev & 0xff) | (rdev >> 12 & !0xff);
    (major as u32, minor as u32)
}

/// The device number; `None` for numbers that Linux cannot have.
pub(crate) fn device(major: u32, minor: u32) -> Option<u32> {
    if major > 0xfff || minor > 0xf_ffff {
        return None;
    }
    Some(minor & 0xff | major << 8 | (minor & !0xff) << 12)
}

/// Writes a time. A time before 1970 or after 2106 becomes the nearest one that the protocol has.
fn time(out: &mut Writer, time: Time) {
    out.u32(u32::try_from(time.secs).unwrap_or(if time.secs < 0 { 0 } else { u32::MAX }));
    out.u32(time.nanos.min(999_999_999) as u32);
}

/// The attributes of a node of the file system `fsid`.
pub(crate) fn attributes(out: &mut Writer, fsid: u64, stat: &Stat) {
    let (major, minor) = device_parts(stat.rdev);
    let nlink = u32::try_from(stat.nlink).unwrap_or(u32::MAX);
    [kind_of(stat.kind), stat.mode & 0o7777, nlink, stat.uid, stat.gid]
        .iter()
        .for_each(|word| out.u32(*word));
    out.u64(stat.size);
    out.u64(stat.blocks.saturating_mul(512));
    out.u32(major);
    out.u32(minor);
    out.u64(fsid);
    out.u64(stat.id.0);
    time(out, stat.atime);
    time(out, stat.mtime);
    time(out, stat.ctime);
}

/// The present attributes of a node, if they can be read.
pub(crate) fn after(out: &mut Writer, here: &Here, node: &Node) {
    let stat = match node {
        Node::Object(stat) => here.session.stat(stat.id).ok(),
        Node::Folder(_, stat) => Some(stat.clone()),
    };
    out.bool(stat.is_some());
    if let Some(stat) = stat {
        attributes(out, here.fsid(), &stat);
    }
}

/// The attributes that were just read.
pub(crate) fn known(out: &mut Writer, here: &Here, node: &Node) {
    out.bool(true);
    attributes(out, here.fsid(), node.stat());
}

/// The attributes after a change. The attributes before it are not sent, because another client may have changed them in
/// between.
pub(crate) fn change(out: &mut Writer, here: &Here, node: &Node) {
    out.bool(false);
    after(out, here, node);
}

/// The handle and attributes of a new node, then the attributes of its directory.
pub(crate) fn made(out: &mut Writer, here: &Here, node: &Node, dir: &Node) {
    out.bool(true);
    out.bytes(&here.handle(node).encode());
    known(out, here, node);
    change(out, here, dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_have_two_parts() {
        for (major, minor) in [(8, 1), (4095, 0xf_ffff), (0, 0), (259, 300)] {
            let number = device(major, minor).unwrap();
            assert_eq!(device_parts(number.into()), (major, minor));
        }
        assert_eq!((device(4096, 0), device(0, 1 << 20)), (None, None));
    }

    #[test]
    fn times_of_all_ages_are_shown() {
        let mut out = Writer::default();
        for secs in [i64::MIN, -1, 0, 5, i64::MAX] {
            time(&mut out, Time { secs, nanos: u64::MAX });
        }
        assert_eq!(out.len(), 40);
        assert_eq!(out.as_bytes()[32..36], [0xff; 4]);
    }
}
