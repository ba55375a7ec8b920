//! Whole measurements on little data.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use bench::{Ended, Error, Event, Place, Plan, Report, Source, Watch};
use pool::props::Value;
use pool::{CreateSpec, NewFilesystem, Options, Pool};
use storage::host::{Access, FileDisk};

/// Remembers all notices; stops after so many trials, warming up included; changes a file when the first run is done.
#[derive(Default)]
struct Observer {
    stop_in: Option<u64>,
    touch: Option<PathBuf>,
    begun: AtomicU64,
    /// Of the present trial.
    bytes: AtomicU64,
    done: Mutex<Vec<String>>,
    notes: Mutex<Vec<String>>,
}

impl Watch for Observer {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Begin { .. } => {
                self.begun.fetch_add(1, Ordering::Relaxed);
                self.bytes.store(0, Ordering::Relaxed);
            }
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
        let begun = || self.begun.load(Ordering::Relaxed);
        self.stop_in.is_some_and(|trial| begun() >= trial && self.bytes.load(Ordering::Relaxed) > 1_000_000)
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
    // Which of them it is follows from the times of this machine, by the rule that `advice.rs` tests.
    let said = &report.recommendation;
    assert_eq!(*said, bench::recommend(&report.runs, "POOL/DATASET"));
    assert!(report.runs.iter().any(|run| run.compression == said.compression), "{said:?}");
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
    // In the second configuration, behind the warming up.
    let observer = Observer { stop_in: Some(3), ..Observer::default() };
    let ended = bench::run(&plan(dir.path(), &["off", "lz4"]), &mut source, &observer);
    assert!(matches!(ended, Err(Ended { error: Error::Interrupted, .. })), "{ended:?}");
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
    let Err(Ended { error, report: Some(report) }) = bench::run(&plan, &mut source, &touching) else {
        panic!("the file has changed")
    };
    assert!(matches!(&error, Error::Changed { path } if path.ends_with("text")), "{error:?}");
    assert_eq!(*touching.done.lock().unwrap(), ["off"]);
    assert_eq!(
        (report.runs.len(), report.runs[0].compression.as_str()),
        (1, "off"),
        "what was measured is kept"
    );
    let unfinished = format!("1 of 2 configurations were measured, then: {error}");
    assert_eq!(report.unfinished.as_ref(), Some(&unfinished));
    assert!(report.cautions()[0].ends_with(&unfinished), "{:?}", report.cautions());
    assert!(is_clean(dir.path()));
}

#[test]
fn a_file_that_vanishes_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let top = files(dir.path());
    let plan = Plan { memory_bytes: Some(1000), ..plan(dir.path(), &["off", "lz4"]) };
    let mut source = Source::scan(std::slice::from_ref(&top)).unwrap();
    std::fs::remove_file(top.join("text")).unwrap();
    let ended = bench::run(&plan, &mut source, &Observer::default()).unwrap_err();
    assert!(matches!(&ended.error, Error::Unreadable { path, .. } if path.ends_with("text")), "{ended:?}");
    assert!(ended.report.is_none() && is_clean(dir.path()));
}

#[test]
fn repetitions_before_the_end_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    let plan = Plan { repeat: 4, ..plan(dir.path(), &["lz4"]) };
    // In the third of four, behind the warming up.
    let stopping = Observer { stop_in: Some(4), ..Observer::default() };
    let ended = bench::run(&plan, &mut source, &stopping).unwrap_err();
    assert!(matches!(ended.error, Error::Interrupted));
    let report = ended.report.expect("two were measured");
    assert_eq!(report.runs[0].spread.as_ref().map(|spread| spread.repeat), Some(2), "{report:?}");
}

#[test]
fn too_little_space_is_reported_before_the_first_write() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    // A file system that has no space at all.
    let plan = plan(Path::new("/proc"), &["off"]);
    let ended = bench::run(&plan, &mut source, &Observer::default());
    assert!(matches!(ended, Err(Ended { error: Error::NoRoom { .. }, .. })), "{ended:?}");
}

