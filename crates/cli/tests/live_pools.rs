//! Commands about several pools, each of which a server of its own holds.

mod bed;

use std::fs;

use bed::Done;
use bed::live::Live;

/// Pools `p1` and `p2`, not mounted.
fn two() -> Option<Live> {
    let live = Live::new()?;
    for name in ["p1", "p2"] {
        let image = live.text(&format!("{name}.img"));
        fs::File::create(&image).expect("made").set_len(128 << 20).expect("long");
        live.run(&["zpool", "create", "-m", "none", name, &image]).good();
    }
    Some(live)
}

/// The first words of all lines.
fn first_words(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect()
}

#[track_caller]
fn misused(done: Done, line: &str) {
    assert!(done.status == 2 && done.err.starts_with(&format!("{line}\nusage:")), "{done:?}");
    assert_eq!(done.err.matches("usage:").count(), 1, "{done:?}");
}

const RULER: &str = "----------";
const NOT_VDEVS: &str = "Expected either a list of pools, or list of vdevs in \"p1\", but got:\n";

#[test]
fn iostat_makes_one_report_of_all_pools_in_each_interval() {
    let Some(live) = two() else { return };
    let iostat = |words: &[&str]| live.run(&[&["zpool", "iostat"], words].concat());
    let heading = ["capacity", "pool", RULER];
    let once = [&heading[..], &["p1", "p2", RULER]].concat();
    assert_eq!(first_words(&iostat(&[]).good()), once);
    assert_eq!(first_words(&iostat(&["p2", "p1"]).good()), once);
    let rounds = [&once[..], &["p1", "p2", RULER]].concat();
    for words in [&["0.1", "2"][..], &["p1", "p2", "0.1", "2"], &["-n", "0.1", "2"]] {
        assert_eq!(first_words(&iostat(words).good()), rounds, "{words:?}");
    }
    assert_eq!(first_words(&iostat(&["-H", "0.1", "2"]).good()), ["p1", "p2", "p1", "p2"]);
    assert_eq!(first_words(&iostat(&["-y", "0.1", "1"]).good()), once);
    let stamped = iostat(&["-HT", "u", "0.1", "2"]).good();
    assert!(stamped.lines().step_by(3).all(|line| line.parse::<u64>().is_ok()), "{stamped}");
    assert_eq!(stamped.lines().count(), 6, "{stamped}");

    let images = ["p1", "p2"].map(|name| live.text(&format!("{name}.img")));
    let verbose = iostat(&["-v"]).good();
    let all = ["capacity", "pool", &"-".repeat(images[0].len() + 2)];
    let tree = ["p1", &images[0], all[2], "p2", &images[1], all[2]];
    assert_eq!(first_words(&verbose), [&all[..], &tree].concat());
    // The servers report what was written since the import.
    let figures = iostat(&["-Hp"]).good();
    let wrote = |line: &str| line.split('\t').nth(6).and_then(|cell| cell.parse::<u64>().ok());
    assert!(figures.lines().all(|line| wrote(line).is_some_and(|bytes| bytes > 0)), "{figures}");

    misused(iostat(&["0"]), "interval cannot be zero");
    misused(iostat(&["-T", "z"]), "invalid timestamp option 'z'");
    misused(iostat(&["p1", "nosuch"]), &format!("{NOT_VDEVS}\tnosuch (unknown)\n"));
}

