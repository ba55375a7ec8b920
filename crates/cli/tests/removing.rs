//! `zpool remove` of caches, spares, logs and vdevs that hold data. `zpool split`.

mod bed;

use bed::Bed;
use bed::images::{devices, expect_sound, expect_sound_pool, fill, run, shown};

const MADE: &str = "zpool create -f -O mountpoint=none -o ashift=12 t";

#[test]
fn caches_spares_and_logs_leave_a_pool_and_files_stay() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 9]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 log 4 mirror 2 3 cache 5 6 spare 7 8")).good();
    fill(&bed.path("files"), 1);
    bed.run(&["cp", "-r", "files", "t:/"]).good();
    let files = bed.list("t:/");
    run(&bed, &devices, "zpool remove t 5 8").good();
    assert_eq!(
        shown(&bed).join("|"),
        "t|  mirror-0|    d0|    d1|logs|  d4|  mirror-2|    d2|    d3|cache|  d6|spares|  d7"
    );
    run(&bed, &devices, "zpool remove -w t mirror-2").good();
    assert_eq!(shown(&bed).join("|"), "t|  mirror-0|    d0|    d1|logs|  d4|cache|  d6|spares|  d7");
    run(&bed, &devices, "zpool remove t 4 6 7").good();
    assert_eq!(shown(&bed).join("|"), "t|  mirror-0|    d0|    d1");
    // Removed devices belong to no pool, so another pool can use them; new vdevs get numbers behind the holes.
    run(&bed, &devices, "zpool create -f other 5").good();
    run(&bed, &devices, "zpool destroy other").good();
    run(&bed, &devices, "zpool add t log 2 cache 5").good();
    run(&bed, &devices, "zpool add t mirror 3 4").good();
    let wanted = "t|  mirror-0|    d0|    d1|  mirror-4|    d3|    d4|logs|  d2|cache|  d5";
    assert_eq!(shown(&bed).join("|"), wanted);
    assert_eq!(bed.list("t:/"), files);
    let history = bed.run(&["zpool", "history", "t"]).good();
    assert_eq!(history.matches("zpool remove t").count(), 2, "{history}");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    assert_eq!(bed.list("t:/"), files);
    assert_eq!(shown(&bed).join("|"), wanted);
}

#[test]
fn impossible_removals_are_refused_in_the_words_of_openzfs() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 7]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 log mirror 2 3 cache 4")).good();
    let refused = |line: &str, why: &str| run(&bed, &devices, line).refused(why);
    refused("zpool remove t nosuch", "cannot remove nosuch: no such device in pool");
    refused("zpool remove t 5", &format!("cannot remove {}: no such device in pool", devices[5]));
    refused("zpool remove t mirror-0", "cannot remove mirror-0: out of space");
    refused(
        "zpool remove -n t 0",
        &format!("cannot determine indirect size of {}: indirect size not available", devices[0]),
    );
    refused(
        "zpool remove t 2",
        &format!("cannot remove {}: operation not supported on this type of pool", devices[2]),
    );
    refused("zpool remove -s t", "cannot cancel removal: operation is not in progress");
    refused("zpool remove nosuch 2", "cannot open 'nosuch': no such pool");
    for (line, why) in [
        ("zpool remove", "missing pool name argument"),
        ("zpool remove t", "missing device"),
        ("zpool remove -s t 4", "too many arguments"),
        ("zpool remove -s -w t", "invalid option combination: -w cannot be used with -s"),
    ] {
        let done = run(&bed, &devices, line);
        assert!(done.status == 2 && done.err.starts_with(why), "{line}: {done:?}");
    }
    let ignored = run(&bed, &devices, "zpool remove -s -n t");
    assert!(ignored.status == 0 && ignored.err == "stop request ignored\n", "{ignored:?}");
    let memory = run(&bed, &devices, "zpool remove -n t mirror-1 4").good();
    let said = |name: &str| format!("Memory that will be used after removing {name}: 0\n");
    assert_eq!(memory, said("mirror-1") + &said(&devices[4]));
    assert_eq!(run(&bed, &devices, "zpool remove -np t mirror-1").good(), "mirror-1 0\n");
    assert_eq!(shown(&bed).join("|"), "t|  mirror-0|    d0|    d1|logs|  mirror-1|    d2|    d3|cache|  d4");
    // Of several devices, those that can be removed are removed; a second try does not find them.
    let some = run(&bed, &devices, "zpool remove t nosuch 4");
    assert!(some.status == 1 && some.err == "cannot remove nosuch: no such device in pool\n", "{some:?}");
    refused("zpool remove t 4", &format!("cannot remove {}: no such device in pool", devices[4]));
    bed.run(&["zpool", "export", "t"]).good();
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "images", "t"]).good();
    refused("zpool remove t mirror-1", "cannot remove mirror-1: pool is read-only");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

