//! Clients of all kinds against a served file system: those that keep to the protocol, and those that do not.

mod calls;
#[path = "../../front/tests/served/mod.rs"]
mod served;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use calls::{
    ACCESS, Answer, COMMIT, CREATE, Call, GETATTR, LINK, LOOKUP, MKDIR, MOUNT, NFS, READ, READDIR,
    READDIRPLUS, REMOVE, RENAME, SETATTR, WRITE, Words, at, record,
};
use nfs::{Export, Rules, Serving};
use pool::Pool;
use served::Served;
use zpl::Filesystem;

const MIB: u64 = 1 << 20;
const OK: u32 = 0;
const NOENT: u32 = 2;
const ACCES: u32 = 13;
const EXIST: u32 = 17;
const FBIG: u32 = 27;
const ROFS: u32 = 30;
const STALE: u32 = 70;

/// A pool in a file with the file system `tank`, which is served.
struct Bed {
    served: Served,
    export: Arc<Export>,
    serving: Option<Serving>,
    /// Notices for other caches.
    told: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    fn new(rules: &str) -> Bed {
        let served = Served::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (export, serving) = serve(served.pool(), rules, &told);
        let bed = Bed { served, export, serving: Some(serving), told };
        // Users may make files in the root.
        bed.fs(|fs| {
            fs.setattr(fs.root(), &zpl::SetAttr { mode: Some(0o777), ..Default::default() }).unwrap()
        });
        bed
    }

    fn fs<T>(&self, with: impl FnOnce(&Filesystem) -> T) -> T {
        with(&Filesystem::open(self.served.pool().open("tank").unwrap()).unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.serving.as_ref().unwrap().address()
    }

    fn client(&self, uid: u32) -> Client {
        Client::connect(self.address(), uid)
    }

    /// The server ends and starts again.
    fn restart(&mut self, rules: &str) {
        self.serving = None;
        let (export, serving) = serve(self.served.pool(), rules, &self.told);
        (self.export, self.serving) = (export, Some(serving));
    }

    fn judge(mut self) {
        self.serving = None;
        drop(self.export);
        self.served.judge(&["--quick"]);
    }
}

fn serve(pool: &Arc<Pool>, rules: &str, told: &Arc<Mutex<Vec<String>>>) -> (Arc<Export>, Serving) {
    let weak = Arc::downgrade(pool);
    let open = move |name: &str| {
        let pool = weak.upgrade().ok_or("no pool")?;
        Filesystem::open(pool.open(name).map_err(|e| e.to_string())?).map_err(|e| e.to_string())
    };
    let told = told.clone();
    let listener = move |name: &str, notices: &[zpl::session::Notice<'_>]| {
        told.lock().unwrap().extend(notices.iter().map(|notice| format!("{name} {notice:?}")));
    };
    let rules = Rules::parse(rules).unwrap();
    let export = Arc::new(Export::new(77, "tank", rules, Arc::new(open), Arc::new(listener)));
    let serving = Serving::start(([127, 0, 0, 1], 0).into()).unwrap();
    serving.add(export.clone());
    (export, serving)
}

struct Client {
    stream: TcpStream,
    number: u32,
    uid: u32,
}

impl Client {
    fn connect(address: SocketAddr, uid: u32) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        Client { stream, number: 0, uid }
    }

    fn message(&self, program: u32, procedure: u32, arguments: &Words) -> Vec<u8> {
        Call { number: self.number, program, procedure, uid: self.uid }.message(arguments)
    }

    fn send(&mut self, message: &[u8]) -> Vec<u8> {
        self.stream.write_all(&record(message)).unwrap();
        self.receive()
    }

