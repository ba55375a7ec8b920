//! A pool whose server was killed: commands report it and start the server again.

mod bed;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bed::live::{Live, write};

#[test]
fn a_killed_server_is_reported_and_restarted_by_the_next_change() {
    let Some(live) = Live::new() else { return };
    let (image, point) = (live.text("fallen.img"), live.text("mnt"));
    fs::File::create(&image).expect("made").set_len(96 << 20).expect("long");
    live.run(&["zpool", "create", "-m", &point, "fallen", &image]).good();
    write(&live.path("mnt/file"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
    // Without its server a command cannot use the pool, and says who has it.
    let held = live.bed.run(&["zfs", "create", "fallen/never"]).err;
    let pid = held.split("process ").nth(1).and_then(|rest| rest.split(' ').next()).expect("it is named");
    assert!(Command::new("kill").args(["-KILL", pid]).status().expect("kill starts").success());
    while live.bed.run(&["zpool", "status", "fallen"]).out.contains("Another process uses the pool") {
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = live.run(&["zpool", "status", "-x"]).good();
    assert!(status.contains("The process that served the pool ended without exporting it"), "{status}");
    let created = live.run(&["zfs", "create", "fallen/fs"]);
    let said = "cenote: the server of 'fallen' had ended without exporting the pool; it was started again\n";
    assert!(created.status == 0 && created.err == said, "{created:?}");
    assert!(live.mounts().contains(&live.path("mnt/fs")), "it is mounted");
    assert_eq!(fs::read(live.path("mnt/file")).expect("readable"), b"durable");
    assert_eq!(live.run(&["zpool", "status", "-x"]).good(), "all pools are healthy\n");
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
    let mut sure = 0;
    for kill in 0..3u64 {
        let mut client = Nbd::connect(&socket);
        for i in 0..sure {
            assert_eq!(client.read(i * STEP, 700), [i as u8 + 1; 700], "write {i}, kill {kill}");
        }
        let killer = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150 + 100 * kill));
                live.signal("-KILL");
            });
            while sure < 250 && client.write_safely(sure * STEP, &[sure as u8 + 1; 700]).is_some() {
                sure += 1;
            }
            killer.join()
        });
        assert!(killer.is_ok() && sure > 0);
        assert_eq!(live.import().status, 0);
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
    assert_eq!(
        live.run(&["export", "tank"]).good(),
        format!("tank/w\trw\t0\t{}\n", uri.replace("///tank/v?", "///tank/w?"))
    );
    live.run(&["zfs", "rename", "tank/w", "tank/v"]).good();
    live.run(&["unexport", "tank/v"]).good();
    live.run(&["unexport", "tank/v"]).refused("cannot unexport 'tank/v': it is not exported");
    assert!(!socket.exists() && live.get("cenote:nbd", "tank/v") == "-");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}
