//! `zpool remove` of caches, spares and logs; what holds data stays, and is said to.

mod bed;

use bed::Bed;
use bed::images::{devices, expect_sound, fill, run, shown};

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
    // What left belongs to nobody, and comes back behind the holes.
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
fn what_cannot_be_removed_is_refused_in_the_words_of_openzfs() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 7]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1 log mirror 2 3 cache 4")).good();
    let refused = |line: &str, why: &str| run(&bed, &devices, line).refused(why);
    refused("zpool remove t nosuch", "cannot remove nosuch: no such device in pool");
    refused("zpool remove t 5", &format!("cannot remove {}: no such device in pool", devices[5]));
    refused(
        "zpool remove t mirror-0",
        "cannot remove mirror-0: not supported: removing a vdev that holds data",
    );
    refused(
        "zpool remove -n t mirror-0",
        "cannot remove mirror-0: not supported: removing a vdev that holds data",
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
    // Of several, those that can be removed are; a second try finds them no more.
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
