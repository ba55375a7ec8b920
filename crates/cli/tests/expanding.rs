//! `zpool online -e` and `autoexpand`: pools on devices that became larger.

mod bed;

use bed::Bed;
use bed::images::{devices, expect_sound, fill, run};

const MADE: &str = "zpool create -f -O mountpoint=none -O compression=off -o ashift=12";
const MIB: u64 = 1 << 20;

fn lengthen(path: &str, mebibytes: u64) {
    std::fs::File::options().write(true).open(path).expect("there").set_len(mebibytes * MIB).expect("longer");
}

fn size(bed: &Bed) -> u64 {
    bed.run(&["zpool", "list", "-Hpo", "size", "t"]).good().trim().parse().expect("bytes")
}

#[test]
fn vdevs_grow_when_all_their_devices_have() {
    for (words, count, data) in [("0", 1, 1), ("mirror 0 1", 2, 1), ("raidz 0 1 2", 3, 3)] {
        let bed = Bed::new();
        let devices = devices(&bed, &[80; 3][..count]);
        run(&bed, &devices, &format!("{MADE} t {words}")).good();
        fill(&bed.path("files"), 1);
        bed.run(&["cp", "-r", "files", "t:/"]).good();
        let (files, before) = (bed.list("t:/"), size(&bed));
        run(&bed, &devices, "zpool online -e t 0").good();
        assert_eq!(size(&bed), before, "nothing has grown");
        for (number, path) in devices.iter().enumerate() {
            lengthen(path, 200);
            run(&bed, &devices, &format!("zpool online -e t {number}")).good();
            let is_last = number + 1 == count;
            assert_eq!(size(&bed) > before, is_last, "{words}: the smallest counts");
        }
        let after = size(&bed);
        assert!(after > before + data * 100 * MIB, "{words}: {before} before, {after} after");
        assert_eq!(bed.list("t:/"), files);
        // The new space is used.
        let big: Vec<u8> =
            (0..60_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        std::fs::write(bed.path("big"), &big).expect("written");
        bed.run(&["cp", "big", "t:/"]).good();
        let all = bed.list("t:/");
        bed.run(&["zpool", "export", "t"]).good();
        expect_sound(&bed);
        bed.run(&["zpool", "import", "-d", "images", "t"]).good();
        assert_eq!((bed.list("t:/"), size(&bed)), (all, after));
    }
}

#[test]
fn with_autoexpand_pools_grow_by_themselves() {
    let bed = Bed::new();
    let devices = devices(&bed, &[80, 80, 200, 200]);
    run(&bed, &devices, &format!("{MADE} -o autoexpand=on t mirror 0 1")).good();
    fill(&bed.path("files"), 1);
    bed.run(&["cp", "-r", "files", "t:/"]).good();
    let (files, before) = (bed.list("t:/"), size(&bed));
    // Devices are replaced by larger ones.
    run(&bed, &devices, "zpool replace t 0 2").good();
    assert_eq!(size(&bed), before);
    run(&bed, &devices, "zpool replace t 1 3").good();
    let replaced = size(&bed);
    assert!(replaced > before + 100 * MIB, "{before} before, {replaced} after");
    bed.run(&["zpool", "export", "t"]).good();
    devices[..2].iter().for_each(|path| std::fs::remove_file(path).expect("removed"));
    // They grow while the pool is away.
    devices[2..].iter().for_each(|path| lengthen(path, 300));
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    assert!(size(&bed) > replaced + 80 * MIB);
    assert_eq!(bed.list("t:/"), files);
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

#[test]
fn without_autoexpand_pools_stay_as_they_are() {
    let bed = Bed::new();
    let devices = devices(&bed, &[80]);
    run(&bed, &devices, &format!("{MADE} t 0")).good();
    let before = size(&bed);
    bed.run(&["zpool", "export", "t"]).good();
    lengthen(&devices[0], 200);
    expect_sound_but_for_labels(&bed);
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "images", "t"]).good();
    run(&bed, &devices, "zpool online -e t 0")
        .refused(&format!("cannot online {}: pool is read-only", devices[0]));
    bed.run(&["zpool", "export", "t"]).good();
    bed.run(&["zpool", "import", "-d", "images", "t"]).good();
    assert_eq!(size(&bed), before);
    run(&bed, &devices, "zpool online -e t nosuch").refused("couldn't find device \"nosuch\" in pool \"t\"");
    bed.run(&["zpool", "export", "t"]).good();
    expect_sound(&bed);
}

/// The labels at the end are where the end was before: zdb reports a fault, and cenote writes them again at the next import.
#[track_caller]
fn expect_sound_but_for_labels(bed: &Bed) {
    let check = bed.run(&["-d", "images", "check", "t"]);
    assert!(check.status == 0 && check.out.contains(": clean"), "{check:?}");
}
