//! Directories that change while they are listed.

use crate::python;
use crate::support::{Bed, usable};

/// A directory stream of the C library.
const STREAM: &str = r#"
class Entry(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("len", ctypes.c_ushort), ("kind", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]
libc.opendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Entry)
libc.telldir.restype = ctypes.c_long
for call in libc.readdir, libc.telldir, libc.rewinddir, libc.closedir:
    call.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]

class Stream:
    def __init__(self, path):
        self.dir = libc.opendir(path.encode())
    def tell(self):
        return libc.telldir(self.dir)
    def seek(self, at):
        libc.seekdir(self.dir, at)
    def next(self):
        entry = libc.readdir(self.dir)
        return entry.contents.name.decode() if entry else None
    def rest(self):
        names = []
        while (name := self.next()) is not None:
            names.append(name)
        return names
    def rewind(self):
        libc.rewinddir(self.dir)

def make(name):
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
"#;

#[test]
fn a_place_in_a_directory_stays_one_while_entries_come_and_go() {
    if !usable() {
        return;
    }
    let bed = Bed::new(256 << 20, &[]);
    // Few names, which fit into one block; and many more than that.
    let script = format!(
        r#"{STREAM}
chance = random.Random(3)
for count in [0, 1, 30, 4000]:
    top = f"d{{count}}"
    os.mkdir(top)
    stays = [f"stays {{n}}" for n in range(count)]
    for name in stays:
        make(f"{{top}}/{{name}}")
    stream = Stream(top)
    places, names = [stream.tell()], []
    while (name := stream.next()) is not None:
        names.append(name)
        places.append(stream.tell())
    assert sorted(names) == sorted(stays + [".", ".."]), (count, names)
    assert stream.next() is None and stream.tell() == places[-1]
    # Some go, and so many come that the directory changes its form.
    gone = set(chance.sample(stays, count // 3))
    for name in gone:
        os.unlink(f"{{top}}/{{name}}")
    for n in range(3000):
        make(f"{{top}}/comes {{n}}")
    for turn in range(40):
        at = chance.randrange(len(places))
        stream.seek(places[at])
        assert stream.tell() == places[at]
        rest = stream.rest()
        known = [name for name in rest if not name.startswith(("comes", "turn"))]
        assert len(set(rest)) == len(rest)
        # A stream may go on showing what it had read before; what stays must be there, and nothing from before the place.
        wanted = [name for name in names[at:] if name not in gone]
        assert [name for name in known if name not in gone] == wanted, (count, at)
        # While it is read: others come and go.
        make(f"{{top}}/turn {{turn}}")
        if turn > 3:
            os.unlink(f"{{top}}/turn {{turn - 3}}")
        for n in range(turn * 50, turn * 50 + 50):
            os.unlink(f"{{top}}/comes {{n}}")
    stream.rewind()
    now = stream.rest()
    assert sorted(now) == sorted(os.listdir(top) + [".", ".."])
    # All removed while the stream stands in the middle.
    stream.rewind()
    for n in range(5):
        stream.next()
    for name in os.listdir(top):
        os.unlink(f"{{top}}/{{name}}")
    stream.rest()
    stream.rewind()
    assert sorted(stream.rest()) == [".", ".."]
    os.rmdir(top)
    stream.rewind()
    print(count, stream.rest())
"#
    );
    let said = python(&bed.at(), &script);
    let theirs = "0 []\n1 []\n30 []\n4000 []\n";
    assert_eq!(said, theirs);
    bed.finish();
}

#[test]
fn names_that_are_removed_while_they_are_listed_are_all_removed() {
    if !usable() {
        return;
    }
    let bed = Bed::new(256 << 20, &[]);
    // As old programs do: read a name, remove it, read on.
    let script = format!(
        r#"{STREAM}
os.mkdir("d")
for n in range(5000):
    make(f"d/name {{n}}")
stream = Stream("d")
while (name := stream.next()) is not None:
    if name not in (".", ".."):
        os.unlink(f"d/{{name}}")
os.rmdir("d")
# Renamed within the directory, each name is seen once or twice, never not at all.
os.mkdir("r")
for n in range(2000):
    make(f"r/old {{n}}")
stream, seen = Stream("r"), []
while (name := stream.next()) is not None:
    seen.append(name)
    if name.startswith("old"):
        os.rename(f"r/{{name}}", f"r/new {{name[4:]}}")
assert {{name for name in seen if name.startswith("old")}} == {{f"old {{n}}" for n in range(2000)}}
assert len(seen) == len(set(seen))
print("good")
"#
    );
    assert_eq!(python(&bed.at(), &script), "good\n");
    bed.finish();
}