    /// The next reply.
    fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).unwrap();
        let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.stream.read_exact(&mut reply).unwrap();
        reply
    }

    fn call(&mut self, program: u32, procedure: u32, arguments: Words) -> Answer {
        self.number += 1;
        let reply = self.send(&self.message(program, procedure, &arguments));
        let mut answer = Answer(reply, 0);
        let head = [(); 6].map(|()| answer.u32());
        assert_eq!(head, [self.number, 1, 0, 0, 0, 0]);
        answer
    }

    /// Calls a procedure of NFS; gives its status and what follows.
    fn nfs(&mut self, procedure: u32, arguments: Words) -> (u32, Answer) {
        let mut answer = self.call(NFS, procedure, arguments);
        (answer.u32(), answer)
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let mut answer = self.call(MOUNT, 1, Words::default().bytes(path.as_bytes()));
        match answer.u32() {
            0 => Ok(answer.bytes()),
            status => Err(status),
        }
    }

    fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        match self.nfs(LOOKUP, at(dir, name)) {
            (OK, mut answer) => Ok(answer.bytes()),
            (status, _) => Err(status),
        }
    }

    fn create(&mut self, dir: &[u8], name: &str, mode: u32) -> Result<Vec<u8>, u32> {
        match self.nfs(CREATE, at(dir, name).u32(1).mode(mode)) {
            (OK, mut answer) => {
                assert_eq!(answer.u32(), 1);
                Ok(answer.bytes())
            }
            (status, _) => Err(status),
        }
    }

    fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: u32) -> Result<(u32, u64), u32> {
        let arguments = Words::default().bytes(file).u64(offset).u32(data.len() as u32).u32(stable);
        match self.nfs(WRITE, arguments.bytes(data)) {
            (OK, mut answer) => {
                assert_eq!(answer.u32(), 0);
                answer.attributes();
                assert_eq!(answer.u32(), data.len() as u32);
                Ok((answer.u32(), answer.u64()))
            }
            (status, _) => Err(status),
        }
    }

    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        match self.nfs(READ, Words::default().bytes(file).u64(offset).u32(count)) {
            (OK, mut answer) => {
                answer.attributes();
                let (_, eof) = (answer.u32(), answer.u32() == 1);
                Ok((answer.bytes(), eof))
            }
            (status, _) => Err(status),
        }
    }

    /// All names of a directory, `room` bytes at a time.
    fn list(&mut self, dir: &[u8], room: u32, is_plus: bool) -> Vec<String> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let arguments = Words::default().bytes(dir).u64(cookie).u64(0).u32(room);
            let (status, mut answer) = match is_plus {
                true => self.nfs(READDIRPLUS, arguments.u32(room)),
                false => self.nfs(READDIR, arguments),
            };
            assert_eq!(status, OK);
            answer.attributes();
            answer.u64();
            while answer.u32() == 1 {
                answer.u64();
                names.push(String::from_utf8(answer.bytes()).unwrap());
                cookie = answer.u64();
                if is_plus {
                    answer.attributes();
                    if answer.u32() == 1 {
                        answer.bytes();
                    }
                }
            }
            assert!(answer.0.len() <= room as usize + 64);
            if answer.u32() == 1 {
                return names;
            }
        }
    }
}

const RULES: &str = "rw,insecure";

