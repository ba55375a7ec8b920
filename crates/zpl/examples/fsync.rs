//! How long it takes to make a small write safe: 4 KiB appended and fsynced, by one thread and by several.
//!
//! `cargo run --release -p cenote-zpl --example fsync -- [SECONDS]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use zpl::{FileKind, NewNode};

const WRITE: usize = 4096;

fn main() {
    let seconds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3);
    for threads in [1, 4, 16] {
        let bed = support::Bed::sized(2 << 30, 1, &[], 0, 0);
        let fs = bed.fs();
        fs.fsync(fs.root()).expect("the log begins");
        let end = Instant::now() + Duration::from_secs(seconds);
        let all = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (fs, all) = (&fs, &all);
                scope.spawn(move || {
                    let name = format!("file{thread}");
                    let new = NewNode::new(FileKind::Regular, 0o644);
                    let id = fs.create(fs.root(), name.as_bytes(), &new).expect("there is room");
                    let mut mine = Vec::new();
                    let mut offset = 0;
                    while Instant::now() < end {
                        let start = Instant::now();
                        fs.write(id, offset, &[thread as u8; WRITE]).expect("there is room");
                        fs.fsync(id).expect("the disk takes it");
                        mine.push(start.elapsed());
                        offset += WRITE as u64;
                    }
                    all.lock().expect("nobody panics").extend(mine);
                });
            }
        });
        let mut all = all.into_inner().expect("nobody panics");
        all.sort_unstable();
        let at = |percent: usize| all[(all.len() - 1) * percent / 100];
        let rate = all.len() as f64 / seconds as f64;
        println!(
            "{threads:>2} threads: {rate:>7.0} fsync/s   median {:?}, 99 % {:?}, longest {:?}",
            at(50),
            at(99),
            at(100)
        );
    }
    baseline(seconds);
}

/// The same on the file system below, without any pool.
fn baseline(seconds: u64) {
    use std::io::Write;
    let mut file = tempfile::tempfile().expect("there is room");
    let (end, mut count) = (Instant::now() + Duration::from_secs(seconds), 0u64);
    while Instant::now() < end {
        file.write_all(&[7; WRITE]).expect("there is room");
        file.sync_data().expect("the disk takes it");
        count += 1;
    }
    println!("plain file: {:>7.0} fdatasync/s", count as f64 / seconds as f64);
}