#[test]
fn a_measurement_has_a_row_for_each_pair_total_and_other_file_system() {
    let dir = tempfile::tempdir().unwrap();
    let mut source = Source::scan(&[files(dir.path())]).unwrap();
    let other = tempfile::tempdir().unwrap();
    let once = source.bytes();
    let plan = Plan {
        pairs: vec![("lz4".into(), 131_072), ("off".into(), 1 << 20)],
        totals: vec![once / 2, once * 3],
        against: vec![other.path().to_owned()],
        ..plan(dir.path(), &["gzip-9"])
    };
    let report = bench::run(&plan, &mut source, &Observer::default()).unwrap();
    let shape: Vec<_> = report.runs.iter().map(|run| (run.compression.as_str(), run.logical_bytes)).collect();
    let (half, three) = (once / 2, once * 3);
    assert_eq!(
        shape,
        [("lz4", half), ("off", half), ("-", half), ("lz4", three), ("off", three), ("-", three)]
    );
    assert!(report.runs.iter().all(|run| run.verified && run.warm_read_seconds.is_some()));
    assert!(report.runs.iter().all(|run| run.accepted_seconds.unwrap() <= run.write_seconds));
    assert!(report.runs[2].against.as_ref().is_some_and(|name| name.contains(" on ")));
    assert!(std::fs::read_dir(other.path()).unwrap().next().is_none(), "nothing is left behind");
    assert!(report.dirty_max.is_some() && is_clean(dir.path()));
    assert_ne!(report.recommendation.compression, "-");
}

#[test]
fn an_interrupted_measurement_continues_after_its_finished_runs() {
    let dir = tempfile::tempdir().unwrap();
    let top = files(dir.path());
    let kept = tempfile::tempdir().unwrap();
    let journal = kept.path().join("runs.jsonl");
    let plan = Plan { journal: Some(journal.clone()), ..plan(dir.path(), &["off", "lz4"]) };
    let mut source = Source::scan(std::slice::from_ref(&top)).unwrap();
    // In the second configuration, behind the warming up.
    let stopping = Observer { stop_in: Some(3), ..Observer::default() };
    assert!(matches!(
        bench::run(&plan, &mut source, &stopping),
        Err(Ended { error: Error::Interrupted, .. })
    ));
    assert_eq!(*stopping.done.lock().unwrap(), ["off"]);
    // A line that a crash cut off.
    let mut text = std::fs::read_to_string(&journal).unwrap();
    assert_eq!(text.lines().count(), 2);
    text += "{\"configuration\":\"lz4, rec";
    std::fs::write(&journal, text).unwrap();
    let again = Observer::default();
    let report = bench::run(&plan, &mut source, &again).unwrap();
    assert_eq!(report.runs.len(), 2);
    // The second one only, and its warming up.
    assert_eq!(again.begun.load(Ordering::Relaxed), 2);
    assert_eq!(std::fs::read_to_string(&journal).unwrap().lines().count(), 3);
    let other = Plan { repeat: 2, ..plan };
    let ended = bench::run(&other, &mut source, &Observer::default());
    assert!(matches!(&ended, Err(Ended { error: Error::Journal { .. }, .. })), "{ended:?}");
    std::fs::write(&journal, "something else\n").unwrap();
    assert!(matches!(
        bench::run(&other, &mut source, &Observer::default()),
        Err(Ended { error: Error::Journal { .. }, .. })
    ));
    assert_eq!(std::fs::read_to_string(&journal).unwrap(), "something else\n");
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
        ashift: Some(12),
        ..CreateSpec::new("tank", vec![std::sync::Arc::new(disk)], filesystem, zpl::initialiser())
    };
    let pool = Pool::create(spec, options).unwrap();
    // Folders that a killed measurement left, and others that only have such a name.
    let make = |name: &str, local| {
        let new = NewFilesystem::plain(&Options::default().host);
        pool.create_filesystem(name, local, new, zpl::initialiser()).unwrap();
    };
    let mark = Value::Text("temporary".to_owned());
    make("tank/cenote-bench-1", vec![("org.cenote:bench".to_owned(), mark)]);
    make("tank/cenote-bench-of-mine", Vec::new());
    pool.export().unwrap();

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
    let stopped = measure(&Observer { stop_in: Some(1), ..Observer::default() });
    assert!(matches!(stopped, Err(Ended { error: Error::Interrupted, .. })), "{stopped:?}");

    let pool = Pool::import(&found, Options::default()).unwrap();
    let names: Vec<_> = pool.list("tank", None, true).unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["tank", "tank/cenote-bench-of-mine"]);
    pool.export().unwrap();
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let out = std::process::Command::new(oracle).args(["--quick", "tank"]).arg(&image).output().unwrap();
    let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
    assert!(
        out.status.success() || out.status.code() == Some(2) && !required,
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
}
