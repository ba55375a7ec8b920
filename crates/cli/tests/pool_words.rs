//! The messages of `zpool` about pools, and its refusals before anything is changed.

mod bed;

use std::fs;
use std::process::Command;

use bed::live::Live;
use bed::{Bed, Done, copy_program, root};

/// `NAME.img` of 128 MiB.
fn image(bed: &Bed, name: &str) -> String {
    let path = bed.path(&format!("{name}.img"));
    fs::File::create(&path).expect("made").set_len(128 << 20).expect("long");
    path.display().to_string()
}

/// A pool that OpenZFS made, its images in the folder of its name.
fn golden(bed: &Bed, pool: &str) {
    let unpack = root().join("fixtures/golden/unpack");
    let done = Command::new(unpack).arg(pool).arg(bed.path(pool)).output().expect("it starts");
    assert_eq!(Done::from(done).status, 0);
}

#[test]
fn pool_commands_refuse_names_of_datasets() {
    let Some(live) = Live::with_tank(128) else { return };
    let guid = || live.run(&["zpool", "get", "-H", "-o", "value", "guid", "tank"]).good();
    let before = guid();
    for command in ["reguid", "scrub", "destroy", "prefetch"] {
        for (name, c) in [("tank/fs", '/'), ("tank@s", '@')] {
            live.run(&["zpool", command, name])
                .refused(&format!("cannot open '{name}': invalid character '{c}' in pool name"));
        }
    }
    let done = live.run(&["zpool", "destroy", "tank/fs"]);
    assert!(done.err.ends_with("\nuse 'zfs destroy' to destroy a dataset\n"), "{done:?}");
    for words in [&["clear", "tank/fs"][..], &["upgrade", "tank/fs"], &["set", "comment=x", "tank/fs"]] {
        live.run(&[&["zpool"], words].concat()).refused("cannot open 'tank/fs': no such pool");
    }
    assert_eq!(guid(), before);
    assert!(!live.run(&["zpool", "history", "tank"]).good().contains("scrub"));
}

#[test]
fn a_pool_has_user_properties() {
    let bed = Bed::with_tank(128, &[]);
    bed.run(&["zpool", "set", "user:shelf=upper left", "tank"]).good();
    let line = ["zpool", "get", "-H", "-o", "value,source", "user:shelf", "tank"];
    assert_eq!(bed.run(&line).good(), "upper left\tlocal\n");
    bed.run(&["zpool", "set", "User:x=1", "tank"])
        .refused("cannot set property for 'tank': invalid property 'User:x'");
    bed.run(&["zpool", "set", "user=1", "tank"])
        .refused("cannot set property for 'tank': invalid property 'user'");
    bed.expect_sound("tank");
}

#[test]
fn the_history_of_openzfs_has_its_operations_and_that_of_users_their_names() {
    let bed = Bed::with_tank(128, &[]);
    golden(&bed, "gashift9");
    let events = bed.run(&["-d", "gashift9", "zpool", "history", "-i", "gashift9"]).good();
    for part in ["] create pool version 5000; ", "] set feature@async_destroy=enabled\n"] {
        assert!(events.contains(part), "{part}\n{events}");
    }
    let me = Command::new("id").args(["-un"]).output().expect("id is here").stdout;
    let me = String::from_utf8_lossy(&me).trim().to_owned();
    let long = bed.run(&["zpool", "history", "-l", "tank"]).good();
    let name = format!(" ({me}) on ");
    assert!(long.lines().filter(|line| line.contains(&name)).count() >= 2, "{me}\n{long}");
    // By name, each once.
    bed.run(&["zpool", "create", "a", &image(&bed, "a")]).good();
    let both = bed.run(&["zpool", "history", "tank", "a", "tank"]).good();
    let headings: Vec<_> = both.lines().filter(|line| line.starts_with("History")).collect();
    assert_eq!(headings, ["History for 'a':", "History for 'tank':"]);
}

