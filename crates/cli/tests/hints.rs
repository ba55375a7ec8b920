//! Hints that commands print for people: the probable meaning of a misspelt word, and notices, which `-q` leaves out.

mod bed;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use bed::{Bed, Done};

/// Whom tests that run as root become.
const NOBODY: u32 = 65534;

/// A pool with a file system, a volume, a snapshot and a bookmark.
fn furnished() -> Bed {
    let bed = Bed::with_tank(128, &[]);
    for line in [
        "rename tank/fs tank/home",
        "create -V 8M tank/volume",
        "snapshot tank/home@monday",
        "bookmark tank/home@monday tank/home#mark",
    ] {
        run(&bed, &format!("zfs {line}")).good();
    }
    File::create(bed.path("new.img")).expect("made").set_len(64 << 20).expect("long");
    bed
}

/// Runs a line in which `%` stands for the folder of the bed.
fn run(bed: &Bed, line: &str) -> Done {
    let folder = bed.path("").display().to_string();
    let words: Vec<String> = line.split(' ').map(|word| word.replace("%/", &folder)).collect();
    bed.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn every_misspelt_name_is_answered_with_the_one_that_was_meant() {
    let bed = furnished();
    let mut wrong = Vec::new();
    for (line, meant) in [
        ("zfs snapshot tank/hoem@x", "tank/home"),
        ("zfs snapshot tnak@x", "tank"),
        ("zfs snapshot tank@x tank/hoem@x", "tank/home"),
        ("zfs bookmark tank/home@mondya tank/home#x", "tank/home@monday"),
        ("zfs destroy tank/home@mondya", "tank/home@monday"),
        ("zfs destroy tank/home#makr", "tank/home#mark"),
        ("zfs diff tank/home@mondya", "tank/home@monday"),
        ("zfs redact tank/home@monday b tank/home@mondya", "tank/home@monday"),
        ("zfs userspace -o nmae tank/home", "name"),
        ("zfs userspace -S uesd tank/home", "used"),
        ("zfs groupspace -t posixgruop tank/home", "posixgroup"),
        ("zfs allow root craete tank/home", "create"),
        ("zfs allow root compresion tank/home", "compression"),
        ("zfs unallow root snapshto tank/home", "snapshot"),
        ("zfs allow rooot create tank/home", "root"),
        ("zfs set userquota@rooot=1G tank/home", "userquota@root"),
        ("zpool events tnak", "tank"),
        ("zfs wait -t deletq tank/home", "deleteq"),
        ("zpool wait -t scurb tank", "scrub"),
        ("zpool prefetch -t dtd tank", "ddt"),
        ("zpool create -O compresion=on new %/new.img", "compression"),
        ("zpool create -o feature@zstd_compres=enabled new %/new.img", "feature@zstd_compress"),
        ("zpool get feature@zstd_compres tank", "feature@zstd_compress"),
        ("zpool create -o compatibility=openzfs-2.1-lniux new %/new.img", "openzfs-2.1-linux"),
        ("zpool import -o redaonly=on tank", "readonly"),
        ("zpool remove tank %/tnak.img", "%/tank.img"),
        ("zpool online tank %/tnak.img", "%/tank.img"),
        ("zpool offline tank tnak.img", "%/tank.img"),
        ("zpool attach tank %/tnak.img %/new.img", "%/tank.img"),
        ("zpool replace tank %/tnak.img %/new.img", "%/tank.img"),
        ("zpool detach tank %/tnak.img", "%/tank.img"),
        ("zpool trim tank %/tnak.img", "%/tank.img"),
        ("zpool iostat tnak", "tank"),
        ("zpool iostat tank %/tnak.img", "%/tank.img"),
        ("zpool get size tnak", "tank"),
        ("zpool get size tank %/tnak.img", "%/tank.img"),
        ("zpool set comment=x tank %/tnak.img", "%/tank.img"),
        ("cp tank/hoem:/x .", "tank/home"),
        ("advise tank/hoem", "tank/home"),
        ("export tnak", "tank"),
        ("backup tank/home tnak/copy", "tank"),
    ] {
        let done = run(&bed, line);
        let meant = meant.replace("%/", &bed.path("").display().to_string());
        let said =
            done.err.lines().filter(|line| line.starts_with(&format!("did you mean '{meant}'?"))).count();
        if said != 1 {
            wrong.push(format!("{line}: {done:?}"));
        }
        // OpenZFS ends well after these three.
        let ends_well =
            ["zpool import", "zpool events", "zfs allow rooot"].iter().any(|start| line.starts_with(start));
        assert!((done.status == 0) == ends_well, "{line}: {done:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bed.expect_sound("tank");
}

#[test]
fn a_file_that_is_not_there_is_answered_with_the_command_that_makes_it() {
    let bed = furnished();
    let done = run(&bed, "zpool create more more.img");
    let hint = format!(
        "an image is written with its whole path: 'truncate -s 1G {0}'",
        bed.path("more.img").display()
    );
    assert!(
        done.status == 1 && done.err.lines().nth(2).is_some_and(|line| line.starts_with(&hint)),
        "{done:?}"
    );
    for line in [
        "zpool create more %/more.img",
        "zpool add tank %/more.img",
        "zpool attach tank %/tank.img %/more.img",
        "zpool replace tank %/tank.img %/more.img",
    ] {
        let done = run(&bed, line);
        let hint =
            format!("there is no such image: 'truncate -s 1G {}' makes one", bed.path("more.img").display());
        let first = format!("cannot resolve path '{}'", bed.path("more.img").display());
        let is_short = done.err.lines().count() == 2 && done.err.lines().next() == Some(&first);
        assert!(done.status == 1 && is_short, "{line}: {done:?}");
        assert!(done.err.lines().last().is_some_and(|last| last.starts_with(&hint)), "{line}: {done:?}");
    }
}

/// A command where nothing can be mounted: its user is not root, and has no `fusermount3`.
fn without_fuse(bed: &Bed, words: &[&str]) -> Done {
    let mut command = Command::new(bed.path("cenote"));
    bed::in_place_of(&bed.command(words), &mut command);
    command.args(words).stdin(Stdio::null()).env_remove("CENOTE_SERVER").env("PATH", bed.path("nowhere"));
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().expect("the program starts").into()
}

#[test]
fn a_pool_that_mounts_nothing_is_made_without_a_word_where_nothing_can_be_mounted() {
    let bed = Bed::new();
    bed::copy_program(&bed.path("cenote"));
    let open =
        |name: &str, mode| fs::set_permissions(bed.path(name), Permissions::from_mode(mode)).expect("set");
    open("", 0o777);
    open("cenote", 0o755);
    let image = bed.path("a.img").display().to_string();
    File::create(&image).expect("made").set_len(64 << 20).expect("long");
    open("a.img", 0o666);
    let made = |options: &[&str]| {
        let done = without_fuse(&bed, &[&["zpool", "create", "-f"], options, &["a", &image]].concat());
        assert_eq!((done.status, done.out.as_str()), (0, ""), "{done:?}");
        without_fuse(&bed, &["zpool", "export", "a"]).good();
        let imported = without_fuse(&bed, &["zpool", "import", "-d", &image, "a"]);
        without_fuse(&bed, &["zpool", "destroy", "a"]).good();
        [done.err, imported.err]
    };
    for none in ["mountpoint=none", "mountpoint=legacy", "canmount=off", "canmount=noauto"] {
        assert_eq!(made(&["-O", none]), ["", ""], "{none}");
    }
    let point = bed.path("mnt").display().to_string();
    for said in made(&["-m", &point]) {
        assert!(said.starts_with("cenote: 'a' is not mounted: ") && said.lines().count() == 1, "{said}");
    }
    // A notice is no error.
    let done = without_fuse(&bed, &["zpool", "-q", "create", "-f", "-m", &point, "a", &image]);
    assert_eq!((done.status, done.err.as_str()), (0, ""));
}

#[test]
fn quiet_leaves_notices_out_and_errors_in() {
    let bed = furnished();
    for (line, notice) in [
        ("zpool import -d %/run", "no pools available to import"),
        ("zfs create -V 8M -b 512 tank/small", "Warning: volblocksize (512) is "),
        ("zfs set vscan=on tank/home", "warning: 'vscan=on' is kept for OpenZFS but has no effect here"),
        ("zfs list -t bookmark tank/volume", "no datasets available"),
        ("zpool remove -sn tank x", "stop request ignored"),
    ] {
        fs::create_dir_all(bed.path("run")).expect("made");
        let done = run(&bed, line);
        assert!(done.status == 0 && done.err.starts_with(notice), "{line}: {done:?}");
        let (program, rest) = line.split_once(' ').expect("two words");
        let again = format!("{program} -q {}", rest.replace("tank/small", "tank/small2"));
        let done = run(&bed, &again);
        assert!(done.status == 0 && done.err.is_empty(), "{again}: {done:?}");
    }
    for line in [
        "zfs -q list tank/hoem",
        "zpool -q status tnak",
        "-q ls tank/hoem",
        "-q check tnak",
        "zfs -q list -o nmae",
    ] {
        let done = run(&bed, line);
        assert!(done.status != 0 && done.err.contains("did you mean '"), "{line}: {done:?}");
    }
}

#[test]
fn counts_of_one_are_printed_in_the_singular() {
    let bed = Bed::with_tank(64, &[]);
    run(&bed, "zfs destroy tank/fs").good();
    fs::write(bed.path("note"), "x").expect("written");
    run(&bed, "cp %/note tank:/").good();
    let said = run(&bed, "check tank").good();
    // Beside the root dataset, the MOS counts as a dataset of its own.
    assert!(said.contains(", 1 folder, 1 file, "), "{said}");
    let said = run(&bed, "zfs create tank/fs");
    assert_eq!(said.good(), "");
    let said = run(&bed, "check tank").good();
    assert!(said.contains(", 2 folders, 1 file, "), "{said}");
}
