//! How fast names come and go: small files made, listed, checked and removed, on one thread.
//!
//! `cargo run --release -p cenote-zpl --example creates -- [COUNT]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use zpl::{FileKind, Filesystem, NewNode};

const PER_DIRECTORY: usize = 500;

fn timed(what: &str, count: usize, fs: &Filesystem, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    let rate = count as f64 / start.elapsed().as_secs_f64();
    fs.dataset().sync().expect("the pool syncs");
    println!("{what:<28} {rate:>9.0}/s   {:.2?} with the sync", start.elapsed());
}

fn main() {
    let bed = support::Bed::new(1, &[("xattr", 2)], 0, 0);
    let fs = bed.fs();
    let count: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(50_000);
    let new = NewNode::new(FileKind::Regular, 0o644);
    let directory = |name: &str| {
        fs.create(fs.root(), name.as_bytes(), &NewNode::new(FileKind::Directory, 0o755)).unwrap()
    };
    timed("create_with", count, fs, || {
        let mut dir = fs.root();
        for i in 0..count {
            if i % PER_DIRECTORY == 0 {
                dir = directory(&format!("d{}", i / PER_DIRECTORY));
            }
            let content = format!("the content of file {i}").into_bytes();
            fs.create_with(dir, format!("file{i}").as_bytes(), &new, content).unwrap();
        }
    });
    let big = directory("big");
    timed("create, write; one directory", count, fs, || {
        for i in 0..count {
            let id = fs.create(big, format!("file{i}").as_bytes(), &new).unwrap();
            fs.write(id, 0, b"hello, world").unwrap();
        }
    });
    timed("stat in directory order", count, fs, || {
        for entry in fs.entries(big).unwrap() {
            fs.stat(entry.unwrap().id).unwrap();
        }
    });
    timed("check", 2 * count, fs, || bed.expect_sound());
    timed("unlink", count, fs, || {
        for i in 0..count {
            fs.unlink(big, format!("file{i}").as_bytes()).unwrap();
        }
    });
}