#[test]
fn vdevs_that_hold_data_leave_and_files_stay() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 9]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 mirror 2 3 mirror 4 5")).good();
    fill(&bed.path("files"), 1);
    bed.run(&["cp", "-r", "files", "t:/"]).good();
    let files = bed.list("t:/");
    let memory = run(&bed, &devices, "zpool remove -np t mirror-1").good();
    let bytes: u64 = memory.trim_start_matches("mirror-1 ").trim().parse().expect("a number");
    assert!(bytes > 0 && bytes.is_multiple_of(24), "{memory}");
    run(&bed, &devices, "zpool remove t mirror-1").good();
    assert_eq!(shown(&bed).join("|"), "t|  mirror-0|    d0|    d1|  mirror-2|    d4|    d5");
    let status = run(&bed, &devices, "zpool status t").good();
    assert!(status.contains("remove: Removal of vdev 1 copied "), "{status}");
    assert!(status.contains(" memory used for removed device mappings"), "{status}");
    let rows = run(&bed, &devices, "zpool list -vH t").good();
    assert!(rows.contains("\tindirect-1\t-\t-\t-\t-\t-\t-\t-\t-\tONLINE"), "{rows}");
    assert!(!status.contains("indirect"), "{status}");
    assert_eq!(bed.list("t:/"), files);
    let refused = |line: &str, why: &str| run(&bed, &devices, line).refused(why);
    refused("zpool remove t mirror-1", "cannot remove mirror-1: no such device in pool");
    refused("zpool remove t mirror-0", "cannot remove mirror-0: out of space");
    refused("zpool remove -s t", "cannot cancel removal: operation is not in progress");
    let parity = run(&bed, &devices, "zpool add -f t raidz 6 7 8");
    let why = "a pool with removing/removed vdevs does not support adding raidz or dRAID vdevs";
    assert!(parity.status != 0 && parity.err.contains(why), "{parity:?}");
    // The removed devices belong to no pool.
    run(&bed, &devices, "zpool add t mirror 2 3").good();
    bed.run(&["cp", "-r", "files", "t:/again"]).good();
    bed.run(&["rm", "-r", "t:/files"]).good();
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    run(&bed, &devices, "zpool scrub -w t").good();
    let status = run(&bed, &devices, "zpool status t").good();
    assert!(status.contains("repaired 0B") && status.contains("with 0 errors"), "{status}");
    bed.run(&["zpool", "export", "t"]).good();
}

#[test]
fn devices_that_were_somewhere_else_before_are_known_by_where_they_are() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 4]);
    run(&bed, &devices, &format!("{MADE} 0 log 1")).good();
    bed.run(&["zpool", "export", "t"]).good();
    std::fs::rename(bed.path("images"), bed.path("moved")).expect("moved");
    let moved: Vec<String> = devices.iter().map(|path| path.replace("/images/", "/moved/")).collect();
    bed.run(&["zpool", "import", "-d", "moved", "t"]).good();
    run(&bed, &moved, "zpool add t 2").good();
    run(&bed, &moved, "zpool remove t 1").good();
    let status = run(&bed, &moved, "zpool status t").good();
    assert!(status.contains(" state: ONLINE") && status.matches("/moved/").count() == 2, "{status}");
    run(&bed, &moved, "zpool add -f t mirror 1 3").good();
    bed.run(&["zpool", "export", "t"]).good();
    std::fs::rename(bed.path("moved"), bed.path("images")).expect("moved back");
    expect_sound(&bed);
}

#[test]
fn logs_of_versions_without_holes_stay() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 3]);
    run(&bed, &devices, "zpool create -f -o version=18 -O mountpoint=none t 0 log 1 spare 2").good();
    run(&bed, &devices, "zpool remove t 1")
        .refused(&format!("cannot remove {}: pool must be upgraded to support log removal", devices[1]));
    run(&bed, &devices, "zpool remove t 2").good();
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

