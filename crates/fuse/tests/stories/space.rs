//! Space: what files take, what is reported, and a pool that is full.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::support::{Bed, Chance, digest, usable};

#[test]
fn a_sparse_file_takes_the_space_of_its_data() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(128 << 20, &[("compression", 2)]);
    let path = bed.at().join("sparse");
    let file = File::create(&path).unwrap();
    let far = (1u64 << 50) + 12345;
    for offset in [0, 1 << 30, far] {
        file.write_all_at(b"here", offset).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    bed.remount();
    let file = File::open(&path).unwrap();
    let stat = file.metadata().unwrap();
    assert_eq!(stat.len(), far + 4);
    assert!(stat.blocks() * 512 < 3 << 20, "{}", stat.blocks());
    let mut buf = [1; 8];
    file.read_exact_at(&mut buf, far - 4).unwrap();
    assert_eq!(&buf, b"\0\0\0\0here");
    file.read_exact_at(&mut buf, 1 << 40).unwrap();
    assert_eq!(buf, [0; 8]);
    let seek = |from| rustix::fs::seek(&file, from).unwrap();
    assert_eq!(seek(rustix::fs::SeekFrom::Data(1 << 20)), 1 << 30);
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 30)), (1 << 30) + (128 << 10));
    drop(file);
    bed.finish();
}

#[test]
fn space_is_reported_once_it_is_known() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[("compression", 2)]);
    let path = bed.at().join("f");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks();
    // Looked at before the sync, it must not be remembered.
    blocks();
    bed.pool().sync().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(blocks() * 512 >= 1 << 20, "{}", blocks());
    let figures = rustix::fs::statvfs(bed.at()).unwrap();
    assert_eq!(figures.f_bsize, 128 << 10);
    assert!(figures.f_blocks > figures.f_bavail && figures.f_bavail * figures.f_bsize < 128 << 20);
    assert_eq!((figures.f_bavail, figures.f_namemax), (figures.f_bfree, 255));
    assert!(figures.f_files > figures.f_ffree);
    bed.finish();
}

#[test]
fn a_full_pool_reports_it_and_recovers() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(64 << 20, &[("compression", 2)]);
    std::fs::write(bed.at().join("precious"), b"kept").unwrap();
    let mut chance = Chance(7);
    let piece: Vec<u8> = (0..1 << 20).map(|_| chance.next() as u8).collect();
    let mut full = None;
    for n in 0..200 {
        let made = File::create(bed.at().join(format!("f{n}")));
        if let Err(error) = made.and_then(|mut file| file.write_all(&piece).and_then(|()| file.sync_all())) {
            full = Some((n, error));
            break;
        }
    }
    let (n, error) = full.expect("64 MiB hold no 200 MiB");
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC after {n}");
    assert!(n > 20, "full after {n} MiB");
    for file in 0..n {
        std::fs::remove_file(bed.at().join(format!("f{file}"))).unwrap();
    }
    // The last one may have been refused as a whole.
    let _ = std::fs::remove_file(bed.at().join(format!("f{n}")));
    // Freed space may be used again two txgs later.
    for _ in 0..4 {
        bed.pool().sync().unwrap();
    }
    std::fs::write(bed.at().join("again"), &piece).unwrap();
    bed.remount();
    assert_eq!(std::fs::read(bed.at().join("precious")).unwrap(), b"kept");
    assert_eq!(digest(&std::fs::read(bed.at().join("again")).unwrap()), digest(&piece));
    bed.finish();
}

#[test]
fn an_endless_writer_gets_an_error_from_a_full_pool() {
    if !usable() {
        return;
    }
    let bed = Bed::new(64 << 20, &[("compression", 2)]);
    let mut chance = Chance(8);
    let piece: Vec<u8> = (0..1 << 20).map(|_| chance.next() as u8).collect();
    let mut file = File::create(bed.at().join("f")).unwrap();
    // Writes end in the page cache. Data that cannot be written back is lost, and the writer must get an error.
    let refused = (0..5000).find_map(|_| file.write_all(&piece).err()).expect("64 MiB hold no 5 GB");
    assert_eq!(refused.raw_os_error(), Some(28), "ENOSPC");
    assert!(std::fs::metadata(bed.at().join("f")).is_ok());
    // `fsync` may report it once more.
    let _ = file.sync_all();
    drop(file);
    std::fs::remove_file(bed.at().join("f")).unwrap();
    bed.finish();
}
