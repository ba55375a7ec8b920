//! Keys of encrypted datasets, loaded into the server of a pool and unloaded again.

mod bed;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use bed::Done;
use bed::live::Live;

/// The encrypted pool that OpenZFS made, imported below `mnt`; `None` where nothing can be mounted.
fn golden() -> Option<Live> {
    let live = unpacked()?;
    import(&live, &[], "").good();
    Some(live)
}

/// A folder with the devices of that pool.
fn unpacked() -> Option<Live> {
    let live = Live::new()?;
    let unpack = bed::root().join("fixtures/golden/unpack");
    let unpacked = Command::new(unpack).arg("gcrypt").arg(live.path("")).output().expect("it starts");
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    Some(live)
}

fn import(live: &Live, options: &[&str], keys: &str) -> Done {
    let (image, mount) = (live.text("gcrypt.0.img"), live.text("mnt"));
    let mut line = vec!["zpool", "import", "-d", &image, "-R", &mount, "-o", "readonly=on"];
    line.extend(options);
    line.push("gcrypt");
    typed(live, &line, keys)
}

/// Runs a command with this text on standard input.
fn typed(live: &Live, words: &[&str], text: &str) -> Done {
    let mut command = live.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // A command that is refused does not read its standard input.
    let _ = child.stdin.take().expect("piped").write_all(text.as_bytes());
    child.wait_with_output().expect("it ends").into()
}

#[track_caller]
fn negative(done: Done, line: &str) {
    assert!(
        done.status == 255 && done.err.trim_end() == line && done.out.is_empty(),
        "{done:?}\nwanted: {line}"
    );
}

fn status(live: &Live, dataset: &str) -> String {
    live.get("keystatus", dataset)
}

#[test]
fn a_key_is_loaded_used_and_unloaded() {
    let Some(live) = golden() else { return };
    assert_eq!(status(&live, "gcrypt/secret"), "unavailable");
    live.run(&["zfs", "mount", "gcrypt/secret"])
        .refused("cannot mount 'gcrypt/secret': encryption key not loaded");
    let load = ["zfs", "load-key", "-L", "prompt", "gcrypt/secret"];
    negative(
        typed(&live, &load, "wrong horse\n"),
        "Key load error: Incorrect key provided for 'gcrypt/secret'.",
    );
    negative(typed(&live, &load, "short"), "Key load error: Passphrase too short (min 8).");
    let dry = ["zfs", "load-key", "-n", "-L", "prompt", "gcrypt/secret"];
    let said = typed(&live, &dry, "correct horse\n").good();
    assert_eq!(said, "1 / 1 key(s) successfully verified\n");
    assert_eq!(status(&live, "gcrypt/secret"), "unavailable", "a dry run loads nothing");
    typed(&live, &load, "correct horse\n").good();
    assert_eq!(status(&live, "gcrypt/secret"), "available");
    assert_eq!(status(&live, "gcrypt/secret/inherits"), "available");
    assert_eq!(status(&live, "gcrypt/secret/own"), "unavailable");
    negative(typed(&live, &load, ""), "Key load error: Key already loaded for 'gcrypt/secret'.");
    let child = ["zfs", "load-key", "gcrypt/secret/inherits"];
    let root = "Keys must be loaded for encryption root of 'gcrypt/secret/inherits' (gcrypt/secret).";
    negative(live.run(&child), &format!("Key load error: {root}"));
    negative(live.run(&["zfs", "load-key", "gcrypt"]), "Key load error: 'gcrypt' is not encrypted.");

    live.run(&["zfs", "mount", "gcrypt/secret"]).good();
    assert!(fs::read_dir(live.path("mnt/gcrypt/secret")).expect("mounted").count() > 0);
    let unload = ["zfs", "unload-key", "gcrypt/secret"];
    negative(live.run(&unload), "Key unload error: 'gcrypt/secret' is busy.");
    live.run(&["zfs", "unmount", "gcrypt/secret"]).good();
    live.run(&unload).good();
    negative(live.run(&unload), "Key unload error: Key already unloaded for 'gcrypt/secret'.");
    assert_eq!(status(&live, "gcrypt/secret"), "unavailable");
    live.run(&["zpool", "export", "gcrypt"]).good();
}

