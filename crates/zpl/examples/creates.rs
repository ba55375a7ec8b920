#[path = "../tests/support/mod.rs"]
mod support;
use std::time::Instant;
use zpl::{FileKind, NewNode};
fn main() {
    let bed = support::Bed::new(1, &[("xattr", 2)], 0, 0);
    let fs = bed.fs();
    let n: usize = std::env::args().nth(1).map_or(60_000, |a| a.parse().unwrap());
    let per_dir = 500;
    let start = Instant::now();
    let mut dir = fs.root();
    for i in 0..n {
        if i % per_dir == 0 {
            dir = fs.create(fs.root(), format!("d{}", i / per_dir).as_bytes(), &NewNode::new(FileKind::Directory, 0o755)).unwrap();
        }
        fs.create_with(dir, format!("file{i}").as_bytes(), &NewNode::new(FileKind::Regular, 0o644), format!("content {i} of this file").into_bytes()).unwrap();
    }
    let t = start.elapsed();
    fs.dataset().sync().unwrap();
    println!("create_with: {n} in {t:?} = {:.0}/s; with sync {:?}", n as f64 / t.as_secs_f64(), start.elapsed());
    let start = Instant::now();
    let big = fs.create(fs.root(), b"big", &NewNode::new(FileKind::Directory, 0o755)).unwrap();
    for i in 0..n {
        let id = fs.create(big, format!("file{i}").as_bytes(), &NewNode::new(FileKind::Regular, 0o644)).unwrap();
        fs.write(id, 0, b"hello, world").unwrap();
    }
    let t = start.elapsed();
    fs.dataset().sync().unwrap();
    println!("create+write in one dir: {n} in {t:?} = {:.0}/s; with sync {:?}", n as f64 / t.as_secs_f64(), start.elapsed());
    let start = Instant::now();
    let mut count = 0;
    let mut todo = vec![fs.root()];
    while let Some(dir) = todo.pop() {
        for e in fs.entries(dir).unwrap() {
            let e = e.unwrap();
            fs.stat(e.id).unwrap();
            count += 1;
            if e.kind == FileKind::Directory { todo.push(e.id) }
        }
    }
    println!("walk: {count} in {:?}", start.elapsed());
    let data: Vec<u8> = (0..131072u32).map(|i| (i / 7 % 251) as u8).collect();
    let id = fs.create(fs.root(), b"large", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
    let start = Instant::now();
    for i in 0..8000u64 { fs.write_record(id, i * 131072, data.clone()).unwrap(); }
    let t = start.elapsed();
    fs.dataset().sync().unwrap();
    println!("write_record: 1000 MiB in {t:?}, with sync {:?}", start.elapsed());
    let start = Instant::now();
    let mut bytes = 0;
    for p in fs.read_records(id).unwrap() { bytes += p.unwrap().data().unwrap().len() }
    println!("read_records: {bytes} in {:?}", start.elapsed());
    let start = Instant::now();
    for i in 0..n { fs.unlink(big, format!("file{i}").as_bytes()).unwrap(); }
    let t = start.elapsed();
    fs.dataset().sync().unwrap();
    println!("unlink: {n} in {t:?}, with sync {:?}", start.elapsed());
    let start = Instant::now();
    bed.expect_sound();
    println!("check: {:?}", start.elapsed());
}
