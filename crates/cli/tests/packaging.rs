//! The files that come with the program: units for systemd, manual pages, completions.

mod bed;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bed::live::Live;
use bed::{Bed, Done, root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cenote");

/// The result of a tool of the system; `None` where it is not installed.
fn tool(command: &mut Command) -> Option<Done> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(output.into()),
        Err(error) => {
            eprintln!("skipped: {:?}: {error}", command.get_program());
            None
        }
    }
}

#[test]
fn systemd_takes_the_units() {
    let bed = Bed::new();
    for scope in ["system", "user"] {
        let folder = root().join("packaging/systemd").join(scope);
        fs::create_dir(bed.path(scope)).expect("made");
        let mut names: Vec<String> = Vec::new();
        for entry in fs::read_dir(&folder).expect("there") {
            let name = entry.expect("read").file_name().into_string().expect("text");
            let unit = fs::read_to_string(folder.join(&name)).expect("there");
            let starts = unit.contains("ExecStart=/usr/bin/cenote ");
            assert!(starts != name.ends_with(".timer"), "{name}");
            // The program is at the path of the build, not at that of an installation.
            fs::write(bed.path(scope).join(&name), unit.replace("/usr/bin/cenote", PROGRAM))
                .expect("written");
            names.push(name);
        }
        assert_eq!(names.len(), 5, "{names:?}");
        let mut verify = Command::new("systemd-analyze");
        verify.arg(format!("--{scope}")).arg("verify");
        verify.args(names.iter().map(|name| bed.path(scope).join(name)));
        verify.env("XDG_RUNTIME_DIR", bed.path("")).env("HOME", bed.path(""));
        // Instances refer to each other by name.
        verify.env("SYSTEMD_UNIT_PATH", format!("{}:", bed.path(scope).display()));
        let Some(done) = tool(&mut verify) else { return };
        assert!(done.status == 0 && done.out.is_empty() && done.err.is_empty(), "{scope}: {done:?}");
    }
}

#[test]
fn systemd_is_notified_when_a_pool_is_ready_and_when_it_ends() {
    let Some(live) = Live::with_tank(128) else { return };
    live.run(&["zpool", "export", "tank"]).good();
    live.run(&["zpool", "import", "-N", "-d", &live.text("tank.img"), "tank"]).good();
    live.signal("-TERM");
    let socket = UnixDatagram::bind(live.path("notify")).expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(180))).expect("set");
    let mut serve = live.command(&["serve", "--foreground", "tank"]);
    serve.env("NOTIFY_SOCKET", live.path("notify")).stderr(Stdio::null());
    let mut serve = serve.spawn().expect("it starts");
    let told = || {
        let mut word = [0; 64];
        let len = socket.recv(&mut word).expect("a word from the server");
        String::from_utf8_lossy(&word[..len]).into_owned()
    };
    assert_eq!(told(), "READY=1");
    assert_eq!(live.get("mounted", "tank"), "yes");
    let pid = serve.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill starts").success());
    assert_eq!(told(), "STOPPING=1");
    assert!(serve.wait().expect("it ends").success());
    live.expect_sound();
}

/// The files that `cenote generate` writes, by their path in its folder.
fn generated(bed: &Bed, what: &str) -> Vec<PathBuf> {
    let out = bed.run(&["generate", what, "out"]).good();
    out.lines().map(|line| bed.path(line)).collect()
}

#[test]
fn manual_pages_are_made_of_what_the_program_takes() {
    let bed = Bed::new();
    let pages = generated(&bed, "man");
    for page in ["man1/cenote.1", "man1/cenote-cp.1", "man8/zfs.8", "man8/zfs-list.8", "man8/zpool-iostat.8"]
    {
        assert!(pages.contains(&bed.path("out").join(page)), "{page}");
    }
    let iostat = fs::read_to_string(bed.path("out/man8/zpool-iostat.8")).expect("there");
    assert!(iostat.contains(".TP\n\\fB\\-w\\fR\nwaiting times as histograms\n"), "{iostat}");
    for page in &pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-z"]).arg(page);
        let Some(done) = tool(&mut groff) else { return };
        assert!(done.status == 0 && done.err.is_empty(), "{}: {done:?}", page.display());
    }
}

