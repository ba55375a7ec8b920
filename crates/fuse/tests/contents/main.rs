//! Programs use the contents of files on a mount: ranges, holes, mappings, and directories that change while they are
//! read. Where a file system of the kernel's own must give the same answers, the test asks it, too.

mod listings;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::sync::Once;

use support::{Bed, reference, shell, usable};

/// The beginning of every script.
const PRELUDE: &str = r#"
import ctypes, errno, fcntl, hashlib, mmap, os, random, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.lseek.restype = libc.copy_file_range.restype = ctypes.c_ssize_t
libc.lseek.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int]
libc.copy_file_range.argtypes = [ctypes.c_int, ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_uint]
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
DATA, HOLE = os.SEEK_DATA, os.SEEK_HOLE

def said(result):
    return errno.errorcode[ctypes.get_errno()] if result == -1 else result

def tried(call, *words):
    try:
        return call(*words)
    except OSError as error:
        return errno.errorcode[error.errno]

def copy(a, at, b, to, size, flags=0):
    place = lambda offset: None if offset is None else ctypes.byref(ctypes.c_int64(offset))
    return said(libc.copy_file_range(a, place(at), b, place(to), size, flags))

def content(path):
    with open(path, "rb") as file:
        data = file.read()
    return len(data), hashlib.sha256(data).hexdigest()[:16]

def extents(fd):
    """Where data is, as SEEK_DATA and SEEK_HOLE say."""
    at, size, found = 0, os.fstat(fd).st_size, []
    while at < size:
        try:
            start = os.lseek(fd, at, DATA)
        except OSError as error:
            assert error.errno == errno.ENXIO
            break
        end = os.lseek(fd, start, HOLE)
        assert at <= start < end <= size, (at, start, end, size)
        found.append((start, end))
        at = end
    return found
"#;

/// Runs a Python script in `dir` and returns its output, errors included.
fn python(dir: &Path, script: &str) -> String {
    static FOUND: Once = Once::new();
    FOUND.call_once(|| assert!(!shell(dir, "python3 --version").contains("not found"), "needs python3"));
    shell(dir, &format!("python3 - <<'EOF'\n{PRELUDE}\n{script}\nEOF"))
}

/// The script says the same here and on a file system of the kernel's own; what it says.
fn same_as_linux(bed: &Bed, script: &str) -> String {
    let theirs = reference();
    let (ours, theirs) = (python(&bed.at(), script), python(theirs.path(), script));
    assert!(!theirs.contains("Traceback"), "{theirs}");
    assert_eq!(ours, theirs);
    ours
}

/// Files of all kinds, opened in all ways; `fds` has them by name.
const KINDS: &str = r#"
def fresh(name, data):
    with open(name, "wb") as file:
        file.write(data)
fresh("a", bytes(range(200)) * 50)
fresh("b", b"b" * 300)
fresh("none", b"")
os.mkdir("dir"); os.mkfifo("fifo"); os.symlink("a", "link")
fds = {
    "read": os.open("a", os.O_RDONLY), "write": os.open("a", os.O_WRONLY), "both": os.open("b", os.O_RDWR),
    "append": os.open("b", os.O_RDWR | os.O_APPEND), "empty": os.open("none", os.O_RDWR), "dir": os.open("dir", os.O_RDONLY),
    "fifo": os.open("fifo", os.O_RDWR), "path": os.open("a", os.O_PATH), "null": os.open("/dev/null", os.O_RDWR),
    "closed": 999,
}
"#;

