//! Space accounting and quotas of owners, through the command line.

mod bed;

use bed::Bed;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 7u64;
    let mut step = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(|_| step()).collect()
}

/// `tank/fs` with one file of so many bytes in it, uncompressed.
fn filled(bytes: usize) -> Bed {
    let bed = Bed::with_tank(128, &["compression=off"]);
    std::fs::write(bed.path("f"), noise(bytes)).expect("written");
    let file = bed.path("f").display().to_string();
    bed.run(&["cp", &file, "tank/fs:/"]).good();
    bed
}

#[test]
fn quotas_of_users_are_set_shown_and_kept() {
    let bed = filled(3 << 20);
    bed.run(&["zfs", "set", "userquota@root=1G", "groupobjquota@4242=5", "tank/fs"]).good();
    let user = std::process::Command::new("id").arg("-u").output().expect("id runs").stdout;
    if user == b"0\n" {
        assert_eq!(
            bed.run(&["zfs", "userspace", "tank/fs"]).good(),
            "TYPE        NAME   USED  QUOTA  OBJUSED  OBJQUOTA\n\
             POSIX User  root  3.00M     1G        2      none\n"
        );
        assert_eq!(
            bed.run(&["zfs", "groupspace", "-H", "-o", "name,used,objquota", "tank/fs"]).good(),
            "4242\t-\t5\nroot\t3.00M\tnone\n"
        );
        assert_eq!(
            bed.run(&["zfs", "projectspace", "-p", "-o", "type,name,objused,quota", "tank/fs"]).good(),
            "TYPE     NAME  OBJUSED  QUOTA\nProject  0           2      0\n"
        );
    }
    assert_eq!(
        bed.run(&["zfs", "get", "userquota@root,userquota@0,groupobjquota@4242,userobjquota@9", "tank/fs"])
            .good(),
        "NAME     PROPERTY            VALUE               SOURCE\n\
         tank/fs  userquota@root      1G                  local\n\
         tank/fs  userquota@0         1G                  local\n\
         tank/fs  groupobjquota@4242  5                   local\n\
         tank/fs  userobjquota@9      none                local\n"
    );
    bed.run(&["zfs", "set", "userquota@root=none", "defaultuserquota=10M", "tank/fs"]).good();
    assert_eq!(bed.run(&["zfs", "get", "-Hpo", "value", "userquota@root", "tank/fs"]).good(), "0\n");
    assert_eq!(bed.run(&["zfs", "get", "-Hpo", "value", "defaultuserquota", "tank/fs"]).good(), "10485760\n");
    let history = bed.run(&["zpool", "history", "tank"]).good();
    assert!(history.contains("zfs set userquota@root=1G groupobjquota@4242=5 tank/fs"), "{history}");
    bed.run(&["zfs", "set", "userquota@nosuchuser=1G", "tank/fs"])
        .refused("cannot set property for 'tank/fs': 'userquota@nosuchuser' has an invalid user/group name");
    bed.run(&["zfs", "userspace", "-o", "bogus", "tank/fs"]).refused("invalid type 'bogus' for -o option");
    bed.run(&["zfs", "userspace", "tank/no"]).refused("cannot open 'tank/no': dataset does not exist");
    bed.expect_sound("tank");
}

#[test]
fn projects_are_listed_set_checked_and_cleared() {
    let bed = Bed::with_tank(128, &[]);
    std::fs::create_dir_all(bed.path("d/e")).expect("made");
    std::fs::write(bed.path("d/c"), "c").expect("written");
    let folder = bed.path("d").display().to_string();
    bed.run(&["cp", "-r", &folder, "tank/fs:/"]).good();
    bed.run(&["zfs", "project", "-p", "7", "-s", "tank/fs:/d"]).good();
    assert_eq!(bed.run(&["zfs", "project", "-d", "tank/fs:/d"]).good(), "    7 P tank/fs:/d\n");
    assert_eq!(
        bed.run(&["zfs", "project", "-r", "tank/fs:/d"]).good(),
        "    7 P tank/fs:/d\n    0 - tank/fs:/d/c\n    0 - tank/fs:/d/e\n"
    );
    std::fs::write(bed.path("new"), "n").expect("written");
    bed.run(&["cp", &bed.path("new").display().to_string(), "tank/fs:/d/"]).good();
    assert_eq!(bed.run(&["zfs", "project", "tank/fs:/d/new"]).good(), "    7 - tank/fs:/d/new\n");
    let wrong = bed.run(&["zfs", "project", "-c", "tank/fs:/d"]).good();
    assert!(wrong.starts_with("tank/fs:/d/c - project ID is not set properly (0/7)\n"), "{wrong}");
    bed.run(&["zfs", "project", "-r", "-s", "-p", "8", "tank/fs:/d"]).good();
    assert_eq!(bed.run(&["zfs", "project", "-c", "tank/fs:/d"]).good(), "");
    assert_eq!(
        bed.run(&["zfs", "projectspace", "-H", "-o", "name,objused", "tank/fs"]).good(),
        "0\t1\n8\t4\n"
    );
    bed.run(&["zfs", "project", "-r", "-C", "tank/fs:/d"]).good();
    assert_eq!(bed.run(&["zfs", "projectspace", "-H", "-o", "name,objused", "tank/fs"]).good(), "0\t5\n");
    bed.expect_sound("tank");
}

