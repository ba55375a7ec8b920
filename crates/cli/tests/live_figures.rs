//! Facts that only the server of a live pool knows: tunables in effect, figures of devices, errors, scrubs.

mod bed;

use std::fs;
use std::os::unix::fs::FileExt;

use bed::live::{Live, noise, write};

#[test]
fn tunables_of_a_live_pool_change_at_once_and_until_it_is_exported() {
    let Some(live) = Live::with_tank(128) else { return };
    let shown = |name: &str| {
        let line = live.run(&["tune", "tank", name]).good();
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    let before = shown("zfs_txg_timeout");
    assert_eq!(live.run(&["tune", "tank", "zfs_txg_timeout=77", "zfs_dirty_data_max=33M"]).good(), "");
    assert_eq!((shown("zfs_txg_timeout"), shown("zfs_dirty_data_max")), ("77".into(), "33M".into()));
    live.run(&["tune", "tank", "zfs_arc_max=17M"]).good();
    let json = live.run(&["tune", "--json", "tank"]).good();
    assert!(json.contains(r#"{"name":"zfs_arc_max","value":17825792,"#), "{json}");
    // A wrong value is reported and changes nothing.
    live.run(&["tune", "tank", "zfs_txg_timeout=5", "zfs_nosuch=1"])
        .refused("there is no tunable 'zfs_nosuch'");
    live.run(&["tune", "tank", "zfs_txg_timeout=0"])
        .refused("zfs_txg_timeout is between 1 and 86400 seconds");
    assert_eq!(shown("zfs_txg_timeout"), "77");
    live.run(&["tune", "nosuch", "zfs_txg_timeout=9"]).refused("cannot open 'nosuch': no such pool");
    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert_eq!(shown("zfs_txg_timeout"), before);
}

#[test]
fn iostat_tells_how_large_requests_were_and_how_long_they_took() {
    let Some(live) = Live::with_tank(128) else { return };
    write(&live.path("mnt/file"), &noise(4 << 20));
    live.run(&["zpool", "sync", "tank"]).good();

    let text = live.run(&["zpool", "iostat", "-l", "tank"]).good();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].ends_with("total_wait     disk_wait    syncq_wait    asyncq_wait  scrub   trim  rebuild")
    );
    let cells: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(cells.len(), 18, "{text}");
    let is_time = |word: &str| ["ns", "us", "ms", "s"].iter().any(|unit| word.ends_with(unit));
    // Writes took time in all, at the disk, and in the queue of asynchronous writes.
    assert!([8, 10, 14].iter().all(|column| is_time(cells[*column])), "{text}");
    assert_eq!((cells[16], cells[17]), ("-", "-"));

    let text = live.run(&["zpool", "iostat", "-q", "-Hp", "tank"]).good();
    let cells: Vec<&str> = text.trim_end().split('\t').collect();
    assert_eq!(cells.len(), 7 + 14, "{text}");
    assert!(cells[1..].iter().all(|cell| cell.parse::<u64>().is_ok()), "{text}");

    let text = live.run(&["zpool", "iostat", "-r", "-p", "tank"]).good();
    let row = |label: &str| -> Vec<u64> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(label));
        let cells = line.expect(label).split_whitespace().skip(1);
        cells.map(|cell| cell.parse().expect("a number")).collect()
    };
    let sizes =
        [512u64, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18, 1 << 19];
    let sizes = sizes.into_iter().chain((20..25).map(|shift| 1 << shift));
    // Column 6: asynchronous writes of single blocks; column 7: those gathered from neighbours.
    let written: u64 = sizes
        .map(|size| {
            let cells = row(&size.to_string());
            assert_eq!(cells.len(), 14);
            (cells[6] + cells[7]) * size
        })
        .sum();
    // A bucket counts sizes up to twice its own, so at least half of the written bytes are counted.
    assert!(written >= 2 << 20, "{text}");

    let text = live.run(&["zpool", "iostat", "-w", "tank"]).good();
    assert!(text.contains("tank         total_wait     disk_wait    syncq_wait    asyncq_wait\n"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("137s ")));
    live.run(&["zpool", "iostat", "-lr", "tank"]).err.starts_with("[-r|-w] isn't allowed");

    // A scrub reads, and its reads are counted apart from those of readers.
    live.run(&["zpool", "scrub", "-w", "tank"]).good();
    let text = live.run(&["zpool", "iostat", "-r", "-Hp", "tank"]).good();
    let scrubbed: u64 = text.lines().filter_map(|line| line.split('\t').nth(9)?.parse::<u64>().ok()).sum();
    assert!(scrubbed > 0, "{text}");
    // Figures of a time, not since the import: nothing happens meanwhile.
    let text = live.run(&["zpool", "iostat", "-Hpy", "tank", "1", "1"]).good();
    assert_eq!(text.split('\t').nth(3), Some("0"), "{text}");
}

