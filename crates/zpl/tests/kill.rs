//! A process is killed in the middle of its work: acknowledged data is there.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use pool::{CreateSpec, Options, Pool};
use support::{disk, new_filesystem, options};
use zpl::{FileKind, Filesystem, NewNode};

/// Where the child makes its pool.
const IMAGE: &str = "CENOTE_KILL_IMAGE";
const THREADS: u8 = 3;
/// Bytes of one record of a file.
const RECORD: usize = 3000;

fn create(path: &Path) -> Pool {
    std::fs::File::create(path).unwrap().set_len(256 << 20).unwrap();
    let options = Options { txg_timeout: 1, ..options(1) };
    let host = options.host.clone();
    let spec = CreateSpec {
        ashift: Some(12),
        ..CreateSpec::new("tank", vec![disk(path, true)], new_filesystem(&host, 0, 0), zpl::initialiser())
    };
    Pool::create(spec, options).unwrap()
}

fn record(thread: u8, number: u64) -> Vec<u8> {
    (0..RECORD as u64).map(|i| (i * 7 + number * 13 + u64::from(thread)) as u8).collect()
}

/// The process that the test kills. Until then, its threads append to their files and print which data is durable.
#[test]
#[ignore = "run by the test below"]
fn child() {
    let Some(path) = std::env::var_os(IMAGE) else { return };
    let pool = Arc::new(create(Path::new(&path)));
    let fs = Filesystem::open(pool.open("tank").unwrap()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let fs = &fs;
            scope.spawn(move || {
                let name = [b'f', b'0' + thread];
                let id = fs.create(fs.root(), &name, &NewNode::new(FileKind::Regular, 0o644)).unwrap();
                for number in 0u64.. {
                    fs.write(id, number * RECORD as u64, &record(thread, number)).unwrap();
                    fs.fsync(id).unwrap();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "safe {thread} {number}").unwrap();
                    out.flush().unwrap();
                }
            });
        }
    });
}

fn findings(pool: &Pool) -> Vec<String> {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding.to_string())).unwrap();
    found
}

fn ask_zdb(path: &Path, options: &[&str]) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    if let Ok(wanted) = std::env::var("CENOTE_ORACLE") {
        let out = Command::new(oracle).args(options).arg("tank").arg(path).output().unwrap();
        if out.status.code() == Some(2) && wanted != "required" {
            eprintln!("oracle: zdb is not here, skipped (oracle/install brings it)");
            return;
        }
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
}

#[test]
fn acknowledged_data_survives_a_killed_process() {
    let folder = tempfile::tempdir().unwrap();
    for lines in [40, 700] {
        let path = folder.path().join("disk");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(IMAGE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut safe = [0u64; THREADS as usize];
        let mut heard = 0;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some((thread, number)) = line.strip_prefix("safe ").and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let thread: usize = thread.parse().unwrap();
            safe[thread] = safe[thread].max(number.parse::<u64>().unwrap() + 1);
            heard += 1;
            if heard == lines {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(heard >= lines, "the child worked until it was killed");

        let pool =
            Pool::import_disks(vec![disk(&path, false)], Options { read_only: true, ..Options::default() })
                .unwrap();
        assert_eq!(findings(&pool), [""; 0]);
        drop(pool);
        ask_zdb(&path, &["--allow-unclean"]);
        let pool = Pool::import_disks(vec![disk(&path, true)], Options::default()).unwrap();
        println!("{safe:?} safe, replayed: {:?}", zpl::replay_logs(&pool).unwrap());
        let fs = Filesystem::open(pool.open("tank").unwrap()).unwrap();
        for thread in 0..THREADS {
            let made = fs.resolve(&[b'/', b'f', b'0' + thread], false);
            if safe[usize::from(thread)] == 0 && matches!(made, Err(zpl::Error::NotFound)) {
                // The others were so fast.
                continue;
            }
            let id = made.unwrap();
            let data = fs.read_all(id, 64 << 20).unwrap();
            assert!(data.len() as u64 >= safe[usize::from(thread)] * RECORD as u64);
            for (number, found) in data.chunks_exact(RECORD).enumerate() {
                assert!(found == record(thread, number as u64), "record {number} of file {thread}");
            }
        }
        assert_eq!(findings(&pool), [""; 0]);
        drop(fs);
        pool.export().unwrap();
        ask_zdb(&path, &[]);
    }
}
