//! The JSON of commands for which OpenZFS has none.

mod bed;

use std::fs;
use std::process::{Command, Stdio};

use bed::{Bed, Done};
use serde_json::{Value, json};

/// The one object that a command prints, in the envelope of OpenZFS's JSON.
fn framed(bed: &Bed, words: &[&str]) -> Value {
    let all = bed.run(words).objects();
    let [object] = all.as_slice() else { panic!("{words:?}: {all:?}") };
    let version = json!({ "command": words[..2].join(" "), "vers_major": 0, "vers_minor": 1 });
    assert_eq!(object["output_version"], version, "{words:?}");
    object.clone()
}

#[test]
fn userspace_in_json_lists_owners_by_dataset() {
    let bed = Bed::with_tank(128, &["userquota@4000000000=1M", "defaultgroupquota=2M"]);
    fs::write(bed.path("note"), vec![7; 5000]).expect("written");
    let note = bed.path("note").display().to_string();
    bed.run(&["cp", &note, "tank/fs:/"]).good();
    let all = framed(&bed, &["zfs", "userspace", "-n", "-j", "--json-int", "tank/fs"]);
    let owners = all["datasets"]["tank/fs"]["owners"].as_array().expect("a list");
    let limited = owners.iter().find(|owner| owner["name"] == "4000000000").expect("it has a quota");
    assert_eq!((&limited["type"], &limited["quota"]), (&json!("POSIX User"), &json!(1 << 20)));
    assert!(owners.iter().any(|owner| owner["used"].as_u64().is_some_and(|used| used >= 1024)), "{owners:?}");
    let all = framed(&bed, &["zfs", "groupspace", "-j", "-o", "name,quota", "tank/fs"]);
    let owner = &all["datasets"]["tank/fs"]["owners"][0];
    assert_eq!((&owner["quota"], owner.as_object().map(serde_json::Map::len)), (&json!("2M"), Some(2)));
    let all = framed(&bed, &["zfs", "projectspace", "-j", "tank/fs"]);
    assert_eq!(all["datasets"]["tank/fs"]["owners"][0]["type"], "Project");
    let files = bed.run(&["zfs", "project", "-j", "tank/fs:/"]).objects();
    assert_eq!(files[1..], [json!({ "path": "tank/fs:/note", "project": 0, "inherits": false })]);
    let differs = bed.run(&["zfs", "project", "-c", "-p", "7", "-j", "tank/fs:/"]).objects();
    assert_eq!(differs[0]["wanted"], 7);
}

#[test]
fn allow_and_upgrade_in_json_list_grants_versions_and_features() {
    let bed = Bed::with_tank(128, &["version=4"]);
    bed.run(&["zfs", "allow", "-e", "mount,send", "tank"]).good();
    bed.run(&["zfs", "allow", "-l", "-u", "root", "create", "tank/fs"]).good();
    let all = framed(&bed, &["zfs", "allow", "-j", "tank/fs"]);
    let root = json!([{ "type": "user", "name": "root", "permissions": ["create"] }]);
    assert_eq!(all["datasets"]["tank/fs"]["local"], root);
    let everyone = json!([{ "type": "everyone", "permissions": ["mount", "send"] }]);
    assert_eq!(all["datasets"]["tank"]["local_descendent"], everyone);
    let done = bed.run(&["zfs", "allow", "-j", "-e", "mount", "tank"]);
    assert!(done.status == 2 && done.err.starts_with("-j can only be used with a dataset alone"), "{done:?}");

    let all = framed(&bed, &["zfs", "upgrade", "-j"]);
    assert_eq!(all["datasets"], json!({ "tank/fs": { "name": "tank/fs", "version": 4 } }));
    assert_eq!(framed(&bed, &["zfs", "upgrade", "-v", "-j"])["versions"].as_array().map(Vec::len), Some(5));
    let all = framed(&bed, &["zpool", "upgrade", "-j"]);
    assert_eq!(all["pools"]["tank"], json!({ "name": "tank", "version": 5000, "missing_features": [] }));
    let all = framed(&bed, &["zpool", "upgrade", "-v", "-j"]);
    assert!(
        all["features"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "zstd_compress"))
    );
    assert_eq!(all["legacy_versions"].as_array().map(Vec::len), Some(28));
    for program in ["zfs", "zpool"] {
        let done = bed.run(&[program, "upgrade", "-j", "tank"]);
        assert!(done.status == 2 && done.err.starts_with("-j can only be used without "), "{done:?}");
    }
}

#[test]
fn import_in_json_lists_importable_and_imported_pools() {
    let bed = Bed::with_tank(128, &[]);
    let image = bed.path("tank.img").display().to_string();
    let guid = bed.pool_values(&["guid", "tank"]).trim().to_owned();
    bed.run(&["zpool", "export", "tank"]).good();
    let all = framed(&bed, &["zpool", "import", "-d", &image, "-j"]);
    let pool = &all["pools"]["tank"];
    assert_eq!((&pool["state"], &pool["pool_guid"]), (&json!("ONLINE"), &json!(guid)));
    assert_eq!((&pool["vdevs"][&image]["state"], &pool["destroyed"]), (&json!("ONLINE"), &json!(false)));
    assert!(pool["action"].as_str().is_some_and(|action| action.starts_with("The pool can be imported")));
    let line = ["zpool", "import", "-d", &image, "-o", "readonly=on", "-j", "tank", "other"];
    let all = framed(&bed, &line);
    let wanted = json!({ "name": "other", "pool_guid": guid, "read_only": true, "devices": [image] });
    assert_eq!(all["pools"], json!({ "other": wanted }));
    let done = bed.run(&["zpool", "import", "-d", &image, "-j"]);
    assert_eq!((done.status, done.err.as_str()), (0, "no pools available to import\n"));
    assert!(done.out.ends_with("\"pools\":{}}\n"), "{done:?}");
    // Errors are printed only on standard error.
    let done = bed.run(&["zpool", "import", "-d", &image, "-j", "nosuch"]);
    assert_eq!((done.status, done.out.as_str()), (1, ""));
}

