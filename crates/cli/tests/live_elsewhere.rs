//! Pools that are reached from elsewhere: from another login of the same user, while another mount namespace keeps a mount,
//! by other users, and by an ordinary user in the mount of the pool above.

mod bed;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use bed::Done;
use bed::live::{Live, write};
use bed::person::Person;

/// A command of another login of the same user: its runtime folder is another one.
fn other_login(live: &Live, words: &[&str]) -> Done {
    let mut command = live.command(words);
    command.env_remove("CENOTE_RUN_DIR").env("XDG_RUNTIME_DIR", live.path("other-login"));
    if rustix::process::geteuid().is_root() {
        // Root has one place for all logins unless the environment names another.
        command.env("CENOTE_RUN_DIR", live.path("other-login/cenote"));
    }
    command.output().expect("the program starts").into()
}

#[test]
fn another_login_of_the_user_reaches_the_server() {
    let Some(live) = Live::with_tank(64) else { return };
    write(&live.path("mnt/file"), b"written just now");
    assert_eq!(other_login(&live, &["zfs", "list", "-Ho", "name,mounted"]).good(), "tank\tyes\n");
    assert_eq!(other_login(&live, &["cat", "tank:/file"]).good(), "written just now");
    other_login(&live, &["zfs", "create", "tank/made"]).good();
    assert!(live.path("mnt/made").is_dir() && live.mounts().len() == 2);
    assert!(other_login(&live, &["zpool", "status", "tank"]).good().contains(" ONLINE "));
    let pid = live.server();
    assert_eq!(other_login(&live, &["zpool", "import", "-a"]).err, "no pools available to import\n");
    assert_eq!(live.server(), pid, "no second server was started");
    other_login(&live, &["zpool", "export", "tank"]).good();
    assert_eq!(live.mounts(), [] as [std::path::PathBuf; 0]);
    live.expect_sound();
}

#[test]
fn a_server_whose_socket_is_gone_is_named() {
    let Some(live) = Live::with_tank(64) else { return };
    let (socket, pid) = (live.text("run/tank.sock"), live.server());
    fs::remove_file(&socket).expect("there");
    live.run(&["zfs", "create", "tank/made"]).refused(&format!(
        "cannot open 'tank': the server of the pool (process {pid}) cannot be reached: its socket '{socket}' is gone; \
         'kill {pid}' ends it in good order"
    ));
    live.signal("-TERM");
    live.expect_sound();
}

/// A process whose own mount namespace keeps the mounts below the bed. It ends when this value is dropped.
struct Keeper(std::process::Child);

impl Keeper {
    /// `None` where no namespace can be made.
    fn new(live: &Live) -> Option<Keeper> {
        // It keeps no mounts of others.
        let script = "grep ' fuse.zfs ' /proc/self/mounts | cut -d ' ' -f 2 | grep -v \"^$0\" | \
            xargs -r umount -l 2>/dev/null; echo there; exec sleep 1000";
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", script, &live.text("mnt")]);
        let mut keeper = Keeper(command.stdout(Stdio::piped()).spawn().ok()?);
        let mut line = String::new();
        let said = keeper.0.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut line).expect("read");
        if line != "there\n" {
            eprintln!("skipped: no mount namespace can be made");
            return None;
        }
        Some(keeper)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

#[test]
fn a_process_with_the_mount_in_its_own_namespace_is_named_and_the_server_still_ends() {
    let Some(live) = Live::with_tank(64) else { return };
    write(&live.path("mnt/file"), b"kept");
    let Some(keeper) = Keeper::new(&live) else { return };
    let who = format!("it is in use in another mount namespace, by process {} (sleep)", keeper.0.id());
    let point = live.text("mnt");
    live.run(&["zpool", "export", "tank"]).refused(&format!("cannot export 'tank': '{point}': {who}"));
    // It is gone from here since.
    live.run(&["zfs", "unmount", "tank"]).refused("cannot unmount 'tank': not currently mounted");
    if rustix::process::geteuid().is_root() {
        live.signal("-TERM");
        drop(keeper);
    } else {
        drop(keeper);
        live.run(&["zpool", "export", "tank"]).good();
    }
    assert_eq!(live.run(&["-d", "tank.img", "cat", "tank:/file"]).good(), "kept");
    live.expect_sound();
}

#[test]
fn other_users_see_the_owner_of_a_pool() {
    let Some(live) = Live::with_tank(64) else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let (home, program) = (live.path("home"), live.path("cenote"));
    fs::create_dir(&home).expect("made");
    fs::set_permissions(live.path(""), fs::Permissions::from_mode(0o755)).expect("set");
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("given away");
    bed::copy_program(&program);
    let visitor = |words: &[&str]| -> Done {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).args(words);
        command.current_dir("/").stdin(Stdio::null()).env("HOME", &home);
        command.env("CENOTE_STATE_DIR", home.join("state")).env("CENOTE_RUN_DIR", home.join("run"));
        command.env("CENOTE_VISITORS_DIR", "").output().expect("setpriv is here").into()
    };
    let why = "the pool belongs to user 0, and only that user's commands reach its server";
    for words in [
        &["zfs", "list", "tank"][..],
        &["zfs", "get", "all", "tank"],
        &["zfs", "set", "atime=off", "tank"],
        &["zpool", "list", "tank"],
        &["zpool", "status", "tank"],
        &["zpool", "get", "all", "tank"],
        &["zpool", "export", "tank"],
        &["ls", "tank:/"],
    ] {
        visitor(words).refused(&format!("cannot open 'tank': {why}"));
    }
    visitor(&["zfs", "list", "no-such"]).refused("cannot open 'no-such': dataset does not exist");
    // The list of what can be imported says that the pool is in use.
    let image = live.text("tank.img");
    let listed = visitor(&["zpool", "import", "-d", &image]).good();
    assert!(listed.contains(&format!("status: '{image}' is in use by process ")), "{listed}");
    assert!(listed.contains("cannot be imported") && !listed.contains("can be imported"), "{listed}");
    for (words, first) in
        [(["zfs", "list"], "no datasets available\n"), (["zpool", "status"], "no pools available\n")]
    {
        let done = visitor(&words);
        // Pools of other users are mentioned to people only: programs expect the words of OpenZFS alone.
        assert!(done.status == 0 && done.err == first, "{done:?}");
    }
}

