//! Cache devices, and hot spares of pools that OpenZFS made: they are labelled and shown, and no other pool can use them.

mod bed;

use std::os::unix::fs::FileExt;
use std::process::Command;

use bed::{Bed, Done, root};

/// `NAME.img` of so many MiB.
fn image(bed: &Bed, name: &str, mebibytes: u64) -> String {
    let path = bed.path(&format!("{name}.img"));
    std::fs::File::create(&path).expect("made").set_len(mebibytes << 20).expect("long");
    path.display().to_string()
}

/// A bed with pool `tank` and a cache that held other things before.
fn with_cache() -> (Bed, String, String) {
    let bed = Bed::new();
    let (data, cache) = (image(&bed, "tank", 128), image(&bed, "cache", 96));
    let old = std::fs::OpenOptions::new().write(true).open(&cache).expect("opened");
    old.write_all_at(&[0x5a; 8 << 20], 0).expect("written");
    bed.run(&["zpool", "create", "tank", &data, "cache", &cache]).good();
    (bed, data, cache)
}

/// The output of `zdb -l` for a device; `None` where zdb is not installed.
fn zdb_label(path: &str) -> Option<String> {
    let out =
        Command::new("zdb").env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").args(["-l", path]).output().ok()?;
    Some(Done::from(out).out)
}

