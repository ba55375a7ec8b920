//! `zpool status -c` and `zpool iostat -c`: what programs say of each device.

mod bed;

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use bed::live::{self, Live};
use bed::{Bed, Done, wait_until};

fn script(bed: &Bed, name: &str, text: &str) {
    let folder = bed.path("scripts");
    std::fs::create_dir_all(&folder).expect("made");
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

fn done(bed: &Bed, mut command: Command) -> Done {
    command.env("ZPOOL_SCRIPTS_AS_ROOT", "1").env("ZPOOL_SCRIPTS_PATH", bed.path("scripts"));
    command.output().expect("it starts").into()
}

fn asked(bed: &Bed, words: &[&str]) -> Done {
    done(bed, bed.command(words))
}

/// A bed with a pool of two devices, and scripts.
fn made() -> Bed {
    let bed = Bed::new();
    let images = ["a.img", "b.img"].map(|name| bed.path(name).display().to_string());
    for image in &images {
        std::fs::File::create(image).expect("made").set_len(64 << 20).expect("long");
    }
    bed.run(&["zpool", "create", "tank", &images[0], &images[1]]).good();
    scripts(&bed);
    bed
}

fn scripts(bed: &Bed) {
    script(bed, "names", r#"[ "$1" = -h ] && echo "says where it is" || echo "base=$(basename $VDEV_PATH)""#);
    script(
        bed,
        "more",
        r#"echo "pool=$POOL_NAME"; [ "$VDEV_UPATH" = "${VDEV_UPATH%b.img}" ] && echo "only=1""#,
    );
    script(bed, "fails", "echo x=1; exit 3");
    script(bed, "nameless", "echo a value; echo late=1");
    script(bed, "around", r#"echo "home=${HOME:-none}""#);
}

fn column<'a>(text: &'a str, row: &str, at: usize) -> Option<&'a str> {
    let line = text.lines().find(|line| line.contains(row))?;
    line.split_whitespace().nth(at)
}

#[test]
fn status_has_a_column_for_what_scripts_say_of_a_device() {
    let bed = made();
    let text = asked(&bed, &["zpool", "status", "-c", "names,more", "tank"]).good();
    let heading: Vec<&str> =
        text.lines().find(|line| line.contains("NAME")).expect("headings").split_whitespace().collect();
    assert_eq!(heading[5..], ["base", "pool", "only"], "{text}");
    assert_eq!(
        (column(&text, "/a.img", 5), column(&text, "/a.img", 7)),
        (Some("a.img"), Some("1")),
        "{text}"
    );
    // The last command of the script `more` fails for the second device, so all output of the script for it is ignored.
    assert_eq!(
        (column(&text, "/b.img", 5), column(&text, "/b.img", 6)),
        (Some("b.img"), Some("-")),
        "{text}"
    );
    let pool = text.lines().find(|line| line.contains("\ttank ")).expect("the pool");
    assert_eq!(pool.split_whitespace().count(), 5, "{text}");
    // A script that fails, does not exist or is in another folder adds no output.
    let plain = bed.run(&["zpool", "status", "tank"]).good();
    for none in ["fails", "none", "../scripts/names", ""] {
        let text = asked(&bed, &["zpool", "status", "-c", none, "tank"]).good();
        assert_eq!(text, plain, "{none}");
    }
    let text = asked(&bed, &["zpool", "status", "-c", "nameless,around", "tank"]).good();
    let row = text.lines().find(|line| line.contains("/a.img")).expect("a device");
    assert!(row.ends_with("  none  a value") && !text.contains("late"), "{text}");
    let both = asked(&bed, &["zpool", "status", "-j", "-c", "names"]);
    assert!(both.status == 2 && both.err.contains("-c and -j are mutually exclusive"), "{both:?}");
}

#[test]
fn iostat_shows_devices_with_what_scripts_say() {
    let bed = made();
    let text = asked(&bed, &["zpool", "iostat", "-c", "names", "tank"]).good();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].ends_with("  write   base") && lines[2].ends_with("  -----  -----"), "{text}");
    assert_eq!(column(&text, "/a.img", 7), Some("a.img"), "{text}");
    assert_eq!(lines[3].split_whitespace().count(), 7, "{text}");
    let row = asked(&bed, &["zpool", "iostat", "-Hc", "names", "tank"]).good();
    assert!(row.lines().any(|line| line.contains('\t') && line.ends_with("  a.img")), "{row}");
}

