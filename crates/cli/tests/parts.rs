//! Pools in the partitions of an image of a whole disk.

mod bed;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use bed::live::{Live, write};
use bed::{Bed, Done};

/// Where the first partition begins, in sectors of 512 bytes.
const START: u64 = 2048;
const SECTOR: u64 = 512;
/// The length of each partition.
const LEN: u64 = 64 << 20;

/// Writes a partition table into an image: first sector and count of each partition.
type TableWriter = fn(&Path, &[(u64, u64)]);

/// The pool `name` with one file in an image of its own.
fn make(bed: &Bed, name: &str) {
    let image = format!("{name}.img");
    File::create(bed.path(&image)).expect("made").set_len(LEN).expect("long");
    bed.run(&["zpool", "create", name, &bed.path(&image).display().to_string()]).good();
    fs::write(bed.path("word"), name).expect("written");
    bed.run(&["cp", "word", &format!("{name}:/word")]).good();
    bed.run(&["zpool", "export", name]).good();
}

/// Puts images one after the other into the partitions of `disk.img`, with a partition of 8 MiB behind them as OpenZFS makes
/// it. All bytes outside of them are `0xee` or the table.
fn assemble(bed: &Bed, pools: &[&str], table: impl Fn(&Path, &[(u64, u64)])) {
    let path = bed.path("disk.img");
    let disk = File::create(&path).expect("made");
    let mut parts = Vec::new();
    let mut start = START * SECTOR;
    for pool in pools {
        let image = bed.path(&format!("{pool}.img"));
        disk.write_all_at(&fs::read(&image).expect("there"), start).expect("written");
        fs::remove_file(image).expect("there");
        parts.push((start / SECTOR, LEN / SECTOR));
        start += LEN;
    }
    parts.push((start / SECTOR, (8 << 20) / SECTOR));
    disk.write_all_at(&vec![0xee; (9 << 20) - 512], start).expect("written");
    disk.write_all_at(&vec![0xee; (START * SECTOR - 512) as usize], 512).expect("written");
    table(&path, &parts);
}

fn mbr(path: &Path, parts: &[(u64, u64)]) {
    let mut bytes = vec![0; 512];
    for (at, (start, count)) in parts.iter().enumerate() {
        let entry = &mut bytes[446 + at * 16..][..16];
        entry[4] = 0xbf;
        entry[8..12].copy_from_slice(&(*start as u32).to_le_bytes());
        entry[12..16].copy_from_slice(&(*count as u32).to_le_bytes());
    }
    bytes[510..].copy_from_slice(&[0x55, 0xaa]);
    File::options().write(true).open(path).expect("there").write_all_at(&bytes, 0).expect("written");
}

fn gpt(path: &Path, parts: &[(u64, u64)]) {
    let mut words = String::from("label: gpt\n");
    for (start, count) in parts {
        words.push_str(&format!("start={start}, size={count}, type=6A898CC3-1DD2-11B2-99A6-080020736631\n"));
    }
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.arg("--quiet").arg(path).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut sfdisk = sfdisk.spawn().expect("sfdisk starts");
    sfdisk.stdin.take().expect("piped").write_all(words.as_bytes()).expect("taken");
    assert!(sfdisk.wait().expect("a child").success());
}

