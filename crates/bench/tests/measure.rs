//! Whole measurements on little data.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bench::{Error, Event, Place, Plan, Report, Source, Watch};
use pool::{CreateSpec, NewFilesystem, Options, Pool};
use storage::host::{Access, FileDisk};

/// Remembers what it was told; stops after so many bytes; touches a file when the first run is done.
#[derive(Default)]
struct Observer {
    stop_after: Option<u64>,
    touch: Option<PathBuf>,
    bytes: AtomicU64,
    done: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Watch for Observer {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Bytes(bytes) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            Event::Done(run) => {
                self.done.lock().unwrap().push(run.compression.clone());
                if let Some(path) = &self.touch {
                    std::fs::write(path, "other text").unwrap();
                }
            }
            Event::Note(note) => self.notes.lock().unwrap().push(note.to_owned()),
            _ => {}
        }
    }

    fn stopped(&self) -> bool {
        self.stop_after.is_some_and(|bytes| self.bytes.load(Ordering::Relaxed) >= bytes)
    }
}

/// Text, small files, an empty one, folders, a sparse file: about 3 MB.
fn files(dir: &Path) -> PathBuf {
    let top = dir.join("source");
    std::fs::create_dir_all(top.join("folder/inner")).unwrap();
    let text = |lines: u32| {
        (0..lines).map(|n| format!("line {n} of a text that repeats itself\n")).collect::<String>()
    };
    std::fs::write(top.join("text"), text(50_000)).unwrap();
    for n in 0..40 {
        std::fs::write(top.join(format!("folder/{n}")), text(n * 5)).unwrap();
    }
    let sparse = std::fs::File::create(top.join("folder/inner/sparse")).unwrap();
    sparse.write_all_at(&[9; 70_000], 3 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
    top
}

fn plan(dir: &Path, compressions: &[&str]) -> Plan {
    let place = Place::Folder(dir.to_owned());
    Plan {
        compressions: compressions.iter().map(|word| (*word).to_owned()).collect(),
        place,
        ..Plan::usual()
    }
}

fn is_clean(dir: &Path) -> bool {
    let names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names == ["source"]
}

#[test]
fn text_is_measured_under_three_compressions() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    let observer = Observer::default();
    let report = bench::run(&plan(dir.path(), &["off", "lz4", "gzip-1"]), &mut source, &observer).unwrap();
    assert_eq!(*observer.done.lock().unwrap(), ["off", "lz4", "gzip-1"]);
    let [off, lz4, gzip] = &report.runs[..] else { panic!("three runs") };
    assert!(report.runs.iter().all(|run| run.verified && run.logical_bytes == source.bytes()));
    assert!(report.runs.iter().all(|run| run.write_seconds > 0.0 && run.read_seconds > 0.0));
    assert!((1.0..1.1).contains(&off.compressratio), "{}", off.compressratio);
    assert!(lz4.compressratio > 2.0 && gzip.compressratio > lz4.compressratio, "{lz4:?} {gzip:?}");
    assert!(off.allocated_bytes >= source.bytes() && lz4.allocated_bytes < off.allocated_bytes / 2);
    assert_ne!(report.recommendation.compression, "off");
    assert_eq!(serde_json::from_str::<Report>(&report.to_json()).unwrap(), report);
    assert!(is_clean(dir.path()));
}

#[test]
fn record_sizes_threads_and_repetitions_multiply() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    let plan = Plan {
        recordsizes: vec![8192, 1 << 20],
        threads: vec![1, 2],
        repeat: 2,
        ..plan(dir.path(), &["zstd-1"])
    };
    let report = bench::run(&plan, &mut source, &Observer::default()).unwrap();
    let shape: Vec<_> = report.runs.iter().map(|run| (run.recordsize, run.threads)).collect();
    assert_eq!(shape, [(8192, 1), (1 << 20, 1), (8192, 2), (1 << 20, 2)]);
    assert!(report.runs.iter().all(|run| run.verified && run.spread.as_ref().is_some_and(|s| s.repeat == 2)));
    assert!(report.runs[1].compressratio > report.runs[0].compressratio, "larger records compress better");
}

#[test]
fn a_stopped_measurement_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    // Into the second configuration, the warming up counted.
    let observer = Observer { stop_after: Some(source.bytes() * 7), ..Observer::default() };
    let ended = bench::run(&plan(dir.path(), &["off", "lz4"]), &mut source, &observer);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    assert_eq!(*observer.done.lock().unwrap(), ["off"]);
    assert!(is_clean(dir.path()));
}

#[test]
fn a_source_larger_than_memory_is_read_from_its_files_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let top = files(dir.path());
    let plan = Plan { memory_bytes: Some(1000), ..plan(dir.path(), &["off", "lz4"]) };
    let mut source = Source::scan(std::slice::from_ref(&top)).unwrap();
    let report = bench::run(&plan, &mut source, &Observer::default()).unwrap();
    assert!(report.runs.iter().all(|run| run.verified) && !report.machine.source_in_memory);
    let touching = Observer { touch: Some(top.join("text")), ..Observer::default() };
    let ended = bench::run(&plan, &mut source, &touching);
    assert!(matches!(&ended, Err(Error::Changed { path }) if path.ends_with("text")), "{ended:?}");
    assert_eq!(*touching.done.lock().unwrap(), ["off"]);
    assert!(is_clean(dir.path()));
}

#[test]
fn too_little_room_is_said_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    // A file system that has no space at all.
    let plan = plan(Path::new("/proc"), &["off"]);
    let ended = bench::run(&plan, &mut source, &Observer::default());
    assert!(matches!(ended, Err(Error::NoRoom { .. })), "{ended:?}");
}

#[test]
fn a_pool_of_the_user_is_as_it_was_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("tank.img");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    let options = Options::default();
    let disk = FileDisk::open(&image, Access::ReadWrite { exclusive: true }).unwrap();
    let filesystem = NewFilesystem::plain(&options.host);
    let spec = CreateSpec {
        name: "tank".into(),
        disks: vec![std::sync::Arc::new(disk)],
        ashift: Some(12),
        version: 5000,
        features: format::features::set("openzfs-2.1-linux").unwrap().features().collect(),
        properties: Vec::new(),
        root_properties: Vec::new(),
        comment: None,
        compatibility: None,
        filesystem,
        initialise: zpl::initialiser(),
        command: None,
    };
    Pool::create(spec, options).unwrap().export().unwrap();

    let found = pool::discover(std::slice::from_ref(&image)).remove(0);
    let place = Place::Pool { found: Box::new(found.clone()), name: "tank".into() };
    let measure = |observer: &Observer| {
        let mut source = Source::scan(&[files(dir.path())]).unwrap();
        bench::run(
            &Plan { place: place.clone(), ..plan(dir.path(), &["off", "zle", "lz4"]) },
            &mut source,
            observer,
        )
    };
    let report = measure(&Observer::default()).unwrap();
    assert!(report.runs.iter().all(|run| run.verified) && report.runs[2].compressratio > 2.0);
    assert!(report.recommendation.command.ends_with(" tank"));
    let stopped = measure(&Observer { stop_after: Some(1_000_000), ..Observer::default() });
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");

    let pool = Pool::import(&found, Options::default()).unwrap();
    let names: Vec<_> = pool.list("tank", None, true).unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["tank"]);
    pool.export().unwrap();
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let out = std::process::Command::new(oracle).args(["--quick", "tank"]).arg(&image).output().unwrap();
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}