#[test]
fn a_copied_range_is_what_linux_copies() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(256 << 20, &[("recordsize", 16384)]);
    let script = format!(
        r#"{KINDS}
for one, a in fds.items():
    for other, b in fds.items():
        # A pipe that is empty would be waited for.
        if one != "fifo":
            print(one, other, copy(a, 3, b, 5, 10), copy(a, 0, b, 0, 0), copy(a, 10**6, b, 0, 10), copy(a, 0, b, 0, 10, 1))
print(copy(fds["read"], -1, fds["both"], 0, 5), copy(fds["read"], 0, fds["both"], -1, 5))
print(copy(fds["read"], 0, fds["both"], 2**63 - 3, 5), copy(fds["read"], 2**63 - 3, fds["both"], 0, 5))
chance = random.Random(5)
fresh("source", chance.randbytes(300_000))
fd = os.open("source", os.O_RDWR)
# Within one file: next to each other, overlapping, the same place.
for at, to, size in [(0, 1000, 1000), (1000, 0, 1000), (0, 999, 1000), (999, 0, 1000), (5, 5, 10), (5, 5, 0), (299_000, 400_000, 5000),
                     (0, 299_999, 300_000), (0, 300_000, 300_000), (16384, 65536, 16384), (17, 131_072, 40_000)]:
    print(at, to, size, copy(fd, at, fd, to, size), content("source"))
# By the files' own places, which move; what was written is not at rest yet.
os.lseek(fd, 100, 0)
out = os.open("target", os.O_RDWR | os.O_CREAT)
print(copy(fd, None, out, None, 70_000), os.lseek(fd, 0, 1), os.lseek(out, 0, 1), content("target"))
for turn in range(60):
    at, to, size = chance.randrange(700_000), chance.randrange(300_000), chance.choice([1, 100, 16384, 100_000, 10**7])
    os.pwrite(fd, chance.randbytes(chance.randrange(1, 20_000)), chance.randrange(300_000))
    print(turn, copy(fd, at, out, to, size), content("target"))
# Pages that are mapped see it.
mapped = mmap.mmap(out, 4096)
mapped[0:4] = b"mine"
print(copy(fd, 0, out, 1, 2), mapped[0:4] == b"m" + os.pread(fd, 2, 0) + b"e")
"#
    );
    let said = same_as_linux(&bed, &script);
    assert!(said.contains("\n0 999 1000 EINVAL"), "{said}");
    bed.remount();
    let again = python(&bed.at(), "print(content('source'), content('target'))");
    assert!(!again.contains("Traceback"), "{again}");
    bed.finish();
}

#[test]
fn a_copied_hole_is_a_hole() {
    if !usable() {
        return;
    }
    // Zeros that are written are kept as such here.
    let mut bed = Bed::new(128 << 20, &[("compression", 2)]);
    let script = r#"
fd = os.open("source", os.O_RDWR | os.O_CREAT)
size = 1 << 30
os.ftruncate(fd, size)
for at in [0, 300 << 20, 300 << 20 | 12345, size - 5]:
    os.pwrite(fd, b"there", at)
out = os.open("target", os.O_RDWR | os.O_CREAT)
os.pwrite(out, b"x" * 1000_000, 200 << 20)
at = 0
while (copied := copy(fd, at, out, at, size - at)) != 0:
    at += copied
assert at == size == os.fstat(out).st_size, at
assert extents(out) == extents(fd), (extents(out), extents(fd))
for at in [0, 300 << 20, 300 << 20 | 12345, size - 5]:
    assert os.pread(out, 5, at) == b"there"
assert os.pread(out, 1000_000, 200 << 20) == bytes(1000_000)
# A hole behind the end of the target makes it longer; one that reaches over the end of the source is not copied on.
short = os.open("short", os.O_RDWR | os.O_CREAT)
assert copy(fd, 1 << 20, short, 77, 1000) == 1000 and os.fstat(short).st_size == 1077
os.ftruncate(fd, size + 100)
os.ftruncate(short, 0)
assert copy(fd, size, short, 0, 5000) == 100 and os.fstat(short).st_size == 100
print("good")
"#;
    assert_eq!(python(&bed.at(), script), "good\n");
    bed.remount();
    let said = python(
        &bed.at(),
        "print(os.stat('target').st_blocks < 4000, os.stat('target').st_blocks == os.stat('source').st_blocks)",
    );
    assert_eq!(said, "True True\n");
    bed.finish();
}