/// Without root, all that lies in a mount by its mount point is in that mount, as real directories.
#[test]
fn the_mount_of_an_ordinary_user_is_the_whole_tree() {
    let Some(live) = Live::new() else { return };
    let Some(person) = Person::new(&live) else { return };
    let own = person.home.join("mnt").display().to_string();
    let made = person.run(&["zpool", "create", "-m", &own, "mine", &person.image(256)]);
    let sh = |script: &str| person.sh(&own, script);
    let run = |line: &str| person.run(&line.split(' ').collect::<Vec<_>>());
    person.with_pool(&live, &made, || {
        for dataset in ["mine/a", "mine/a/b", "mine/c"] {
            let made = run(&format!("zfs create {dataset}"));
            assert_eq!((made.status, made.err.as_str()), (0, ""));
        }
        sh("echo 1 >one; echo 2 >a/two; echo 3 >a/b/three; mkdir c/dir; echo 4 >c/dir/four").good();
        programs_see_all(&person, &own);
        datasets_stay_apart(&person, &own);
        what_is_in_use_stays(&person, &own);
        contents_are_exchanged(&person, &own);
        // A file system in it is unmounted with all below it. Its folder appears again, and then the file system is
        // mounted again.
        run("zfs unmount mine/a").good();
        assert_eq!(sh("ls -A a; ls -di a >../plain; test $(wc -c <../plain) -lt 12").good(), "");
        run("zfs mount -a").good();
        assert_eq!(sh("cat a/two a/b/three").good(), "2\n3\n");
        run("zfs rename mine/c mine/d").good();
        assert_eq!(sh("cat d/dir/four; test ! -e c").good(), "4\n");
        run("zfs destroy -r mine/d").good();
        sh("test ! -e d").good();
        // Writes near a limit are refused in time there, too.
        run("zfs create -o quota=8M -o compression=off mine/small").good();
        let full = sh("head -c 20000000 /dev/urandom >small/big");
        assert!(full.status != 0 && full.err.contains("quota exceeded"), "{full:?}");
        sh("sync -f small; stat -c %s small/big >len; cp small/big ../big; cmp small/big ../big").good();
        run("zpool export mine").good();
        assert!(!fs::read_to_string("/proc/self/mounts").expect("there").contains(&own));
        let imported = run(&format!("zpool import -d {}/tank.img mine", person.home.display()));
        assert_eq!((imported.status, imported.err.as_str()), (0, ""));
        assert_eq!(sh("cat a/two a/b/three; cmp small/big ../big").good(), "2\n3\n");
        // The server dies: all is gone, and a new one shows the same.
        let own_server = "grep -qz \"^HOME=$HOME$\" /proc/$pid/environ";
        let kill = format!(
            "for pid in $(pgrep -u 65534 -x cenote); do {own_server} && kill -KILL $pid && echo $pid; done"
        );
        let killed = sh(&kill).out;
        assert_eq!(killed.lines().count(), 1, "{killed}");
        bed::wait_until("the killed server goes on", || !bed::live::is_running(killed.trim()));
        let dead = sh("ls a");
        assert!(dead.status != 0, "{dead:?}");
        person.run(&["zfs", "mount", "-a"]);
        assert_eq!(sh("cat a/two a/b/three").good(), "2\n3\n");
    });
}

