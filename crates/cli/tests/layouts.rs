//! Pools of mirrors, raidz and log devices made by `zpool create`: their figures beside those of OpenZFS for devices of the same
//! sizes, and their files with devices taken away.

mod bed;

use std::path::Path;

use bed::images::{devices, expect_sound};
use bed::{Bed, Done};

const MIB: u64 = 1 << 20;

/// A layout with the figures that OpenZFS 2.1.11 prints for it (`zpool list -p`, `zfs list -p`).
struct Case {
    /// MiB of each device.
    sizes: &'static [u64],
    /// Words of the specification: `0` is the first device.
    words: &'static str,
    /// Names and sizes of the pool and its top-level vdevs.
    tops: &'static [(&'static str, u64)],
    /// `used` and `available` of the root file system together, with ashift 9 and 12.
    room: [u64; 2],
}

const CASES: [Case; 8] = [
    Case {
        sizes: &[128; 3],
        words: "raidz 0 1 2",
        tops: &[("t", 369_098_752), ("raidz1-0", 369_098_752)],
        room: [135_718 + 122_777_050, 458_304 + 122_454_464],
    },
    Case {
        sizes: &[100; 5],
        words: "raidz 0 1 2 3 4",
        tops: &[("t", 469_762_048), ("raidz1-0", 469_762_048)],
        room: [151_330 + 240_890_078, 588_960 + 240_452_448],
    },
    Case {
        sizes: &[200, 200, 200, 200, 256],
        words: "raidz2 0 1 2 3 4",
        tops: &[("t", 1_006_632_960), ("raidz2-0", 1_006_632_960)],
        room: [161_040 + 465_275_632, 654_480 + 460_850_032],
    },
    Case {
        sizes: &[1024; 6],
        words: "raidz3 0 1 2 3 4 5",
        tops: &[("t", 5_905_580_032), ("raidz3-0", 5_905_580_032)],
        room: [182_880 + 2_795_320_736, 714_240 + 2_633_308_672],
    },
    Case {
        sizes: &[128, 256],
        words: "mirror 0 1",
        tops: &[("t", 117_440_512), ("mirror-0", 117_440_512)],
        room: [113_664 + 58_606_592, 344_064 + 58_376_192],
    },
    Case {
        sizes: &[128; 4],
        words: "mirror 0 1 mirror 2 3",
        tops: &[("t", 234_881_024), ("mirror-0", 117_440_512), ("mirror-1", 117_440_512)],
        room: [113_664 + 117_326_848, 356_352 + 117_084_160],
    },
    Case {
        sizes: &[10_240; 4],
        words: "raidz 0 1 raidz 2 3",
        tops: &[("t", 41_875_931_136), ("raidz1-0", 20_937_965_568), ("raidz1-1", 20_937_965_568)],
        room: [118_272 + 20_283_535_872, 380_928 + 20_283_273_216],
    },
    Case {
        sizes: &[128, 128, 128, 128, 128, 300],
        words: "mirror 0 1 raidz1 2 3 4 5",
        tops: &[("t", 620_756_992), ("mirror-0", 117_440_512), ("raidz1-1", 503_316_480)],
        room: [136_758 + 359_590_346, 480_448 + 348_433_216],
    },
];

/// `zpool create` with these options and this specification.
fn create(bed: &Bed, options: &[&str], words: &str, devices: &[String]) -> Done {
    let words =
        words.split(' ').map(|word| word.parse().map_or(word, |number: usize| devices[number].as_str()));
    let line: Vec<&str> = ["zpool", "create", "-O", "mountpoint=none"]
        .iter()
        .chain(options)
        .copied()
        .chain(["t"])
        .chain(words)
        .collect();
    bed.run(&line)
}