#[test]
fn without_sharing_copies_are_not_reported_as_clones() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[]);
    let script = format!(
        r#"{KINDS}
CLONE, RANGE, DEDUPE = 0x40049409, 0x4020940D, 0xC0189436
before = content("a"), content("b")
for one, a in fds.items():
    for other, b in fds.items():
        print(one, other, tried(fcntl.ioctl, b, CLONE, a), tried(fcntl.ioctl, b, RANGE, struct.pack("=qQQQ", a, 0, 100, 0)))
        asked = bytearray(struct.pack("=QQHHIqQQii", 0, 100, 1, 0, 0, b, 0, 0, 0, 0))
        print(tried(fcntl.ioctl, a, DEDUPE, asked), asked.hex()[-24:])
assert (content("a"), content("b")) == before
"#
    );
    let said = same_as_linux(&bed, &script);
    assert!(said.contains("read both ENOTSUP ENOTSUP"), "{said}");
    let cp = "cp --reflink=always a c; echo $?; cp --reflink=auto a d && cmp a d && echo copied";
    let refused = "cp: failed to clone 'c' from 'a': Operation not supported\n";
    assert_eq!(shell(&bed.at(), cp), format!("1\ncopied\n{refused}"));
    bed.finish();
}

#[test]
fn data_that_is_sought_is_all_there_is() {
    if !usable() {
        return;
    }
    for recordsize in [4096, 131_072] {
        let mut bed = Bed::new(256 << 20, &[("recordsize", recordsize)]);
        let look = r#"
def look(fd, wanted):
    """What is not data must be zeros; nothing that lies far from data is called so."""
    found = extents(fd)
    assert os.fstat(fd).st_size == len(wanted)
    at = 0
    for start, end in found + [(len(wanted), len(wanted))]:
        assert not any(wanted[at:start]), (at, start, found)
        at = end
        assert os.pread(fd, end - start, start) == wanted[start:end]
    return found
"#;
        let script = format!(
            r#"{look}
chance = random.Random({recordsize})
fd = os.open("f", os.O_RDWR | os.O_CREAT)
other = os.open("f", os.O_RDONLY)
wanted = bytearray()
for turn in range(150):
    at, size = chance.randrange(4 << 20), chance.choice([1, 100, 5000, 70_000])
    kind = chance.randrange(12)
    if kind < 7:
        data = chance.randbytes(size)
        wanted.extend(bytes(max(0, at + size - len(wanted))))
        wanted[at:at + size] = data
        os.pwrite(fd, data, at)
    elif kind < 9:
        end = min(at + size * 7, len(wanted))
        if at < end:
            wanted[at:end] = bytes(end - at)
        assert libc.fallocate(fd, 3, at, size * 7) == 0
    elif kind == 9:
        del wanted[at:]
        wanted.extend(bytes(at - len(wanted)))
        os.ftruncate(fd, at)
    elif kind == 10 and wanted:
        mapped = mmap.mmap(fd, len(wanted))
        at = chance.randrange(len(wanted))
        mapped[at] = wanted[at] = 77
        mapped.close()
    elif kind == 11 and turn % 4 == 0:
        os.fsync(fd)
    look(other, bytes(wanted))
far = 1 << 30
os.pwrite(fd, b"far", far)
assert os.lseek(other, len(wanted) + {recordsize}, DATA) >= far - {recordsize}
os.ftruncate(fd, len(wanted))
for at in [len(wanted), len(wanted) + 1, 2**62]:
    assert tried(os.lseek, other, at, DATA) == tried(os.lseek, other, at, HOLE) == "ENXIO"
assert tried(os.lseek, other, -1, DATA) == "ENXIO"
open("wanted", "wb").write(wanted)
print("good")
"#
        );
        assert_eq!(python(&bed.at(), &script), "good\n", "recordsize {recordsize}");
        bed.remount();
        let after =
            format!("{look}\nlook(os.open('f', os.O_RDONLY), open('wanted', 'rb').read())\nprint('good')");
        assert_eq!(python(&bed.at(), &after), "good\n", "recordsize {recordsize}");
        bed.finish();
    }
}

