//! Keys of encrypted datasets, loaded into the server of a pool and unloaded again.

mod bed;

use std::fs;
use std::io::Write;
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
    // A command that is refused does not read.
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
fn mounting_loads_keys_first_when_told() {
    let Some(live) = golden() else { return };
    // Without its key, it is left out when all are mounted.
    let secret = live.path("mnt/gcrypt/secret");
    assert!(fs::read_dir(&secret).map_or(0, Iterator::count) == 0);
    let wrong = typed(&live, &["zfs", "mount", "-l", "gcrypt/secret"], "wrong horse\n");
    wrong.refused("Key load error: Incorrect key provided for 'gcrypt/secret'.");
    typed(&live, &["zfs", "mount", "-l", "gcrypt/secret"], "correct horse\n").good();
    assert!(fs::read_dir(&secret).expect("mounted").count() > 0);
    // The key is that of the encryption root, and it is there.
    live.run(&["zfs", "mount", "-l", "gcrypt/secret/inherits"]).good();
    assert!(fs::read_dir(live.path("mnt/gcrypt/secret/inherits")).expect("mounted").count() > 0);
    // The key goes with the mount of its encryption root.
    live.run(&["zfs", "unmount", "-u", "gcrypt/secret/inherits"]).good();
    assert_eq!(status(&live, "gcrypt/secret"), "available");
    live.run(&["zfs", "unmount", "-u", "gcrypt/secret"]).good();
    assert_eq!(status(&live, "gcrypt/secret"), "unavailable");
    live.run(&["zpool", "export", "gcrypt"]).good();
}

#[test]
fn importing_loads_keys_first_when_told() {
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
