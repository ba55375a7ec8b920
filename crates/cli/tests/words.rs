//! Smaller features: vdevs and their properties, names for one import, user properties of snapshots, streams of file
//! systems.

mod bed;

use std::process::Stdio;

use bed::Bed;
use bed::live::{Live, write};

#[test]
fn vdevs_have_properties_that_are_kept_with_them() {
    let bed = Bed::with_tank(128, &[]);
    let image = bed.path("tank.img").display().to_string();
    let values = bed.pool_values(&["path,ashift,parent,children,numchildren,state,psize", "tank", &image]);
    let size = (128u64 << 20).to_string();
    assert_eq!(values.lines().collect::<Vec<_>>(), [&image, "9", "tank", "-", "0", "7", &size]);
    assert_eq!(
        bed.pool_values(&["name,children,numchildren", "tank", "root"]),
        format!("tank\n{image}\n1\n")
    );
    assert_eq!(bed.pool_values(&["size", "tank", &image]), bed.pool_values(&["size", "tank"]));
    for (word, text) in
        [("comment", "bay 4"), ("checksum_n", "7"), ("failfast", "off"), ("my:shelf", "upper")]
    {
        assert_eq!(bed.run(&["zpool", "set", &format!("{word}={text}"), "tank", &image]).good(), "");
        assert_eq!(bed.pool_values(&[word, "tank", &image]), format!("{text}\n"));
    }
    let all = bed.run(&["zpool", "get", "-H", "all", "tank", &image]).good();
    assert!(all.contains(&format!("{image}\tmy:shelf\tupper\tlocal\n")), "{all}");
    assert!(all.contains("\tio_n\t-\tdefault\n") && all.contains("\tallocating\ton\tdefault\n"), "{all}");
    // A property that is removed has its default again.
    for word in ["my:shelf=", "checksum_n=none", "failfast=inherit"] {
        bed.run(&["zpool", "set", word, "tank", &image]).good();
    }
    let values = bed.run(&[
        "zpool",
        "get",
        "-H",
        "-o",
        "value,source",
        "my:shelf,checksum_n,failfast",
        "tank",
        &image,
    ]);
    assert_eq!(values.good(), "-\tdefault\n-\tdefault\ninherit\tdefault\n");
    bed.expect_sound("tank");
}