#[test]
fn damage_found_by_a_scrub_is_shown_while_the_pool_is_in_use() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zfs", "set", "compression=off", "tank"]).good();
    let bytes = noise(1 << 20);
    write(&live.path("mnt/victim"), &bytes);
    live.run(&["zpool", "sync", "tank"]).good();
    let image = fs::read(live.path("tank.img")).expect("there");
    let at = image.windows(512).position(|window| window == &bytes[..512]).expect("stored as it is");
    let disk = fs::File::options().write(true).open(live.path("tank.img")).expect("open");
    disk.write_all_at(&[0; 512], at as u64).expect("written over");
    disk.sync_all().expect("on disk");

    live.run(&["zpool", "scrub", "-w", "tank"]).good();
    let status = live.run(&["zpool", "status", "-v", "tank"]).good();
    assert!(
        status.contains("  scan: scrub repaired 0B in ") && status.contains(" with 1 errors on "),
        "{status}"
    );
    let leaf = status.lines().find(|line| line.contains("tank.img")).expect("the leaf");
    let checksums: u64 = leaf.split_whitespace().nth(4).expect("CKSUM").parse().expect("a number");
    assert!(checksums > 0, "{status}");
    // By its path while it is mounted, else by its dataset.
    let listed = |place: &str| {
        let status = live.run(&["zpool", "status", "-v", "tank"]).good();
        assert!(status.contains(&format!("\n        {place}\n")), "{place}\n{status}");
    };
    listed(&live.text("mnt/victim"));
    live.run(&["zfs", "unmount", "tank"]).good();
    listed("tank:/victim");
    live.run(&["zfs", "mount", "tank"]).good();
    assert!(live.run(&["zpool", "status", "-x"]).good().contains("state: ONLINE"));
    let json = live.run(&["zpool", "status", "-j", "--json-int"]).good();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let pool = &json["pools"]["tank"];
    assert_eq!(pool["error_count"], 1, "{json}");
    assert_eq!(pool["scan_stats"]["function"], "SCRUB", "{json}");
    let leaf = &pool["vdevs"]["tank"]["vdevs"][live.text("tank.img")];
    assert_eq!(leaf["checksum_errors"], checksums, "{json}");

    live.run(&["zpool", "clear", "tank"]).good();
    let status = live.run(&["zpool", "status", "tank"]).good();
    let leaf = status.lines().find(|line| line.contains("tank.img")).expect("the leaf");
    assert_eq!(leaf.split_whitespace().nth(4), Some("0"), "{status}");
    // The damaged file is removed, so the pool is sound again.
    fs::remove_file(live.path("mnt/victim")).expect("removed");
    live.run(&["zfs", "wait", "-t", "deleteq", "tank"]).good();
    live.run(&["zpool", "scrub", "-w", "tank"]).good();
    live.run(&["zpool", "wait", "tank"]).good();
    let status = live.run(&["zpool", "status", "tank"]).good();
    assert!(status.contains("errors: No known data errors"), "{status}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn waiting_for_a_scrub_blocks_no_other_command() {
    let Some(live) = Live::with_tank(256) else { return };
    write(&live.path("mnt/file"), &noise(64 << 20));
    live.run(&["zpool", "sync", "tank"]).good();
    // A paused scrub never ends: a command that waits for its end reports this at once, and other commands are not affected.
    let mut waiting = live.command(&["zpool", "scrub", "-w", "tank"]).spawn().expect("it starts");
    for round in 0..5 {
        live.run(&["zfs", "set", &format!("user:round={round}"), "tank"]).good();
        live.run(&["zfs", "create", &format!("tank/during{round}")]).good();
    }
    assert!(waiting.wait().expect("it ends").success());
    let history = live.run(&["zpool", "history", "tank"]).good();
    for line in ["zpool scrub -w tank", "zfs set user:round=4 tank", "zfs create tank/during4"] {
        assert!(history.contains(line), "{line}\n{history}");
    }
    live.run(&["zpool", "wait", "-t", "scrub", "tank"]).good();
    let status = live.run(&["zpool", "status", "tank"]).good();
    assert!(status.contains("scrub repaired 0B in"), "{status}");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

/// A dataset that is emptied, given another property and filled several times shows figures of its present contents.
#[test]
fn the_ratio_of_an_emptied_and_filled_dataset_is_that_of_its_present_files() {
    let Some(live) = Live::with_tank(256) else { return };
    let pages = fs::read_dir(bed::root().join("docs/format")).expect("there");
    let pages = pages.map(|entry| entry.expect("read").path());
    let mut text: Vec<u8> = pages.flat_map(|page| fs::read(page).expect("read")).collect();
    // Whole records: the zeros behind the end of a file would be compressed by zle.
    text.truncate(text.len() / (128 << 10) * (128 << 10));
    let mut ratios = Vec::new();
    for setting in ["lzjb", "gzip", "gzip-9", "zle", "lz4", "off"] {
        let loop_of_s3 = "rm -rf mnt/*; mkdir mnt/spl";
        let shell = |line: &str| {
            let done =
                std::process::Command::new("sh").args(["-c", line]).current_dir(live.path("")).status();
            assert!(done.expect("sh starts").success(), "{line}");
        };
        shell(loop_of_s3);
        live.run(&["zfs", "set", &format!("compression={setting}"), "tank"]).good();
        write(&live.path("mnt/spl/text"), &text);
        shell("for copy in 1 2 3 4 5; do cp -r mnt/spl mnt/$copy; done && sync -f mnt");
        // A request for figures waits for a txg at most half a second.
        live.run(&["zpool", "sync", "tank"]).good();
        let ratio: f64 = live.get("compressratio", "tank").parse().expect("a number");
        // The one counts a little metadata more than the other.
        let referenced: f64 = live.get("refcompressratio", "tank").parse().expect("a number");
        assert!((referenced / ratio - 1.0).abs() < 0.08, "{setting}: {referenced} and {ratio}");
        ratios.push(ratio);
    }
    let [lzjb, gzip, gzip9, zle, lz4, off] = ratios[..] else { panic!("six settings") };
    assert!(gzip9 > gzip - 0.02 && gzip > lz4 && lz4 > lzjb && lzjb > zle, "{ratios:?}");
    assert!(zle < 1.05 && off < 1.05, "{ratios:?}");
}

#[test]
fn a_cache_device_is_filled_and_read_and_its_figures_are_shown() {
    let Some(live) = Live::with_tank(128) else { return };
    let cache = live.path("cache.img").display().to_string();
    fs::File::create(&cache).expect("made").set_len(2 << 30).expect("long, with holes");
    live.run(&["zpool", "add", "tank", "cache", &cache]).good();
    let data = noise(24 << 20);
    write(&live.path("mnt/file"), &data);
    live.run(&["zpool", "sync", "tank"]).good();
    let figure = |part: &str, name: &str| -> u64 {
        let json = live.run(&["cache", "--json", "tank"]).good();
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json[part][name].as_u64().unwrap_or_else(|| panic!("{json}"))
    };
    let read_anew = || {
        // An unmount empties the page cache of the kernel, and a smaller limit the cache of the server.
        live.run(&["zfs", "unmount", "tank"]).good();
        live.run(&["tune", "tank", "zfs_arc_max=1M"]).good();
        live.run(&["zfs", "mount", "tank"]).good();
        assert!(fs::read(live.path("mnt/file")).expect("read") == data);
    };
    read_anew();
    bed::wait_until("the cache device is not filled", || figure("devices", "written") >= 150);
    read_anew();
    assert!(figure("devices", "hits") >= 150, "{}", live.run(&["cache", "tank"]).good());
    let list = live.run(&["zpool", "list", "-vHp", "tank"]).good();
    let row: Vec<&str> = list.lines().last().expect("the cache").split('\t').collect();
    assert!(row[1] == cache && row[3].parse::<u64>().is_ok_and(|bytes| bytes > 16 << 20), "{list}");
    let load = live.run(&["zpool", "iostat", "-vHp", "tank"]).good();
    let row: Vec<&str> = load.lines().last().expect("the cache").split_whitespace().collect();
    assert!(row[0] == cache && row[5] != "0" && row[6] != "0", "{load}");
    let text = live.run(&["cache", "tank"]).good();
    assert!(text.contains("devices: ") && text.contains(" blocks written, 0 evicted"), "{text}");

    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert!(figure("devices", "restored") >= 60, "{}", live.run(&["cache", "tank"]).good());
    live.run(&["zpool", "remove", "tank", &cache]).good();
    assert!(live.run(&["cache", "tank"]).good().ends_with("devices: none\n"));
    live.run(&["cache", "nosuch"]).refused("cannot open 'nosuch': no such pool");
}
