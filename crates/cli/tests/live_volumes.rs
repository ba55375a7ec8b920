//! Volumes that clients use while commands change them: each command works or says why not, and clients can go on or
//! get an error.

mod bed;
#[path = "../../nbd/tests/client/mod.rs"]
mod client;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use bed::live::Live;
use client::Client;

const MIB: u64 = 1 << 20;
const READ_ONLY: u16 = 2;
const FLUSH: u16 = 3;
const PERM: u32 = 1;
const INVAL: u32 = 22;
const NOSPC: u32 = 28;

impl Live {
    fn zfs(&self, line: &str) -> String {
        let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
        self.run(&words).good()
    }

    #[track_caller]
    fn zfs_refused(&self, line: &str, why: &str) {
        let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
        self.run(&words).refused(why);
    }

    fn export(&self, name: &str) {
        self.run(&["export", name]).good();
    }

    /// The exported volumes.
    fn exports(&self) -> Vec<String> {
        let listed = self.run(&["export", "--json", "tank"]).objects();
        listed.iter().map(|export| export["dataset"].as_str().expect("a name").to_owned()).collect()
    }

    /// A client of the export that was begun under the name `made`.
    fn client(&self, made: &str) -> Result<Client, String> {
        let stream = UnixStream::connect(self.path("run/nbd").join(format!("{made}.sock")));
        let stream = stream.map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(bed::PATIENCE)).expect("it is a socket");
        let mut client = Client::new(stream, true);
        client.hello();
        client.begin_as(b"")?;
        Ok(client)
    }

    /// Waits until no client is connected.
    fn alone(&self) {
        let is_used = || {
            let listed = self.run(&["export", "--json", "tank"]).objects();
            listed.iter().any(|export| export["clients"].as_u64() != Some(0))
        };
        bed::wait_until("a client that left is still listed", || !is_used());
    }

    fn exists(&self, name: &str) -> bool {
        self.run(&["zfs", "list", "-H", name]).status == 0
    }

    fn finish(&self) {
        self.alone();
        self.run(&["zpool", "export", "tank"]).good();
        self.expect_sound();
    }
}

#[test]
fn a_client_goes_on_while_its_volume_is_changed() {
    let Some(live) = Live::with_tank(256) else { return };
    live.zfs("create -V 16M tank/vol");
    live.export("tank/vol");
    let mut client = live.client("tank/vol").unwrap();
    std::thread::scope(|scope| {
        let writer =
            scope.spawn(|| (0..200u64).for_each(|at| client.write(at << 14, &[7; 9000], 0).unwrap()));
        live.zfs("snapshot tank/vol@s");
        writer.join().unwrap();
    });
    client.write(12 * MIB, b"behind", 0).unwrap();
    live.zfs("set volsize=8M tank/vol");
    assert_eq!(client.read(12 * MIB, 6), Err(INVAL));
    assert_eq!(client.write(12 * MIB, b"x", 0), Err(NOSPC));
    assert_eq!(client.read(8 * MIB - 1, 2), Err(INVAL));
    assert!(client.extents((0, 16 << 20), 0).is_err());
    assert_eq!(client.read(0, 9000).unwrap(), [7; 9000]);
    assert_eq!(live.client("tank/vol").unwrap().size, 8 * MIB);
    live.zfs("set volsize=16M tank/vol");
    assert_eq!(client.read(12 * MIB, 6).unwrap(), [0; 6], "what was cut off does not come back");
    live.zfs("set readonly=on tank/vol");
    assert_eq!(client.write(0, b"x", 0), Err(PERM));
    assert_eq!(live.client("tank/vol").unwrap().flags & READ_ONLY, READ_ONLY);
    live.zfs("set readonly=off tank/vol");
    live.zfs("set volmode=none tank/vol");
    client.write(0, b"still", client::FUA).unwrap();
    let socket = live.text("run/nbd/tank/vol.sock");
    let twice = format!("cannot export 'tank/vol': it is exported at '{socket}' already");
    live.run(&["export", "tank/vol"]).refused(&twice);
    live.run(&["export", "tank/vol", "--socket", &live.text("other")]).refused(&twice);
    // The export moves with the volume, and its socket stays.
    live.export("tank/vol@s");
    live.zfs("rename tank/vol tank/new");
    assert_eq!(live.exports(), ["tank/new", "tank/new@s"]);
    assert_eq!(client.read(0, 5).unwrap(), b"still");
    assert_eq!(live.client("tank/vol@s").unwrap().flags & READ_ONLY, READ_ONLY);
    live.zfs("create -s -V 8M tank/vol");
    live.run(&["export", "tank/vol"])
        .refused("cannot export 'tank/vol': the export of 'tank/new' listens there");
    live.run(&["export", "tank/vol", "--socket", &live.text("other")]).good();
    assert_eq!(live.exports(), ["tank/new", "tank/new@s", "tank/vol"]);
    drop(client);
    live.finish();
}