#[test]
fn a_new_pool_is_refused_where_it_could_not_be_mounted() {
    let bed = Bed::new();
    let data = image(&bed, "data");
    let place = |name: &str| bed.path(name).display().to_string();
    fs::create_dir_all(bed.path("alt/new")).expect("made");
    fs::write(bed.path("alt/new/kept"), "").expect("written");
    fs::write(bed.path("alt/file"), "").expect("written");
    let create = |words: &[&str]| bed.run(&[&["zpool", "create"], words, &["new", &data]].concat());
    let alt = place("alt");
    let filled = format!("mountpoint '{alt}/new' exists and is not empty");
    let file = format!("mountpoint '{alt}/file' : Not a directory");
    let far = format!("/{}", "n".repeat(256));
    for (words, line) in [
        (&["-R", &alt][..], &filled),
        (&["-o", &format!("altroot={alt}")], &filled),
        (&["-m", &place("alt/new")], &filled),
        (&["-O", &format!("mountpoint={alt}/new")], &filled),
        (&["-R", &format!("{alt}/"), "-m", "/new"], &filled),
        (&["-m", &place("alt/file")], &file),
        (&["-R", &alt, "-m", "/file"], &file),
        (&["-m", &far], &format!("mountpoint '{far}' : File name too long")),
    ] {
        let done = create(words);
        assert!(done.err.ends_with("\nuse '-m' option to provide a different default\n"), "{done:?}");
        done.refused(line);
    }
    create(&["-R", "alt"]).refused("invalid alternate root 'alt': must be an absolute path");
    assert!(!bed.path("state/pools.cache").exists(), "nothing was entered");
    assert!(fs::read(&data).expect("there").iter().all(|byte| *byte == 0), "nothing was written");
    create(&["-R", &alt, "-m", "/free"]).good();
}

#[test]
fn status_x_tells_of_each_pool_that_was_named() {
    let bed = Bed::with_tank(128, &[]);
    bed.run(&["zpool", "create", "a", &image(&bed, "a")]).good();
    let both = "pool 'a' is healthy\npool 'tank' is healthy\n";
    assert_eq!(bed.run(&["zpool", "status", "-x", "tank", "a"]).good(), both);
    let done = bed.run(&["zpool", "status", "-x", "tank", "nosuch"]);
    assert_eq!(done.out, "pool 'tank' is healthy\n");
    done.refused("cannot open 'nosuch': no such pool");
    let json = |words: &[&str]| -> serde_json::Value {
        let done = bed.run(&[&["zpool", "status", "-j"], words].concat());
        serde_json::from_str(&done.good()).expect("JSON")
    };
    assert_eq!(json(&["-x"])["pools"], serde_json::json!({}));
    assert!(json(&[])["pools"]["a"].is_object());
    fs::remove_file(bed.path("a.img")).expect("removed");
    let troubled = json(&["-x"]);
    assert!(troubled["pools"]["a"].is_object() && troubled["pools"]["tank"].is_null(), "{troubled}");
    let text = bed.run(&["zpool", "status", "-x", "tank", "a"]).good();
    assert!(text.contains(" state: UNAVAIL\n") && text.ends_with("pool 'tank' is healthy\n"), "{text}");
}

#[test]
fn unknown_devices_of_initialize_and_trim_are_reported_in_order() {
    let bed = Bed::with_tank(128, &[]);
    let status = bed.run(&["zpool", "status", "-ti", "tank"]).good();
    assert!(status.contains("0     0     0  (uninitialized)  (untrimmed)\n"), "{status}");
}