fn has_sfdisk() -> bool {
    let done = Command::new("sfdisk").arg("--version").stdout(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// The contents of `disk.img` before and behind the partition that begins at `start`.
fn around(bed: &Bed, start: u64) -> (Vec<u8>, Vec<u8>) {
    let all = fs::read(bed.path("disk.img")).expect("there");
    (all[..start as usize].to_vec(), all[(start + LEN) as usize..].to_vec())
}

#[track_caller]
fn both(done: Done, wanted: &[&str]) {
    assert!(
        done.status == 0 && wanted.iter().all(|text| done.out.contains(text)),
        "{done:?}\nwanted: {wanted:?}"
    );
}

#[test]
fn a_pool_in_a_partition_is_imported_and_written_and_nothing_beside_it_changes() {
    let mut tables: Vec<TableWriter> = vec![mbr];
    match has_sfdisk() {
        true => tables.push(gpt),
        false => eprintln!("skipped: no sfdisk makes a GPT"),
    }
    for table in tables {
        let bed = Bed::new();
        make(&bed, "tank");
        assemble(&bed, &["tank"], table);
        let (disk, part) = (bed.path("disk.img").display().to_string(), "disk.img-part1");
        let before = around(&bed, START * SECTOR);
        both(bed.run(&["-d", "disk.img", "cat", "tank:/word"]), &["tank"]);
        both(bed.run(&["-d", part, "ls", "tank:/"]), &["word"]);
        both(bed.run(&["check", "disk.img"]), &["tank: clean"]);
        both(bed.run(&["check", part]), &["tank: clean"]);
        both(bed.run(&["zpool", "import", "-d", &disk]), &["pool: tank", part]);
        bed.run(&[
            "zpool",
            "import",
            "-o",
            &format!("cachefile={}", bed.path("cache").display()),
            "-d",
            &disk,
            "tank",
        ])
        .good();
        both(bed.run(&["zpool", "status", "tank"]), &[part, " ONLINE "]);
        let text = vec![0x5a; 3 << 20];
        fs::write(bed.path("large"), &text).expect("written");
        bed.run(&["cp", "large", "tank:/large"]).good();
        bed.run(&["zpool", "scrub", "-w", "tank"]).good();
        bed.run(&["zpool", "destroy", "tank"]).good();
        bed.run(&["zpool", "import", "-D", "-d", &bed.path("").display().to_string(), "tank"]).good();
        bed.run(&["cp", "tank:/large", "back"]).good();
        assert!(fs::read(bed.path("back")).expect("there") == text);
        bed.run(&["zpool", "export", "tank"]).good();
        assert!(around(&bed, START * SECTOR) == before, "bytes outside of the partition changed");
        let all = fs::read(bed.path("disk.img")).expect("there");
        let start = (START * SECTOR) as usize;
        fs::write(bed.path("tank.img"), &all[start..start + LEN as usize]).expect("written");
        bed.expect_sound("tank");
    }
}

#[test]
fn pools_in_two_partitions_of_an_image_are_live_at_the_same_time() {
    let Some(live) = Live::new() else { return };
    for name in ["tank", "dozer"] {
        make(&live.bed, name);
    }
    assemble(&live.bed, &["tank", "dozer"], mbr);
    let disk = live.text("disk.img");
    both(live.run(&["zpool", "import", "-d", &disk]), &["disk.img-part1", "disk.img-part2"]);
    let none = live.run(&["zpool", "import", "-d", &live.text("disk.img-part1"), "dozer"]);
    none.refused("cannot import 'dozer': no such pool available");
    for name in ["tank", "dozer"] {
        live.run(&["zpool", "import", "-R", &live.text("alt"), "-d", &disk, name]).good();
        write(&live.path(&format!("alt/{name}/file")), &vec![7; 5 << 20]);
    }
    both(live.run(&["zpool", "status"]), &["disk.img-part1", "disk.img-part2"]);
    assert!(live.run(&["zpool", "status", "-x"]).good().contains("all pools are healthy"));
    live.run(&["zpool", "create", "-f", "other", &disk]).refused("invalid vdev specification");
    for name in ["tank", "dozer"] {
        live.run(&["zpool", "export", name]).good();
    }
    both(live.run(&["check", "disk.img"]), &["dozer: clean", "tank: clean"]);
}

#[test]
fn an_image_with_a_table_is_not_taken_for_an_empty_one() {
    let bed = Bed::new();
    make(&bed, "tank");
    assemble(&bed, &["tank"], mbr);
    let disk = bed.path("disk.img").display().to_string();
    let done = bed.run(&["zpool", "create", "other", &disk]);
    let line = format!("{disk}-part1 is part of exported pool 'tank'");
    assert!(done.status == 1 && done.err.contains(&line), "{done:?}");
    // The small partition of OpenZFS holds nothing.
    bed.run(&["zpool", "labelclear", "-f", &format!("{disk}-part1")]).good();
    let done = bed.run(&["zpool", "create", "other", &disk]);
    assert!(done.status == 1 && done.err.contains("contains a partition table of type 'mbr'"), "{done:?}");
    bed.run(&["zpool", "create", "other", &format!("{disk}-part1")]).good();
    bed.run(&["zpool", "export", "other"]).good();
    both(bed.run(&["check", "disk.img"]), &["other: clean"]);
}

#[test]
fn a_partition_table_without_a_pool_is_explained_in_one_line() {
    let bed = Bed::new();
    make(&bed, "tank");
    assemble(&bed, &["tank"], mbr);
    let disk = bed.path("disk.img").display().to_string();
    mbr(&bed.path("disk.img"), &[(START, 4096), (START + 4095, 1 << 17)]);
    let why = "its partition table is damaged: partitions 1 and 2 overlap";
    bed.run(&["check", "disk.img"]).refused(&format!("'disk.img' holds no pool: {why}"));
    let done = bed.run(&["zpool", "import", "-d", &disk]);
    assert_eq!(done.err, format!("no pools available to import\ncenote: '{disk}' holds no pool: {why}\n"));
    mbr(&bed.path("disk.img"), &[(START, u32::MAX.into())]);
    bed.run(&["-d", "disk.img", "zpool", "list"])
        .refused("'disk.img' holds no pool: its partition 1 ends beyond the end of the file");
    bed.run(&["zpool", "labelclear", &format!("{disk}-part4")])
        .refused(&format!("failed to clear label for {disk}-part4"));
}
