//! `zpool add`: a pool gets devices after it was made, with the words of OpenZFS; its files stay and its figures are
//! right.

mod bed;

use bed::Bed;
use bed::images::{devices, expect_sound, fill, run, shown};

const MADE: &str = "zpool create -f -O mountpoint=none -o ashift=12 t";

#[test]
fn a_pool_takes_devices_of_every_kind_and_keeps_its_files() {
    let bed = Bed::new();
    let devices = devices(&bed, &[128; 17]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1")).good();
    fill(&bed.path("before"), 1);
    bed.run(&["cp", "-r", "before", "t:/"]).good();
    let before = bed.list("t:/");
    for (line, top) in [
        ("zpool add t mirror 2 3", "  mirror-1"),
        ("zpool add t log 4", "  d4"),
        ("zpool add t log mirror 5 6", "  mirror-3"),
        ("zpool add t cache 7 8", "  d8"),
        ("zpool add t spare 9", "  d9"),
        ("zpool add -f t raidz 10 11 12", "  raidz1-4"),
        ("zpool add -f t 13", "  d13"),
        ("zpool add t cache 14 spare 15", "  d15"),
    ] {
        assert_eq!(run(&bed, &devices, line).good(), "");
        assert!(shown(&bed).contains(&top.to_owned()), "{line}: {:?}", shown(&bed));
        assert_eq!(bed.list("t:/"), before, "{line}");
    }
    let wanted = "t|  mirror-0|    d0|    d1|  mirror-1|    d2|    d3|  raidz1-4|    d10|    d11|    d12|  d13|\
                  logs|  d4|  mirror-3|    d5|    d6|cache|  d7|  d8|  d14|spares|  d9|  d15";
    assert_eq!(shown(&bed).join("|"), wanted);
    // New blocks lie on all of them.
    fill(&bed.path("after"), 2);
    bed.run(&["cp", "-r", "after", "t:/"]).good();
    let list = bed.run(&["zpool", "list", "-vHpo", "name,allocated", "t"]).good();
    for top in ["mirror-0", "mirror-1", "raidz1-4", &devices[13]] {
        let row = list.lines().find(|line| line.trim_start().starts_with(top)).expect("a row");
        let allocated: u64 = row.split('\t').next_back().expect("a column").parse().expect("bytes");
        assert!(allocated > 0, "{list}");
    }
    let history = bed.run(&["zpool", "history", "t"]).good();
    assert!(history.contains(&format!("zpool add -f t {}", devices[13])), "{history}");
    let all = bed.list("t:/");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    assert_eq!(bed.list("t:/"), all);
    assert_eq!(shown(&bed).join("|"), wanted);
}

#[test]
fn figures_of_a_pool_that_grew_are_those_of_one_made_so() {
    let (grown, made) = (Bed::new(), Bed::new());
    let (of_grown, of_made) = (devices(&grown, &[100; 6]), devices(&made, &[100; 6]));
    run(&grown, &of_grown, &format!("{MADE} raidz 0 1 2")).good();
    run(&grown, &of_grown, "zpool add t raidz 3 4 5").good();
    run(&made, &of_made, &format!("{MADE} raidz 0 1 2 raidz 3 4 5")).good();
    let sizes = |bed: &Bed| bed.run(&["zpool", "list", "-Hpo", "size", "t"]).good();
    assert_eq!(sizes(&grown), sizes(&made));
    let room = |bed: &Bed| -> u64 {
        let text = bed.run(&["zfs", "list", "-Hpo", "used,available", "t"]).good();
        text.split_whitespace().map(|number| number.parse::<u64>().expect("bytes")).sum()
    };
    assert_eq!(room(&grown), room(&made));
    for (bed, _) in [(&grown, 0), (&made, 0)] {
        bed.run(&["zpool", "export", "t"]).good();
        expect_sound(bed);
    }
}

#[test]
fn a_dry_run_shows_the_pool_as_it_would_be_and_changes_nothing() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 9]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 log 2 cache 3")).good();
    let before = (shown(&bed), std::fs::read(&devices[4]).expect("read"));
    let out = run(&bed, &devices, "zpool add -n t mirror 4 5 log 6 cache 7 spare 8").good();
    let here = format!("{}/", bed.path("images").display());
    let wanted = "would update 't' to the following configuration:||>t|>  mirror-0|>    d0|>    d1|>  mirror|>    d4|>    d5|\
                  >logs|>  d2|>  d6|>cache|>  d3|>  d7|>spares|>  d8";
    assert_eq!(out.trim_end().replace(&here, "").replace('\t', ">").replace('\n', "|"), wanted);
    assert_eq!((shown(&bed), std::fs::read(&devices[4]).expect("read")), before);
    // By guid, and where links lead.
    let link = bed.path("link").display().to_string();
    std::os::unix::fs::symlink(&devices[4], &link).expect("linked");
    let guids = bed.run(&["zpool", "add", "-n", "-f", "-g", "-L", "t", &link]).good();
    assert!(!guids.contains("mirror-0") && guids.contains(&devices[4]), "{guids}");
    assert!(bed.run(&["zpool", "add", "-nfP", "t", &link]).good().contains(&link));
}

