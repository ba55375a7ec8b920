//! Folders that contain themselves, or are in many places: every command that walks a tree says so and ends.

mod bed;

use bed::craft::{craft, file, folder, name_again, run};
use bed::live::Live;
use bed::{Bed, Done};

const SAID: &str = "it is a folder that was read before under another name";

/// A pool with the folder `loop`, which contains itself, and the folder `bomb`, whose 40 levels can be reached in 2 to the
/// power of 40 ways.
fn bed() -> Bed {
    let bed = Bed::with_tank(128, &[]);
    craft(&bed, |fs| {
        let within = folder(fs, fs.root(), b"loop");
        file(fs, within, b"first", 0o644, b"content");
        name_again(fs, within, b"again", within);
        name_again(fs, within, b"root", fs.root());
        file(fs, within, b"last", 0o644, b"content");
        let mut level = folder(fs, fs.root(), b"bomb");
        for _ in 0..40 {
            let next = folder(fs, level, b"a");
            name_again(fs, level, b"b", next);
            level = next;
        }
        file(fs, level, b"end", 0o644, b"content");
    });
    bed
}

#[test]
fn in_a_mount_a_directory_lies_in_one_place() {
    let Some(live) = Live::new() else { return };
    let image = live.text("tank.img");
    std::fs::File::create(&image).expect("made").set_len(128 << 20).expect("long");
    live.bed.run(&["zpool", "create", "tank", &image]).good();
    live.bed.run(&["zfs", "create", "-o", &format!("mountpoint={}", live.text("mnt")), "tank/fs"]).good();
    craft(&live.bed, |fs| {
        let within = folder(fs, fs.root(), b"loop");
        name_again(fs, within, b"again", within);
        name_again(fs, within, b"root", fs.root());
        let other = folder(fs, fs.root(), b"other");
        name_again(fs, within, b"other", other);
        file(fs, within, b"file", 0o644, b"content");
    });
    live.import();
    let top = live.path("mnt");
    for name in ["again", "root", "other"] {
        let found = std::fs::read_dir(top.join("loop").join(name));
        assert_eq!(found.expect_err("refused").raw_os_error(), Some(5), "{name}");
    }
    assert_eq!(std::fs::read(top.join("loop/file")).expect("read"), b"content");
    let listed = |name: &str| std::fs::read_dir(top.join(name)).expect("listed").count();
    assert_eq!((listed("loop"), listed("other"), listed("")), (4, 0, 2));
    let found = std::process::Command::new("find").arg(&top).output().expect("find is here");
    // The folder itself, two in it, and what is in the first one.
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 7, "{found:?}");
    live.run(&["zpool", "export", "tank"]).good();
}

/// Runs a command with 1 GiB of address space beyond what every command takes.
fn limited(bed: &Bed, words: &[&str]) -> Done {
    let mut command = std::process::Command::new("prlimit");
    let plain = bed.command(words);
    command.args(["--as=4294967296", "--"]).arg(plain.get_program()).args(plain.get_args());
    bed::in_place_of(&plain, command.stdin(std::process::Stdio::null()));
    run(command)
}

#[test]
fn walks_through_a_loop_end_with_an_error() {
    let bed = bed();
    for words in [
        &["ls", "-R", "tank/fs:/"][..],
        &["ls", "-R", "--json", "tank/fs:/"],
        &["tree", "tank/fs:/"],
        &["du", "tank/fs:/"],
        &["cp", "-r", "tank/fs:/", "out"],
        &["cp", "-rp", "tank/fs:/loop", "tank/fs:/bomb", "tank:/"],
    ] {
        let done = limited(&bed, &[&["-d", "tank.img"], words].concat());
        assert!(done.status == 1 && done.err.contains(SAID), "{words:?}: {}", done.err);
        // One line for each additional name of a folder: nothing grows with the number of ways.
        assert!(done.err.lines().count() <= 100 && done.out.len() < 100_000, "{words:?}: {}", done.err);
        if words[0] != "cp" {
            assert!(done.out.contains("last") || words[0] == "du", "{words:?}: it goes on: {}", done.out);
        }
    }
    assert_eq!(std::fs::read(bed.path("out/loop/last")).expect("copied"), b"content");
    assert!(limited(&bed, &["cp", "-r", "tank/fs:/loop/again/root", "tank/fs:/loop/again/x"]).status == 1);
    let done = limited(&bed, &["rm", "-r", "tank/fs:/loop"]);
    assert!(done.status == 1 && done.err.contains(SAID), "{}", done.err);
}

