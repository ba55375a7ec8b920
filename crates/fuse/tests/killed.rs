//! A process that is killed while it asks about its own mount is gone at once, and the mount with it.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use front::apart;
use fuser::{Config, FileHandle, Filesystem, INodeNo, ReplyAttr, Request, SessionACL};
use rustix::mount::MountFlags;

/// The variable with the mount point for the child process.
const AT: &str = "CENOTE_TEST_SILENT_MOUNT";
const GONE_WITHIN: Duration = Duration::from_secs(180);

/// A file system that answers no question about its files.
struct Silent;

impl Filesystem for Silent {
    fn getattr(&self, _: &Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        println!("asked");
        // A reply that is dropped is an answer, too.
        std::mem::forget(reply);
    }
}

#[test]
fn a_process_that_is_killed_while_it_asks_about_its_own_mount_ends() {
    if let Some(at) = std::env::var_os(AT) {
        mount_and_ask(Path::new(&at));
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: this test mounts as root");
        return;
    }
    let at = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_is_killed_while_it_asks_about_its_own_mount_ends", "--nocapture"])
        .env(AT, at.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    assert!(said.lines().any(|line| line.is_ok_and(|line| line.contains("asked"))), "it asked nothing");
    child.kill().unwrap();
    let since = Instant::now();
    let ended = loop {
        if child.try_wait().unwrap().is_some() {
            break true;
        }
        if since.elapsed() > GONE_WITHIN {
            break false;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if !ended {
        // Ends the wait of a child that hangs.
        let _ = rustix::mount::unmount(at.path(), rustix::mount::UnmountFlags::FORCE);
    }
    let _ = rustix::mount::unmount(at.path(), rustix::mount::UnmountFlags::DETACH);
    assert!(ended, "the killed process was still there after {GONE_WITHIN:?}");
}

/// The work of the child until it is killed.
fn mount_and_ask(at: &Path) {
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let words = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let words = CString::new(words).unwrap();
    rustix::mount::mount("silent", at, "fuse", MountFlags::empty(), words.as_c_str()).unwrap();
    let session =
        fuser::Session::from_fd(Silent, device.into(), SessionACL::Owner, Config::default()).unwrap();
    std::thread::spawn(move || session.run());
    let path = at.to_owned();
    let answer = apart::ask(move || fs::metadata(path));
    panic!("there was an answer: {answer:?}");
}
