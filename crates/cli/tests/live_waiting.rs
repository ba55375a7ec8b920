//! Several clients of one live pool: a slow client does not make others wait.
//!
//! As root these tests mount with the real FUSE; where `/dev/fuse` cannot be opened they say so and end.

mod bed;

use std::fs;
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use bed::live::{Live, write};
use bed::{Done, PATIENCE, wait_until};

#[test]
fn many_clients_at_once_change_and_read_one_pool() {
    let Some(live) = Live::with_tank(256) else { return };
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let live = &live;
            scope.spawn(move || {
                for round in 0..5 {
                    let name = format!("tank/w{writer}-{round}");
                    live.run(&["zfs", "create", &name]).good();
                    write(&live.path(&format!("mnt/w{writer}-{round}/f")), name.as_bytes());
                    let from = live.path(&format!("local{writer}-{round}"));
                    fs::write(&from, &name).expect("written");
                    let to = format!("{name}:/copied");
                    live.run(&["cp", "-q", &from.display().to_string(), &to]).good();
                    live.run(&["zfs", "set", "recordsize=16K", &name]).good();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..10 {
                let list = live.run(&["zfs", "list", "-Ho", "name,used"]).good();
                assert!(list.starts_with("tank\t"), "{list}");
                live.run(&["zpool", "status"]).good();
            }
        });
    });
    for writer in 0..2 {
        for round in 0..5 {
            let name = format!("tank/w{writer}-{round}");
            let folder = live.path(&format!("mnt/w{writer}-{round}"));
            assert_eq!(fs::read_to_string(folder.join("f")).expect("there"), name);
            assert_eq!(fs::read_to_string(folder.join("copied")).expect("there"), name);
        }
    }
    // `cenote check` examines the pool while it is mounted.
    let done = live.run(&["check", "tank"]);
    assert!(done.status == 0 && done.out.contains(": clean"), "{done:?}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// Runs a command that must not wait for another one.
fn promptly(live: &Live, words: &[&str]) -> Done {
    let mut command = live.command(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let until = Instant::now() + PATIENCE;
    while child.try_wait().expect("it can be waited for").is_none() {
        if Instant::now() > until {
            child.kill().expect("killed");
            panic!("{words:?} waits for somebody");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it ended").into()
}

#[test]
fn a_slow_reader_blocks_no_other_command() {
    let Some(live) = Live::with_tank(128) else { return };
    for n in 0..1500 {
        fs::write(
            live.path(&format!("mnt/a file with a name of some length, the one with the number {n}")),
            b"",
        )
        .expect("made");
    }
    // More than a pipe holds.
    let mut command = live.command(&["zfs", "project", "-r", "tank:/"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut first = [0; 1];
    child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it has begun");
    promptly(&live, &["zfs", "create", "tank/meanwhile"]).good();
    let busy = promptly(&live, &["zpool", "export", "tank"]);
    assert!(busy.status == 1 && busy.err.contains("busy"), "{busy:?}");
    Done::from(child.wait_with_output().expect("it ends")).good();
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_long_receive_blocks_no_other_command() {
    let Some(live) = Live::with_tank(256) else { return };
    live.run(&["zfs", "create", "tank/a"]).good();
    write(&live.path("mnt/a/file"), &vec![7; 3 << 20]);
    live.run(&["zfs", "snapshot", "tank/a@1"]).good();
    write(&live.path("mnt/a/file"), &vec![8; 2 << 20]);
    live.run(&["zfs", "snapshot", "tank/a@2"]).good();
    let stream = |words: &[&str]| live.command(words).output().expect("it starts").stdout;
    let (full, more) = (stream(&["zfs", "send", "tank/a@1"]), stream(&["zfs", "send", "-i@1", "tank/a@2"]));
    // Half of a stream, and then nothing for a long time.
    let begin = |into: &str, stream: &[u8]| {
        let mut command = live.command(&["zfs", "receive", "-s", into]);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut pipe = child.stdin.take().expect("piped");
        pipe.write_all(&stream[..stream.len() / 2]).expect("written");
        (child, pipe)
    };
    let (child, mut pipe) = begin("tank/taken", &full);
    // It has begun when the dataset is there.
    wait_until("it begins", || promptly(&live, &["zfs", "list", "tank/taken"]).status == 0);
    promptly(&live, &["zfs", "create", "tank/c"]).good();
    write(&live.path("mnt/c/file"), b"meanwhile");
    promptly(&live, &["zfs", "snapshot", "-r", "tank/c@s"]).good();
    promptly(&live, &["zfs", "set", "compression=lz4", "tank"]).good();
    let busy = promptly(&live, &["zfs", "destroy", "tank/taken"]);
    assert!(busy.status == 1 && busy.err.contains("busy"), "{busy:?}");
    let busy = promptly(&live, &["zfs", "receive", "-A", "tank/taken"]);
    assert!(busy.status == 1 && busy.err.contains("busy"), "{busy:?}");
    let busy = promptly(&live, &["zpool", "export", "tank"]);
    assert!(busy.status == 1 && busy.err.contains("busy"), "{busy:?}");
    pipe.write_all(&full[full.len() / 2..]).expect("written");
    drop(pipe);
    Done::from(child.wait_with_output().expect("it ends")).good();
    assert_eq!(fs::metadata(live.path("mnt/taken/file")).expect("mounted").len(), 3 << 20);

    // Two at once into the same file system: the second is refused, the first continues.
    let (child, mut pipe) = begin("tank/taken", &more);
    let token = ["zfs", "get", "-Hpo", "value", "receive_resume_token", "tank/taken"];
    wait_until("it begins", || promptly(&live, &token).out != "-\n");
    fs::write(live.path("more"), &more).expect("written");
    let mut second = live.command(&["zfs", "receive", "tank/taken"]);
    let second = second.stdin(fs::File::open(live.path("more")).expect("there")).output().expect("it starts");
    assert_eq!(second.status.code(), Some(1), "{second:?}");
    pipe.write_all(&more[more.len() / 2..]).expect("written");
    drop(pipe);
    Done::from(child.wait_with_output().expect("it ends")).good();
    assert_eq!(fs::read(live.path("mnt/taken/file")).expect("there"), vec![8; 2 << 20]);

    // A forced export does not wait for the rest.
    let (child, pipe) = begin("tank/late", &full);
    wait_until("it begins", || promptly(&live, &["zfs", "list", "tank/late"]).status == 0);
    promptly(&live, &["zpool", "export", "-f", "tank"]).good();
    let ended = child.wait_with_output().expect("it ends");
    drop(pipe);
    assert!(!ended.status.success(), "{ended:?}");
    live.expect_sound();
}

/// How many commands the server of `tank` carries out.
fn commands(live: &Live) -> usize {
    let runtime = server::Runtime::new(live.path("run"));
    let client =
        server::client::connect(&runtime, "tank", &fuse::Fuse).expect("it answers").expect("a server runs");
    client.status().expect("it answers").commands
}

#[test]
fn repeated_reports_end_with_their_reader_and_do_not_prevent_an_export() {
    let Some(live) = Live::with_tank(128) else { return };
    let watch = || {
        let mut command = live.command(&["zpool", "iostat", "tank", "3600"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut first = [0; 16];
        std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut first).expect("a line");
        child
    };
    let mut child = watch();
    assert_eq!(commands(&live), 1);
    child.kill().expect("killed");
    child.wait().expect("it ends");
    wait_until("the command lives on in the server", || commands(&live) == 0);
    let mut child = watch();
    promptly(&live, &["zpool", "export", "tank"]).good();
    child.wait().expect("it ends");
    live.expect_sound();
}