#[test]
fn writes_before_readonly_are_kept_and_later_writes_of_clients_are_refused() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create -V 16M tank/vol");
    live.export("tank/vol");
    let mut before = live.client("tank/vol").unwrap();
    before.write(0, b"before", 0).unwrap();
    live.zfs("set readonly=on tank/vol");
    assert_eq!(before.write(0, b"after", client::FUA), Err(PERM));
    assert_eq!(before.write(0, &[1; 3 << 20], 0), Err(PERM), "a write that is carried out while it arrives");
    before.ask(FLUSH, 0, (0, 0)).unwrap();
    live.signal("-KILL");
    live.import().good();
    let mut meanwhile = live.client("tank/vol").unwrap();
    assert_eq!(meanwhile.read(0, 7).unwrap(), b"before\0", "a flush holds although nothing may be written");
    // The protocol has no message for a change.
    live.zfs("set readonly=off tank/vol");
    assert_eq!((meanwhile.flags & READ_ONLY, meanwhile.write(0, b"x", 0)), (READ_ONLY, Err(PERM)));
    let mut after = live.client("tank/vol").unwrap();
    assert_eq!((after.flags & READ_ONLY, after.write(0, b"after!", 0)), (0, Ok(())));
    assert_eq!(meanwhile.read(0, 6).unwrap(), b"after!");
    drop((before, meanwhile, after));
    live.finish();
}

#[test]
fn a_volume_in_use_stays_with_its_snapshots_and_its_export() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create -V 16M tank/vol");
    live.zfs("snapshot tank/vol@1");
    live.zfs("snapshot tank/vol@2");
    live.export("tank/vol");
    let client = live.client("tank/vol").unwrap();
    live.zfs_refused("rollback -r tank/vol@1", "cannot rollback to 'tank/vol@1': pool or dataset is busy");
    live.zfs_refused("destroy -r tank/vol", "cannot destroy 'tank/vol': pool or dataset is busy");
    live.run(&["unexport", "tank/vol"]).refused("cannot unexport 'tank/vol': NBD clients are connected: 1");
    drop(client);
    live.alone();
    // The same for a program that has its file open.
    let file = File::options().read(true).write(true).open(live.path("mnt/.zfs/volume/vol")).unwrap();
    file.write_all_at(b"data", 0).unwrap();
    live.zfs_refused("rollback -r tank/vol@1", "cannot rollback to 'tank/vol@1': pool or dataset is busy");
    live.zfs_refused("destroy -r tank/vol", "cannot destroy 'tank/vol': pool or dataset is busy");
    assert!(live.exists("tank/vol@1") && live.exists("tank/vol@2"), "the volume lost snapshots");
    assert_eq!(live.client("tank/vol").unwrap().size, 16 * MIB, "it is exported no more");
    live.alone();
    drop(file);
    live.zfs("rollback -r tank/vol@1");
    assert!(!live.exists("tank/vol@2"));
    let mut client = live.client("tank/vol").unwrap();
    assert_eq!(client.read(0, 4).unwrap(), [0; 4]);
    client.write(0, b"data", 0).unwrap();
    drop(client);
    live.alone();
    live.zfs("destroy -r tank/vol");
    assert!(live.exports().is_empty() && !live.path("run/nbd/tank/vol.sock").exists());
    live.finish();
}

#[test]
fn the_export_of_a_destroyed_snapshot_ends_and_serves_no_later_one() {
    let Some(live) = Live::with_tank(128) else { return };
    live.zfs("create -V 16M tank/vol");
    live.zfs("snapshot tank/vol@s");
    live.zfs("set snapdev=visible tank/vol");
    live.export("tank/vol@s");
    let client = live.client("tank/vol@s").unwrap();
    let busy = "cannot destroy snapshot tank/vol@s: dataset is busy";
    live.zfs_refused("destroy tank/vol@s", busy);
    live.zfs_refused("destroy -d tank/vol@s", busy);
    drop(client);
    live.alone();
    assert_eq!(fs::metadata(live.path("mnt/.zfs/volume/vol@s")).unwrap().len(), 16 * MIB);
    live.zfs("destroy tank/vol@s");
    live.zfs("snapshot tank/vol@s");
    assert!(live.exports().is_empty());
    assert!(live.client("tank/vol@s").is_err());
    live.finish();
}

#[test]
fn a_key_is_unloaded_when_no_client_needs_it_and_clients_are_told_that_it_is_missing() {
    let Some(live) = Live::with_tank(128) else { return };
    fs::write(live.path("key"), "a passphrase").unwrap();
    let location = format!("keylocation=file://{}", live.text("key"));
    let words = ["zfs", "create", "-V", "16M", "-o", "encryption=on", "-o", "keyformat=passphrase", "-o"];
    live.run(&[&words[..], &[&location, "tank/vol"]].concat()).good();
    live.zfs("set snapdev=visible tank/vol");
    live.zfs("snapshot tank/vol@s");
    live.export("tank/vol");
    let mut client = live.client("tank/vol").unwrap();
    client.write(0, b"secret", 0).unwrap();
    let busy = live.run(&["zfs", "unload-key", "tank/vol"]);
    assert!(busy.status != 0 && busy.err.contains("'tank/vol' is busy"), "{busy:?}");
    assert_eq!(client.read(0, 6).unwrap(), b"secret");
    drop(client);
    live.alone();
    // The kernel knows both files.
    for name in ["vol", "vol@s"] {
        fs::metadata(live.path("mnt/.zfs/volume").join(name)).unwrap();
    }
    live.zfs("unload-key tank/vol");
    let refused = live.client("tank/vol").err().unwrap();
    assert!(refused.contains("key is not loaded"), "{refused}");
    assert!(File::open(live.path("mnt/.zfs/volume/vol")).is_err());
    live.zfs("load-key tank/vol");
    assert_eq!(live.client("tank/vol").unwrap().read(0, 6).unwrap(), b"secret");
    live.finish();
}