#[test]
fn files_are_made_written_read_renamed_linked_listed_and_removed() {
    let bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    assert_eq!(client.mount("tank/").unwrap(), root);
    assert_eq!((client.mount("/tank/none"), client.mount("/tan")), (Err(NOENT), Err(NOENT)));
    let file = client.create(&root, "file", 0o640).unwrap();
    assert_eq!(client.create(&root, "file", 0o640), Err(EXIST));
    let data: Vec<u8> = (0..3 * MIB).map(|n| ((n * 7) >> 3) as u8).collect();
    let mut verifier = None;
    for (n, part) in data.chunks(MIB as usize).enumerate() {
        let (how, now) = client.write(&file, n as u64 * MIB, part, 0).unwrap();
        assert!(how == 0 && *verifier.get_or_insert(now) == now);
    }
    let (status, mut answer) = client.nfs(COMMIT, Words::default().bytes(&file).u64(0).u32(0));
    assert_eq!((status, answer.u32()), (OK, 0));
    answer.attributes();
    assert_eq!(Some(answer.u64()), verifier);
    assert_eq!(client.write(&file, 5, b"stable", 2).unwrap().0, 2);
    let (read, eof) = client.read(&file, 0, MIB as u32).unwrap();
    assert!(
        !eof && read.len() == MIB as usize
            && read[5..11] == *b"stable"
            && read[11..] == data[11..MIB as usize]
    );
    let (read, eof) = client.read(&file, 2 * MIB, 2 * MIB as u32).unwrap();
    assert!(eof && read == data[2 * MIB as usize..]);
    assert_eq!(client.read(&file, 9 * MIB, 10).unwrap(), (vec![], true));
    assert_eq!(client.read(&file, u64::MAX, 10).unwrap(), (vec![], true));
    for offset in [u64::MAX, u64::MAX - 3, i64::MAX as u64] {
        assert_eq!(client.write(&file, offset, b"beyond", 2), Err(FBIG));
    }
    let (status, _) = client.nfs(MKDIR, at(&root, "dir").mode(0o755));
    assert_eq!(status, OK);
    let dir = client.lookup(&root, "dir").unwrap();
    let mut rename = at(&root, "file");
    rename.0.extend(at(&dir, "moved").0);
    assert_eq!(client.nfs(RENAME, rename).0, OK);
    assert_eq!((client.lookup(&root, "file"), client.lookup(&dir, "moved")), (Err(NOENT), Ok(file.clone())));
    let mut link = Words::default().bytes(&file);
    link.0.extend(at(&root, "second").0);
    assert_eq!(client.nfs(LINK, link).0, OK);
    assert_eq!(client.lookup(&dir, ".."), Ok(root.clone()));
    for n in 0..60 {
        client.create(&dir, &format!("a name that is rather long, number {n}"), 0o644).unwrap();
    }
    for (room, is_plus) in [(1024, false), (60000, false), (1024, true), (60000, true)] {
        let mut names = client.list(&dir, room, is_plus);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 63, "{room} {is_plus}");
    }
    let told = bed.told.lock().unwrap().join("\n");
    assert!(told.contains("tank Name(") && told.contains("tank Node("), "{told}");
    bed.judge();
}

#[test]
fn a_call_that_is_sent_twice_is_carried_out_once() {
    let bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    client.create(&root, "file", 0o640).unwrap();
    client.number += 1;
    let remove = client.message(NFS, REMOVE, &at(&root, "file"));
    let first = client.send(&remove);
    let again = bed.client(1000).send(&remove);
    assert_eq!(first, again);
    assert_eq!(client.nfs(REMOVE, at(&root, "file")).0, NOENT);
    bed.judge();
}

#[test]
fn calls_that_are_sent_together_are_all_answered() {
    let bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    let mut sent = Vec::new();
    let numbers = 100..140;
    for number in numbers.clone() {
        client.number = number;
        let message = client.message(NFS, CREATE, &at(&root, &format!("file {number}")).u32(1).mode(0o600));
        sent.extend(record(&message));
    }
    client.stream.write_all(&sent).unwrap();
    let mut answered: Vec<u32> = numbers
        .clone()
        .map(|_| {
            let mut answer = Answer(client.receive(), 0);
            let [number, rest @ ..] = [(); 7].map(|()| answer.u32());
            assert_eq!(rest, [1, 0, 0, 0, 0, OK]);
            number
        })
        .collect();
    answered.sort_unstable();
    assert!(answered.into_iter().eq(numbers));
    assert_eq!(client.list(&root, 60000, false).len(), 42);
    bed.judge();
}