#[test]
fn limits_below_what_is_used_are_refused_in_the_words_of_openzfs() {
    let bed = filled(3 << 20);
    let refused = |property: &str, why: &str| {
        bed.run(&["zfs", "set", property, "tank/fs"])
            .refused(&format!("cannot set property for 'tank/fs': size is {why}"));
    };
    refused("quota=1M", "less than current used or reserved space");
    refused("refquota=1M", "less than current used or reserved space");
    refused("reservation=500M", "greater than available space");
    refused("refreservation=500M", "greater than available space");
    bed.run(&["zfs", "create", "-o", "reservation=500M", "tank/no"])
        .refused("cannot create 'tank/no': out of space");
    bed.run(&["zfs", "set", "quota=10M", "reservation=5M", "tank/fs"]).good();
    refused("reservation=11M", "greater than available space");
    refused("quota=4M", "less than current used or reserved space");
    bed.run(&["zfs", "set", "filesystem_limit=3", "tank"]).good();
    assert_eq!(bed.run(&["zfs", "get", "-Ho", "value", "filesystem_count", "tank"]).good(), "1\n");
    bed.expect_sound("tank");
}

#[test]
fn rewrite_brings_old_files_to_the_present_settings() {
    let bed = Bed::with_tank(128, &["compression=off"]);
    std::fs::create_dir_all(bed.path("d/e")).expect("made");
    for name in ["d/a", "d/e/b"] {
        std::fs::write(bed.path(name), "the same line again\n".repeat(50_000)).expect("written");
    }
    let folder = bed.path("d").display().to_string();
    bed.run(&["cp", "-r", &folder, "tank/fs:/"]).good();
    let ratio = || bed.run(&["zfs", "get", "-Ho", "value", "compressratio", "tank/fs"]).good();
    assert_eq!(ratio(), "1.00x\n");
    bed.run(&["zfs", "set", "compression=gzip-9", "tank/fs"]).good();
    assert_eq!(bed.run(&["zfs", "rewrite", "-v", "tank/fs:/d"]).good(), "", "folders need -r");
    assert_eq!(ratio(), "1.00x\n");
    assert_eq!(bed.run(&["zfs", "rewrite", "-rv", "tank/fs:/d"]).good(), "tank/fs:/d/a\ntank/fs:/d/e/b\n");
    assert_ne!(ratio(), "1.00x\n");
    let done = bed.run(&["cat", "tank/fs:/d/e/b"]).good();
    assert_eq!(done, "the same line again\n".repeat(50_000));
    let done = bed.run(&["zfs", "rewrite", "/nosuch"]);
    let said = "failed to stat /nosuch: No such file or directory\n";
    // The status is the number of the error, as of OpenZFS.
    assert!(done.status == 2 && done.err == said, "{done:?}");
    assert_eq!(bed.run(&["zfs", "rewrite"]).status, 2);
    bed.expect_sound("tank");
}

/// The advice about a dataset: its JSON, measured with nothing.
fn advice(bed: &Bed, place: &str, more: &[&str]) -> serde_json::Value {
    let mut line = vec!["advise", "--json", "--time", "2", "--disk-write", "200", "--disk-read", "200"];
    line.extend(more);
    line.push(place);
    serde_json::from_str(&bed.run(&line).good()).expect("JSON")
}

#[test]
fn advice_about_a_dataset_counts_with_its_pool_and_compares_with_what_it_takes() {
    let bed = Bed::new();
    for number in 0..3 {
        let disk = std::fs::File::create(bed.path(&format!("d{number}"))).expect("made");
        disk.set_len(128 << 20).expect("long");
    }
    let disks: Vec<String> =
        (0..3).map(|number| bed.path(&format!("d{number}")).display().to_string()).collect();
    let mut line = vec!["zpool", "create", "-o", "ashift=9", "-O", "compression=off", "tank", "raidz1"];
    line.extend(disks.iter().map(String::as_str));
    bed.run(&line).good();
    std::fs::create_dir(bed.path("src")).expect("made");
    let text = |n: usize| (0..n).map(|line| format!("{line} {}\n", line * 7919 % 1000)).collect::<String>();
    std::fs::write(bed.path("src/text"), text(200_000)).expect("written");
    std::fs::write(bed.path("src/noise"), noise(1 << 20)).expect("written");
    let src = bed.path("src").display().to_string();
    bed.run(&["cp", "-r", &src, "tank:/"]).good();

    let told = advice(&bed, "tank", &["--compression", "off,zstd-3", "--recordsize", "128K"]);
    assert_eq!((&told["ashift"], &told["ashift_from"]), (&9.into(), &"pool".into()), "{told}");
    assert_eq!((&told["layout"], &told["layout_from"]), (&"raidz1:3".into(), &"pool".into()), "{told}");
    let now = &told["now"];
    assert_eq!((&now["compression"], &now["recordsize"]), (&"off".into(), &131_072.into()), "{told}");
    let taken: f64 =
        bed.run(&["zfs", "get", "-Hpo", "value", "referenced", "tank"]).good().trim().parse().unwrap();
    let (saved, then) = (now["saved_bytes"].as_f64().unwrap(), now["predicted_bytes"].as_f64().unwrap());
    assert_eq!(now["referenced_bytes"].as_f64(), Some(taken), "{told}");
    assert!((saved - (taken - then)).abs() < 1.0 && saved > 0.3 * taken, "{told}");
    // Its figure for the settings of the dataset is the space that the dataset takes.
    let same = advice(&bed, "tank", &["--compression", "off", "--recordsize", "128K"]);
    let part = same["now"]["saved_part"].as_f64().unwrap();
    assert!(part.abs() < 0.01, "{same}");

    let given = advice(&bed, "tank:/src", &["--ashift", "12", "--layout", "mirror:2"]);
    assert_eq!((&given["ashift"], &given["ashift_from"]), (&12.into(), &"given".into()), "{given}");
    assert!(given["now"]["referenced_bytes"].is_null(), "a part of a dataset has no such figure: {given}");
    let folder = advice(&bed, &src, &[]);
    assert_eq!(folder["ashift_from"], "assumed", "{folder}");
    assert!(folder["now"].is_null(), "{folder}");
}
