//! Servers that another login of this user started. Their sockets are in another runtime folder.
//!
//! From:   the processes that have a lock on a pool's devices, as /proc shows them.
//! To:     `client`, which connects to the socket that such a process listens on.
//!
//! The contents of /proc are only a hint. The client trusts a socket found this way no more than one in the runtime folder:
//! it asks the kernel which user listens.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::runtime::FRESH;

/// A flag in /proc/net/unix: the socket is listening.
const LISTENS: u32 = 0x1_0000;

/// A process of this user that holds a pool's devices and listens for its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    pub pid: u32,
    /// Where its socket was made.
    pub socket: PathBuf,
}

/// The server of this user that holds one of `devices` and listens on a socket called `name`.
pub(crate) fn listener(devices: &[PathBuf], name: &str) -> Option<Listener> {
    let holders = devices.iter().flat_map(|device| pool::holders_of(device));
    let pids: BTreeSet<u32> = holders.map(|holder| holder.pid).collect();
    pids.into_iter().filter(|pid| is_of_this_user(*pid)).find_map(|pid| {
        let socket =
            sockets_of(pid).into_iter().find(|path| path.file_name().is_some_and(|file| file == name));
        socket.map(|socket| Listener { pid, socket })
    })
}

fn is_of_this_user(pid: u32) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == user)
}

/// The sockets with a path on which a process listens, by their final names.
fn sockets_of(pid: u32) -> Vec<PathBuf> {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let inodes: BTreeSet<u64> = links.filter_map(|link| socket_inode(&link)).collect();
    // The table of that process, which may be in another network namespace.
    let table = fs::read(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let listening = table.split(|byte| *byte == b'\n').filter_map(listening);
    listening.filter(|(inode, _)| inodes.contains(inode)).map(|(_, path)| path).collect()
}

/// The number in `socket:[4711]`.
fn socket_inode(link: &Path) -> Option<u64> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Reads `0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/x.sock`: the number and the path of a socket
/// that a process listens on. A server makes its socket under another name first, and the kernel keeps that one.
fn listening(mut line: &[u8]) -> Option<(u64, PathBuf)> {
    let mut words = [&[][..]; 7];
    for word in &mut words {
        line = line.trim_ascii_start();
        let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
        (*word, line) = line.split_at(end);
    }
    let [_, _, _, flags, _, _, inode] = words.map(|word| std::str::from_utf8(word).unwrap_or_default());
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let inode = inode.parse().ok()?;
    let path = line.strip_prefix(b" ").filter(|path| path.starts_with(b"/"))?;
    let path =
        PathBuf::from(OsString::from_vec(path.strip_suffix(FRESH.as_bytes()).unwrap_or(path).to_vec()));
    (flags & LISTENS != 0).then_some((inode, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_a_process_listens_on_are_found_by_the_lock_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("device with spaces");
        fs::write(&device, "x").unwrap();
        let socket = folder.path().join("my tank.sock");
        let fresh = folder.path().join("my tank.sock.new");
        let _listener = std::os::unix::net::UnixListener::bind(&fresh).unwrap();
        fs::rename(&fresh, &socket).unwrap();
        let found = || listener(std::slice::from_ref(&device), "my tank.sock");
        assert_eq!(found(), None, "nobody has the device");
        let held = storage::host::FileDisk::open(&device, storage::host::Access::ReadOnly).unwrap();
        assert_eq!(found(), Some(Listener { pid: std::process::id(), socket }));
        assert_eq!(listener(std::slice::from_ref(&device), "other.sock"), None);
        drop(held);
    }

    #[test]
    fn only_sockets_with_a_path_and_a_listener_count() {
        let line = |flags: &str, path: &str| {
            listening(format!("0000000000000000: 00000002 00000000 {flags} 0001 01   4711{path}").as_bytes())
        };
        assert_eq!(line("00010000", " /run/x y.sock"), Some((4711, PathBuf::from("/run/x y.sock"))));
        for (flags, path) in
            [("00000000", " /run/x"), ("00010000", ""), ("00010000", " @abstract"), ("x", " /run/x")]
        {
            assert_eq!(line(flags, path), None, "{flags} {path}");
        }
        assert_eq!(listening(b"Num       RefCount Protocol Flags    Type St Inode Path"), None);
    }
}