#[test]
fn users_may_do_what_modes_say_and_root_is_nobody() {
    let bed = Bed::new(RULES);
    let (mut owner, mut other, mut root) = (bed.client(1000), bed.client(1001), bed.client(0));
    let top = owner.mount("/tank").unwrap();
    let file = owner.create(&top, "private", 0o600).unwrap();
    owner.write(&file, 0, b"secret", 2).unwrap();
    for client in [&mut other, &mut root] {
        assert_eq!(client.read(&file, 0, 6), Err(ACCES));
        assert_eq!(client.write(&file, 0, b"x", 0), Err(ACCES));
        let (status, mut answer) = client.nfs(ACCESS, Words::default().bytes(&file).u32(63));
        assert_eq!(status, OK);
        answer.attributes();
        assert_eq!(answer.u32(), 0);
        // Not the owner.
        assert_eq!(client.nfs(SETATTR, Words::default().bytes(&file).mode(0o666).u32(0)).0, 1);
    }
    let (_, mut answer) = owner.nfs(ACCESS, Words::default().bytes(&file).u32(63));
    answer.attributes();
    assert_eq!(answer.u32(), 1 | 4 | 8);
    // A file belongs to nobody if root makes it, or a user without a number.
    for (client, name) in [(&mut root, "of root"), (&mut bed.client(u32::MAX), "of none")] {
        let made = client.create(&top, name, 0o644).unwrap();
        let (_, mut answer) = client.nfs(GETATTR, Words::default().bytes(&made));
        answer.skip(12);
        assert_eq!((answer.u32(), answer.u32()), (65534, 65534));
    }
    // And no file can be given to such a user.
    let owners = Words::default().bytes(&file).u32(0).u32(1).u32(u32::MAX).u32(1).u32(u32::MAX);
    assert_eq!(owner.nfs(SETATTR, owners.u32(0).u32(0).u32(0).u32(0)).0, OK);
    let (_, mut answer) = owner.nfs(GETATTR, Words::default().bytes(&file));
    answer.skip(12);
    assert_eq!((answer.u32(), answer.u32()), (1000, 1000));
    bed.judge();
}

#[test]
fn a_directory_that_may_be_read_and_not_searched_gives_names_and_nothing_more() {
    let bed = Bed::new("rw,insecure,no_root_squash");
    let (mut owner, mut other, mut root) = (bed.client(1000), bed.client(1001), bed.client(0));
    let top = owner.mount("/tank").unwrap();
    let (status, mut answer) = owner.nfs(MKDIR, at(&top, "dir").mode(0o744));
    assert_eq!((status, answer.u32()), (OK, 1));
    let dir = answer.bytes();
    owner.create(&dir, "file", 0o644).unwrap();
    assert_eq!(other.lookup(&dir, "file"), Err(ACCES));
    let told = |client: &mut Client| {
        let arguments = Words::default().bytes(&dir).u64(0).u64(0).u32(4096).u32(4096);
        let (status, mut answer) = client.nfs(READDIRPLUS, arguments);
        assert_eq!(status, OK);
        answer.attributes();
        answer.u64();
        let mut told = Vec::new();
        while answer.u32() == 1 {
            answer.u64();
            let name = String::from_utf8(answer.bytes()).unwrap();
            answer.u64();
            let has_attributes = answer.attributes().is_some();
            let has_handle = answer.u32() == 1;
            if has_handle {
                answer.bytes();
            }
            told.push((name, has_attributes, has_handle));
        }
        told.into_iter().find(|(name, ..)| name == "file").unwrap()
    };
    assert_eq!(told(&mut owner), ("file".to_owned(), true, true));
    assert_eq!(told(&mut root), ("file".to_owned(), true, true));
    assert_eq!(told(&mut other), ("file".to_owned(), false, false));
    // The same holds for the way to the snapshots of a closed file system.
    assert_eq!(root.nfs(SETATTR, Words::default().bytes(&top).mode(0o700).u32(0)).0, OK);
    assert_eq!(other.lookup(&top, ".zfs"), Err(ACCES));
    root.lookup(&top, ".zfs").unwrap();
    bed.judge();
}