#[test]
fn figures_of_each_layout_are_those_of_openzfs() {
    for case in &CASES {
        for (ashift, room) in [9, 12].into_iter().zip(case.room) {
            let bed = Bed::new();
            let devices = devices(&bed, case.sizes);
            let ashift = format!("ashift={ashift}");
            create(&bed, &["-f", "-o", &ashift], case.words, &devices).good();
            let list = bed.run(&["zpool", "list", "-vHpo", "name,size", "t"]).good();
            let rows = list.lines().map(|line| line.trim().split('\t').collect::<Vec<_>>());
            let found: Vec<(&str, u64)> = rows.map(|row| (row[0], row[1].parse().expect("a size"))).collect();
            let (leaves, tops): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|(name, _)| name.starts_with('/'));
            assert_eq!(tops, case.tops, "{} {ashift}", case.words);
            let wanted: Vec<_> =
                devices.iter().zip(case.sizes).map(|(path, size)| (path.as_str(), size * MIB)).collect();
            assert_eq!(leaves, wanted);
            let sums = bed.run(&["zfs", "list", "-Hpo", "used,available", "t"]).good();
            let sum: u64 = sums.split_whitespace().map(|number| number.parse::<u64>().expect("bytes")).sum();
            assert_eq!(sum, room, "{} {ashift}: {sums}", case.words);
            bed.run(&["zpool", "export", "t"]).good();
            if case.sizes[0] <= 256 {
                expect_sound(&bed);
            }
        }
    }
}

#[test]
fn status_and_iostat_show_the_tree_of_a_new_pool() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 9]);
    create(&bed, &["-f"], "raidz2 0 1 2 3 log mirror 4 5 cache 6 log 7", &devices)
        .refused("invalid vdev specification: 'log' can be specified only once");
    create(&bed, &["-f"], "raidz2 0 1 2 3 log mirror 4 5 7 cache 6 spare 8", &devices).good();
    let names = |text: &str| -> Vec<String> {
        let here = bed.path("images").display().to_string();
        let from = text.find("\n\tNAME").or_else(|| text.find("pool  ")).expect("a heading");
        let rows = text[from..].trim_start().lines().skip(1).filter(|line| !line.starts_with('-'));
        let rows = rows.take_while(|line| !line.trim().is_empty());
        rows.map(|line| line.replace(&here, "").trim_start_matches('\t').to_owned())
            .map(|line| {
                line[..line.find(|c: char| !c.is_whitespace()).unwrap_or(0)].to_owned()
                    + line.split_whitespace().next().expect("a name")
            })
            .collect()
    };
    let status = bed.run(&["zpool", "status", "t"]).good();
    let wanted = [
        "t",
        "  raidz2-0",
        "    /d0",
        "    /d1",
        "    /d2",
        "    /d3",
        "logs",
        "  mirror-1",
        "    /d4",
        "    /d5",
        "    /d7",
        "cache",
        "  /d6",
    ];
    let with_spares: Vec<&str> = wanted.iter().copied().chain(["spares", "  /d8"]).collect();
    assert_eq!(names(&status), with_spares, "{status}");
    let iostat = bed.run(&["zpool", "iostat", "-v", "t"]).good();
    assert_eq!(names(&iostat), wanted, "{iostat}");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

/// The words are those of OpenZFS 2.3.2.
#[test]
fn iostat_says_what_each_operand_is_that_cannot_stand_beside_a_pool() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 3]);
    create(&bed, &[], "mirror 0 1", &devices).good();
    bed.run(&["zpool", "create", "-O", "mountpoint=none", "u", &devices[2]]).good();
    for (operands, got) in [
        ("t nosuch", "\tnosuch (unknown)\n"),
        ("-v t mirror-0 nosuch", "\tmirror-0 (vdev in this pool)\n\tnosuch (unknown)\n"),
        ("t u mirror-0", "\tu (pool)\n\tmirror-0 (vdev in this pool)\n"),
        (&format!("t {}", devices[2]), &format!("\t{} (vdev in another pool)\n", devices[2])),
    ] {
        let line: Vec<&str> = ["zpool", "iostat"].into_iter().chain(operands.split(' ')).collect();
        let said = bed.run(&line);
        let wanted = "Expected either a list of pools, or list of vdevs in \"t\", but got:\n";
        assert!(said.err.starts_with(&format!("{wanted}{got}\nusage:\n")), "{operands}: {}", said.err);
    }
    bed.run(&["zpool", "iostat", "nosuch", "t"]).refused("Unable to parse pools/vdevs list.");
    let both = bed.run(&["zpool", "iostat", "-H", &devices[2], "mirror-0"]).good();
    let names: Vec<&str> = both.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(names, ["mirror-0", &devices[2]]);
}

