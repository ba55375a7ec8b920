use std::path::Path;

use pool::props::Value;
use pool::{CreateSpec, Hold, NewFilesystem, Options};
use storage::host::{Access, FileDisk, Host};

use super::*;

/// A server of the pool `tank`, with `tank/fs` in it, mounted below `folder`; `None` where nothing can be mounted.
fn server(folder: &Path) -> Option<Arc<Server>> {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    if device.is_err() || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: nothing can be mounted");
        return None;
    }
    let image = folder.join("disk");
    File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let disk = Arc::new(FileDisk::open(&image, Access::ReadWrite { exclusive: true }).unwrap());
    let options = Options { workers: 1, ..Options::default() };
    let host: Host = options.host.clone();
    let new = || NewFilesystem {
        host: host.clone(),
        normalization: 0,
        utf8only: false,
        casesensitivity: 0,
        project_quota: true,
        version: 5,
        encryption: Default::default(),
    };
    let spec =
        CreateSpec { ashift: Some(12), ..CreateSpec::new("tank", vec![disk], new(), zpl::initialiser()) };
    let pool = Pool::create(spec, options).unwrap();
    let point = Value::Text(folder.join("mnt").display().to_string());
    pool.set_properties("tank", vec![("mountpoint".into(), Some(point))]).unwrap();
    pool.create_filesystem("tank/fs", Default::default(), new(), zpl::initialiser()).unwrap();
    let front_ends =
        FrontEnds { mounter: Arc::new(fuse::Fuse), volumes: Arc::new(nbd::Nbd), files: Arc::new(nfs::Nfs) };
    let live = Arc::new(Live::new(pool, Runtime::new(folder.join("run")), front_ends, false));
    let report = live.mount_all("tank", Overrides::default()).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    Some(Arc::new(Server {
        live,
        commands: Arc::new(NoCommands),
        started: Instant::now(),
        state: RankedMutex::default(),
        quiet: Condvar::new(),
        leases: AtomicUsize::new(0),
        wake: eventfd(0, EventfdFlags::CLOEXEC).unwrap(),
    }))
}

/// None is given in these stories.
struct NoCommands;

impl Commands for NoCommands {
    fn note_devices(&self, _: &pool::Pool) -> Result<(), String> {
        Ok(())
    }

    fn run(&self, _job: &Job, _live: &Arc<Live>, _stdio: Stdio, _stop: &Arc<AtomicBool>) -> u8 {
        unreachable!("no command is given")
    }

    fn looks_on(&self, _job: &Job) -> bool {
        unreachable!("no command is given")
    }

    fn judge(&self, _question: &Question) -> Result<(), String> {
        Err("nothing is answered in these stories".to_owned())
    }
}

fn export() -> Stop {
    Stop { destroy: false, force: false, command: None }
}

fn is_read_only(point: &Path) -> bool {
    rustix::fs::statvfs(point).unwrap().f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY)
}

/// Asks for a lease; the answer is read from the other end.
fn ask_for_lease(server: &Arc<Server>, fresh: Fresh) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = server.clone();
    std::thread::spawn(move || server.lease(&theirs, fresh));
    ours.set_read_timeout(Some(Duration::from_secs(180))).unwrap();
    ours
}

#[test]
fn a_client_that_waits_for_a_lease_does_not_prevent_an_export() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = server(folder.path()) else { return };
    // As long as it is held, no txg can close, and a lease of all there is does not come.
    let tx = server.live.pool().unwrap().open("tank").unwrap().begin(Hold::write(0)).unwrap();
    let client = ask_for_lease(&server, Fresh::Synced);
    // Waited for when it has come so far that it would be in the way, which nobody outside sees.
    std::thread::sleep(Duration::from_millis(300));
    server.stop(0, export(), None).unwrap();
    let (reply, _) = wire::receive::<Reply>(&client).unwrap().unwrap();
    assert!(matches!(reply, Reply::Refused(Refusal::Stopping)), "{reply:?}");
    drop(tx);
    server.finish().unwrap();
}

#[test]
fn after_a_refused_export_the_file_systems_are_mounted_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = server(folder.path()) else { return };
    let points = [folder.path().join("mnt"), folder.path().join("mnt/fs")];
    let read_only = Overrides { read_only: Some(true), ..Overrides::default() };
    server.live.remount("tank/fs", read_only).unwrap();
    let held = server.live.pool().unwrap();
    let refusal = server.live.close(false, Duration::from_millis(50)).err();
    assert_eq!(refusal, Some(Refusal::Working));
    assert_eq!(server.live.mounts().len(), 2);
    assert_eq!(points.each_ref().map(|point| is_read_only(point)), [false, true]);
    drop(held);
    server.stop(0, export(), None).unwrap();
    server.finish().unwrap();
    assert!(!points[0].exists(), "the folder goes with the mount it was made for");
}
