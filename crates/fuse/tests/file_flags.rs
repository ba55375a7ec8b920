//! File flags: set and shown as by `chattr` and `lsattr`, stored in the pool, and enforced.

mod support;

use std::path::Path;

use fuse::MountOptions;
use support::{Bed, shell, usable};

/// The beginning of every script.
const PRELUDE: &str = r#"
import errno, fcntl, mmap, os, struct
GET, SET, GETX, SETX, VERSION = 0x80086601, 0x40086602, 0x801c581f, 0x401c5820, 0x80087601
GET_DOS, SET_DOS = 0x80088301, 0x40088302
IMMUTABLE, APPEND, NODUMP, PROJINHERIT = 0x10, 0x20, 0x40, 0x20000000
READONLY, HIDDEN, SYSTEM, ARCHIVE = 1 << 32, 1 << 33, 1 << 34, 1 << 35

def tried(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]

def ioctl(path, number, data):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return fcntl.ioctl(fd, number, data)
    finally:
        os.close(fd)

def flags(path):
    return struct.unpack("i", ioctl(path, GET, bytes(4)))[0]

def set_flags(path, value):
    return tried(ioctl, path, SET, struct.pack("i", value)) if isinstance(value, int) else None

def project(path):
    return struct.unpack("5I8x", ioctl(path, GETX, bytes(28)))

def set_project(path, xflags, number):
    return tried(ioctl, path, SETX, struct.pack("5I8x", xflags, 0, 0, number, 0))

def dos(path):
    return struct.unpack("Q", ioctl(path, GET_DOS, bytes(8)))[0]

def set_dos(path, value):
    return tried(ioctl, path, SET_DOS, struct.pack("Q", value))

def as_user(uid, call, *words):
    out, into = os.pipe()
    if os.fork() == 0:
        os.setgid(uid); os.setuid(uid)
        os.write(into, repr(tried(call, *words)).encode())
        os._exit(0)
    os.wait()
    return eval(os.read(out, 1000))

def write(path, mode, data):
    fd = os.open(path, mode)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)

def make(name, data=b"data"):
    with open(name, "wb") as file:
        file.write(data)
"#;

/// Runs a Python script in `dir`. A failed assertion fails the test.
fn python(dir: &Path, script: &str) {
    let said = shell(dir, &format!("python3 - <<'EOF'\n{PRELUDE}\n{script}\nEOF"));
    assert!(said.is_empty(), "{said}");
}

fn usable_by_root() -> bool {
    usable() && rustix::process::geteuid().is_root()
}

#[test]
fn flags_are_shown_kept_and_obeyed() {
    if !usable_by_root() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    python(
        &bed.at(),
        r#"
make("still"); make("log"); make("other"); os.mkdir("dir"); make("dir/in")
assert flags("still") == 0 and flags("dir") == 0
for name in ["still", "dir"]:
    ioctl(name, SET, struct.pack("i", IMMUTABLE))
ioctl("log", SET, struct.pack("i", APPEND | NODUMP))
assert tried(ioctl, "other", SET, struct.pack("i", 4)) == "ENOTSUP", "compression is no flag of a file"
assert tried(ioctl, "other", 0x80086677, bytes(8)) == "ENOTTY"
assert struct.unpack("i", ioctl("other", VERSION, bytes(4)))[0] > 0
"#,
    );
    bed.remount();
    python(
        &bed.at(),
        r#"
assert flags("still") == flags("dir") == IMMUTABLE and flags("log") == APPEND | NODUMP and flags("other") == 0
for path, mode in [("still", os.O_WRONLY), ("still", os.O_RDWR | os.O_APPEND), ("still", os.O_WRONLY | os.O_TRUNC),
                   ("log", os.O_WRONLY), ("log", os.O_RDWR), ("log", os.O_WRONLY | os.O_TRUNC | os.O_APPEND)]:
    assert tried(os.open, path, mode) == "EPERM", (path, mode)
assert tried(write, "log", os.O_WRONLY | os.O_APPEND, b" and more") == 9
assert open("log").read() == "data and more"
for call in [
    lambda: os.unlink("still"), lambda: os.rename("still", "x"), lambda: os.link("still", "x"),
    lambda: os.chmod("still", 0o600), lambda: os.chown("still", 5, 5), lambda: os.utime("still"),
    lambda: os.truncate("still", 1), lambda: os.setxattr("still", "user.a", b"1"), lambda: os.rename("other", "still"),
    lambda: os.unlink("log"), lambda: os.rename("log", "x"), lambda: os.truncate("log", 1), lambda: os.chmod("log", 0o600),
    lambda: os.unlink("dir/in"), lambda: os.mkdir("dir/new"), lambda: make("dir/new"), lambda: os.rename("other", "dir/x"),
    lambda: os.rename("dir/in", "x"), lambda: os.rmdir("dir"), lambda: os.link("other", "dir/x"), lambda: os.symlink("a", "dir/x"),
]:
    import inspect
    assert tried(call) == "EPERM", inspect.getsource(call)
assert write("dir/in", os.O_WRONLY, b"DATA") == 4, "what is in the folder may be written"
assert tried(lambda: as_user(1001, ioctl, "other", SET, struct.pack("i", NODUMP))) == "EPERM", "not the owner"
os.chown("other", 1001, 1001)
assert as_user(1001, ioctl, "other", SET, struct.pack("i", IMMUTABLE)) == "EPERM"
assert as_user(1001, lambda: ioctl("other", SET, struct.pack("i", NODUMP)) and None) is None
assert flags("other") == NODUMP
for name in ["still", "dir", "log"]:
    ioctl(name, SET, struct.pack("i", 0))
os.unlink("still"); os.unlink("dir/in"); os.unlink("log")
"#,
    );
    bed.finish();
}