#[test]
fn fallocate_does_what_it_does_in_openzfs() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    // Modes: keep size 1, punch 2, collapse 8, zero 16, insert 32, unshare 64.
    let script = format!(
        r#"{KINDS}
def space(name, mode, at, size):
    return said(libc.fallocate(fds[name], mode, at, size))
for mode in [2, 8, 9, 18, 32, 33, 64, 65, 128, 8 | 16, 1 | 2 | 16, 1 << 30]:
    print(mode, space("both", mode, 0, 4096))
for name in fds:
    print(name, [space(name, mode, 10, 20) for mode in [0, 1, 3]])
for at, size in [(0, 0), (-1, 5), (5, -1), (0, -5), (2**63 - 2, 5), (2**62, 2**62)]:
    print(at, size, [space("both", mode, at, size) for mode in [0, 1, 3]])
print(content("a"), content("b"))
print([content("b")[0] for turn in [space("both", 1, 200, 9000), space("both", 0, 200, 9000), space("both", 3, 9000, 9000)]])
mapped = mmap.mmap(fds["both"], 9000)
mapped[100:110] = b"0123456789"
print(space("both", 3, 103, 4), bytes(mapped[100:110]), os.pread(fds["both"], 10, 100))
"#
    );
    let said = same_as_linux(&bed, &script);
    assert!(said.contains("\n9 ENOTSUP"), "{said}");
    let ours = r#"
fd = os.open("z", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"z" * 300_000, 0)
assert libc.fallocate(fd, 17, 1000, 280_000) == 0 and os.fstat(fd).st_size == 300_000
assert os.pread(fd, 300_000, 0) == b"z" * 1000 + bytes(280_000) + b"z" * 19_000
assert libc.fallocate(fd, 17, 299_000, 500_000) == 0 and os.fstat(fd).st_size == 300_000
assert libc.fallocate(fd, 16, 299_000, 500_000) == 0 and os.fstat(fd).st_size == 799_000
assert libc.fallocate(fd, 16, 900_000, 100_000) == 0 and os.fstat(fd).st_size == 1_000_000
assert os.pread(fd, 10**6, 298_000) == b"z" * 1000 + bytes(701_000)
# What could not be written now is refused.
for mode in [0, 1]:
    assert said(libc.fallocate(fd, mode, 0, 1 << 40)) == "ENOSPC"
assert os.fstat(fd).st_size == 1_000_000
print("good")
"#;
    assert_eq!(python(&bed.at(), ours), "good\n");
    bed.remount();
    assert_eq!(python(&bed.at(), "print(content('z')[0])"), "1000000\n");
    bed.finish();
}

/// Runs the operation of a line as root or as a user, on a file with set-id bits and capabilities. Prints the rights
/// that are left, and the content.
const PRIVILEGES: &str = r#"
capability = struct.pack("<IIIII", 0x02000001, 1 << 12, 0, 0, 0)
with open("source", "wb") as file:
    file.write(b"theirs")
os.chmod("source", 0o644)

def change(what, user, mode, call):
    with open("program", "wb") as file:
        file.write(b"0123456789")
    os.chmod("program", mode)
    os.setxattr("program", "security.capability", capability)
    child = os.fork()
    if child == 0:
        os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
        fd, source = os.open("program", os.O_RDWR), os.open("source", os.O_RDONLY)
        os._exit(0 if call(source, fd) in (0, 3, 6) else 1)
    assert os.waitpid(child, 0)[1] == 0, what
    left = "security.capability" in os.listxattr("program")
    print(what, user, oct(os.stat("program").st_mode & 0o7777), left, content("program"))
    os.unlink("program")

calls = [
    ("copy", lambda a, b: copy(a, 0, b, 0, 6)),
    ("copy into the middle", lambda a, b: copy(a, 0, b, 3, 3)),
    ("allocate", lambda a, b: said(libc.fallocate(b, 0, 0, 20))),
    ("punch", lambda a, b: said(libc.fallocate(b, 3, 0, 5))),
    ("zero", lambda a, b: said(libc.fallocate(b, 16, 0, 5))),
]
"#;

#[test]
fn every_change_by_another_user_drops_the_privileges_of_a_file() {
    if !usable() || !rustix::process::geteuid().is_root() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    let script = format!(
        r#"{PRIVILEGES}
for what, call in calls:
    change(what, 1001, 0o6777, call)
    change(what, 0, 0o6777, call)
# Without the right to execute it, setgid means something else; and what is refused takes nothing off.
change("copy", 1001, 0o2766, calls[0][1])
change("collapse", 1001, 0o6777, lambda a, b: 0 if said(libc.fallocate(b, 8, 0, 4096)) == "ENOTSUP" else 1)
"#
    );
    let said = python(&bed.at(), &script);
    let lines: Vec<&str> = said.lines().collect();
    for pair in lines[..10].chunks(2) {
        assert!(pair[0].contains(" 1001 0o777 False"), "{said}");
        assert!(pair[1].contains(" 0 0o6777 False"), "{said}");
    }
    assert!(lines[10].starts_with("copy 1001 0o2766 False"), "{said}");
    assert!(lines[11].starts_with("collapse 1001 0o6777 True"), "{said}");
    bed.remount();
    bed.finish();
}