/// Programs that walk through the tree find all files.
fn programs_see_all(person: &Person, own: &str) {
    let sh = |script: &str| person.sh(own, script);
    let all = "./a/b/three\n./a/two\n./c/dir/four\n./one\n";
    assert_eq!(sh("find . -type f | sort").good(), all);
    assert_eq!(sh("find . -printf '%i\\n' | sort | uniq -d").good(), "", "a number is one file's");
    assert_eq!(sh("tar -cf - . | tar -tf - | grep -v '/$' | sort").good(), all);
    sh("rm -rf ../copy ../r; cp -a . ../copy && diff -r . ../copy").good();
    let rsync = sh("command -v rsync >/dev/null || exit 0; rsync -aHAX ./ ../r/ && diff -r . ../r");
    rsync.good();
    assert_eq!(sh("cd a/b && cd .. && cat two && cd .. && cat one").good(), "2\n1\n");
    assert_eq!(sh("ls -l | cut -c1 | tr -d '\\n'").good(), "td d-".replace(' ', ""));
    let list = person.run(&["zfs", "mount"]).good();
    for (dataset, place) in [("mine ", ""), ("mine/a ", "/a"), ("mine/a/b ", "/a/b"), ("mine/c ", "/c")] {
        let is_it = |line: &str| line.starts_with(dataset) && line.ends_with(&format!("{own}{place}"));
        assert!(list.lines().any(is_it), "{list}");
    }
    let mounted = person.run(&["zfs", "get", "-rHo", "value", "mounted", "mine"]).good();
    assert_eq!(mounted, "yes\n".repeat(4));
    for (path, dataset) in
        [("a/b", "mine/a/b"), ("a/b/three", "mine/a/b"), ("c/dir", "mine/c"), (".", "mine")]
    {
        let said = sh(&format!("cenote zfs list -Ho name \"$PWD/{path}\"")).good();
        assert_eq!(said, format!("{dataset}\n"), "{path}");
    }
    assert_eq!(sh("cenote cat mine/a/b:/three").good(), "3\n");
    person.run(&["zfs", "snapshot", "-r", "mine@now"]).good();
    let shown =
        sh("cat .zfs/snapshot/now/one a/.zfs/snapshot/now/two a/b/.zfs/snapshot/now/three; ls a/.zfs").good();
    assert_eq!(shown, "1\n2\n3\nshares\nsnapshot\n");
    assert_eq!(sh("ls -A .zfs/snapshot/now/a").good(), "", "a snapshot has the folder");
    let stored = person.run(&["ls", "--json", "mine:/a"]).good();
    assert!(!stored.contains("two"), "{stored}");
}

/// Each is a file system of its own: nothing is moved or linked from one to another, and a mount point stays.
fn datasets_stay_apart(person: &Person, own: &str) {
    let sh = |script: &str| person.sh(own, script);
    let refused = |script: &str, why: &str| {
        let done = sh(script);
        assert!(done.status != 0 && done.err.contains(why), "{script}: {done:?}");
    };
    refused("ln one a/one", "Invalid cross-device link");
    refused("ln a/two a/b/two", "Invalid cross-device link");
    refused("perl -e 'rename(\"one\", \"a/one\") or die \"$!\"'", "Invalid cross-device link");
    refused("perl -e 'rename(\"a/b/three\", \"c/three\") or die \"$!\"'", "Invalid cross-device link");
    for line in ["mv a x", "rmdir a", "mv a/b a/x", "rmdir a/b"] {
        refused(line, "busy");
    }
    sh("mv one a/ && mv a/one . && cp a/two c/two && cmp a/two c/two && rm c/two").good();
    sh("ln a/two a/again && test $(stat -c %h a/two) = 2 && rm a/again").good();
    sh("setfattr -n user.k -v v a/two 2>/dev/null || exit 0; getfattr -n user.k a/two").good();
    // Space is each one's own.
    person.run(&["zfs", "set", "quota=32M", "mine/c"]).good();
    let size = sh("echo $(($(stat -f -c '%b*%S' c))) $(($(stat -f -c '%b*%S' .)))").good();
    let sizes: Vec<u64> = size.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!(sizes[0] <= 32 << 20 && sizes[1] > 64 << 20, "{size}");
    // One may be for reading while those around it are not.
    person.run(&["zfs", "set", "readonly=on", "mine/a/b"]).good();
    refused("echo x >a/b/three", "Read-only file system");
    refused("echo x >>a/b/three", "Read-only file system");
    refused("touch a/b/new", "Read-only file system");
    sh("test ! -h a/b && echo x >a/x && rm a/x").good();
    let value = person.run(&["zfs", "get", "-Ho", "value,source", "readonly", "mine/a/b"]).good();
    assert_eq!(value, "on\tlocal\n");
    person.run(&["zfs", "inherit", "readonly", "mine/a/b"]).good();
    sh("echo 3 >a/b/three").good();
}