#[test]
fn unfitting_devices_are_refused_in_the_words_of_openzfs_unless_forced() {
    let bed = Bed::new();
    let mut devices = devices(&bed, &[64, 64, 64, 64, 64, 64, 64, 32]);
    let uneven = |line: &str, why: &str| {
        let done = run(&bed, &devices, line);
        let heading = "invalid vdev specification\nuse '-f' to override the following errors:\n";
        assert_eq!((done.status, done.err.as_str()), (1, format!("{heading}{why}\n").as_str()), "{line}");
    };
    run(&bed, &devices, &format!("{MADE} mirror 0 1")).good();
    uneven("zpool add t 2", "mismatched replication level: pool uses mirror and new vdev is file");
    uneven(
        "zpool add t mirror 2 3 4",
        "mismatched replication level: pool uses 2-way mirror and new vdev uses 3-way mirror",
    );
    uneven(
        "zpool add t raidz2 2 3 4",
        "mismatched replication level: pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)",
    );
    uneven(
        "zpool add t mirror 2 3 4 5",
        "mismatched replication level: pool uses 2-way mirror and new vdev uses 4-way mirror",
    );
    uneven("zpool add t mirror 0 2", &format!("{} is part of active pool 't'", devices[0]));
    let firm = run(&bed, &devices, "zpool add -f t mirror 0 2");
    assert!(firm.err.contains("the following errors must be manually repaired:"), "{firm:?}");
    run(&bed, &devices, "zpool add t log 7")
        .refused("cannot add to 't': one or more devices is less than the minimum size (64M)");
    run(&bed, &devices, "zpool add t mirror 2 2")
        .refused(&format!("cannot add to 't': device '{}' is part of active pool 't'", devices[2]));
    run(&bed, &devices, "zpool add nosuch 2").refused("cannot open 'nosuch': no such pool");
    run(&bed, &devices, "zpool add t raidz 2")
        .refused("invalid vdev specification: raidz requires at least 2 devices");
    run(&bed, &devices, "zpool add -o ashift=9 t mirror 2 3")
        .refused("cannot add to 't': adding devices with different physical sector sizes is not allowed");
    run(&bed, &devices, "zpool add -o ashift=8 t mirror 2 3")
        .refused("invalid 'ashift=8' property: only values between 9 and 16 are allowed.");
    run(&bed, &devices, "zpool add -o nosuch=8 t mirror 2 3")
        .refused("property 'nosuch' is not a valid pool or vdev property");
    run(&bed, &devices, "zpool add -o ashift t mirror 2 3").refused("missing '=' for -o option");
    for (line, why) in
        [("zpool add", "missing pool name argument"), ("zpool add t", "missing vdev specification")]
    {
        let done = run(&bed, &devices, line);
        assert!(done.status == 2 && done.err.starts_with(why), "{done:?}");
    }
    // Nothing of this changed anything.
    assert_eq!(shown(&bed), ["t", "  mirror-0", "    d0", "    d1"]);
    run(&bed, &devices, "zpool add t raidz 2 3 4").good();
    run(&bed, &devices, "zpool add --allow-ashift-mismatch --allow-replication-mismatch -o ashift=9 t 5")
        .good();
    // A pool with mixed redundancy accepts any vdev; a device of an exported pool needs `--allow-in-use`.
    run(&bed, &devices, "zpool create -f other 6").good();
    run(&bed, &devices, "zpool export other").good();
    let taken = run(&bed, &devices, "zpool add t 6");
    assert!(taken.err.contains("is part of exported pool 'other'"), "{taken:?}");
    run(&bed, &devices, "zpool add --allow-in-use t 6").good();
    assert_eq!(run(&bed, &devices, "zpool get -Ho value ashift t").good(), "12\n");
    bed.run(&["zpool", "export", "t"]).good();
    std::fs::remove_file(devices.pop().expect("the small one")).expect("removed");
    expect_sound(&bed);
}

