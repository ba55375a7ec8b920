//! A pool whose server was killed: commands report it and start the server again.

mod bed;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use bed::live::{Live, write};
use bed::wait_until;

#[test]
fn a_killed_server_is_reported_and_restarted_by_the_next_change() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (live.text("fallen.img"), live.text("mnt"));
    fs::File::create(&image).expect("made").set_len(96 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &point, "fallen", &image]).good();
    write(&live.path("mnt/file"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
    // Without its server a command cannot use the pool, and says who has it.
    kill_server(&live, "fallen");
    let status = live.run(&["zpool", "status", "-x"]).good();
    assert!(status.contains("The process that served the pool ended without exporting it"), "{status}");
    let created = live.run(&["zfs", "create", "fallen/fs"]);
    let said = "cenote: the server of 'fallen' had ended without exporting the pool; it was started again\n";
    assert!(created.status == 0 && created.err == said, "{created:?}");
    assert!(live.mounts().contains(&live.path("mnt/fs")), "it is mounted");
    assert_eq!(fs::read(live.path("mnt/file")).expect("readable"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
}

/// Kills the server of a pool, and waits until no process holds the pool.
fn kill_server(live: &Live, pool: &str) {
    let held = live.bed.run(&["zfs", "create", &format!("{pool}/never")]).err;
    let pid = held.split("process ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it is named");
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill starts").success());
    wait_until("the killed server holds the pool", || {
        !live.bed.run(&["zpool", "status", pool]).out.contains("Another process uses the pool")
    });
}

/// Kills the server once `is_time`, while `goes_on` is called until it says no, and starts the server again.
fn killed_while(live: &Live, is_time: impl Fn() -> bool + Send, mut goes_on: impl FnMut() -> bool) {
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            wait_until("the client gets on", is_time);
            live.signal("-KILL");
        });
        while goes_on() {}
        killer.join().expect("it is killed");
    });
    assert_eq!(live.import().status, 0);
}

/// The list of imported pools, as text that names the devices.
fn list_of_pools(live: &Live) -> String {
    String::from_utf8_lossy(&fs::read(live.bed.path("state/pools.cache")).expect("a list")).into_owned()
}

#[test]
fn devices_that_joined_before_their_server_was_killed_are_found() {
    let Some(live) = Live::new() else { return };
    let image = |name: &str| {
        let path = live.text(name);
        fs::create_dir_all(Path::new(&path).parent().expect("a folder")).expect("made");
        fs::File::create(&path).expect("made").set_len(96 << 20).expect("long");
        path
    };
    let (one, two, three) = (image("fallen.img"), image("else/where.img"), image("else/third.img"));
    live.run(&["zpool", "create", "-m", &live.text("mnt"), "fallen", &one]).good();
    let list = live.bed.path("state/pools.cache");
    let before = fs::read(&list).expect("a list");
    live.run(&["zpool", "attach", "-w", "fallen", &one, &two]).good();
    write(&live.path("mnt/file"), b"on both");
    let is_online = |path: &str| {
        let status = live.run(&["zpool", "status", "-P", "fallen"]).good();
        let line = status.lines().find(|line| line.contains(path)).expect("it is listed");
        assert!(line.contains("ONLINE"), "{status}");
    };
    for start in [&["zpool", "import", "fallen"][..], &["zpool", "import", "-o", "readonly=on", "fallen"]] {
        kill_server(&live, "fallen");
        // As if it had been killed before it noted the new device.
        fs::write(&list, &before).expect("written");
        live.run(start).good();
        is_online(&one);
        is_online(&two);
    }
    live.run(&["zpool", "export", "fallen"]).good();
    live.run(&["zpool", "import", "-d", &live.text(""), "-d", &live.text("else"), "fallen"]).good();
    // The server notes by itself that the old device left when its data was on the new one.
    live.run(&["zpool", "replace", "fallen", &one, &three]).good();
    wait_until("the old device stays in the list", || !list_of_pools(&live).contains("fallen.img"));
    let listed = list_of_pools(&live);
    assert!(!listed.contains("fallen.img") && listed.contains("third.img"), "{listed}");
    // A device that is refused does not stay in the list.
    let small = live.text("else/small.img");
    fs::File::create(&small).expect("made").set_len(70 << 20).expect("long");
    assert_ne!(live.run(&["zpool", "attach", "fallen", &three, &small]).status, 0);
    assert!(!list_of_pools(&live).contains("small.img"));
    live.run(&["zpool", "export", "fallen"]).good();
    assert!(live.run(&["check", &live.text("else")]).good().contains("clean"));
}