#[test]
fn two_processes_append_and_nothing_is_lost() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(256 << 20, &[("recordsize", 4096)]);
    let script = r#"
open("log", "wb").close()
children = []
for who in b"AB":
    child = os.fork()
    if child == 0:
        chance = random.Random(who)
        fd = os.open("log", os.O_WRONLY | os.O_APPEND)
        direct = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_DSYNC)
        for turn in range(400):
            line = bytes([who]) * chance.choice([1, 80, 4095, 4096, 9000, 70_000]) + b" %d\n" % turn
            assert os.write(direct if turn % 50 == 7 else fd, line) == len(line)
        os._exit(0)
    children.append(child)
assert all(os.waitpid(child, 0)[1] == 0 for child in children)
print("good")
"#;
    let look = r#"
lines = open("log", "rb").read().splitlines()
assert len(lines) == 800, len(lines)
for who in b"AB":
    chance = random.Random(who)
    wanted = [bytes([who]) * chance.choice([1, 80, 4095, 4096, 9000, 70_000]) + b" %d" % turn for turn in range(400)]
    assert [line for line in lines if line[0] == who] == wanted
print("good")
"#;
    assert_eq!(python(&bed.at(), script), "good\n");
    assert_eq!(python(&bed.at(), look), "good\n");
    bed.remount();
    assert_eq!(python(&bed.at(), look), "good\n");
    bed.finish();
}

#[test]
fn direct_reads_and_writes_need_no_alignment_and_agree_with_the_rest() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[]);
    let script = r#"
chance = random.Random(8)
fd, direct = os.open("f", os.O_RDWR | os.O_CREAT), os.open("f", os.O_RDWR | os.O_DIRECT)
wanted = bytearray(500_000)
os.ftruncate(fd, len(wanted))
mapped = mmap.mmap(fd, len(wanted))
buffer = ctypes.create_string_buffer(300_000)
libc.pread.argtypes = libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
for turn in range(400):
    at, size = chance.randrange(len(wanted) - 1), chance.choice([1, 511, 512, 4096, 5000, 131_072, 200_000])
    size = min(size, len(wanted) - at)
    shift = chance.choice([0, 1, 7, 512])
    place = ctypes.addressof(buffer) + shift
    kind = chance.randrange(5)
    data = chance.randbytes(size)
    if kind == 0:
        os.pwrite(fd, data, at)
    elif kind == 1:
        ctypes.memmove(place, data, size)
        assert libc.pwrite(direct, place, size, at) == size
    elif kind == 2:
        mapped[at:at + size] = data
    elif kind == 3:
        got = libc.pread(direct, place, size, at)
        assert got == size and ctypes.string_at(place, size) == wanted[at:at + size], (turn, at, size)
        continue
    else:
        assert os.pread(fd, size, at) == wanted[at:at + size], (turn, at, size)
        assert mapped[at:at + size] == wanted[at:at + size]
        continue
    wanted[at:at + size] = data
# Over the end: as much as there is, then nothing.
assert libc.pread(direct, ctypes.addressof(buffer) + 3, 1000, len(wanted) - 10) == 10
assert libc.pread(direct, ctypes.addressof(buffer) + 3, 1000, len(wanted)) == 0
assert os.write(os.open("f", os.O_WRONLY | os.O_APPEND | os.O_DIRECT), b"end") == 3
print(hashlib.sha256(wanted + b"end").hexdigest())
"#;
    let said = python(&bed.at(), script);
    bed.remount();
    assert_eq!(shell(&bed.at(), "sha256sum < f"), said.replace('\n', "  -\n"));
    bed.finish();
}