#[test]
fn iostat_finds_vdevs_of_one_pool_or_of_several() {
    let Some(live) = two() else { return };
    let iostat = |words: &[&str]| live.run(&[&["zpool", "iostat"], words].concat()).good();
    let [one, two] = ["p1", "p2"].map(|name| live.text(&format!("{name}.img")));
    // The column is as wide as for the whole tree of the pool.
    let ruler = "-".repeat(one.len() + 2);
    let table = |rows: &[&str]| -> Vec<String> {
        let all = [&["capacity", "vdev", &ruler], rows, &[&ruler]].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    for words in [&["-v", "p1", &one][..], &["-v", &one], &["p1", &one], &["-v", "p1", &one, "0.1", "1"]] {
        assert_eq!(first_words(&iostat(words)), table(&[&one]), "{words:?}");
    }
    assert_eq!(first_words(&iostat(&["-v", &one, &two])), table(&[&one, &two]));
    let beside = live.run(&["zpool", "iostat", "-v", "p1", &two]);
    misused(beside, &format!("{NOT_VDEVS}\t{two} (vdev in another pool)\n"));
}

#[test]
fn upgrade_of_several_pools_prints_the_same_lines_as_of_one() {
    let Some(live) = two() else { return };
    let supports = "This system supports ZFS pool feature flags.\n\n";
    let already = "All pools are already formatted using feature flags.\n\n\
                   Every feature flags pool already has all supported and requested features enabled.\n";
    for words in [&["-a"][..], &["-aV", "5000"]] {
        let words = [&["zpool", "upgrade"], words].concat();
        assert_eq!(live.run(&words).good(), format!("{supports}{already}"), "{words:?}");
    }
    let has = |name| format!("Pool '{name}' already has all supported and requested features enabled.\n");
    assert_eq!(
        live.run(&["zpool", "upgrade", "p1", "p2"]).good(),
        format!("{supports}{}{}", has("p1"), has("p2"))
    );
    for words in [["-a", "p1"], ["-v", "p1"]] {
        misused(live.run(&[&["zpool", "upgrade"], &words[..]].concat()), "too many arguments");
    }
    // A pool that can be upgraded is upgraded, and only this pool is reported.
    let old = live.text("old.img");
    fs::File::create(&old).expect("made").set_len(128 << 20).expect("long");
    live.run(&["zpool", "create", "-m", "none", "-o", "version=28", "old", &old]).good();
    let said = live.run(&["zpool", "upgrade", "-aV28"]).good();
    assert_eq!(said.matches("This system").count(), 1, "{said}");
    let said = live.run(&["zpool", "upgrade", "-a"]).good();
    let rest = said.strip_prefix(supports).expect("the heading comes first");
    assert!(rest.starts_with("Successfully upgraded 'old' from version 28 to feature flags.\n"), "{said}");
    assert!(!rest.contains("This system") && !rest.contains("already"), "{said}");
    let history = live.run(&["zpool", "history", "old"]).good();
    assert!(history.lines().any(|line| line.ends_with(" zpool upgrade -a")), "{history}");
}

#[test]
fn the_history_of_each_pool_has_the_command_as_it_was_typed() {
    let Some(live) = two() else { return };
    let lines = [
        &["scrub", "-a", "-w"][..],
        &["scrub", "-w", "p1", "p2"],
        &["scrub", "-aw"],
        &["scrub", "p2", "p1", "-w"],
    ];
    for words in lines {
        live.run(&[&["zpool"], words].concat()).good();
    }
    live.run(&["zfs", "set", "user:x=1", "p1", "p2"]).good();
    for pool in ["p1", "p2"] {
        let history = live.run(&["zpool", "history", pool]).good();
        for words in lines {
            let line = format!(" zpool {}", words.join(" "));
            assert!(history.lines().any(|other| other.ends_with(&line)), "{line}\n{history}");
        }
        assert!(history.lines().any(|line| line.ends_with(" zfs set user:x=1 p1 p2")), "{history}");
    }
}

#[test]
fn snapshots_of_two_pools_are_not_taken_by_one_command() {
    let Some(live) = two() else { return };
    let snapshot = |names: &[&str]| live.run(&[&["zfs", "snapshot"], names].concat());
    for names in [&["p1@x", "p2@x"][..], &["-r", "p2@x", "p1@x"], &["-o", "a:b=c", "p1@x", "p1@x", "p2@x"]] {
        let refused = snapshot(names);
        let several = "cannot create snapshots : multiple snapshots of same fs not allowed\n";
        assert_eq!((refused.status, &*refused.err), (1, &*format!("{several}no snapshots were created\n")));
    }
    misused(snapshot(&[]), "missing snapshot argument");
    assert_eq!(live.run(&["zfs", "list", "-Ht", "snapshot"]).good(), "");
    snapshot(&["p1@x"]).good();
}
