//! Pools that are reached from elsewhere: from another login of the same user, while another mount namespace keeps a mount,
//! and by other users.

mod bed;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use bed::Done;
use bed::live::{Live, write};

/// A command of another login of the same user: its runtime folder is another one.
fn other_login(live: &Live, words: &[&str]) -> Done {
    let mut command = live.command(words);
    command.env_remove("CENOTE_RUN_DIR").env("XDG_RUNTIME_DIR", live.path("other-login"));
    if rustix::process::geteuid().is_root() {
        // Root has one place for all logins unless it is told otherwise.
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
    for (words, first) in
        [(["zfs", "list"], "no datasets available\n"), (["zpool", "status"], "no pools available\n")]
    {
        let done = visitor(&words);
        // Pools of other tests of the same machine may be mounted, too.
        let line = format!("cenote: cannot open 'tank': {why}\n");
        assert!(done.status == 0 && done.err.starts_with(first) && done.err.contains(&line), "{done:?}");
    }
}