#[test]
fn iostat_in_json_has_the_figures_of_devices_for_each_report() {
    let bed = Bed::new();
    let images = ["a.img", "b.img"].map(|name| bed.path(name).display().to_string());
    for image in &images {
        fs::File::create(image).expect("made").set_len(64 << 20).expect("long");
    }
    bed.run(&["zpool", "create", "tank", "mirror", &images[0], &images[1]]).good();
    let all = framed(&bed, &["zpool", "iostat", "-v", "-l", "-q", "-j", "--json-int", "tank"]);
    let pool = &all["pools"]["tank"];
    assert!(pool["capacity"]["alloc"].as_u64().is_some_and(|bytes| bytes > 0), "{pool}");
    assert!(pool["operations"]["read"].is_u64() && pool["syncq_read"]["pend"].is_u64(), "{pool}");
    let mirror = &pool["vdevs"]["mirror-0"];
    assert_eq!(
        (&mirror["class"], &mirror["vdevs"][&images[1]]["name"]),
        (&json!("normal"), &json!(images[1]))
    );
    assert_eq!(pool["vdevs"].as_object().map(serde_json::Map::len), Some(1));
    let rounds = bed.run(&["zpool", "iostat", "-j", "tank", "0.01", "3"]).objects();
    assert_eq!(rounds.len(), 3);
    assert_eq!(rounds[0]["pools"]["tank"]["operations"]["write"], "0");
    let all = framed(&bed, &["zpool", "iostat", "-r", "-p", "-j", "tank", &images[0]]);
    let leaf = &all["pools"]["tank"]["vdevs"][&images[0]];
    assert!(leaf["req_size"]["512"]["sync_read"]["ind"].is_string(), "{all}");
    let all = framed(&bed, &["zpool", "iostat", "-w", "-j", "tank"]);
    assert!(all["pools"]["tank"]["latency"]["1ns"]["total_wait"]["read"].is_string(), "{all}");
    // In a pipe, the table has all columns.
    let whole = bed.run(&["zpool", "iostat", "-lq", "tank"]).good();
    assert!(whole.lines().all(|line| line.len() > 200), "{whole}");
}

#[test]
fn tables_of_iostat_fit_the_terminal() {
    let bed = Bed::with_tank(64, &[]);
    // `None` where there is no `script` to make a terminal.
    let longest = |options: &str| {
        let mut script = Command::new("script");
        let line = format!("stty cols 80; {} zpool iostat {options} tank", env!("CARGO_BIN_EXE_cenote"));
        script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
        bed::in_place_of(&bed.command(&[]), &mut script);
        let done =
            Done::from(script.output().inspect_err(|error| eprintln!("skipped: script: {error}")).ok()?);
        assert_eq!(done.status, 0, "{done:?}");
        let words: Vec<&str> = done.out.split_whitespace().collect();
        let is_told = words.join(" ").contains("--wide shows all columns");
        Some((done.out.lines().map(str::len).max().unwrap_or(0), is_told))
    };
    for options in ["-l", "-q", "-lq", "-vlq", "-r", "-w"] {
        let Some((width, is_told)) = longest(options) else { return };
        assert!(width <= 80 && is_told, "{options}: {width}");
    }
    assert!(longest("-lq --wide").is_some_and(|(width, is_told)| width > 200 && !is_told));
}

#[test]
fn what_was_unpacked_is_told() {
    let bed = Bed::with_tank(128, &[]);
    fs::create_dir(bed.path("src")).expect("made");
    fs::write(bed.path("src/a"), "hello").expect("written");
    std::os::unix::fs::symlink("a", bed.path("src/b")).expect("linked");
    fs::hard_link(bed.path("src/a"), bed.path("src/c")).expect("linked");
    let mut tar = Command::new("tar");
    tar.args(["-c", "--format=pax", "--sort=name", "-C"])
        .arg(bed.path("src"))
        .arg(".")
        .stdout(Stdio::piped());
    let mut tar = tar.spawn().expect("tar is here");
    let mut command = bed.command(&["tar", "-x", "--json", "tank/fs:/"]);
    let done = command.stdin(tar.stdout.take().expect("a pipe")).output().expect("the program starts");
    assert!(tar.wait().expect("it ends").success());
    let said = Done::from(done).objects();
    let wanted = json!({
        "schema": 1, "files": 1, "directories": 1, "symlinks": 1, "others": 0, "hard_links": 1, "bytes": 5,
        "errors": 0, "stopped": false,
    });
    assert_eq!(said, [wanted]);
    let done = bed.run(&["tar", "-c", "--json", "tank/fs"]);
    assert!(done.status == 2 && done.out.is_empty(), "{done:?}");
}