#[test]
fn keys_come_from_files_and_one_after_the_other_from_a_pipe() {
    let Some(live) = golden() else { return };
    let file = live.text("key");
    let from_file = format!("file://{file}");
    let load = ["zfs", "load-key", "-L", &from_file, "gcrypt/secret"];
    let missing = "Key load error: Failed to open key material file: No such file or directory";
    negative(live.run(&load), missing);
    fs::write(&file, "correct horse\n").expect("written");
    live.run(&load).good();
    let both = ["zfs", "load-key", "-r", "-L", &from_file, "gcrypt"];
    assert_eq!(live.run(&both).status, 2, "one file is not the key of several datasets");
    live.run(&["zfs", "unload-key", "-a"]).good();

    // In the order of their names: gcrypt/hex, gcrypt/secret, gcrypt/secret/own.
    let hex = "00112233445566778899aabbccddeeff".repeat(2);
    let all = ["zfs", "load-key", "-r", "-L", "prompt", "gcrypt"];
    let done = typed(&live, &all, &format!("{hex}\ncorrect horse\nwrong staple\n"));
    assert_eq!((done.status, done.out.as_str()), (255, "2 / 3 key(s) successfully loaded\n"), "{done:?}");
    assert_eq!(done.err, "Key load error: Incorrect key provided for 'gcrypt/secret/own'.\n");
    let rest = typed(&live, &["zfs", "load-key", "-a", "-L", "prompt"], "battery staple\n").good();
    assert_eq!(rest, "1 / 1 key(s) successfully loaded\n", "those that are loaded are left out");
    assert_eq!(live.run(&["zfs", "load-key", "-a"]).good(), "", "and nothing is said of nothing");
    assert_eq!(
        live.run(&["zfs", "unload-key", "-r", "gcrypt"]).good(),
        "3 / 3 key(s) successfully unloaded\n"
    );
    live.run(&["zpool", "export", "gcrypt"]).good();
}

#[test]
fn mount_l_loads_keys_first() {
    let Some(live) = golden() else { return };
    // Without its key, it is left out when all are mounted.
    let secret = live.path("mnt/gcrypt/secret");
    assert!(fs::read_dir(&secret).map_or(0, Iterator::count) == 0);
    let wrong = typed(&live, &["zfs", "mount", "-l", "gcrypt/secret"], "wrong horse\n");
    wrong.refused("Key load error: Incorrect key provided for 'gcrypt/secret'.");
    typed(&live, &["zfs", "mount", "-l", "gcrypt/secret"], "correct horse\n").good();
    assert!(fs::read_dir(&secret).expect("mounted").count() > 0);
    // The dataset uses the key of its encryption root, which is loaded.
    live.run(&["zfs", "mount", "-l", "gcrypt/secret/inherits"]).good();
    assert!(fs::read_dir(live.path("mnt/gcrypt/secret/inherits")).expect("mounted").count() > 0);
    // The key is unloaded when its encryption root is unmounted.
    live.run(&["zfs", "unmount", "-u", "gcrypt/secret/inherits"]).good();
    assert_eq!(status(&live, "gcrypt/secret"), "available");
    live.run(&["zfs", "unmount", "-u", "gcrypt/secret"]).good();
    assert_eq!(status(&live, "gcrypt/secret"), "unavailable");
    live.run(&["zpool", "export", "gcrypt"]).good();
}