#[test]
fn a_live_pool_whose_device_was_moved_is_read_like_any() {
    let Some(live) = Live::with_tank(128) else { return };
    let image = live.text("tank.img");
    fs::rename(&image, live.path("moved.img")).expect("moved");
    let state = || {
        let status = live.run(&["zpool", "status", "tank"]).good();
        let leaf =
            status.lines().find(|line| line.split_whitespace().next() == Some(&image)).map(str::to_owned);
        leaf.unwrap_or(status).split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(state(), [&image, "ONLINE", "0", "0", "0"]);
    live.run(&["zfs", "create", "tank/after"]).good();
    let names = live.run(&["zfs", "list", "-H", "-o", "name"]).good();
    assert_eq!(names, "tank\ntank/after\n");
    let history = live.run(&["zpool", "history", "tank"]).good();
    assert!(history.contains(" zfs create tank/after\n"), "{history}");
    assert_eq!(live.run(&["zpool", "list", "-H", "-o", "health"]).good(), "ONLINE\n");
    live.run(&["zpool", "reopen", "tank"])
        .refused("cannot reopen 'tank': one or more devices is currently unavailable");
    // Also one that has no name any more.
    fs::remove_file(live.path("moved.img")).expect("removed");
    assert_eq!(state(), [&image, "ONLINE", "0", "0", "0"]);
    let refused = live.run(&["zpool", "export", "tank"]);
    assert!(refused.err.contains("was deleted, and its data ends with"), "{refused:?}");
    live.run(&["zpool", "export", "-f", "tank"]).good();
}

#[test]
fn a_cache_file_lists_the_pools_that_name_it() {
    let bed = Bed::new();
    let cache = bed.path("pools.list").display().to_string();
    let property = format!("cachefile={cache}");
    let data = image(&bed, "tank");
    bed.run(&["zpool", "create", "-o", "cachefile=/nosuch/x", "tank", &data])
        .refused("cannot create 'tank': '/nosuch' is not a valid directory");
    bed.run(&["zpool", "create", "-o", &property, "tank", &data]).good();
    assert!(fs::metadata(&cache).is_ok());
    let kept = bed.path("kept.list").display().to_string();
    fs::copy(&cache, &kept).expect("copied");
    bed.run(&["zpool", "export", "tank"]).good();
    assert!(fs::metadata(&cache).is_err(), "it lists nothing any more");
    bed.run(&["zpool", "import", "-c", &kept, "-o", "cachefile=/nosuch/x", "tank"])
        .refused("cannot import 'tank': '/nosuch' is not a valid directory");
    bed.run(&["zpool", "import", "-c", &kept, "tank"]).good();
    assert!(fs::metadata(&cache).is_err());
    bed.run(&["zpool", "set", &property, "tank"]).good();
    assert_eq!(fs::read(&cache).expect("there"), fs::read(&kept).expect("there"));
    bed.run(&["zpool", "set", "cachefile=/nosuch/x", "tank"])
        .refused("cannot set property for 'tank': '/nosuch' is not a valid directory");
    bed.run(&["zpool", "set", "cachefile=/", "tank"])
        .refused("cannot set property for 'tank': '/' is not a valid file");
    bed.run(&["zpool", "set", "cachefile=none", "tank"]).good();
    assert!(fs::metadata(&cache).is_err());
    let line = ["zpool", "import", "-c", &cache];
    bed.run(&line).refused("cannot discover pools: invalid or missing cache file");
    bed.run(&[&line[..], &["tank2"]].concat())
        .refused("cannot import 'tank2': invalid or missing cache file");
    let hint = bed.run(&line).err;
    assert!(hint.ends_with("': No such file or directory\n"), "{hint}");
}

#[test]
fn a_log_device_holds_nothing_of_a_pools_capacity() {
    let bed = Bed::new();
    golden(&bed, "glog");
    let list = bed.run(&["-d", "glog", "zpool", "list", "-Hpo", "alloc,free"]).good();
    let load = bed.run(&["-d", "glog", "zpool", "iostat", "-Hp"]).good();
    let space: Vec<&str> = load.trim_end().split('\t').skip(1).take(2).collect();
    assert_eq!(space.join("\t"), list.trim_end());
    // Without it the pool is imported only by `-m`.
    fs::remove_file(bed.path("glog/glog.1.img")).expect("removed");
    let import = ["zpool", "import", "-d", "glog", "glog"];
    bed.run(&import).refused("cannot import 'glog': one or more devices is currently unavailable");
    bed.run(&[&import[..], &["-m"]].concat()).good();
    let health = bed.run(&["zpool", "list", "-Ho", "health", "glog"]).good();
    assert_eq!(health.trim_end(), "DEGRADED");
}

#[test]
fn a_denied_device_is_reported_without_error_numbers() {
    if Command::new("id").arg("-u").output().expect("id is here").stdout != b"0\n" {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let bed = Bed::new();
    let data = image(&bed, "data");
    let open = |path: &std::path::Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("set");
    };
    open(data.as_ref(), 0o600);
    open(&bed.path(""), 0o777);
    copy_program(&bed.path("cenote"));
    let stranger = bed.command(&[]);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(bed.path("cenote"));
    bed::in_place_of(&stranger, command.args(["zpool", "create", "-m", "none", "p", &data]));
    let done = Done::from(command.output().expect("it starts"));
    assert!(done.err.contains("Permission denied") && !done.err.contains("os error"), "{done:?}");
    done.refused("cannot create 'p': permission denied");
}

#[test]
fn errors_of_a_pool_that_is_only_read_are_not_cleared() {
    let bed = Bed::with_tank(128, &[]);
    bed.run(&["zpool", "export", "tank"]).good();
    bed.run(&["zpool", "import", "-o", "readonly=on", "-d", "tank.img", "tank"]).good();
    bed.run(&["zpool", "clear", "tank"]).refused("cannot clear errors for tank: pool is read-only");
}

#[test]
fn variables_name_vdevs_as_options_do() {
    let Some(live) = Live::with_tank(128) else { return };
    std::os::unix::fs::symlink(live.path("tank.img"), live.path("link.img")).expect("linked");
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-d", &live.text("link.img"), "tank"]).good();
    for (variable, option) in [
        ("ZPOOL_VDEV_NAME_GUID", "-g"),
        ("ZPOOL_VDEV_NAME_FOLLOW_LINKS", "-L"),
        ("ZPOOL_VDEV_NAME_PATH", "-P"),
    ] {
        for words in [&["status"][..], &["list", "-vHo", "name"], &["iostat", "-vH"]] {
            let line = [&["zpool"], words].concat();
            let names = |done: Done| -> Vec<String> {
                let text = done.good();
                let words = text.lines().filter_map(|line| line.split_whitespace().next());
                words.map(str::to_owned).collect()
            };
            let asked = names(live.run(&[&line[..], &[option]].concat()));
            let mut command = live.command(&line);
            let told = names(command.env(variable, "YES").output().expect("it starts").into());
            assert_eq!(told, asked, "{variable} {words:?}");
            let mut command = live.command(&line);
            let plain = names(command.env(variable, "0").output().expect("it starts").into());
            assert_eq!(plain == asked, option == "-P", "{variable} {words:?}");
        }
    }
}

#[test]
fn a_new_pool_takes_quotas_of_owners_for_its_root() {
    let bed = Bed::new();
    let data = image(&bed, "data");
    let create = |words: &[&str]| bed.run(&[&["zpool", "create"], words, &["new", &data]].concat());
    for (option, line) in [
        (
            "userquota@nosuchuser=1M",
            "cannot create 'new': 'userquota@nosuchuser' has an invalid user/group name",
        ),
        ("userused@1000=1M", "cannot create 'new': 'userused@1000' is readonly"),
        ("userquota@1000=x", "cannot create 'new': bad numeric value 'x'"),
        ("written@a=1", "property 'written@a' is not a valid filesystem property"),
        ("userquota@1000", "missing '=' for -O option"),
    ] {
        create(&["-O", option]).refused(line);
    }
    create(&["-o", "ashift"]).refused("missing '=' for -o option");
    let mut words = Vec::new();
    for option in ["userquota@1000=10M", "groupquota@7=1G", "projectobjquota@5=3", "defaultuserquota=4M"] {
        words.extend(["-O", option]);
    }
    create(&words).good();
    let list = "userquota@1000,groupquota@7,projectobjquota@5,defaultuserquota";
    assert_eq!(bed.run(&["zfs", "get", "-Ho", "value", list, "new"]).good(), "10M\n1G\n3\n4M\n");
}

#[test]
fn properties_of_a_pool_that_is_not_there_are_refused_alone() {
    let bed = Bed::with_tank(64, &[]);
    let line = "Cannot get properties of nosuch: no such pool available.";
    for names in [&["nosuch"][..], &["nosuch", "tank"], &["nosuch", "nosuch2"]] {
        let done = bed.run(&[&["zpool", "get", "size"], names].concat());
        assert_eq!((done.out.as_str(), done.err.trim_end(), done.status), ("", line, 1), "{names:?}");
    }
    let done = bed.run(&["zpool", "get", "size", "tank", "nosuch"]);
    assert!(done.err.starts_with("Expected a list of vdevs in \"tank\", but got:\n"), "{done:?}");
}

#[test]
fn zpool_sync_takes_the_option_f() {
    let bed = Bed::with_tank(64, &[]);
    bed.run(&["zpool", "sync", "-f"]).good();
    bed.run(&["zpool", "sync", "-f", "tank"]).good();
    bed.run(&["zpool", "sync", "-f", "nosuch"]).refused("cannot open 'nosuch': no such pool");
}

#[test]
fn a_new_pool_has_blake3_and_uses_it_where_it_is_asked_for() {
    let bed = Bed::with_tank(64, &[]);
    let state = || bed.run(&["zpool", "get", "-Ho", "value", "feature@blake3", "tank"]).good();
    assert_eq!(state(), "enabled\n");
    bed.expect_sound("tank");
    bed.run(&["zfs", "set", "checksum=blake3", "tank/fs"]).good();
    fs::write(bed.path("file"), vec![7; 300_000]).expect("written");
    bed.run(&["cp", &bed.path("file").display().to_string(), "tank/fs:/file"]).good();
    assert_eq!(state(), "active\n");
    assert_eq!(bed.run(&["cat", "tank/fs:/file"]).out.len(), 300_000);
    assert!(bed.run(&["check", "tank.img"]).good().contains(": clean"));
    let data = image(&bed, "data");
    bed.run(&["zpool", "create", "-o", "compatibility=openzfs-2.1-linux", "old", &data]).good();
    bed.run(&["zfs", "set", "checksum=blake3", "old"])
        .refused("cannot set property for 'old': pool must be upgraded to set this property or value");
}