#[test]
fn data_written_before_a_file_became_immutable_is_kept() {
    if !usable_by_root() {
        return;
    }
    // Without access times the kernel does not ask when files are opened.
    for atime in [1, 0] {
        let mut bed = Bed::new(128 << 20, &[("atime", atime)]);
        python(
            &bed.at(),
            r#"
for number, name in enumerate(["a", "b"]):
    make(name, b"")
    fd = os.open(name, os.O_RDWR)
    os.ftruncate(fd, 1 << 20)
    with mmap.mmap(fd, 1 << 20) as map:
        map[5000:5004] = b"map!"
        os.pwrite(fd, b"written", 300000)
        ioctl(name, SET, struct.pack("i", IMMUTABLE)) if number == 0 else ioctl(name, SET_DOS, struct.pack("Q", READONLY))
    assert tried(os.pwrite, fd, b"too late", 0) == "EPERM", "a file that is open refuses at once, not at close"
    os.close(fd)
"#,
        );
        bed.remount();
        python(
            &bed.at(),
            r#"
for name in ["a", "b"]:
    data = open(name, "rb").read()
    assert data[5000:5004] == b"map!" and data[300000:300007] == b"written" and data[:8] == bytes(8)
    assert tried(write, name, os.O_WRONLY, b"no") == "EPERM"
    assert tried(os.setxattr, name, "user.a", b"1") == ("EPERM" if name == "a" else None)
"#,
        );
        bed.finish();
    }
}

#[test]
fn project_ids_are_set_inherited_and_kept_apart() {
    if !usable_by_root() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    python(
        &bed.at(),
        r#"
os.mkdir("p"); make("outside")
assert project("p")[:4] == (0, 0, 0, 0)
assert set_project("p", 0x200, 4711) is not None
assert project("p")[0] == 0x200 and project("p")[3] == 4711 and flags("p") == PROJINHERIT
make("p/f"); os.mkdir("p/d"); make("p/d/g")
assert project("p/f")[3] == project("p/d/g")[3] == 4711
assert tried(os.link, "outside", "p/x") == "EXDEV" and tried(os.rename, "outside", "p/x") == "EXDEV"
assert set_project("outside", 0, 4711) is not None
os.link("outside", "p/x")
assert set_project("outside", 0, 0xffffffff) == "EINVAL"
assert set_project("outside", 0x20, 0) == "ENOTSUP", "synchronous"
"#,
    );
    bed.remount();
    python(&bed.at(), r#"assert [project(p)[3] for p in ["p", "p/f", "p/d", "outside"]] == [4711] * 4"#);
    bed.finish();
}

#[test]
fn dos_attributes_are_those_of_openzfs() {
    if !usable_by_root() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    python(
        &bed.at(),
        r#"
make("f"); make("g"); os.chown("f", 1001, 1001)
assert dos("f") == ARCHIVE
assert as_user(1001, set_dos, "f", HIDDEN | SYSTEM | READONLY) != "EPERM"
assert as_user(1001, set_dos, "f", IMMUTABLE | READONLY << 4) == "ENOTSUP", "a flag that is none of these"
assert as_user(1001, set_dos, "f", HIDDEN | 1 << 36) == "EPERM", "immutable is for root"
assert as_user(1001, set_dos, "g", HIDDEN) == "EPERM", "not the owner"
"#,
    );
    bed.remount();
    python(
        &bed.at(),
        r#"
assert dos("f") == HIDDEN | SYSTEM | READONLY and dos("g") == ARCHIVE and flags("f") == 0
assert tried(write, "f", os.O_WRONLY, b"no") == "EPERM", "read-only, also for root"
os.chmod("f", 0o600)
os.rename("f", "h"); os.unlink("h")
"#,
    );
    bed.finish();
}

#[test]
fn on_a_mount_that_is_only_read_no_flag_changes() {
    if !usable_by_root() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    python(&bed.at(), r#"make("f")"#);
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    bed.mounted().set_options(&read_only).unwrap();
    python(
        &bed.at(),
        r#"
assert flags("f") == 0 and dos("f") == ARCHIVE
assert tried(ioctl, "f", SET, struct.pack("i", NODUMP)) == "EROFS"
assert set_dos("f", HIDDEN) == "EROFS"
"#,
    );
    bed.finish();
}