#[test]
fn a_new_file_has_the_owner_that_its_user_may_give_and_an_impossible_one_is_not_made() {
    let bed = Bed::new(RULES);
    let mut root = bed.client(0);
    let top = root.mount("/tank").unwrap();
    let new = |name: &str, uid: u32, gid: u32, size: u64| {
        let owned = at(&top, name).u32(1).u32(1).u32(0o640).u32(1).u32(uid).u32(1).u32(gid);
        owned.u32(1).u64(size).u32(0).u32(0)
    };
    // Some clients send the owner with each new file. Root counts as nobody, and cannot give a file to root.
    for (client, name, owner) in [(&mut root, "a", 65534), (&mut bed.client(1000), "b", 1000)] {
        let (status, mut answer) = client.nfs(CREATE, new(name, 0, 0, 5));
        assert_eq!((status, answer.u32()), (OK, 1), "{name}");
        let file = answer.bytes();
        let (_, mut answer) = client.nfs(GETATTR, Words::default().bytes(&file));
        answer.skip(4);
        assert_eq!([(); 4].map(|()| answer.u32()), [0o640, 1, owner, owner]);
        assert_eq!(answer.u64(), 5);
    }
    assert_eq!(root.nfs(CREATE, new("c", 0, 0, 1 << 63)).0, FBIG);
    assert_eq!(root.lookup(&top, "c"), Err(NOENT));
    bed.judge();
}

#[test]
fn an_export_is_for_the_clients_that_its_rules_name() {
    let mut bed = Bed::new("rw");
    // Not from a port that every user may use.
    assert_eq!(bed.client(0).mount("/tank"), Err(ACCES));
    bed.restart("rw=10.0.0.0/8,insecure");
    assert_eq!(bed.client(0).mount("/tank"), Err(ACCES));
    bed.restart("ro,insecure");
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    assert_eq!(client.create(&root, "file", 0o644), Err(ROFS));
    // A client that loses its right cannot use its handles.
    bed.export.tell("tank", None, Rules::parse("rw").unwrap());
    assert_eq!(client.lookup(&root, "file"), Err(ACCES));
    bed.export.tell("tank", Some("/srv/x".to_owned()), Rules::parse("no_root_squash,insecure").unwrap());
    assert_eq!(client.mount("/srv/x"), Ok(root));
    bed.judge();
}

#[test]
fn a_handle_outlives_the_server_and_is_stale_when_its_file_is_gone() {
    let mut bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    let [gone, kept] = ["gone", "kept"].map(|name| client.create(&root, name, 0o644).unwrap());
    let (_, before) = client.write(&kept, 0, b"data", 2).unwrap();
    assert_eq!(client.nfs(REMOVE, at(&root, "gone")).0, OK);
    assert_eq!(client.read(&gone, 0, 1), Err(STALE));
    bed.restart(RULES);
    let mut client = bed.client(1000);
    assert_eq!(client.read(&kept, 0, 4).unwrap().0, b"data");
    assert_eq!(client.read(&gone, 0, 1), Err(STALE));
    let mut another = kept.clone();
    *another.last_mut().unwrap() ^= 1;
    assert_eq!(client.read(&another, 0, 1), Err(STALE));
    // Clients see that what was not committed may be lost.
    assert_ne!(client.write(&kept, 0, b"data", 0).unwrap().1, before);
    bed.export.rename("other");
    bed.serving.as_ref().unwrap().remove(77);
    assert_eq!(client.read(&kept, 0, 1), Err(STALE));
    bed.judge();
}

#[test]
fn snapshots_are_below_zfs_and_nothing_is_changed_there() {
    let bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    let file = client.create(&root, "file", 0o644).unwrap();
    client.write(&file, 0, b"before", 2).unwrap();
    bed.served.pool().snapshot(&["tank@then".to_owned()], &[]).unwrap();
    client.write(&file, 0, b"after!", 2).unwrap();
    let control = client.lookup(&root, ".zfs").unwrap();
    let snapshots = client.lookup(&control, "snapshot").unwrap();
    assert_eq!(client.list(&snapshots, 4096, true), [".", "..", "then"]);
    let then = client.lookup(&snapshots, "then").unwrap();
    assert_eq!(client.lookup(&then, ".."), Ok(snapshots.clone()));
    assert_eq!(client.lookup(&control, ".."), Ok(root.clone()));
    assert_eq!(client.lookup(&snapshots, "none"), Err(NOENT));
    let old = client.lookup(&then, "file").unwrap();
    assert_eq!(client.read(&old, 0, 6).unwrap().0, b"before");
    assert_eq!(client.write(&old, 0, b"x", 0), Err(ROFS));
    assert_eq!(client.create(&then, "new", 0o644), Err(ROFS));
    assert_eq!(client.create(&snapshots, "new", 0o644), Err(ACCES));
    assert_eq!(client.mount("/tank/.zfs/snapshot/then"), Ok(then));
    // The export closes the snapshot when a command needs it closed.
    drop(bed.export.hold_off());
    bed.served.pool().destroy_snapshots(&["tank@then".to_owned()], false).unwrap();
    assert_eq!(client.read(&old, 0, 6), Err(STALE));
    bed.judge();
}