#[test]
fn import_l_loads_keys_first() {
    let Some(live) = unpacked() else { return };
    // The key of gcrypt/hex is in a file that is not here; the others are asked for, in the order of their names.
    let done = import(&live, &["-l"], "correct horse\nbattery staple\n");
    let missing = "Key load error: Failed to open key material file: No such file or directory\n";
    assert_eq!((done.status, done.err.as_str()), (1, missing));
    let files = |dataset: &str| fs::read_dir(live.path("mnt").join(dataset)).map_or(0, Iterator::count);
    let state = |dataset: &str| (status(&live, dataset), files(dataset) > 0);
    for dataset in ["gcrypt/secret", "gcrypt/secret/inherits", "gcrypt/secret/own"] {
        assert_eq!(state(dataset), ("available".to_owned(), true), "{dataset}");
    }
    assert_eq!(state("gcrypt/hex"), ("unavailable".to_owned(), false));
    live.run(&["zpool", "export", "gcrypt"]).good();
    assert_eq!(import(&live, &["-l", "-N"], "").status, 2, "nothing would be mounted");
    let image = live.text("gcrypt.0.img");
    let import = ["zpool", "import", "-d", &image, "-o", "readonly=on", "-l", "gcrypt"];
    let keyless: Done = live.command(&import).env("CENOTE_SERVER", "off").output().expect("it ends").into();
    let why = "cannot load the keys of 'gcrypt': its server, which keeps them, does not run\n";
    assert!(keyless.status == 1 && keyless.err.starts_with(why), "{keyless:?}");
}

#[test]
fn no_core_dump_is_made_of_a_server_that_has_a_key() {
    let Some(live) = golden() else { return };
    typed(&live, &["zfs", "load-key", "-L", "prompt", "gcrypt/secret"], "correct horse\n").good();
    let limits = fs::read_to_string(format!("/proc/{}/limits", live.server())).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("listed");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    live.run(&["zpool", "export", "gcrypt"]).good();
}

/// Whether `bytes` are anywhere in the memory of a process.
fn remembers(process: u32, bytes: &[u8]) -> bool {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it runs");
    let memory = fs::File::open(format!("/proc/{process}/mem")).expect("root reads it");
    maps.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next().expect("a range"), fields.next().expect("a mode"));
        let (from, to) = range.split_once('-').expect("from and to");
        let number = |digits| u64::from_str_radix(digits, 16).expect("hexadecimal");
        let (from, to) = (number(from), number(to));
        if !mode.starts_with("rw") || line.ends_with("[vvar]") {
            return false;
        }
        let mut found = false;
        let (mut piece, mut at) = (vec![0; 1 << 20], from);
        while at < to && !found {
            let len = piece.len().min((to - at) as usize);
            let Ok(len) = memory.read_at(&mut piece[..len], at) else { break };
            found = len > 0 && piece[..len].windows(bytes.len()).any(|window| window == bytes);
            // Pieces overlap.
            at += if len < piece.len() { len.max(1) } else { len - bytes.len() } as u64;
        }
        found
    })
}

/// The server has the key, so it makes the decrypted stream.
fn sends_decrypted(live: &Live) {
    live.run(&["zfs", "snapshot", "-r", "tank/secret@sent"]).good();
    for options in [&["-c"][..], &["-L", "-e"]] {
        let words = [&["zfs", "send"], options, &["tank/secret/child@sent"]].concat();
        let whole = streamed(live, &words);
        received(live, &["zfs", "receive", "-u", "tank/plain"], &whole, true);
        assert_eq!(live.get("encryption", "tank/plain"), "off");
        live.run(&["zfs", "destroy", "-r", "tank/plain"]).good();

        // The rest of a stream that was cut, and what an interrupted receive into an encrypted file system holds.
        let half = &whole[..whole.len() * 3 / 4];
        received(live, &["zfs", "receive", "-s", "tank/plain"], half, false);
        let rest = streamed(live, &["zfs", "send", "-t", &live.get("receive_resume_token", "tank/plain")]);
        received(live, &["zfs", "receive", "-s", "tank/plain"], &rest, true);
        let file = fs::read(live.path("mnt/plain/file")).expect("mounted");
        assert!(file == vec![b'x'; 300_000], "{} bytes", file.len());
        live.run(&["zfs", "destroy", "-r", "tank/plain"]).good();
        received(live, &["zfs", "receive", "-s", "tank/secret/part"], half, false);
        assert!(!streamed(live, &["zfs", "send", "-S", "tank/secret/part"]).is_empty());
        live.run(&["zfs", "receive", "-A", "tank/secret/part"]).good();
    }
}