/// Fills a folder with files of several sizes.
fn fill(folder: &Path) {
    std::fs::create_dir_all(folder).expect("made");
    for (number, len) in [0, 1, 511, 513, 4097, 70_000, 131_072, 131_073, 3_000_000].into_iter().enumerate() {
        let bytes: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        std::fs::write(folder.join(format!("f{number}")), bytes).expect("written");
    }
}

#[test]
fn files_are_the_same_without_the_devices_that_parity_replaces() {
    for (words, width, gone) in [
        ("mirror 0 1 2", 3, 2),
        ("raidz 0 1 2", 3, 1),
        ("raidz2 0 1 2 3 4", 5, 2),
        ("raidz3 0 1 2 3 4 5 6", 7, 3),
        ("draid2:2d:1s 0 1 2 3 4 5", 6, 2),
    ] {
        let bed = Bed::new();
        let devices = devices(&bed, &[64; 7][..width]);
        create(&bed, &["-o", "ashift=12"], words, &devices).good();
        fill(&bed.path("files"));
        bed.run(&["cp", "-r", "files", "t:/"]).good();
        bed.run(&["zpool", "export", "t"]).good();
        expect_sound(&bed);
        let list = |bed: &Bed| bed.run(&["-d", "images", "ls", "-R", "--json", "--sha256", "t:/"]).objects();
        let whole = list(&bed);
        assert_eq!(whole.len(), 11, "{words}");
        for first in 0..width {
            let taken: Vec<&String> = (0..gone).map(|i| &devices[(first + i) % width]).collect();
            let away = |path: &str| path.replace("/images/", "/");
            taken.iter().for_each(|path| std::fs::rename(path, away(path)).expect("moved"));
            assert_eq!(list(&bed), whole, "{words} without {taken:?}");
            taken.iter().for_each(|path| std::fs::rename(away(path), path).expect("moved"));
        }
    }
}

#[test]
fn a_draid_vdev_has_distributed_spares_and_takes_another_vdev_beside_it() {
    let bed = Bed::new();
    let devices = devices(&bed, &[96; 9]);
    create(&bed, &["-o", "ashift=12"], "draid:2d:5c:1s 0 1 2 3 4", &devices).good();
    bed.run(&["zpool", "add", "-f", "t", "draid", &devices[5], &devices[6], &devices[7]]).good();
    let status = bed.run(&["zpool", "status", "t"]).good();
    for line in ["  draid1:2d:5c:1s-0", "  draid1:2d:3c:0s-1", "spares"] {
        assert!(status.lines().any(|shown| shown.trim_start_matches('\t').starts_with(line)), "{status}");
    }
    assert!(status.lines().any(|line| line.split_whitespace().eq(["draid1-0-0", "AVAIL"])), "{status}");
    bed.run(&["zpool", "scrub", "t"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

#[test]
fn words_for_draid_that_make_no_vdev_are_refused() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 6]);
    for (words, why) in [
        ("draid2:1d:4c:0s 0 1 2", "invalid number of dRAID children; 4 required but 3 provided"),
        ("draid:2x 0 1 2", "invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid:2x'"),
        ("draid2 0 1", "invalid vdev specification: draid2 requires at least 3 devices"),
        ("draid:2s 0 1 2", "request number of distributed spares 2 and parity level 1"),
        ("draid:3d 0 1 2", "requested number of dRAID data disks per group 3 is too high,"),
        ("mirror 0 1 special draid 2 3", "invalid vdev specification: unsupported 'special' device: draid"),
    ] {
        for options in [&["-f"][..], &["-n"]] {
            create(&bed, options, words, &devices).refused(why);
        }
    }
    create(&bed, &["-f", "-o", "feature@draid=disabled"], "draid 0 1 2", &devices).refused(
        "cannot create 't': operation not supported on this type of pool: the feature draid is not enabled",
    );
    create(&bed, &["-f"], "log 0", &devices).refused("invalid vdev specification");
}