#[test]
fn an_import_after_a_killed_server_does_what_its_options_say() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (live.text("fallen.img"), live.text("mnt"));
    fs::File::create(&image).expect("made").set_len(96 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &point, "fallen", &image]).good();
    write(&live.path("mnt/kept"), b"of the checkpoint");
    live.run(&["zpool", "checkpoint", "fallen"]).good();
    let later = live.path("mnt/later");
    write(&later, b"after it");
    fs::File::open(&later).and_then(|file| file.sync_all()).expect("durable");

    kill_server(&live, "fallen");
    live.run(&["zpool", "import", "-o", "readonly=on", "-d", &image, "fallen"]).good();
    assert_eq!(live.run(&["zpool", "get", "-H", "-o", "value", "readonly", "fallen"]).good(), "on\n");
    live.run(&["zpool", "export", "fallen"]).good();
    live.run(&["zpool", "import", "-d", &image, "fallen"]).good();
    assert_eq!(fs::read(&later).expect("replayed"), b"after it");

    write(&later, b"later still");
    fs::File::open(&later).and_then(|file| file.sync_all()).expect("durable");
    kill_server(&live, "fallen");
    // No state is that old: the command fails, and the pool stays in the list.
    let refused = live.run(&["zpool", "import", "-T", "1", "fallen"]);
    assert!(refused.status != 0 && live.run(&["zpool", "list", "-H", "fallen"]).status == 0, "{refused:?}");
    // Its devices are known.
    live.run(&["zpool", "import", "--rewind-to-checkpoint", "fallen"]).good();
    assert_eq!(fs::read(live.path("mnt/kept")).expect("readable"), b"of the checkpoint");
    assert!(!later.exists(), "what came after the checkpoint is gone");
    assert_eq!(live.run(&["zpool", "get", "-H", "-o", "value", "checkpoint", "fallen"]).good(), "-\n");
    live.run(&["zpool", "export", "fallen"]).good();
    assert!(live.run(&["check", &image]).good().contains("clean"));
}

/// A client of an export that asks for little: old negotiation, simple replies, one request at a time.
struct Nbd(UnixStream);

impl Nbd {
    fn connect(socket: &Path) -> Nbd {
        let mut stream = UnixStream::connect(socket).expect("the server listens");
        stream.read_exact(&mut [0; 18]).expect("it greets");
        let mut raw = 3u32.to_be_bytes().to_vec();
        raw.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\0");
        stream.write_all(&raw).expect("sent");
        stream.read_exact(&mut [0; 10]).expect("it begins");
        Nbd(stream)
    }

    fn ask(&mut self, [flags, kind]: [u16; 2], offset: u64, length: u32, data: &[u8]) -> Option<()> {
        let mut raw = 0x2560_9513u32.to_be_bytes().to_vec();
        raw.extend([flags.to_be_bytes(), kind.to_be_bytes()].concat());
        raw.extend([0; 8]);
        raw.extend(offset.to_be_bytes());
        raw.extend(length.to_be_bytes());
        raw.extend(data);
        self.0.write_all(&raw).ok()?;
        let mut head = [0; 16];
        self.0.read_exact(&mut head).ok()?;
        (head[4..8] == [0; 4]).then_some(())
    }

    /// Writes so that the data is safe; `None` when the server is gone.
    fn write_safely(&mut self, offset: u64, data: &[u8]) -> Option<()> {
        self.ask([1, 1], offset, data.len() as u32, data)
    }

    fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.ask([0, 0], offset, length, &[]).expect("it reads");
        let mut data = vec![0; length as usize];
        self.0.read_exact(&mut data).expect("the data comes");
        data
    }
}

