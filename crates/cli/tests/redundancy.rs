//! Pools of OpenZFS with mirrors and raidz as commands show them: whole, with devices missing, and with too many of them missing.

mod bed;

use std::path::Path;
use std::process::Command;

use bed::images::{devices, expect_sound, fill, run, shown};
use bed::{Bed, Done, root};
use serde_json::Value;

/// The pool's images in the folder `images`, and its manifest.
fn unpacked(pool: &str) -> (Bed, Value) {
    let bed = Bed::new();
    let unpack = root().join("fixtures/golden/unpack");
    let done =
        Done::from(Command::new(unpack).arg(pool).arg(bed.path("images")).output().expect("it starts"));
    assert_eq!(done.status, 0, "{done:?}");
    let manifest = std::fs::read(root().join(format!("fixtures/golden/{pool}.json"))).expect("a manifest");
    (bed, serde_json::from_slice(&manifest).expect("JSON"))
}

fn remove(bed: &Bed, image: &str) {
    std::fs::remove_file(bed.path("images").join(image)).expect("it was there");
}

/// The words of a status from the line that begins with `from`, with devices where OpenZFS had them.
fn words(bed: &Bed, pool: &str, status: &str, from: &str) -> Vec<String> {
    let here = bed.path("images").canonicalize().expect("a folder").display().to_string();
    let there = status.replace(&here, &format!("/golden/{pool}"));
    let from = there.find(&format!("\n{from}")).unwrap_or_else(|| panic!("no '{from}' in {there}"));
    there[from..].split_whitespace().map(str::to_owned).collect()
}

fn expect_status(bed: &Bed, pool: &str, wanted: &Value, from: &str) {
    let status = bed.run(&["-d", "images", "zpool", "status", pool]).good();
    let wanted = wanted.as_str().expect("a text");
    assert_eq!(words(bed, pool, &status, from), words(bed, pool, wanted, from), "{status}");
}

#[test]
fn status_shows_what_openzfs_shows_also_with_devices_missing() {
    for pool in ["gmirror", "graidz1", "graidz2", "graidz3"] {
        let (bed, manifest) = unpacked(pool);
        expect_status(&bed, pool, &manifest["zpool_status"], "config:");
        for variant in manifest["variants"].as_array().expect("variants").iter().take(2) {
            let (bed, _) = unpacked(pool);
            for image in variant["missing"].as_array().expect("images") {
                remove(&bed, image.as_str().expect("a name"));
            }
            expect_status(&bed, pool, &variant["zpool_status"], " state: DEGRADED");
            let listed = bed.run(&["-d", "images", "zpool", "list", "-H", "-o", "health", pool]).good();
            assert_eq!(listed, "DEGRADED\n", "{pool}");
        }
    }
}

/// The time of day at the end of the line depends on where the test runs. OpenZFS moved a little more after its status was kept.
#[test]
fn status_shows_how_raidz_was_expanded_and_that_it_is_not_complete() {
    for (pool, before, second) in [("gexpand", ", on ", None), ("gexpanding", " since ", Some("\t23.2M / "))]
    {
        let (bed, manifest) = unpacked(pool);
        let status = bed.run(&["-d", "images", "zpool", "status", pool]).good();
        let line = |status: &str| {
            let line = status.lines().find(|line| line.starts_with("expand: ")).expect("a line");
            line.split_inclusive(before).next().expect("its begin").to_owned()
        };
        assert_eq!(line(&status), line(manifest["zpool_status"].as_str().expect("a text")));
        assert!(second.is_none_or(|second| status.contains(second)), "{status}");
    }
}

#[test]
fn one_device_less_than_needed_is_refused_by_name() {
    for (pool, gone) in [("gmirror", 2), ("graidz1", 2), ("graidz2", 3), ("graidz3", 4)] {
        let (bed, _) = unpacked(pool);
        let (removed, left): (Vec<_>, Vec<_>) = (0..5)
            .map(|device| format!("{pool}.{device}.img"))
            .filter(|image| bed.path("images").join(image).exists())
            .enumerate()
            .partition(|(device, _)| *device < gone);
        removed.iter().for_each(|(_, image)| remove(&bed, image));
        let done = bed.run(&["zpool", "import", "-d", "images", "-o", "readonly=on", pool]);
        if left.is_empty() {
            done.refused(&format!("cannot import '{pool}': no such pool available"));
            continue;
        }
        for (_, image) in &removed {
            assert!(done.err.contains(image), "{done:?} names {image}");
        }
        done.refused(&format!("cannot import '{pool}': one or more devices is currently unavailable"));
        let list = bed.run(&["zpool", "import", "-d", "images"]).good();
        assert!(list.contains("state: UNAVAIL") && list.contains("cannot open"), "{list}");
        let read = bed.run(&["-d", "images", "ls", &format!("{pool}:/")]);
        assert_eq!(read.status, 1, "{read:?}");
        for (_, image) in &removed {
            assert!(read.err.contains(image), "{read:?} names {image}");
        }
    }
}

