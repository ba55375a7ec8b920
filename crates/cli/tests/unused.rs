//! `zpool initialize` and `zpool trim` overwrite or trim free space and change no other bytes.

mod bed;

use std::os::unix::fs::MetadataExt;

use bed::Bed;
use bed::images::{devices, expect_sound, fill, run};

const MADE: &str = "zpool create -f -O mountpoint=none -O compression=off -o ashift=12 t";

/// Bytes that the images take on the disk of this machine.
fn taken(devices: &[String]) -> u64 {
    devices.iter().map(|path| std::fs::metadata(path).expect("there").blocks() * 512).sum()
}

/// The text that `zpool status` prints behind each device.
fn said(bed: &Bed, option: &str) -> Vec<String> {
    let text = bed.run(&["zpool", "status", option, "t"]).good();
    let rows = text.lines().filter(|line| line.contains("/images/"));
    rows.map(|line| line.split_once('(').map_or(String::new(), |(_, said)| format!("({said}"))).collect()
}

#[test]
fn free_space_is_overwritten_and_given_back_and_files_stay() {
    for words in ["0", "mirror 0 1", "raidz 0 1 2", "raidz2 0 1 2 3 log 4"] {
        let bed = Bed::new();
        let devices =
            devices(&bed, &[80; 5][..words.split(' ').filter_map(|w| w.parse::<u8>().ok()).count()]);
        run(&bed, &devices, &format!("{MADE} {words}")).good();
        fill(&bed.path("files"), 1);
        fill(&bed.path("gone"), 2);
        bed.run(&["cp", "-r", "files", "gone", "t:/"]).good();
        bed.run(&["rm", "-r", "t:/gone"]).good();
        let files = bed.list("t:/");
        assert!(said(&bed, "-i").iter().all(|said| said == "(uninitialized)"), "{:?}", said(&bed, "-i"));
        run(&bed, &devices, "zpool initialize t").good();
        assert!(said(&bed, "-i").iter().all(|said| said.starts_with("(100% initialized, completed at ")));
        let full = taken(&devices);
        assert!(full > devices.len() as u64 * (60 << 20), "{words}: {full} bytes are written");
        assert_eq!(bed.list("t:/"), files);
        assert!(said(&bed, "-t").iter().all(|said| said == "(untrimmed)"));
        run(&bed, &devices, "zpool trim -w t").good();
        assert!(said(&bed, "-t").iter().all(|said| said.starts_with("(100% trimmed, completed at ")));
        let left = taken(&devices);
        assert!(left < full / 2, "{words}: of {full} bytes {left} are left");
        assert_eq!(bed.list("t:/"), files);
        bed.run(&["zpool", "export", "t"]).good();
        expect_sound(&bed);
        bed.run(&["zpool", "import", "-d", "images", "t"]).good();
        assert!(said(&bed, "-t").iter().all(|said| said.starts_with("(100% trimmed, completed at ")));
        bed.run(&["zpool", "scrub", "t"]).good();
        let status = bed.run(&["zpool", "status", "t"]).good();
        assert!(status.contains("repaired 0B"), "{status}");
    }
}

#[test]
fn orders_that_make_no_sense_are_refused_in_the_words_of_openzfs() {
    let bed = Bed::new();
    let devices = devices(&bed, &[64; 3]);
    run(&bed, &devices, &format!("{MADE} mirror 0 1")).good();
    let refused = |line: &str, why: &[String]| {
        let done = run(&bed, &devices, line);
        let said: Vec<&str> = done.err.lines().collect();
        assert!(done.status == 255 && said == why, "{line}: {done:?}");
    };
    let each = |verb: &str, why: &str| -> Vec<String> {
        devices[..2].iter().map(|path| format!("cannot {verb} '{path}': {why}")).collect()
    };
    refused("zpool initialize -c t", &each("initialize", "there is no active initialization"));
    refused("zpool initialize -s t", &each("initialize", "there is no active initialization"));
    refused("zpool trim -c t", &each("trim", "there is no active trim"));
    refused("zpool trim -s t 1", &each("trim", "there is no active trim")[1..]);
    refused("zpool trim t nosuch", &["cannot trim 'nosuch': no such device in pool".to_owned()]);
    refused("zpool trim t 2", &[format!("cannot trim '{}': no such device in pool", devices[2])]);
    refused("zpool trim -d t", &["cannot trim: no devices in pool support trim operations".to_owned()]);
    refused(
        "zpool trim -d t 0",
        &[format!("cannot trim '{}': trim operations are not supported by this device", devices[0])],
    );
    refused("zpool initialize nosuch", &["cannot open 'nosuch': no such pool".to_owned()]);
    for (line, why) in [
        ("zpool initialize", "missing pool name argument"),
        ("zpool initialize -c -s t", "-s cannot be combined with other options"),
        ("zpool initialize -s -u t", "-u cannot be combined with other options"),
        ("zpool initialize -w -c t", "-w cannot be used with -c, -s or -u"),
        ("zpool trim -s -c t", "-c cannot be combined with other options"),
        ("zpool trim -d -c t", "-d cannot be combined with the -c or -s options"),
        ("zpool trim -r 1M -s t", "-r cannot be combined with the -c or -s options"),
        ("zpool trim -w -s t", "-w cannot be used with -c or -s"),
        ("zpool trim -r x t", "invalid value for rate"),
        ("zpool trim", "missing pool name argument"),
    ] {
        let done = run(&bed, &devices, line);
        assert!(done.status == 2 && done.err.starts_with(why), "{line}: {done:?}");
    }
    // One device of two; a second time; forgotten; with zeros.
    run(&bed, &devices, "zpool trim -r 1G t 0").good();
    assert_eq!(said(&bed, "-t")[1], "(untrimmed)");
    run(&bed, &devices, "zpool initialize -z -w t 1").good();
    assert!(said(&bed, "-i")[1].starts_with("(100% initialized"));
    run(&bed, &devices, "zpool initialize t 1").good();
    run(&bed, &devices, "zpool initialize -u t").good();
    assert_eq!(said(&bed, "-i"), ["(uninitialized)", "(uninitialized)"]);
    run(&bed, &devices, "zpool trim -a").good();
    assert!(said(&bed, "-t").iter().all(|said| said.starts_with("(100% trimmed")));
    run(&bed, &devices, "zpool offline t 1").good();
    refused("zpool trim t 1", &[format!("cannot trim '{}': invalid device", devices[1])]);
    run(&bed, &devices, "zpool online t 1").good();
    bed.run(&["zpool", "export", "t"]).good();
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "images", "t"]).good();
    refused("zpool trim t", &["cannot trim 't': pool is read-only".to_owned()]);
    bed.run(&["zpool", "export", "t"]).good();
    std::fs::remove_file(&devices[2]).expect("removed");
    expect_sound(&bed);
}