#[test]
fn acknowledged_writes_of_nbd_clients_survive_kills_of_the_server_and_so_does_the_export() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "-V", "16M", "tank/v"]).good();
    let socket = live.path("run/nbd/tank/v.sock");
    let uri = format!("nbd+unix:///tank/v?socket={}", socket.display());
    assert_eq!(live.run(&["export", "tank/v"]).good().trim_end(), uri);
    live.run(&["export", "tank/v"])
        .refused(&format!("cannot export 'tank/v': it is exported at '{}' already", socket.display()));
    live.run(&["export", "tank"]).good();
    live.run(&["zfs", "create", "tank/fs"]).good();
    live.run(&["export", "tank/fs"]).refused("cannot export 'tank/fs': it is no volume");
    const STEP: u64 = 40_000;
    let sure = AtomicU64::new(0);
    for kill in 0..3u64 {
        let mut client = Nbd::connect(&socket);
        let before = sure.load(Ordering::Acquire);
        for i in 0..before {
            assert_eq!(client.read(i * STEP, 700), [i as u8 + 1; 700], "write {i}, kill {kill}");
        }
        killed_while(
            &live,
            || sure.load(Ordering::Acquire) >= before + 10 * (kill + 1),
            || {
                let next = sure.load(Ordering::Acquire);
                let data = [next as u8 + 1; 700];
                let goes_on = next < 250 && client.write_safely(next * STEP, &data).is_some();
                sure.fetch_add(u64::from(goes_on), Ordering::Release);
                goes_on
            },
        );
    }
    let client = Nbd::connect(&socket);
    let exported = live.run(&["export", "tank"]).good();
    assert_eq!(exported, format!("tank/v\trw\t1\t{uri}\n"));
    live.run(&["zfs", "destroy", "tank/v"]).refused("cannot destroy 'tank/v': pool or dataset is busy");
    assert_eq!(live.run(&["zpool", "export", "tank"]).status, 1);
    live.run(&["unexport", "tank/v"]).refused("cannot unexport 'tank/v': NBD clients are connected: 1");
    drop(client);
    live.run(&["zfs", "set", "volsize=8M", "tank/v"]).good();
    live.run(&["zfs", "rename", "tank/v", "tank/w"]).good();
    // The server may still be noticing that the client left.
    let renamed = format!("tank/w\trw\t0\t{}\n", uri.replace("///tank/v?", "///tank/w?"));
    wait_until("a client that left is still counted", || live.run(&["export", "tank"]).good() == renamed);
    live.run(&["zfs", "rename", "tank/w", "tank/v"]).good();
    live.run(&["unexport", "tank/v"]).good();
    live.run(&["unexport", "tank/v"]).refused("cannot unexport 'tank/v': it is not exported");
    assert!(!socket.exists() && live.get("cenote:nbd", "tank/v") == "-");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// A client of NFS that sends requests as a user other than root.
struct Nfs {
    stream: TcpStream,
    number: u32,
}

const OK: u32 = 0;
const NOENT: u32 = 2;
const ROFS: u32 = 30;
const STALE: u32 = 70;

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut raw = (bytes.len() as u32).to_be_bytes().to_vec();
    raw.extend(bytes);
    raw.resize(raw.len().next_multiple_of(4), 0);
    raw
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

impl Nfs {
    fn connect(port: u16) -> Nfs {
        Nfs { stream: TcpStream::connect(("127.0.0.1", port)).expect("the server listens"), number: 0 }
    }

    /// Calls a procedure. Returns its status and its results; `None` when the server is gone.
    fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Option<(u32, Vec<u8>)> {
        self.number += 1;
        let user = [words(&[0]), opaque(b"test"), words(&[1000, 1000, 0])].concat();
        let head = words(&[self.number, 0, 2, program, 3, procedure, 1]);
        let message = [head, opaque(&user), words(&[0, 0]), arguments.to_vec()].concat();
        self.stream.write_all(&words(&[1 << 31 | message.len() as u32])).ok()?;
        self.stream.write_all(&message).ok()?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).ok()?;
        let mut reply = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
        self.stream.read_exact(&mut reply).ok()?;
        assert_eq!(reply[8..24], [0; 16], "the call is accepted");
        Some((u32::from_be_bytes(reply[24..28].try_into().expect("a word")), reply[28..].to_vec()))
    }

    /// The handle that comes first in the results.
    fn handle(answer: Option<(u32, Vec<u8>)>) -> Result<Vec<u8>, u32> {
        match answer.expect("the server answers") {
            (OK, results) => Ok(results[4..52].to_vec()),
            (status, _) => Err(status),
        }
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        Nfs::handle(self.call(100_005, 1, &opaque(path.as_bytes())))
    }

    fn lookup(&mut self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        Nfs::handle(self.call(100_003, 3, &[opaque(dir), opaque(name.as_bytes())].concat()))
    }

    /// Makes a file, which is durable when the server answers. Returns the status; `None` when the server is gone.
    fn create(&mut self, dir: &[u8], name: &str) -> Option<u32> {
        let attributes = words(&[1, 1, 0o644, 0, 0, 0, 0, 0]);
        let made = self.call(100_003, 8, &[opaque(dir), opaque(name.as_bytes()), attributes].concat());
        made.map(|(status, _)| status)
    }
}