#[test]
fn clients_wait_while_a_command_needs_the_file_system_closed() {
    let bed = Bed::new(RULES);
    let mut client = bed.client(1000);
    let root = client.mount("/tank").unwrap();
    let held = bed.export.hold_off();
    assert!(!bed.export.is_used());
    let waiting = std::thread::spawn(move || client.lookup(&root, "none"));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    drop(held);
    assert_eq!(waiting.join().unwrap(), Err(NOENT));
    bed.judge();
}

#[test]
fn nonsense_ends_its_connection_alone() {
    let bed = Bed::new(RULES);
    let mut good = bed.client(1000);
    let root = good.mount("/tank").unwrap();
    let ends = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(bed.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
        // The server may have ended it before all was sent.
        let _ = stream.write_all(bytes);
        matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_))
    };
    assert!(ends(&[0xff; 64]), "a message of 2 GiB");
    assert!(ends(&[0; 4096]), "fragments without end");
    assert!(ends(&[0x80, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 9]), "no call");
    assert!(ends(b"GET / HTTP/1.1\r\n\r\n"), "another protocol");
    // Invalid arguments are refused, and the connection continues.
    let mut client = bed.client(1000);
    for procedure in 1..=22 {
        for arguments in [&[0xff; 40][..], &[], &[0, 0, 0, 64], &[0, 0, 0, 4, 1, 2, 3, 4]] {
            client.number += 1;
            let message = client.message(NFS, procedure, &Words(arguments.to_vec()));
            let reply = client.send(&message);
            let accept = u32::from_be_bytes(reply[20..24].try_into().unwrap());
            let status = u32::from_be_bytes(reply[24..].get(..4).unwrap_or(&[0xff; 4]).try_into().unwrap());
            let is_refused = accept == 4 || accept == 0 && status == 10001 || procedure == 22 && accept == 3;
            assert!(is_refused, "{procedure}: {accept} {status}");
        }
    }
    // Cut-off messages with any bytes do not affect other connections.
    let whole = client.message(NFS, CREATE, &at(&root, "file").u32(1).mode(0o600));
    for cut in (24..whole.len()).step_by(7) {
        let mut stream = TcpStream::connect(bed.address()).unwrap();
        let mut part = (1u32 << 31 | cut as u32).to_be_bytes().to_vec();
        part.extend(&whole[..cut]);
        let _ = stream.write_all(&part);
    }
    assert_eq!(good.lookup(&root, "file"), Err(NOENT));
    bed.judge();
}

#[test]
fn at_most_64_clients_are_served() {
    let bed = Bed::new(RULES);
    let mut good = bed.client(1000);
    let root = good.mount("/tank").unwrap();
    let idle: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(bed.address()).unwrap()).collect();
    let served = || bed.serving.as_ref().unwrap().clients();
    // Its own connection must not become the one that is idle for the longest time, however slow the machine is.
    while served() < 64 {
        assert_eq!(good.lookup(&root, "none"), Err(NOENT));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(served(), 64);
    // A connection that is idle for some seconds makes room for a new one.
    let until = Instant::now() + Duration::from_millis(5200);
    while Instant::now() < until {
        assert_eq!(good.lookup(&root, "none"), Err(NOENT));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(bed.client(1000).mount("/tank"), Ok(root.clone()));
    assert_eq!(good.lookup(&root, "none"), Err(NOENT));
    drop(idle);
    bed.judge();
}