/// A file system that programs use stays; by force they lose it.
fn what_is_in_use_stays(person: &Person, own: &str) {
    let sh = |script: &str| person.sh(own, script);
    let busy = "cannot unmount 'OWN/a/b': pool or dataset is busy\n".replace("OWN", own);
    let done = sh("exec 3<a/b/three; cenote zfs unmount mine/a/b; cat <&3; cat a/b/three");
    assert_eq!((done.out.as_str(), &done.err), ("3\n3\n", &busy));
    let done = sh("cd a/b; cenote zfs unmount mine/a/b; pwd -P; ls");
    assert_eq!((done.out, &done.err), (format!("{own}/a/b\nthree\n"), &busy));
    let done = sh("cd a/b; cenote zfs rename mine/a mine/q; pwd -P");
    assert!(done.err.contains("busy") && done.out.trim() == format!("{own}/a/b"), "{done:?}");
    assert_eq!(sh("cat a/two a/b/three").good(), "2\n3\n", "all are there as before");
    // Bytes written before stay, and writes done after fail. They never reach the dataset that is mounted there next.
    let lost = "exec 3<>a/b/held; echo kept >&3; cenote zfs unmount -f mine/a/b; ls a/b; echo lost >&3; cat a/b/held; \
        cenote zfs mount mine/a/b; cat a/b/held; cat <&3; echo more >&3";
    let done = sh(lost);
    assert_eq!(done.out, "kept\n", "{done:?}");
    assert!(done.err.contains("nput/output error"), "{done:?}");
    assert_eq!(sh("cat a/b/held a/b/three; rm a/b/held").good(), "kept\n3\n");
    // No program uses it: it is unmounted at once, although the kernel remembers all of its files.
    sh("for i in $(seq 300); do echo $i >a/b/f$i; done; cat a/b/f* >/dev/null").good();
    person.run(&["zfs", "unmount", "mine/a/b"]).good();
    person.run(&["zfs", "mount", "mine/a/b"]).good();
    sh("test $(ls a/b | wc -l) = 301 && rm a/b/f*").good();
}

/// Contents change under the mount of the parent.
fn contents_are_exchanged(person: &Person, own: &str) {
    let sh = |script: &str| person.sh(own, script);
    let done = sh(
        "exec 3<a/b/three; echo later >>a/b/three; cenote zfs rollback mine/a/b@now; cat <&3; cat a/b/three",
    );
    assert_eq!((done.out.as_str(), done.err.as_str()), ("3\n3\n", ""));
    sh("cenote zfs send mine/a@now | cenote zfs receive mine/r && cat r/two && test ! -h r").good();
    let script = "echo changed and longer >a/two; cenote zfs snapshot mine/a@later; exec 3<r/two; \
        cenote zfs send -i @now mine/a@later | cenote zfs receive -F mine/r; cat <&3; cat r/two; \
        cenote zfs rollback -r mine/a@now; cat a/two a/b/three";
    let done = sh(script);
    let after = "changed and longer\n";
    assert_eq!((done.out, done.err.as_str()), (format!("{after}{after}2\n3\n"), ""));
    // The parent goes back as well, and what is shown in it stays.
    let done = sh("exec 3<c/dir/four; rm one; cenote zfs rollback mine@now; cat one c/dir/four; cat <&3");
    assert_eq!((done.out.as_str(), done.err.as_str()), ("1\n4\n4\n", ""));
    person.run(&["zfs", "destroy", "-r", "mine/r"]).good();
}