#[test]
fn a_pool_without_room_grows_and_one_for_reading_does_not() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64, 64, 64]);
    run(&bed, &devices, &format!("{MADE} 0")).good();
    let big: Vec<u8> = (0..45_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(bed.path("big"), &big).expect("written");
    bed.run(&["zfs", "set", "compression=off", "t"]).good();
    let full = bed.run(&["cp", "big", "t:/"]);
    assert_ne!(full.status, 0, "{full:?}");
    run(&bed, &devices, "zpool add t 1").good();
    bed.run(&["cp", "big", "t:/"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "images", "t"]).good();
    run(&bed, &devices, "zpool add t 2").refused("cannot add to 't': pool is read-only");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

#[test]
fn pools_of_old_versions_get_what_their_version_has() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 5]);
    run(&bed, &devices, "zpool create -f -o version=9 -O mountpoint=none t 0").good();
    run(&bed, &devices, "zpool add t cache 1").refused("cannot add to 't': pool must be upgraded");
    run(&bed, &devices, "zpool add -f t raidz3 1 2 3 4").refused("cannot add to 't': pool must be upgraded");
    run(&bed, &devices, "zpool add t log 1 spare 2").good();
    run(&bed, &devices, "zpool add t 3").good();
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

/// Bytes in use of the vdevs that `zpool list` shows, by name.
fn in_use(bed: &Bed, name: &str) -> u64 {
    let list = bed.run(&["zpool", "list", "-vHpo", "name,allocated", "t"]).good();
    let row = list.lines().find(|line| line.trim_start().starts_with(name)).expect("a row");
    row.split('\t').next_back().expect("a column").parse().expect("bytes")
}

#[test]
fn metadata_and_small_blocks_are_on_special_devices() {
    let bed = Bed::new();
    let devices = devices(&bed, &[128; 9]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 special mirror 2 3 dedup mirror 4 5")).good();
    let wanted = "t|  mirror-0|    d0|    d1|dedup|  mirror-2|    d4|    d5|special|  mirror-1|    d2|    d3";
    assert_eq!(shown(&bed).join("|"), wanted);
    let available = |bed: &Bed| -> u64 {
        let text = bed.run(&["zfs", "list", "-Hpo", "used,available", "t"]).good();
        text.split_whitespace().map(|number| number.parse::<u64>().expect("bytes")).sum()
    };
    let normal = 7u64 << 24;
    let offered = available(&bed);
    assert!(offered <= normal, "{offered}");
    // All three count as space of the pool.
    assert_eq!(bed.run(&["zpool", "list", "-Hpo", "size", "t"]).good().trim(), (3 * normal).to_string());
    fill(&bed.path("before"), 1);
    run(&bed, &devices, "zfs set compression=off t").good();
    bed.run(&["cp", "-r", "before", "t:/"]).good();
    let (normal, special) = (in_use(&bed, "mirror-0"), in_use(&bed, "mirror-1"));
    assert!(normal > 9_000_000 && special > 50_000 && special < 2_000_000, "{normal} {special}");
    assert_eq!(in_use(&bed, "mirror-2"), 0);
    assert_eq!(available(&bed), offered, "what is on special devices changes nothing");
    run(&bed, &devices, "zfs set special_small_blocks=128K t").good();
    bed.run(&["cp", "-r", "before", "t:/again"]).good();
    assert!(in_use(&bed, "mirror-1") > special + 9_000_000);
    // One more, without redundancy only by force.
    let uneven = run(&bed, &devices, "zpool add t special 6");
    assert!(uneven.err.contains("mismatched replication level"), "{uneven:?}");
    run(&bed, &devices, "zpool add -f t special 6").good();
    let files = bed.list("t:/");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    assert_eq!(bed.list("t:/"), files);
    assert_eq!(shown(&bed).join("|"), format!("{wanted}|  d6"));
    let plain = run(&bed, &devices, "zpool create -d -O mountpoint=none u 7 special 8");
    assert!(plain.err.contains("allocation_classes"), "{plain:?}");
}