#[test]
fn the_root_vdev_gets_a_place_for_its_properties_when_it_needs_one() {
    let bed = Bed::with_tank(128, &[]);
    let (image, new) =
        (bed.path("tank.img").display().to_string(), bed.path("new.img").display().to_string());
    std::fs::File::create(&new).unwrap().set_len(64 << 20).unwrap();
    let feature = "feature@vdev_zaps_v2";
    bed.run(&["zpool", "create", "-o", &format!("{feature}=enabled"), "new", &new]).good();
    bed.run(&["zpool", "set", "my:owner=ops", "new", "root"]).good();
    assert_eq!(bed.pool_values(&[feature, "new"]), "active\n");
    assert_eq!(bed.pool_values(&["my:owner", "new", "root-0"]), "ops\n");
    let vdevs = bed.run(&["zpool", "get", "-H", "-o", "name,value", "my:owner", "new", "all-vdevs"]).good();
    assert_eq!(vdevs, format!("root-0\tops\n{new}\t-\n"));
    let json = bed.run(&["zpool", "get", "-j", "my:owner", "new", "root"]).good();
    assert!(json.contains(r#""vdevs":{"root-0":{"name":"root-0","vdev_type":"root""#), "{json}");
    // The zdb of OpenZFS 2.1 does not know the feature.
    let done = bed.run(&["check", &new]);
    assert!(done.status == 0 && done.out.contains(": clean"), "{done:?}");
    // Pools without it have no such place.
    bed.run(&["zpool", "set", "my:owner=ops", "tank", "root"])
        .refused("cannot set property my:owner for root-0 on tank: Invalid argument");
    bed.run(&["zpool", "set", "my:owner=ops", "tank", &image]).good();
    assert_eq!(bed.pool_values(&["my:owner", "tank", &image]), "ops\n");
    bed.expect_sound("tank");
}

#[test]
fn invalid_vdev_properties_are_refused_in_the_words_of_openzfs() {
    let bed = Bed::with_tank(64, &[]);
    let image = bed.path("tank.img").display().to_string();
    for (word, why) in [
        ("size=1", "'size' is readonly"),
        ("bogus=1", "invalid property: 'bogus'"),
        ("allocating=maybe", "'allocating' must be one of 'on | off'"),
        ("allocating=off", "Invalid argument"),
        ("autosit=on", "operation not supported on this type of vdev"),
    ] {
        let property = word.split('=').next().unwrap();
        bed.run(&["zpool", "set", word, "tank", &image])
            .refused(&format!("cannot set property {property} for {image} on tank: {why}"));
    }
    bed.run(&["zpool", "set", "comment=x", "tank", "/nosuch"])
        .refused("cannot find '/nosuch' in 'tank': device not in pool");
    let done = bed.run(&["zpool", "get", "size", "tank", "/nosuch"]);
    assert_eq!(done.status, 2);
    assert!(done.err.starts_with("Expected a list of vdevs in \"tank\", but got:\n\t/nosuch\n"), "{done:?}");
    assert_eq!(bed.run(&["zpool", "get", "bogus", "tank", &image]).status, 2);
    bed.expect_sound("tank");
}

#[test]
fn a_live_pool_tells_what_its_devices_did() {
    let Some(live) = Live::with_tank(128) else { return };
    let image = live.text("tank.img");
    write(&live.path("mnt/file"), &[7; 100_000]);
    live.run(&["zpool", "sync", "tank"]).good();
    let value = |word: &str| -> u64 {
        let text = live.run(&["zpool", "get", "-Hp", "-o", "value", word, "tank", &image]).good();
        text.trim().parse().expect(word)
    };
    assert!(value("write_ops") > 0 && value("write_bytes") > value("write_ops"));
    assert_eq!((value("checksum_errors"), value("trim_ops")), (0, 0));
    live.run(&["zpool", "set", "comment=live", "tank", &image]).good();
    assert_eq!(live.run(&["zpool", "get", "-Hp", "-o", "value", "comment", "tank", &image]).good(), "live\n");
    assert_eq!(live.run(&["zpool", "reopen", "tank"]).good(), "");
    assert_eq!(live.run(&["zfs", "wait", "-t", "deleteq", "tank"]).good(), "");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_temporary_name_ends_with_the_import() {
    let bed = Bed::new();
    std::fs::File::create(bed.path("t.img")).unwrap().set_len(64 << 20).unwrap();
    let image = bed.path("t.img").display().to_string();
    bed.run(&["zpool", "create", "-t", "scratch", "t", &image]).good();
    assert_eq!(bed.run(&["zpool", "list", "-H", "-o", "name"]).good(), "scratch\n");
    assert_eq!(bed.pool_values(&["tname,cachefile", "scratch"]), "on\nnone\n");
    bed.run(&["zfs", "create", "scratch/fs"]).good();
    bed.run(&["zpool", "export", "scratch"]).good();
    bed.expect_sound("t");
    bed.run(&["zpool", "import", "-t", "-d", &image, "t", "other"]).good();
    assert_eq!(bed.run(&["zfs", "list", "-H", "-o", "name"]).good(), "other\nother/fs\n");
    // A change of the configuration writes the labels, with the name that stays.
    bed.run(&["zpool", "set", "comment=kept", "other"]).good();
    bed.run(&["zpool", "export", "other"]).good();
    bed.run(&["zpool", "import", "-d", &image, "t"]).good();
    assert_eq!(bed.pool_values(&["comment,tname", "t"]), "kept\noff\n");
    bed.expect_sound("t");
}

#[test]
fn snapshots_have_user_properties_of_their_own() {
    let bed = Bed::with_tank(64, &["my:note=of the file system"]);
    bed.run(&["zfs", "snapshot", "-o", "my:taken=by hand", "tank/fs@s"]).good();
    let shown = |words: &str| bed.run(&["zfs", "get", "-H", "-o", "value,source", words, "tank/fs@s"]).good();
    assert_eq!(shown("my:note,my:taken"), "of the file system\tinherited from tank/fs\nby hand\tlocal\n");
    bed.run(&["zfs", "set", "my:note=of the snapshot", "my:more=1", "tank/fs@s"]).good();
    assert_eq!(shown("my:note,my:more"), "of the snapshot\tlocal\n1\tlocal\n");
    bed.run(&["zfs", "inherit", "my:note", "tank/fs@s"]).good();
    assert_eq!(shown("my:note"), "of the file system\tinherited from tank/fs\n");
    bed.run(&["zfs", "set", "compression=off", "tank/fs@s"])
        .refused("cannot set property for 'tank/fs@s': this property can not be modified for snapshots");
    bed.run(&["zfs", "inherit", "exec", "tank/fs@s"])
        .refused("cannot inherit exec for 'tank/fs@s': property doesn't apply to datasets of this type");
    bed.expect_sound("tank");
}

/// `zfs send …` into `zfs receive …`.
fn pipe(bed: &Bed, send: &[&str], receive: &[&str]) -> bed::Done {
    let mut sender = bed.command(send).stdout(Stdio::piped()).spawn().expect("it starts");
    let out = sender.stdout.take().expect("piped");
    // A sender may only read the pool that is received into.
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::BufReader::new(out), &mut bytes).expect("read");
    assert!(sender.wait().expect("it ends").success());
    std::fs::write(bed.path("stream"), bytes).expect("written");
    let stream = std::fs::File::open(bed.path("stream")).expect("there");
    bed.command(receive).stdin(stream).output().expect("it starts").into()
}

#[test]
fn a_file_system_is_sent_as_it_is_now() {
    let bed = Bed::with_tank(128, &[]);
    std::fs::write(bed.path("one"), b"first").unwrap();
    std::fs::write(bed.path("two"), vec![3; 300_000]).unwrap();
    bed.run(&["cp", &bed.path("one").display().to_string(), "tank/fs:/one"]).good();
    bed.run(&["zfs", "snapshot", "tank/fs@s"]).good();
    bed.run(&["cp", &bed.path("two").display().to_string(), "tank/fs:/two"]).good();
    pipe(&bed, &["zfs", "send", "tank/fs"], &["zfs", "receive", "tank/copy"]).good();
    assert_eq!(
        bed.run(&["zfs", "list", "-H", "-o", "name", "-t", "all", "-r", "tank/copy"]).good(),
        "tank/copy\ntank/copy@--head--\n"
    );
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/copy:/"), &["object"]);
    // From a snapshot of it, too.
    pipe(&bed, &["zfs", "send", "tank/fs@s"], &["zfs", "receive", "tank/step"]).good();
    pipe(&bed, &["zfs", "send", "-i", "@s", "tank/fs"], &["zfs", "receive", "tank/step"]).good();
    bed::expect_same(&bed.list("tank/fs:/"), &bed.list("tank/step:/"), &["object"]);
    bed.run(&["zfs", "send", "-p", "tank/fs"])
        .refused("Error: Unsupported flag with filesystem or bookmark.");
    bed.expect_sound("tank");
}

#[test]
fn a_clone_is_received_onto_the_given_origin() {
    let bed = Bed::with_tank(128, &[]);
    std::fs::write(bed.path("one"), vec![1; 50_000]).unwrap();
    bed.run(&["cp", &bed.path("one").display().to_string(), "tank/fs:/one"]).good();
    bed.run(&["zfs", "snapshot", "tank/fs@s"]).good();
    bed.run(&["zfs", "clone", "tank/fs@s", "tank/clone"]).good();
    bed.run(&["cp", &bed.path("one").display().to_string(), "tank/clone:/two"]).good();
    bed.run(&["zfs", "snapshot", "tank/clone@t"]).good();
    let send = ["zfs", "send", "-p", "-i", "tank/fs@s", "tank/clone@t"];
    pipe(&bed, &send, &["zfs", "receive", "-o", "origin=tank/fs@s", "tank/again"]).good();
    assert_eq!(bed.run(&["zfs", "get", "-H", "-o", "value", "origin", "tank/again"]).good(), "tank/fs@s\n");
    bed::expect_same(&bed.list("tank/clone:/"), &bed.list("tank/again:/"), &["object"]);
    bed.run(&["zfs", "snapshot", "tank/fs@other"]).good();
    let done = pipe(&bed, &send, &["zfs", "receive", "-o", "origin=tank/fs@other", "tank/wrong"]);
    assert!(done.err.contains("match incremental source"), "{done:?}");
    // The only other file system whose snapshot is accepted is the origin.
    let done = bed.run(&["zfs", "send", "-p", "-i", "tank/fs@other", "tank/clone@t"]);
    assert_eq!(
        (done.status, done.err.lines().next()),
        (2, Some("incremental source must be in same filesystem"))
    );
    bed.expect_sound("tank");
}

#[test]
fn a_server_remembers_what_happened_to_its_pool() {
    let Some(live) = Live::with_tank(64) else { return };
    live.run(&["zfs", "create", "tank/fs"]).good();
    live.run(&["zpool", "scrub", "-w", "tank"]).good();
    live.run(&["zpool", "set", "comment=seen", "tank"]).good();
    let text = live.run(&["zpool", "events", "-H"]).good();
    let classes: Vec<&str> = text
        .lines()
        .map(|line| line.split_once("\tsysevent.fs.zfs.").expect("an event").1)
        .filter(|class| *class != "config_sync")
        .collect();
    // Lines of the history are events, too: of commands, and where the scrub begins and ends.
    let scrub = ["scrub_start", "history_event", "history_event", "scrub_finish", "history_event"];
    let happened = [&["pool_create", "history_event"][..], &scrub, &["history_event"]].concat();
    assert_eq!(classes, happened, "{text}");
    let text = live.run(&["zpool", "events", "-v", "tank"]).good();
    assert!(text.starts_with("TIME                           CLASS\n"), "{text}");
    assert!(text.contains("        history_command = \"zfs create tank/fs\"\n"), "{text}");
    live.run(&["zpool", "events", "-c"]).good();
    live.run(&["zpool", "clear", "tank"]).good();
    let text = live.run(&["zpool", "events", "-H"]).good();
    let classes: Vec<&str> =
        text.lines().filter_map(|line| line.split_once('\t')).map(|(_, class)| class).collect();
    assert_eq!(classes, ["sysevent.fs.zfs.history_event", "sysevent.fs.zfs.config_sync"], "{text}");
    assert!(live.run(&["zpool", "history", "tank"]).good().ends_with(" zpool clear tank\n\n"));
    let cleared = live.run(&["zpool", "events", "-c"]).good();
    assert!(cleared.starts_with("cleared ") && cleared.ends_with(" events\n"), "{cleared}");
    assert_eq!(live.run(&["zpool", "events"]).good(), "TIME                           CLASS\n");
    assert_eq!(live.run(&["zpool", "events", "-c", "tank"]).status, 2);
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn permissions_are_kept_with_their_dataset_and_go_with_it() {
    let bed = Bed::with_tank(64, &[]);
    for words in [
        &["0", "create,mount,@admin"][..],
        &["-l", "everyone", "compression,quota"],
        &["-d", "-e", "send"],
        &["-c", "destroy"],
        &["-s", "@admin", "create,rename"],
    ] {
        let line = [&["zfs", "allow"], words, &["tank/fs"]].concat();
        assert_eq!(bed.run(&line).good(), "");
    }
    let shown = bed.run(&["zfs", "allow", "tank/fs"]).good();
    let all = "Permission sets:\n\t@admin create,rename\nCreate time permissions:\n\tdestroy\n\
               Local permissions:\n\teveryone compression,quota\nDescendent permissions:\n\teveryone send\n\
               Local+Descendent permissions:\n\tuser root @admin,create,mount\n";
    let dashes = "-".repeat(70 - "---- Permissions on tank/fs ".len());
    assert_eq!(shown, format!("---- Permissions on tank/fs {dashes}\n{all}"));
    bed.run(&["zfs", "create", "tank/fs/below"]).good();
    assert_eq!(bed.run(&["zfs", "allow", "tank/fs/below"]).good(), shown);
    bed.run(&["zfs", "allow", "everyone", "hold", "tank/fs/below"]).good();
    bed.run(&["zfs", "unallow", "0", "create", "tank/fs"]).good();
    bed.run(&["zfs", "unallow", "-r", "everyone", "tank/fs"]).good();
    let shown = bed.run(&["zfs", "allow", "tank/fs/below"]).good();
    assert!(shown.ends_with("Local+Descendent permissions:\n\tuser root @admin,mount\n"), "{shown}");
    assert!(!shown.contains("everyone") && !shown.contains("below"), "{shown}");
    bed.run(&["zfs", "allow", "0", "bogusperm", "tank/fs"])
        .refused("cannot set permissions on 'tank/fs': operation not applicable to datasets of this type");
    bed.expect_sound("tank");
    bed.run(&["zfs", "destroy", "-r", "tank/fs"]).good();
    bed.expect_sound("tank");
}

#[test]
fn a_pool_gets_another_guid_and_is_found_by_it() {
    let bed = Bed::with_tank(64, &[]);
    let guid = |bed: &Bed| bed.pool_values(&["guid", "tank"]).trim().to_owned();
    let first = guid(&bed);
    assert_eq!(bed.run(&["zpool", "reguid", "tank"]).good(), "");
    let second = guid(&bed);
    assert_ne!(first, second);
    bed.expect_sound("tank");
    assert_eq!(bed.run(&["zpool", "reguid", "-g", "1234567", "tank"]).good(), "");
    assert_eq!(guid(&bed), "1234567");
    bed.run(&["zpool", "reguid", "-g", "1234567", "tank"]).refused("cannot reguid 'tank': File exists");
    bed.run(&["zpool", "reguid", "nosuch"]).refused("cannot open 'nosuch': no such pool");
    for (line, first) in [
        (&["-g", "x", "tank"][..], "invalid GUID: x"),
        (&[], "missing pool name"),
        (&["a", "b"], "too many arguments"),
    ] {
        let done = bed.run(&[&["zpool", "reguid"][..], line].concat());
        assert!(done.status == 2 && done.err.lines().next() == Some(first), "{done:?}");
    }
    bed.run(&["zpool", "export", "tank"]).good();
    bed.run(&["zpool", "import", "-d", &bed.path("tank.img").display().to_string(), "1234567"]).good();
    bed.expect_sound("tank");
}

#[test]
fn a_live_pool_gets_another_guid() {
    let Some(live) = Live::with_tank(128) else { return };
    write(&live.path("mnt/file"), b"stays");
    live.run(&["zpool", "reguid", "-g", "77", "tank"]).good();
    assert_eq!(live.run(&["zpool", "get", "-H", "-o", "value", "guid", "tank"]).good(), "77\n");
    live.run(&["zfs", "create", "tank/after"]).good();
    live.run(&["zpool", "export", "tank"]).good();
    live.import().good();
    assert_eq!(std::fs::read(live.path("mnt/file")).unwrap(), b"stays");
    live.run(&["zpool", "export", "tank"]).good();
    live.expect_sound();
}

#[test]
fn a_file_system_reports_when_its_snapshots_changed() {
    let bed = Bed::with_tank(64, &[]);
    let changed = |name: &str| -> Vec<u64> {
        let line = ["zfs", "get", "-Hpo", "value", "snapshots_changed,snapshots_changed_nsecs", name];
        bed.run(&line).good().lines().map(|text| text.parse().unwrap_or(0)).collect()
    };
    assert_eq!(changed("tank/fs"), [0, 0]);
    let mut last = 0;
    for line in
        [&["snapshot", "tank/fs@a"][..], &["rename", "tank/fs@a", "tank/fs@b"], &["destroy", "tank/fs@b"]]
    {
        bed.run(&[&["zfs"][..], line].concat()).good();
        let [seconds, nanoseconds] = changed("tank/fs")[..] else { panic!("two numbers") };
        assert!(nanoseconds > last && nanoseconds / 1_000_000_000 == seconds, "{line:?}");
        last = nanoseconds;
    }
    assert_eq!(changed("tank"), [0, 0]);
    bed.run(&["zfs", "destroy", "tank/fs"]).good();
    bed.expect_sound("tank");
}

#[test]
fn a_vdev_can_be_closed_to_new_data() {
    let bed = Bed::new();
    let images = ["a.img", "b.img"].map(|name| {
        std::fs::File::create(bed.path(name)).unwrap().set_len(128 << 20).unwrap();
        bed.path(name).display().to_string()
    });
    bed.run(&["zpool", "create", "tank", &images[0], &images[1]]).good();
    let available = || -> u64 {
        bed.run(&["zfs", "get", "-Hpo", "value", "available", "tank"]).good().trim().parse().unwrap()
    };
    let allocated = || -> Vec<u64> {
        let text = bed.run(&["zpool", "list", "-vHp", "tank"]).good();
        let vdevs = text.lines().filter(|line| line.starts_with('\t'));
        vdevs.map(|line| line.split('\t').nth(3).unwrap().parse().unwrap()).collect()
    };
    let size = bed.pool_values(&["size", "tank"]);
    let before = available();
    bed.run(&["zpool", "set", "allocating=off", "tank", &images[0]]).good();
    assert_eq!(bed.pool_values(&["allocating", "tank", &images[0], &images[1]]), "off\non\n");
    assert_eq!(bed.pool_values(&["size", "tank"]), size);
    assert!(available() < before * 6 / 10, "{} of {before}", available());
    let was = allocated();
    std::fs::write(bed.path("data"), vec![0x5a; 10 << 20]).unwrap();
    bed.run(&["zfs", "set", "compression=off", "tank"]).good();
    bed.run(&["cp", "-q", "data", "tank:/"]).good();
    let now = allocated();
    assert!(now[0] <= was[0] && now[1] >= was[1] + (10 << 20), "{was:?} {now:?}");
    bed.run(&["zpool", "set", "allocating=off", "tank", &images[1]])
        .refused(&format!("cannot set property allocating for {} on tank: Invalid argument", images[1]));
    bed.run(&["zpool", "set", "allocating=on", "tank", &images[0]]).good();
    assert!(available() + (11 << 20) > before);
    let done = bed.run(&["check", &images[0], &images[1]]);
    assert!(done.status == 0 && done.out.contains(": clean"), "{done:?}");
}

#[test]
fn a_scrub_can_be_about_a_part_of_the_pool() {
    let bed = Bed::with_tank(128, &["compression=off"]);
    let bytes: Vec<u8> = (0..300_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(bed.path("victim"), &bytes).unwrap();
    bed.run(&["cp", "-q", "victim", "tank/fs:/"]).good();
    let status = || bed.run(&["zpool", "status", "tank"]).good();
    let spoil = |with: &[u8]| {
        let image = std::fs::read(bed.path("tank.img")).unwrap();
        let at = image.windows(512).position(|window| window == &bytes[512..1024]).map_or(0, |at| at - 512);
        use std::os::unix::fs::FileExt;
        std::fs::File::options()
            .write(true)
            .open(bed.path("tank.img"))
            .unwrap()
            .write_all_at(with, at as u64)
            .unwrap();
    };
    bed.run(&["zpool", "scrub", "tank"]).good();
    assert!(status().contains("with 0 errors"), "{}", status());
    let last = bed.pool_values(&["last_scrubbed_txg", "tank"]);
    spoil(&[0; 512]);
    // Blocks that the last scrub examined are not examined again.
    bed.run(&["zpool", "scrub", "-C", "tank"]).good();
    assert!(status().contains("with 0 errors"), "{}", status());
    assert!(bed.pool_values(&["last_scrubbed_txg", "tank"]) != last);
    bed.run(&["zpool", "scrub", "-S", "2001-01-01", "-E", "2001-01-02 03:04", "tank"]).good();
    assert!(status().contains("with 0 errors"), "{}", status());
    bed.run(&["zpool", "scrub", "-S", "2001-01-01", "tank"]).good();
    assert!(status().contains("with 1 errors"), "{}", status());
    // A scrub that does not examine a damaged block keeps its known error.
    bed.run(&["zpool", "scrub", "-C", "tank"]).good();
    assert!(status().contains("errors: 1 data errors"), "{}", status());
    bed.run(&["zpool", "scrub", "-e", "tank"]).good();
    assert!(status().contains("errors: 1 data errors"), "{}", status());
    spoil(&bytes[..512]);
    bed.run(&["zpool", "scrub", "-e", "tank"]).good();
    assert!(status().contains("errors: No known data errors"), "{}", status());
    let done = bed.run(&["zpool", "scrub", "-S", "soon", "tank"]);
    assert!(done.status == 2 && done.err.starts_with("Failed to parse the date.\n"), "{done:?}");
    let done = bed.run(&["zpool", "scrub", "-e", "-C", "tank"]);
    assert!(
        done.err.starts_with("invalid option combination: -e and -C are mutually exclusive\n"),
        "{done:?}"
    );
    bed.expect_sound("tank");
}

#[test]
fn strings_that_no_pool_can_keep_are_refused_before_anything_changes() {
    let bed = Bed::with_tank(64, &[]);
    let long = |count: usize| "n".repeat(count);
    bed.run(&["zfs", "snapshot", "tank/fs@1"]).good();
    let held = "cannot hold snapshot 'tank/fs@1'";
    bed.run(&["zfs", "hold", "", "tank/fs@1"]).refused(&format!("{held}: invalid name"));
    bed.run(&["zfs", "hold", &long(256), "tank/fs@1"]).refused(&format!("{held}: tag too long"));
    bed.run(&["zfs", "hold", &long(255), "tank/fs@1"]).good();
    bed.run(&["zfs", "release", "", "tank/fs@1"])
        .refused("cannot release hold from snapshot 'tank/fs@1': no such tag on this dataset");
    bed.run(&["zfs", "release", &long(255), "tank/fs@1"]).good();
    // Its file system's name is short enough, that of the one below is not.
    bed.run(&["zfs", "create", "tank/fs/below"]).good();
    let leaf = long(246);
    bed.run(&["zfs", "snapshot", "-r", &format!("tank/fs@{leaf}")])
        .refused(&format!("cannot create snapshot 'tank/fs/below@{leaf}': dataset name is too long"));
    bed.run(&["zfs", "snapshot", "-r", "tank/fs@2"]).good();
    bed.run(&["zfs", "rename", "-r", "tank/fs@2", &leaf])
        .refused("cannot rename 'tank/fs@2': dataset name is too long");
    let set = format!("@{}", long(63));
    for words in [["-s", &set, "create"], ["-u", "0", &set]] {
        let line = [&["zfs", "allow"][..], &words, &["tank/fs"]].concat();
        bed.run(&line).refused("cannot set permissions on 'tank/fs': invalid permission set name");
    }
    bed.run(&["zfs", "allow", "-s", &set[..63], "create", "tank/fs"]).good();
    bed.expect_sound("tank");
    // A line longer than the ring that the history is kept in: its beginning is kept.
    let values: Vec<String> = (0..20).map(|n| format!("x:n{n}={}", long(8000))).collect();
    let line: Vec<&str> =
        ["zfs", "set"].into_iter().chain(values.iter().map(String::as_str)).chain(["tank/fs"]).collect();
    bed.run(&line).good();
    assert_eq!(get_zfs(&bed, "x:n19", "tank/fs").len(), 8000);
    assert!(bed.run(&["zpool", "history", "tank"]).good().contains("zfs set x:n0=nnn"));
    bed.expect_sound("tank");
}

fn get_zfs(bed: &Bed, property: &str, name: &str) -> String {
    bed.run(&["zfs", "get", "-Ho", "value", property, name]).good().trim_end().to_owned()
}