#[test]
fn sides_of_mirrors_become_a_pool_and_both_pools_go_on() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 9]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 mirror 2 3 4 log 5 cache 6 spare 7")).good();
    fill(&bed.path("files"), 1);
    bed.run(&["cp", "-r", "files", "t:/"]).good();
    run(&bed, &devices, "zfs snapshot t@before").good();
    let files = bed.list("t:/");
    let layout = run(&bed, &devices, "zpool split -n t u 2").good();
    let wanted = "would create 'u' with the following layout:\n\n\tu\n\t  D1\n\t  D2\n";
    assert_eq!(layout, wanted.replace("D1", &devices[1]).replace("D2", &devices[2]));
    run(&bed, &devices, "zpool split -o comment=half t u 2").good();
    assert_eq!(shown(&bed).join("|"), "t|  d0|  mirror-1|    d3|    d4|logs|  d5|cache|  d6|spares|  d7");
    assert_eq!(bed.list("t:/"), files);
    run(&bed, &devices, "zpool import -d images u").good();
    assert_eq!(bed.run(&["zpool", "get", "-H", "-o", "value", "comment", "u"]).good(), "half\n");
    let status = bed.run(&["zpool", "status", "u"]).good();
    assert!(!["mirror", "logs", "cache", "spares"].iter().any(|word| status.contains(word)), "{status}");
    assert_eq!(bed.list("u:/"), files);
    // Each of the two pools changes without an effect on the other.
    fill(&bed.path("more"), 2);
    bed.run(&["rm", "-r", "u:/files"]).good();
    bed.run(&["cp", "-r", "more", "u:/"]).good();
    bed.run(&["cp", "-r", "more", "t:/more"]).good();
    for pool in ["t", "u"] {
        run(&bed, &devices, &format!("zpool scrub -w {pool}")).good();
        let status = bed.run(&["zpool", "status", pool]).good();
        assert!(status.contains("repaired 0B") && status.contains("with 0 errors"), "{status}");
        run(&bed, &devices, &format!("zpool export {pool}")).good();
    }
    expect_sound(&bed);
    expect_sound_pool(&bed, "u");
}

#[test]
fn impossible_splits_are_refused_in_the_words_of_openzfs() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 6]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 mirror 2 3")).good();
    let refused = |line: &str, why: &str| {
        let done = run(&bed, &devices, line);
        assert!(done.status == 1 && done.err == format!("{why}\n\n"), "{line}: {done:?}");
    };
    let list = "Unable to split t: Device list must include at most one disk from each mirror";
    refused("zpool split t u 0 1", list);
    refused("zpool split t u nosuch", list);
    refused("zpool split t t", "Unable to split t: pool already exists");
    run(&bed, &devices, "zpool checkpoint t").good();
    refused("zpool split t u", "Unable to split t: checkpoint exists");
    run(&bed, &devices, "zpool checkpoint -d -w t").good();
    run(&bed, &devices, "zpool offline t 1").good();
    refused("zpool split t u", "Unable to split t: pool or dataset is busy");
    refused("zpool split t u 0", "Unable to split t: pool or dataset is busy");
    run(&bed, &devices, "zpool online t 1").good();
    run(&bed, &devices, "zpool add -f t 4").good();
    refused("zpool split t u", "Unable to split t: Source pool must be composed only of mirrors");
    run(&bed, &devices, "zpool export t").good();
    expect_sound(&bed);
    for (line, why) in [
        ("zpool split", "Missing pool name"),
        ("zpool split t", "Missing new pool name"),
        ("zpool split -o ro t u", "setting mntopts is only valid when importing the pool"),
    ] {
        let done = run(&bed, &devices, line);
        assert!(done.status == 2 && done.err.starts_with(why), "{line}: {done:?}");
    }
}

#[test]
fn a_pool_goes_on_without_its_log_device_and_takes_it_back() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 4]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 log 2")).good();
    fill(&bed.path("files"), 1);
    bed.run(&["cp", "-r", "files", "t:/"]).good();
    let files = bed.list("t:/");
    run(&bed, &devices, "zpool export t").good();
    std::fs::rename(&devices[2], bed.path("log")).expect("moved");
    let import = |options: &str| run(&bed, &devices, &format!("zpool import{options} -d images t"));
    let refused = import("");
    assert_eq!(
        (refused.status, refused.out.as_str(), refused.err.lines().next()),
        (
            1,
            format!(
                "The devices below are missing or corrupted, use '-m' to import the pool anyway:\n\t    {} [log]\n\n",
                devices[2]
            )
            .as_str(),
            Some("cannot import 't': one or more devices is currently unavailable")
        )
    );
    import(" -m").good();
    assert_eq!(bed.list("t:/"), files);
    let status = run(&bed, &devices, "zpool status t").good();
    assert!(status.contains("state: DEGRADED") && status.contains("UNAVAIL"), "{status}");
    fill(&bed.path("more"), 2);
    bed.run(&["cp", "-r", "more", "t:/"]).good();
    let files = bed.list("t:/");
    run(&bed, &devices, "zpool scrub -w t").good();
    run(&bed, &devices, "zpool export t").good();
    import("").refused("cannot import 't': one or more devices is currently unavailable");
    std::fs::rename(bed.path("log"), &devices[2]).expect("moved");
    import("").good();
    assert_eq!(bed.list("t:/"), files);
    let status = run(&bed, &devices, "zpool status t").good();
    assert!(status.contains("state: ONLINE") && !status.contains("resilvering"), "{status}");
    run(&bed, &devices, "zpool remove t 2").good();
    run(&bed, &devices, "zpool export t").good();
    std::fs::remove_file(&devices[2]).expect("it left");
    expect_sound(&bed);
}