#[test]
fn data_of_an_asynchronous_direct_write_is_read_from_then_on() {
    if !usable() {
        return;
    }
    let bed = Bed::new(256 << 20, &[]);
    let script = r#"
PIECE, COUNT, ROUNDS = 65536, 32, 40
class Iocb(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32),
                ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32),
                ("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64),
                ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("event", ctypes.c_uint32)]
class Event(ctypes.Structure):
    _fields_ = [("data", ctypes.c_uint64), ("iocb", ctypes.c_uint64), ("result", ctypes.c_int64), ("more", ctypes.c_int64)]
SETUP, GETEVENTS, SUBMIT = 206, 208, 209
context = ctypes.c_ulong(0)
if os.uname().machine != "x86_64" or libc.syscall(SETUP, COUNT, ctypes.byref(context)) != 0:
    print("no AIO here"); sys.exit()
fd = os.open("f", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
os.ftruncate(fd, PIECE * COUNT)
readers = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        cached = os.open("f", os.O_RDONLY)
        while True:
            for at in range(0, PIECE * COUNT, 4 * PIECE):
                os.pread(cached, 4 * PIECE, at)
    readers.append(pid)
buffer, stale = mmap.mmap(-1, PIECE), 0
address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
cached = os.open("f", os.O_RDONLY)
for number in range(1, ROUNDS):
    buffer[:] = bytes([number]) * PIECE
    pieces = [Iocb(opcode=1, fd=fd, buffer=address, bytes=PIECE, offset=at * PIECE) for at in range(COUNT)]
    list_of = (ctypes.POINTER(Iocb) * COUNT)(*[ctypes.pointer(piece) for piece in pieces])
    sent = 0
    while sent < COUNT:
        now = libc.syscall(SUBMIT, context, ctypes.c_long(COUNT - sent), ctypes.byref(list_of, sent * 8))
        assert now > 0
        sent += now
    events, done = (Event * COUNT)(), 0
    while done < COUNT:
        got = libc.syscall(GETEVENTS, context, ctypes.c_long(1), ctypes.c_long(COUNT), events, None)
        assert all(event.result == PIECE for event in events[:got])
        done += got
    for at in range(COUNT):
        stale += os.pread(cached, PIECE, at * PIECE) != bytes([number]) * PIECE
for pid in readers:
    os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
print("stale", stale)
"#;
    let said = python(&bed.at(), script);
    assert!(said == "stale 0\n" || said == "no AIO here\n", "{said}");
    bed.finish();
}

#[test]
fn mappings_go_along_when_a_file_is_cut() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[("recordsize", 4096)]);
    let script = r#"
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 100_000)
mapped = mmap.mmap(fd, 131_072 - 31_072)
mapped[:] = b"m" * 100_000
def touch(at, write):
    """How a process ends that touches a page."""
    child = os.fork()
    if child == 0:
        if write:
            mapped[at] = 1
        elif mapped[at] == 255:
            os._exit(9)
        os._exit(0)
    return os.waitpid(child, 0)[1]
print([touch(at, write) == signal.SIGBUS for at in [0, 49_151, 49_152, 99_999] for write in [False, True]])
os.ftruncate(fd, 49_000)
print([touch(at, write) == signal.SIGBUS for at in [5, 48_999, 49_152, 99_999] for write in [False, True]])
# What was behind the end is zeros when the file grows again.
os.ftruncate(fd, 100_000)
print(mapped[48_990:49_010], content("m"))
mapped[49_500:49_505] = b"again"
os.truncate("m", 49_502)
os.pwrite(fd, b"far", 90_000)
print(mapped[49_490:49_510], mapped[89_999:90_005], content("m"))
os.truncate("m", 0)
print(touch(0, True) == signal.SIGBUS)
os.ftruncate(fd, 60_000)
mapped[59_000:59_005] = b"alive"
mapped.flush()
os.unlink("m")
mapped[58_000:58_005] = b"alone"
print(hashlib.sha256(os.pread(fd, 70_000, 0)).hexdigest(), mapped[58_000:58_005])
with open("kept", "wb") as kept:
    kept.write(os.pread(fd, 70_000, 0))
"#;
    same_as_linux(&bed, script);
    let kept = python(&bed.at(), "print(content('kept'))");
    bed.remount();
    assert_eq!(python(&bed.at(), "print(content('kept'))"), kept);
    bed.finish();
}