/// The commands themselves have no keys.
fn commands_that_read_use_the_server(live: &Live) {
    let point = live.text("mnt/secret/child");
    let differences = live.run(&["zfs", "diff", "-H", "tank/secret/child@sent", "tank/secret/child"]).good();
    assert_eq!(differences, "");
    fs::rename(live.path("mnt/secret/child/file"), live.path("mnt/secret/child/moved")).expect("renamed");
    live.run(&["zpool", "sync", "tank"]).good();
    let differences = live.run(&["zfs", "diff", "-H", "tank/secret/child@sent"]).good();
    assert!(differences.contains(&format!("R\t{point}/file\t{point}/moved\n")), "{differences}");
    fs::rename(live.path("mnt/secret/child/moved"), live.path("mnt/secret/child/file")).expect("renamed");
    live.run(&["zpool", "sync", "tank"]).good();
    for place in ["tank/secret/child", "tank/secret/child@sent", &point] {
        let users = live.run(&["zfs", "userspace", "-Hnp", "-o", "name,used", place]).good();
        assert!(users.starts_with("0\t") && users.lines().count() == 1, "{place}: {users}");
    }
    let checked = live.run(&["check", "tank"]);
    assert!(checked.status == 0 && checked.out.contains("tank: clean"), "{checked:?}");
    let unseen =
        "tank/secret/child: only the pool's server has its encryption key (its blocks were checked)\n";
    assert!(checked.err.contains(unseen), "{checked:?}");
}

/// Files of a file system whose key the server has can be read without the mount.
fn files_are_read_by_the_server(live: &Live) {
    let listed = live.run(&["ls", "tank/secret/child"]).good();
    assert!(listed.contains("file\n"), "{listed}");
    let whole = fs::read(live.path("mnt/secret/child/file")).expect("the mount has it");
    for place in ["tank/secret/child:/file", "tank/secret/child@sent:/file"] {
        let cat = live.command(&["cat", place]).output().expect("it starts");
        assert!(
            cat.status.success() && cat.stdout == whole,
            "{place}: {}",
            String::from_utf8_lossy(&cat.stderr)
        );
    }
    live.run(&["cp", "-rp", "tank/secret/child:/", "copied"]).good();
    assert_eq!(fs::read(live.path("copied/file")).expect("it was copied"), whole);
    live.run(&["du", "-s", "tank/secret/child@sent"]).good();
    live.run(&["tree", "tank/secret/child:"]).good();
    live.run(&["stat", "tank/secret/child:/file"]).good();
    live.run(&["usage", "tank/secret/child"]).good();
    let tar = live.command(&["tar", "-c", "tank/secret/child"]).output().expect("it starts");
    assert!(tar.status.success() && tar.stdout.windows(4).any(|four| four == b"file"));
}

fn streamed(live: &Live, words: &[&str]) -> Vec<u8> {
    let stream = live.command(words).output().expect("it starts");
    assert!(stream.status.success(), "{words:?}: {}", String::from_utf8_lossy(&stream.stderr));
    stream.stdout
}

fn received(live: &Live, words: &[&str], stream: &[u8], is_whole: bool) {
    let mut child = live.command(words).stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(stream).expect("read");
    assert_eq!(child.wait().expect("it ends").success(), is_whole, "{words:?}");
}