/// Everything but the labels of a device is overwritten.
fn overwrite(bed: &Bed, image: &str) {
    use std::os::unix::fs::FileExt;
    let file =
        std::fs::OpenOptions::new().write(true).open(bed.path("images").join(image)).expect("it opens");
    let noise: Vec<u8> = (0..1u32 << 20).map(|at| (at * 7 + at / 251) as u8 | 1).collect();
    for mebibyte in 4..63 {
        file.write_all_at(&noise, mebibyte << 20).expect("it is written");
    }
}

#[test]
fn a_pool_with_a_lost_and_an_overwritten_device_gives_every_file_and_a_check_says_so() {
    let (bed, manifest) = unpacked("graidz2");
    remove(&bed, "graidz2.1.img");
    overwrite(&bed, "graidz2.3.img");
    for dataset in manifest["datasets"].as_array().expect("datasets") {
        let name = dataset["name"].as_str().expect("a name");
        let list =
            bed.run(&["-d", "images", "ls", "-R", "--json", "--sha256", &format!("{name}:/")]).objects();
        assert_eq!(list.as_slice(), dataset["files"].as_array().expect("files").as_slice(), "{name}");
    }
    let copy = bed.run(&["-d", "images", "cp", "-r", "graidz2:/", "copy"]);
    assert_eq!(copy.status, 0, "{copy:?}");
    let check = bed.run(&["-d", "images", "check", "graidz2"]);
    assert_eq!(check.status, 1, "{check:?}");
    assert!(check.out.contains("graidz2.3.img' holds of it is damaged"), "{check:?}");
    assert!(check.out.contains("device 1 is not there"), "{check:?}");
    assert!(!check.out.contains("damaged block"), "nothing is lost: {check:?}");
}

#[test]
fn devices_of_raidz_are_replaced_and_spares_fill_in_and_go_back() {
    let bed = Bed::new();
    let devices = devices(&bed, &[96; 8]);
    run(&bed, &devices, "zpool create -f -O mountpoint=none -o ashift=12 t raidz2 0 1 2 3 spare 4").good();
    fill(&bed.path("before"), 1);
    bed.run(&["cp", "-r", "before", "t:/"]).good();
    let before = bed.list("t:/");
    run(&bed, &devices, "zpool replace t 0 5").good();
    assert_eq!(shown(&bed).join("|"), "t|  raidz2-0|    d5|    d1|    d2|    d3|spares|  d4");
    let rebuild = run(&bed, &devices, "zpool replace -s t 1 6");
    assert!(
        rebuild.err.contains("only mirror and dRAID vdevs support sequential reconstruction"),
        "{rebuild:?}"
    );
    let attach = run(&bed, &devices, "zpool attach t 1 6");
    assert!(attach.err.ends_with(": can only attach to mirrors and top-level disks\n"), "{attach:?}");
    // A new device at the path of the old one.
    std::fs::remove_file(&devices[1]).expect("it was there");
    std::fs::File::create(&devices[1]).and_then(|file| file.set_len(96 << 20)).expect("a file");
    run(&bed, &devices, "zpool replace t 1").good();
    assert_eq!(shown(&bed).join("|"), "t|  raidz2-0|    d5|    d1|    d2|    d3|spares|  d4");
    assert_eq!(bed.list("t:/"), before);
    // A spare fills in, and goes back.
    run(&bed, &devices, "zpool offline -f t 2").good();
    run(&bed, &devices, "zpool replace t 2 4").good();
    let status = bed.run(&["zpool", "status", "t"]).good();
    for words in ["external device fault", "INUSE     currently in use", "spare-2"] {
        assert!(status.contains(words), "{words}: {status}");
    }
    let busy = run(&bed, &devices, "zpool remove t 4");
    assert!(busy.err.contains("Pool busy"), "{busy:?}");
    let twice = run(&bed, &devices, "zpool replace t 3 4");
    assert_eq!(twice.status, 255, "{twice:?}");
    run(&bed, &devices, "zpool online t 2").good();
    assert_eq!(shown(&bed).join("|"), "t|  raidz2-0|    d5|    d1|    d2|    d3|spares|  d4");
    // The device for which the spare filled in is replaced, and another time detached.
    run(&bed, &devices, "zpool replace t 2 4").good();
    run(&bed, &devices, "zpool replace t 2 6").good();
    assert_eq!(shown(&bed).join("|"), "t|  raidz2-0|    d5|    d1|    d6|    d3|spares|  d4");
    run(&bed, &devices, "zpool replace t 3 4").good();
    run(&bed, &devices, "zpool detach t 3").good();
    assert_eq!(shown(&bed).join("|"), "t|  raidz2-0|    d5|    d1|    d6|    d4");
    assert_eq!(bed.list("t:/"), before);
    run(&bed, &devices, "zpool scrub t").good();
    let status = bed.run(&["zpool", "status", "t"]).good();
    assert!(status.contains("scrub repaired 0B") && status.contains("with 0 errors"), "{status}");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

/// Writes zeros over these labels of a device of 96 MiB, or changes one byte of the configuration in each.
fn damage(device: &str, labels: &[usize], with_zeros: bool) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(device).expect("it opens");
    for number in labels {
        let at = format::label::offsets(96 << 20).expect("it is large enough")[*number];
        let (bytes, place) = match with_zeros {
            true => (vec![0; 256 << 10], at),
            false => (vec![0xff], at + (16 << 10) + 300),
        };
        file.write_all_at(&bytes, place).expect("it is written");
    }
}