#[test]
fn a_cache_is_labelled_and_shown() {
    let (bed, data, cache) = with_cache();
    let config = |status: &str| -> Vec<String> {
        let lines = status.lines().skip_while(|line| *line != "config:").skip(4);
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let width = data.len().max(cache.len()) + 2;
    let status = bed.run(&["zpool", "status", "tank"]).good();
    assert_eq!(
        config(&status),
        [
            format!("\t  {data:w$}  ONLINE       0     0     0", w = width - 2),
            "\tcache".to_owned(),
            format!("\t  {cache:w$}  ONLINE       0     0     0", w = width - 2),
        ]
    );
    let list = bed.run(&["zpool", "list", "-vHp", "tank"]).good();
    let (size, free) = (96u64 << 20, (96u64 << 20) - (9 << 19));
    assert_eq!(
        list.lines().last(),
        Some(format!("\t{cache}\t{size}\t0\t{free}\t-\t-\t0\t0\t-\tONLINE\t-").as_str())
    );
    // A heading keeps its blanks among rows of tabs.
    let heading = list.lines().find(|line| line.starts_with("cache ")).expect("a heading");
    assert!(!heading.contains('\t') && heading.ends_with("-        -"), "{list}");
    assert_eq!(heading.split_whitespace().count(), 11, "{list}");
    let load = bed.run(&["zpool", "iostat", "-v", "tank"]).good();
    let heading = load.lines().find(|line| line.starts_with("cache ")).expect("a heading");
    assert_eq!(heading.split_whitespace().collect::<Vec<_>>(), ["cache", "-", "-", "-", "-", "-", "-"]);
    assert!(load.contains(&format!("  {cache}")), "{load}");
    assert!(bed.run(&["zpool", "iostat", "-vH", "tank"]).good().contains("\n\n"), "a line is left empty");
    let json: serde_json::Value =
        serde_json::from_str(&bed.run(&["zpool", "status", "-j", "tank"]).good()).expect("JSON");
    let shown = &json["pools"]["tank"]["l2cache"][&cache];
    assert_eq!(
        (shown["class"].as_str(), shown["state"].as_str()),
        (Some("l2cache"), Some("ONLINE")),
        "{json}"
    );
    if let Some(label) = zdb_label(&cache) {
        assert!(label.contains("    state: 4\n") && label.contains("labels = 0 1 2 3"), "{label}");
    }
    bed.expect_sound("tank");
}

#[test]
fn a_pool_does_without_a_cache_that_is_gone_or_moved() {
    let (bed, ..) = with_cache();
    bed.run(&["zpool", "export", "tank"]).good();
    // The pool and its cache move together.
    std::fs::create_dir(bed.path("moved")).expect("made");
    for name in ["tank.img", "cache.img"] {
        std::fs::rename(bed.path(name), bed.path("moved").join(name)).expect("moved");
    }
    bed.run(&["zpool", "import", "-d", "moved", "tank"]).good();
    let status = bed.run(&["zpool", "status", "-x"]).good();
    assert_eq!(status, "all pools are healthy\n");
    assert!(bed.run(&["zpool", "status"]).good().contains("moved/cache.img  ONLINE"));
    // The import noted the new places: the pool moves on without its cache, and still knows where that is.
    bed.run(&["zpool", "export", "tank"]).good();
    std::fs::create_dir(bed.path("on")).expect("made");
    std::fs::rename(bed.path("moved/tank.img"), bed.path("on/tank.img")).expect("moved");
    bed.run(&["zpool", "import", "-d", "on", "tank"]).good();
    assert!(bed.run(&["zpool", "status", "-P"]).good().contains("moved/cache.img  ONLINE"));
    let cache = bed.path("moved/cache.img").display().to_string();
    std::fs::remove_file(&cache).expect("removed");
    let status = bed.run(&["zpool", "status", "-x"]).good();
    assert!(status.contains(" state: ONLINE\nstatus: One or more devices could not be opened."), "{status}");
    assert!(
        status.contains(&format!("\t  {cache}"))
            && status.contains("UNAVAIL      0     0     0  cannot open"),
        "{status}"
    );
    bed.run(&["zfs", "create", "tank/still"]).good();
    assert_eq!(bed.run(&["zpool", "list", "-H", "-o", "health", "tank"]).good(), "ONLINE\n");
}

#[test]
fn impossible_caches_are_refused_in_the_words_of_openzfs() {
    let bed = Bed::new();
    let (data, cache, small) = (image(&bed, "tank", 128), image(&bed, "cache", 96), image(&bed, "small", 1));
    let create = |words: &[&str]| bed.run(&[&["zpool", "create", "tank"], words].concat());
    let none = create(&["cache", &cache]);
    assert!(none.err.contains("at least one general top-level vdev must be specified"), "{none:?}");
    none.refused("invalid vdev specification");
    create(&[&data, "cache"]).refused("invalid vdev specification: cache requires at least 1 devices");
    create(&[&data, "cache", &cache, "cache", &small])
        .refused("invalid vdev specification: 'cache' can be specified only once");
    create(&[&data, "cache", &small])
        .refused("cannot create 'tank': one or more devices is less than the minimum size (64M)");
    assert_eq!(create(&[&data, "cache", &data]).status, 1);
    let layout = create(&["-n", &data, "cache", &cache]).good();
    assert_eq!(
        layout,
        format!(
            "would create 'tank' with the following layout:\n\n\ttank\n\t  {data}\n\tcache\n\t  {cache}\n"
        )
    );
    assert!(std::fs::read(&cache).expect("read").iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn a_cache_of_an_imported_pool_is_not_taken_by_another() {
    let (bed, _, cache) = with_cache();
    let other = image(&bed, "other", 128);
    for words in [
        vec!["zpool", "create", "-f", "u", &cache],
        vec!["zpool", "create", "-f", "u", &other, "cache", &cache],
    ] {
        let done = bed.run(&words);
        assert_eq!(done.status, 1);
        assert!(done.err.contains(&format!("{cache} is part of active pool 'tank'\n")), "{done:?}");
    }
    let done = bed.run(&["zpool", "labelclear", "-f", &cache]);
    assert!(done.err.contains(&format!("{cache} is a member (L2CACHE) of pool \"tank\"")), "{done:?}");
    assert!(bed.run(&["zpool", "status", "-x"]).good().contains("all pools are healthy"));
    // No process has it open any more.
    bed.run(&["zpool", "destroy", "tank"]).good();
    bed.run(&["zpool", "create", "u", &other, "cache", &cache]).good();
}

#[test]
fn log_cache_and_spare_of_openzfs_are_shown_as_it_shows_them() {
    let bed = Bed::new();
    let unpack = root().join("fixtures/golden/unpack");
    let done = Command::new(unpack).arg("gaux").arg(bed.path("images")).output().expect("it starts");
    assert_eq!(Done::from(done).status, 0);
    let manifest = std::fs::read(root().join("fixtures/golden/gaux.json")).expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let here = bed.path("images").display().to_string();
    // Widths follow from where the images are.
    let words = |text: &str| -> Vec<Vec<String>> {
        let line = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        text.replace(&here, "/golden/gaux").lines().map(line).collect()
    };
    let config = |text: &str| -> Vec<Vec<String>> {
        words(text).into_iter().skip_while(|line| line.first().is_none_or(|word| word != "config:")).collect()
    };
    let status = bed.run(&["-d", "images", "zpool", "status", "gaux"]).good();
    assert_eq!(config(&status), config(manifest["zpool_status"].as_str().expect("text")), "{status}");
    let heads = |text: &str| -> Vec<(String, String)> {
        let rows = words(text).into_iter().skip(1).filter(|row| !row.is_empty());
        rows.map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let list = bed.run(&["-d", "images", "zpool", "list", "-v", "gaux"]).good();
    assert_eq!(heads(&list), heads(manifest["zpool_list_v"].as_str().expect("text")), "{list}");
}