#[test]
fn scripts_are_listed_and_refused() {
    let bed = made();
    for word in ["status", "iostat"] {
        let text = asked(&bed, &["zpool", word, "-c"]).good();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some(format!("Available 'zpool {word} -c' commands:").as_str()));
        assert!(lines.any(|line| line == "  names           says where it is"), "{text}");
        let mut twice = bed.command(&["zpool", word, "-c", "names", "-c", "more"]);
        twice.env("ZPOOL_SCRIPTS_AS_ROOT", "yes");
        done(&bed, twice).refused("Can't set -c flag twice");
        let mut off = bed.command(&["zpool", word, "-c", "names"]);
        off.env("ZPOOL_SCRIPTS_ENABLED", "0");
        done(&bed, off).refused("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.");
        let mut unlisted = bed.command(&["zpool", word, "-c"]);
        unlisted.env("ZPOOL_SCRIPTS_ENABLED", "no");
        done(&bed, unlisted).refused("Can't run -c, disabled by ZPOOL_SCRIPTS_ENABLED.");
        if rustix::process::geteuid().is_root() {
            let mut refused = bed.command(&["zpool", word, "-c", "names"]);
            refused.env("ZPOOL_SCRIPTS_AS_ROOT", "0");
            let refused: Done = refused.output().expect("it starts").into();
            refused.refused("Can't run -c with root privileges unless ZPOOL_SCRIPTS_AS_ROOT is set.");
        }
    }
}

#[test]
fn scripts_are_asked_about_a_pool_that_a_server_holds() {
    let Some(live) = Live::with_tank(64) else { return };
    scripts(&live.bed);
    for word in ["status", "iostat"] {
        let text = done(&live.bed, live.command(&["zpool", word, "-c", "names", "tank"])).good();
        assert!(text.lines().any(|line| line.trim_end().ends_with("  tank.img")), "{text}");
        let plain = done(&live.bed, live.command(&["zpool", word, "-c", "none", "tank"])).good();
        assert!(!plain.contains("  tank.img"), "{plain}");
    }
    live.run(&["zpool", "export", "tank"]).good();
}

/// Whether the process whose number a script wrote to a file still runs.
fn is_running(live: &Live, file: &str) -> bool {
    let pid = std::fs::read_to_string(live.path(file)).expect("written down");
    live::is_running(pid.trim())
}

/// `zpool iostat -c` with a script that does not end, once it runs.
fn hanging(live: &Live) -> Child {
    let folder = live.text("");
    let script = format!("sleep 1000 & echo $! >{folder}/child; echo $$ >{folder}/self; sleep 1000");
    self::script(&live.bed, "hangs", &script);
    let _ = std::fs::remove_file(live.path("self"));
    let mut command = live.command(&["zpool", "iostat", "-c", "hangs", "tank"]);
    command.env("ZPOOL_SCRIPTS_AS_ROOT", "1").env("ZPOOL_SCRIPTS_PATH", live.path("scripts"));
    let asking = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until("no script", || {
        std::fs::read_to_string(live.path("self")).is_ok_and(|text| text.ends_with('\n'))
    });
    assert!(is_running(live, "self") && is_running(live, "child"));
    asking
}

#[test]
fn a_script_that_hangs_ends_with_its_command_and_with_its_pool() {
    let Some(live) = Live::with_tank(64) else { return };
    let mut asking = hanging(&live);
    let pid = asking.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    asking.wait().expect("ended");
    wait_until("they go on", || !is_running(&live, "self") && !is_running(&live, "child"));
    let mut asking = hanging(&live);
    // The script would go on for a quarter of an hour.
    bed::craft::run(live.command(&["zpool", "export", "tank"])).good();
    asking.wait().expect("ended");
    wait_until("they go on", || !is_running(&live, "self") && !is_running(&live, "child"));
}

/// A process that a script started keeps its output open, but the command does not wait for it.
#[test]
fn the_output_of_a_script_with_leftover_processes_is_used() {
    let Some(live) = Live::with_tank(64) else { return };
    script(&live.bed, "leaves", &format!("echo said=all; sleep 1000 & echo $! >{}", live.text("child")));
    script(&live.bed, "where", "echo folder=$(basename $PWD)");
    let mut command = live.command(&["zpool", "iostat", "-c", "leaves,where", "tank"]);
    command.env("ZPOOL_SCRIPTS_AS_ROOT", "1").env("ZPOOL_SCRIPTS_PATH", "../scripts");
    // The folders of scripts and the working directory are those of the command's user.
    std::fs::create_dir(live.path("here")).expect("made");
    let told: Done = command.current_dir(live.path("here")).output().expect("it starts").into();
    let text = told.good();
    assert_eq!(
        (column(&text, "/tank.img", 7), column(&text, "/tank.img", 8)),
        (Some("all"), Some("here")),
        "{text}"
    );
    wait_until("it goes on", || !is_running(&live, "child"));
    live.run(&["zpool", "export", "tank"]).good();
}