#[test]
fn a_check_names_damaged_labels_and_the_next_change_of_the_pool_mends_them() {
    let bed = Bed::new();
    let devices = devices(&bed, &[96; 2]);
    run(&bed, &devices, "zpool create -f -O mountpoint=none t mirror 0 1").good();
    bed.run(&["zpool", "export", "t"]).good();
    damage(&devices[0], &[0, 3], true);
    damage(&devices[1], &[1, 2], false);
    let check = bed.run(&["-d", "images", "check", "t"]);
    let lead = "lead to the pool; the next change of the pool writes all four again\n";
    let both = format!(
        "d0: label 0 is overwritten with zeros, label 3 is overwritten with zeros: the other 2 {lead}"
    );
    let one = format!("d1: label 1 is damaged, label 2 is damaged: the other 2 {lead}");
    assert!(check.out.contains(&both) && check.out.contains(&one), "{check:?}");
    assert!(check.status == 1 && check.out.contains("t: 2 faults;"), "{check:?}");
    let json = bed.run(&["-d", "images", "check", "--json", "t"]);
    let json: Value = serde_json::from_str(&json.out).expect("JSON");
    let findings = json["pools"][0]["findings"].as_array().expect("findings");
    assert!(findings.len() == 2 && json["pools"][0]["faults"] == 2, "{json}");
    bed.run(&["-d", "images", "zfs", "set", "compression=lz4", "t"]).good();
    // A power cut while labels are written may leave two of them like this.
    damage(&devices[1], &[0, 2], false);
    let check = bed.run(&["-d", "images", "check", "t"]);
    assert!(check.status == 0 && check.out.contains("t: clean"), "{check:?}");
    bed.run(&["-d", "images", "zfs", "set", "compression=off", "t"]).good();
    expect_sound(&bed);
}

/// The paths of the devices, in the labels of each of them.
fn paths_in_labels(device: &Path) -> Vec<Vec<String>> {
    let disk = pool::open_disk(device, storage::host::Access::Peek).expect("it opens");
    let paths = |config: &format::config::PoolConfig| {
        let leaves = config.tree.leaves().filter_map(|leaf| leaf.path.clone());
        leaves.map(|path| String::from_utf8(path).expect("text")).collect()
    };
    pool::labels::read(&disk).pool_configs().map(paths).collect()
}

#[test]
fn an_import_that_writes_notes_new_paths_of_devices_in_all_labels() {
    let bed = Bed::new();
    let devices = devices(&bed, &[96; 2]);
    run(&bed, &devices, "zpool create -f -O mountpoint=none t mirror 0 1").good();
    bed.run(&["zpool", "export", "t"]).good();
    let old = vec![devices.clone(); 4];
    std::fs::rename(bed.path("images"), bed.path("moved")).expect("moved");
    let new: Vec<String> = devices.iter().map(|path| path.replace("/images/", "/moved/")).collect();
    // Reading changes nothing, not even a byte.
    let before = std::fs::read(&new[0]).expect("read");
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "moved", "t"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    assert_eq!(std::fs::read(&new[0]).expect("read"), before);
    assert_eq!(paths_in_labels(Path::new(&new[0])), old);
    bed.run(&["zpool", "import", "-d", "moved", "t"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    for device in &new {
        assert_eq!(paths_in_labels(Path::new(device)), vec![new.clone(); 4]);
    }
    // A path that still leads to the device stays, although another one was found.
    std::os::unix::fs::symlink(bed.path("moved"), bed.path("link")).expect("made");
    bed.run(&["zpool", "import", "-d", "link", "t"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    assert_eq!(paths_in_labels(Path::new(&new[1])), vec![new.clone(); 4]);
    let check = bed.run(&["-d", "moved", "check", "t"]);
    assert!(check.status == 0 && check.out.contains("t: clean"), "{check:?}");
}