#[test]
fn files_and_handles_of_nfs_clients_survive_kills_of_the_server_and_shares_follow_their_properties() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/fs"]).good();
    fs::set_permissions(live.path("mnt/fs"), fs::Permissions::from_mode(0o777)).expect("it is mounted");
    let free =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    let listen = format!("127.0.0.1:{free}");
    let uri = |name: &str| format!("nfs://127.0.0.1/{name}?nfsport={free}&mountport={free}");
    let share = ["export", "tank/fs", "--nfs", "--listen", &listen, "--options", "rw,insecure"];
    assert_eq!(live.run(&share).good().trim_end(), uri("tank/fs"));
    let root = Nfs::connect(free).mount("/tank/fs").expect("it is shared");
    let made = AtomicU64::new(0);
    for kill in 0..2u64 {
        let mut client = Nfs::connect(free);
        let before = made.load(Ordering::Acquire);
        for i in 0..before {
            assert!(client.lookup(&root, &format!("file {i}")).is_ok(), "file {i}, kill {kill}");
        }
        killed_while(
            &live,
            || made.load(Ordering::Acquire) >= before + 10 * (kill + 1),
            || {
                let name = format!("file {}", made.load(Ordering::Acquire));
                let goes_on = client.create(&root, &name) == Some(OK);
                made.fetch_add(u64::from(goes_on), Ordering::Release);
                goes_on
            },
        );
    }
    let sure = made.into_inner();
    let mut client = Nfs::connect(free);
    assert!((0..sure).all(|i| client.lookup(&root, &format!("file {i}")).is_ok()));
    // A change over NFS is seen in the mount at once, and the other way round.
    assert!(!live.path("mnt/fs/over").exists());
    assert_eq!(client.create(&root, "over"), Some(OK));
    assert!(live.path("mnt/fs/over").exists());
    write(&live.path("mnt/fs/mounted"), b"x");
    assert!(client.lookup(&root, "mounted").is_ok());

    // A new file system below inherits the property, and each is an export of its own.
    live.run(&["zfs", "create", "tank/fs/below"]).good();
    assert_eq!(
        live.run(&["export", "tank"]).good(),
        format!("tank/fs\trw\t1\t{}\ntank/fs/below\trw\t1\t{}\n", uri("tank/fs"), uri("tank/fs/below"))
    );
    assert!(client.mount(&live.text("mnt/fs/below")).is_ok());
    live.run(&["zfs", "set", "readonly=on", "tank/fs"]).good();
    assert_eq!(client.create(&root, "refused"), Some(ROFS));
    live.run(&["zfs", "set", "readonly=off", "tank/fs"]).good();
    live.run(&["zfs", "set", "sharenfs=ro,insecure", "tank/fs"]).good();
    assert_eq!(client.create(&root, "refused"), Some(ROFS));
    live.run(&["zfs", "set", "sharenfs=rw,insecure", "tank/fs"]).good();
    assert_eq!(client.create(&root, "made"), Some(OK));

    // A rollback and a rename keep clients and their handles.
    live.run(&["zfs", "snapshot", "tank/fs@then"]).good();
    assert_eq!(client.create(&root, "later"), Some(OK));
    live.run(&["zfs", "rollback", "tank/fs@then"]).good();
    assert_eq!((client.lookup(&root, "later"), client.lookup(&root, "made").is_ok()), (Err(NOENT), true));
    live.run(&["zfs", "rename", "tank/fs", "tank/renamed"]).good();
    assert_eq!((client.mount("/tank/fs"), client.mount("/tank/renamed")), (Err(NOENT), Ok(root.clone())));
    expect_unloading(&live);
    expect_unsharing(&live, client, &root);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// A client does not keep the key of a file system that is not mounted in memory.
fn expect_unloading(live: &Live) {
    let key = live.text("key");
    write(Path::new(&key), b"password 1");
    let location = format!("keylocation=file://{key}");
    live.run(&[
        "zfs",
        "create",
        "-o",
        "encryption=on",
        "-o",
        "keyformat=passphrase",
        "-o",
        &location,
        "tank/renamed/sealed",
    ])
    .good();
    let uri = live.run(&["export", "tank"]).good();
    let port = uri.rsplit('=').next().and_then(|port| port.trim().parse().ok()).expect("an address");
    let mut client = Nfs::connect(port);
    assert!(client.mount("/tank/renamed/sealed").is_ok());
    live.run(&["zfs", "unmount", "tank/renamed/sealed"]).good();
    live.run(&["zfs", "unload-key", "tank/renamed/sealed"]).good();
    // The status by which MOUNT says that it cannot be done now.
    assert_eq!(client.mount("/tank/renamed/sealed"), Err(10006));
    live.run(&["zfs", "load-key", "tank/renamed/sealed"]).good();
    assert!(client.mount("/tank/renamed/sealed").is_ok());
}

/// Shares end and come back as commands say.
fn expect_unsharing(live: &Live, mut client: Nfs, root: &[u8]) {
    live.run(&["zfs", "unshare", "tank/renamed"]).good();
    assert_eq!(client.lookup(root, "made"), Err(STALE));
    live.run(&["zfs", "unshare", "tank/renamed"])
        .refused("cannot unshare 'tank/renamed': not currently shared");
    live.run(&["zfs", "share", "-a"]).good();
    assert!(client.lookup(root, "made").is_ok());
    live.run(&["zfs", "share", "tank/renamed"])
        .refused("cannot share 'tank/renamed': filesystem already shared");
    live.run(&["zfs", "destroy", "-r", "tank/renamed"]).good();
    assert_eq!(live.run(&["export", "tank"]).err, "no exports\n");
}