#[test]
fn a_file_system_is_encrypted_written_and_locked_and_no_key_stays_behind() {
    let Some(live) = Live::with_tank(256) else { return };
    let key = b"\x91raw key \xf3of thirty-two bytes.\x07\xe2";
    fs::write(live.path("key"), key).expect("written");
    let location = format!("keylocation=file://{}", live.text("key"));
    let create =
        ["zfs", "create", "-o", "encryption=on", "-o", "keyformat=raw", "-o", &location, "tank/secret"];
    live.run(&create).good();
    live.run(&["zfs", "create", "tank/secret/child"]).good();
    let typed_key =
        ["zfs", "create", "-o", "encryption=aes-192-ccm", "-o", "keyformat=passphrase", "tank/secret/own"];
    typed(&live, &typed_key, "battery staple").good();
    assert_eq!(live.get("encryptionroot", "tank/secret/child"), "tank/secret");
    assert_eq!(live.get("encryptionroot", "tank/secret/own"), "tank/secret/own");
    assert_eq!(live.get("encryption", "tank/secret/own"), "aes-192-ccm");
    for dataset in ["secret", "secret/child", "secret/own"] {
        bed::live::write(&live.path("mnt").join(dataset).join("file"), &vec![b'x'; 300_000]);
    }
    assert!(remembers(live.server(), key), "the key is used");

    let change =
        ["zfs", "change-key", "-o", "keyformat=passphrase", "-o", "keylocation=prompt", "tank/secret"];
    typed(&live, &change, "another pass phrase").good();
    assert!(!remembers(live.server(), key), "the old key is not used any more");
    negative(live.run(&["zfs", "change-key", "tank"]), "Key change error: Dataset not encrypted.");
    let inherits = "Key change error: Key inheritting can only be performed on encryption roots.";
    negative(live.run(&["zfs", "change-key", "-i", "tank/secret/child"]), inherits);
    live.run(&["zfs", "change-key", "-i", "tank/secret/own"]).good();
    assert_eq!(live.get("encryptionroot", "tank/secret/own"), "tank/secret");
    assert_eq!(live.get("keylocation", "tank/secret/own"), "none");
    live.run(&["zfs", "rename", "tank/secret/own", "tank/own"])
        .refused("cannot rename 'tank/secret/own': dataset does not exist");

    sends_decrypted(&live);
    commands_that_read_use_the_server(&live);
    files_are_read_by_the_server(&live);
    live.run(&["zfs", "unmount", "-u", "tank/secret"]).good();
    assert_eq!(status(&live, "tank/secret/child"), "unavailable");
    let locked = live.run(&["zfs", "send", "tank/secret/child@sent"]);
    assert!(locked.status == 1 && locked.err.contains("dataset key must be loaded"), "{locked:?}");
    for secret in [&key[..], b"battery staple", b"another pass phrase"] {
        assert!(!remembers(live.server(), secret), "{}", String::from_utf8_lossy(secret));
    }
    let history = live.run(&["zpool", "history", "-il", "tank"]).good();
    assert!(history.contains("zfs change-key") && !history.contains("pass phrase"), "{history}");
    live.run(&["zfs", "create", "tank/secret/late"])
        .refused("cannot create 'tank/secret/late': encryption root's key is not loaded or provided");
    live.run(&["zfs", "snapshot", "-r", "tank/secret@locked"]).good();

    live.run(&["zpool", "export", "tank"]).good();
    let image = live.text("tank.img");
    let mount = live.text("mnt");
    let import = ["zpool", "import", "-l", "-d", &image, "tank"];
    typed(&live, &import, "another pass phrase\n").good();
    for dataset in ["secret", "secret/child", "secret/own"] {
        let read = fs::read(live.path("mnt").join(dataset).join("file")).expect("mounted");
        assert!(read == vec![b'x'; 300_000], "{dataset} in {mount}");
    }
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_pool_whose_root_is_encrypted_is_made_used_and_imported() {
    let Some(live) = Live::new() else { return };
    let (image, mount) = (live.text("tank.img"), live.text("mnt"));
    fs::File::create(live.path("tank.img")).and_then(|file| file.set_len(128 << 20)).expect("made");
    let hex = "00112233445566778899aabbccddeeff".repeat(2);
    let mut words = vec!["zpool", "create", "-m", &mount, "-O", "encryption=on", "-O", "keyformat=hex"];
    words.extend(["tank", &image]);
    typed(&live, &words, &format!("{}\n", &hex[1..]))
        .refused("cannot create 'tank': Hex key too short (expected 64).");
    typed(&live, &words, &format!("{hex}\n")).good();
    assert_eq!(
        (status(&live, "tank"), live.get("mounted", "tank")),
        ("available".to_owned(), "yes".to_owned())
    );
    live.run(&["zfs", "create", "tank/child"]).good();
    bed::live::write(&live.path("mnt/child/file"), b"inherited");
    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert_eq!(live.get("mounted", "tank"), "no");
    typed(&live, &["zfs", "load-key", "tank"], &hex).good();
    live.run(&["zfs", "mount", "-a"]).good();
    assert_eq!(fs::read(live.path("mnt/child/file")).expect("mounted"), b"inherited");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}