#[test]
fn usage_of_folders_adds_up_from_below() {
    let bed = Bed::with_tank(128, &["compression=off", "recordsize=4K"]);
    craft(&bed, |fs| {
        let top = folder(fs, fs.root(), b"a");
        let below = folder(fs, top, b"b");
        file(fs, below, b"f", 0o644, &[1; 4096]);
        let beside = folder(fs, fs.root(), b"a-b");
        file(fs, beside, b"g", 0o644, &[2; 4096]);
    });
    let out = bed.run(&["-d", "tank.img", "du", "tank/fs:/"]).good();
    let lines: Vec<(u64, &str)> = out
        .lines()
        .map(|line| {
            let (blocks, path) = line.split_once('\t').expect("two columns");
            (blocks.parse().expect("a number"), path)
        })
        .collect();
    let paths: Vec<_> = lines.iter().map(|(_, path)| *path).collect();
    assert_eq!(paths, ["tank/fs:/a-b", "tank/fs:/a/b", "tank/fs:/a", "tank/fs:/"]);
    let of = |index: usize| lines[index].0;
    assert!(of(1) >= 4 && of(2) > of(1) && of(3) >= of(0) + of(2), "{lines:?}");
    let alone = bed.run(&["-d", "tank.img", "du", "-s", "tank/fs:/"]).good();
    assert_eq!(alone, format!("{}\ttank/fs:/\n", of(3)));
}

#[test]
fn usage_of_a_dataset_includes_the_datasets_below_it() {
    let bed = Bed::with_tank(128, &["compression=off", "recordsize=4K"]);
    craft(&bed, |fs| {
        file(fs, fs.root(), b"own", 0o644, &[1; 4096]);
    });
    bed.run(&["-d", "tank.img", "zfs", "create", "-p", "tank/fs/mid/leaf"]).good();
    bed.run(&["-d", "tank.img", "zfs", "create", "-sV", "1M", "tank/fs/volume"]).good();
    bed.run(&["-d", "tank.img", "zfs", "snapshot", "tank/fs/mid@one"]).good();
    std::fs::write(bed.path("inner"), [2; 20480]).expect("written");
    bed.run(&["-d", "tank.img", "cp", "inner", "tank/fs/mid/leaf:/"]).good();
    let rows = |words: &[&str]| -> Vec<(String, u64, u64)> {
        let out = bed.run(&[&["-d", "tank.img", "usage", "--json"], words].concat()).good();
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let number = |name: &str| row[name].as_u64().expect("a number");
            (row["name"].as_str().expect("a name").to_owned(), number("size"), number("files"))
        };
        out.lines().map(row).collect()
    };
    assert_eq!(rows(&["tank/fs"]), [("tank/fs:/".into(), 24576, 2), ("tank/fs/mid:/".into(), 20480, 1)]);
    let deep = rows(&["-a", "--depth", "3", "tank/fs:/"]);
    let names: Vec<_> = deep.iter().map(|row| row.0.as_str()).collect();
    let all = ["tank/fs:/", "tank/fs/mid:/", "tank/fs/mid/leaf:/", "tank/fs/mid/leaf:/inner", "tank/fs:/own"];
    assert_eq!(names.len(), all.len(), "{names:?}");
    assert!(all.iter().all(|name| names.contains(name)) && names[0] == all[0], "{names:?}");
    assert_eq!(rows(&["-x", "tank/fs"]), [("tank/fs:/".into(), 4096, 1)]);
    // The file came after the snapshot, and the dataset below has no snapshot of this name.
    assert_eq!(rows(&["tank/fs/mid@one"]), [("tank/fs/mid@one:/".into(), 0, 0)]);
    let du = bed.run(&["-d", "tank.img", "du", "tank/fs"]).good();
    let paths: Vec<_> = du.lines().filter_map(|line| line.split_once('\t')).map(|(_, path)| path).collect();
    assert_eq!(paths, ["tank/fs/mid/leaf:/", "tank/fs/mid:/", "tank/fs:/"]);
    let sizes: Vec<u64> = du.lines().filter_map(|line| line.split_once('\t')?.0.parse().ok()).collect();
    assert!(sizes[0] >= 20 && sizes[1] > sizes[0] && sizes[2] >= sizes[1] + 4, "{du}");
    let alone = bed.run(&["-d", "tank.img", "du", "-sx", "tank/fs"]).good();
    assert!(alone.split_once('\t').and_then(|(size, _)| size.parse::<u64>().ok()).expect("a number") < 20);
}