/// The completions that bash offers for a command line that ends in the last of `words`.
fn offered(bed: &Bed, script: &Path, words: &[&str]) -> Option<Vec<String>> {
    let links = bed.path("bin");
    if !links.exists() {
        fs::create_dir(&links).expect("made");
        for name in ["cenote", "zfs", "zpool"] {
            std::os::unix::fs::symlink(PROGRAM, links.join(name)).expect("linked");
        }
    }
    let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let ask = format!(
        "source '{}'; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _{}; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        line.join(" "),
        words[0]
    );
    let set = bed.command(&[]);
    let mut bash = Command::new("bash");
    bed::in_place_of(&set, bash.args(["--norc", "-c", &ask]));
    bash.env("PATH", format!("{}:/usr/bin:/bin", links.display()));
    let done = tool(&mut bash)?;
    assert!(done.err.is_empty(), "{done:?}");
    Some(done.out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

#[test]
fn shells_complete_subcommands_options_names_and_values() {
    let bed = Bed::with_tank(128, &[]);
    bed.run(&["zfs", "snapshot", "tank/fs@one"]).good();
    bed.run(&["zfs", "create", "tank/fs/a b"]).good();
    let files = generated(&bed, "completions");
    assert_eq!(files.len(), 9);
    let zfs = bed.path("out/bash/zfs");
    let of_zfs = |words: &[&str]| offered(&bed, &zfs, words);
    let Some(offer) = of_zfs(&["zfs", "snap"]) else { return };
    assert_eq!(offer, ["snapshot", "snap"]);
    assert_eq!(
        of_zfs(&["zfs", "list", "-"]).expect("bash"),
        ["-H", "-p", "-r", "--wide", "-j", "--json", "--json-int", "-d", "-o", "-s", "-S", "-t"]
    );
    assert_eq!(of_zfs(&["zfs", "unmount", "tank/"]).expect("bash"), ["tank/fs", "tank/fs/a\\ b"]);
    assert_eq!(of_zfs(&["zfs", "unmount", "tank/fs/a\\ "]).expect("bash"), ["tank/fs/a\\ b"]);
    assert_eq!(of_zfs(&["zfs", "rollback", "tank/fs@"]).expect("bash"), ["tank/fs@one"]);
    assert_eq!(of_zfs(&["zfs", "get", "compressi"]).expect("bash"), ["compression"]);
    assert_eq!(of_zfs(&["zfs", "create", "-o", "recordsi"]).expect("bash"), ["recordsize"]);
    let values = of_zfs(&["zfs", "set", "compression", "=", "zstd-fast-1"]).expect("bash");
    assert!(
        values.contains(&"zstd-fast-10".to_owned())
            && values.iter().all(|value| value.starts_with("zstd-fast-1"))
    );
    assert!(of_zfs(&["zfs", "set", "sync", "="]).expect("bash").contains(&"always".to_owned()));
    let zpool = bed.path("out/bash/zpool");
    assert_eq!(offered(&bed, &zpool, &["zpool", "scrub", "t"]).expect("bash"), ["tank"]);
    let cenote = bed.path("out/bash/cenote");
    let both = bed.path("both");
    fs::write(&both, [fs::read(&cenote).expect("there"), fs::read(&zfs).expect("there")].concat())
        .expect("written");
    assert_eq!(offered(&bed, &cenote, &["cenote", "ben"]).expect("bash"), ["bench"]);
    assert_eq!(
        offered(&bed, &cenote, &["cenote", "ls", "tank/f"]).expect("bash"),
        ["tank/fs:", "tank/fs/a\\ b:"]
    );
    let below = offered(&bed, &both, &["cenote", "zfs", "unmount", "tank/fs/"]).expect("bash");
    assert_eq!(below, ["tank/fs/a\\ b"]);
    for file in &files {
        let shell = file.parent().and_then(Path::file_name).expect("a folder").to_owned();
        let Some(done) = tool(Command::new(&shell).arg("-n").arg(file)) else { continue };
        assert!(done.status == 0 && done.err.is_empty(), "{}: {done:?}", file.display());
    }
}

#[test]
fn links_are_made_and_removed_and_nothing_of_others_is_touched() {
    let bed = Bed::new();
    fs::create_dir(bed.path("bin")).expect("made");
    let list = || {
        let mut names: Vec<_> =
            fs::read_dir(bed.path("bin")).expect("there").collect::<Result<_, _>>().expect("read");
        names.sort_by_key(fs::DirEntry::file_name);
        names.iter().map(|entry| entry.file_name().into_string().expect("text")).collect::<Vec<_>>()
    };
    let made = bed.run(&["install-links", "bin"]).good();
    assert_eq!(made.lines().count(), 4);
    assert_eq!(bed.run(&["install-links", "bin"]).good(), "");
    assert_eq!(list(), ["mount.fuse.zfs", "mount.zfs", "zfs", "zpool"]);
    let version = Command::new(bed.path("bin/zpool")).arg("version").output().expect("it starts");
    assert!(version.status.success());
    fs::remove_file(bed.path("bin/zfs")).expect("removed");
    fs::remove_file(bed.path("bin/zpool")).expect("removed");
    fs::write(bed.path("bin/zfs"), "another program").expect("written");
    let refused = bed.run(&["install-links", "bin"]);
    assert!(refused.status == 1 && refused.err.contains("bin/zfs' is there already"), "{refused:?}");
    assert_eq!(list(), ["mount.fuse.zfs", "mount.zfs", "zfs"]);
    bed.run(&["install-links", "--remove", "bin"]).good();
    assert_eq!(list(), ["zfs"]);
    for words in [&["install-links", "bin/zfs"][..], &["install-links", "--remove", "none"]] {
        let refused = bed.run(words);
        assert!(refused.status == 1 && refused.err.lines().count() == 1, "{refused:?}");
    }
    assert!(!bed.path("none").exists());
    assert_eq!(bed.run(&["install-links", "new/bin"]).good().lines().count(), 4, "the folder is made");
}

#[test]
fn help_without_colours_where_they_are_not_wanted() {
    let bed = Bed::new();
    let coloured = |variables: &[(&str, &str)]| {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{PROGRAM} --help"), "/dev/null"]).env_remove("NO_COLOR");
        script.env("TERM", "xterm-256color").env_remove("CLICOLOR").env_remove("CI");
        for (name, value) in variables {
            script.env(name, value);
        }
        tool(&mut script).map(|done| done.out.contains('\x1b'))
    };
    drop(bed);
    let Some(usual) = coloured(&[]) else { return };
    assert!(usual, "a terminal shows colours");
    assert_eq!(coloured(&[("NO_COLOR", "1")]), Some(false));
}
