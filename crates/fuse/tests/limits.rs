//! Programs at a quota, at a reservation of another dataset, and in a full pool.

mod support;

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

use support::{Bed, Chance, shell, usable};
use zpl::session::Notice;
use zpl::{Amount, Owner};

const MIB: u64 = 1 << 20;
const EDQUOT: i32 = 122;
const ENOSPC: i32 = 28;
/// `compression=off`
const OFF: u64 = 2;

/// Writes pieces of `size` bytes to a new file `name` until one is refused. Returns what was acknowledged, and the errno.
fn fill(bed: &Bed, name: &str, size: usize, most: u64) -> (Vec<u8>, Option<i32>) {
    let file = File::create(bed.at().join(name)).unwrap();
    let mut written = Vec::new();
    let errno = append(&file, &mut written, size, most);
    close(file);
    (written, errno)
}

fn append(mut file: &File, written: &mut Vec<u8>, size: usize, most: u64) -> Option<i32> {
    let mut piece = vec![0; size];
    while (written.len() as u64) < most {
        for word in piece.chunks_mut(8) {
            let noise = Chance(written.len() as u64 + word.len() as u64).next().to_le_bytes();
            word.copy_from_slice(&noise[..word.len()]);
        }
        match file.write(&piece) {
            Ok(count) => written.extend(&piece[..count]),
            Err(error) => return error.raw_os_error(),
        }
    }
    None
}

/// `close` returns no error.
fn close(file: File) {
    let fd: std::os::fd::OwnedFd = file.into();
    let copy = fd.try_clone().unwrap();
    drop(fd);
    // `close` does not report the error here; `fsync` would have.
    rustix::fs::fsync(&copy).unwrap();
}

/// After a remount, `name` holds what was acknowledged and nothing else.
fn expect(bed: &mut Bed, name: &str, written: &[u8]) {
    bed.remount();
    let content = std::fs::read(bed.at().join(name)).unwrap();
    assert_eq!(content.len(), written.len(), "{name}");
    assert!(content == written, "{name}");
}

#[test]
fn a_write_beyond_a_quota_is_refused_and_what_was_acknowledged_is_there() {
    if !usable() {
        return;
    }
    for (property, size) in [("quota", 1 << 20), ("refquota", 64 << 10), ("quota", 4096)] {
        let mut bed = Bed::new(512 << 20, &[(property, 8 * MIB), ("compression", OFF)]);
        let (written, errno) = fill(&bed, "f", size, 64 * MIB);
        assert_eq!(errno, Some(EDQUOT), "{property}, pieces of {size}");
        let len = written.len() as u64;
        assert!((7 * MIB..=9 * MIB).contains(&len), "{property}, pieces of {size}: {len} bytes went in");
        assert_eq!(std::fs::metadata(bed.at().join("f")).unwrap().len(), len);
        assert!(std::fs::read(bed.at().join("f")).unwrap() == written, "reading goes on at a quota");
        expect(&mut bed, "f", &written);
        bed.finish();
    }
}

#[test]
fn at_a_quota_files_can_be_cut_and_removed_and_that_helps_at_once() {
    if !usable() {
        return;
    }
    let bed = Bed::new(512 << 20, &[("quota", 8 * MIB), ("compression", OFF)]);
    let at = bed.at();
    for round in 0..3 {
        assert_eq!(fill(&bed, "f", 1 << 20, 64 * MIB).1, Some(EDQUOT));
        bed.pool().sync().unwrap();
        let refused = File::create(at.join("new")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(EDQUOT));
        let how = match round {
            0 => ": > f",
            1 => {
                "python3 -c 'import os\nf = os.open(\"f\", os.O_RDWR)\nos.read(f, 1 << 24)\nos.read(f, 1)\nos.ftruncate(f, 0)'"
            }
            _ => "truncate -s 1000 f",
        };
        assert_eq!(
            shell(&at, &format!("chmod 600 f && {how} && echo new > new && cat new && rm new f")),
            "new\n"
        );
        std::fs::write(at.join("other"), b"at once").unwrap();
        std::fs::remove_file(at.join("other")).unwrap();
    }
    bed.finish();
}

#[test]
fn several_programs_that_append_share_what_is_left() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, &[("quota", 8 * MIB), ("compression", OFF)]);
    // Opened before anything is near a limit.
    let open = |name: &str| {
        OpenOptions::new().create(true).append(true).custom_flags(0).open(bed.at().join(name)).unwrap()
    };
    let files = [open("a"), open("b")];
    let written: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(move || {
                    let mut written = Vec::new();
                    assert_eq!(append(file, &mut written, 100_000, 64 * MIB), Some(EDQUOT));
                    written
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let sum = written.iter().map(Vec::len).sum::<usize>() as u64;
    assert!((7 * MIB..=10 * MIB).contains(&sum), "{sum} bytes went in");
    for file in files {
        assert_eq!((&file).write(b"more").unwrap_err().raw_os_error(), Some(EDQUOT));
        close(file);
    }
    expect(&mut bed, "a", &written[0]);
    expect(&mut bed, "b", &written[1]);
    bed.finish();
}

#[test]
fn msync_reports_mapped_data_beyond_a_quota() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, &[("quota", 4 * MIB), ("compression", OFF)]);
    let script = r#"
import mmap, os
fd = os.open("m", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 16 << 20)
m = mmap.mmap(fd, 16 << 20)
noise = os.urandom(1 << 20)
for at in range(0, 16 << 20, 1 << 20):
    m[at:at + (1 << 20)] = noise
try:
    m.flush()
    print("msync said nothing")
except OSError as error:
    print("msync", error.errno)
m.close()
os.close(fd)
"#;
    let said = shell(&bed.at(), &format!("python3 - <<'EOF'\n{script}\nEOF"));
    assert_eq!(said, format!("msync {ENOSPC}\n"));
    bed.pool().sync().unwrap();
    assert!(bed.fs().space().unwrap().referenced < 7 * MIB);
    bed.remount();
    assert_eq!(shell(&bed.at(), "rm m && echo new > new && cat new"), "new\n");
    bed.finish();
}

#[test]
fn quotas_of_users_groups_and_projects_hold_within_a_txg() {
    if !usable() {
        return;
    }
    for owner in [Owner::User, Owner::Group] {
        let mut bed = Bed::new(512 << 20, &[("compression", OFF)]);
        bed.fs().set_quota(owner, Amount::Bytes, 0, 4 * MIB).unwrap();
        let (written, errno) = fill(&bed, "f", 256 << 10, 100 * MIB);
        assert_eq!(errno, Some(EDQUOT), "{owner:?}");
        assert!(written.len() as u64 <= 5 * MIB, "{owner:?}: {} bytes went in", written.len());
        expect(&mut bed, "f", &written);
        assert_eq!(shell(&bed.at(), "rm f && echo new > new && cat new"), "new\n");
        bed.finish();
    }
}

#[test]
fn write_reports_a_full_pool_and_no_acknowledged_data_is_lost() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(96 << 20, &[("compression", OFF)]);
    let (written, errno) = fill(&bed, "f", 300_000, 200 * MIB);
    assert_eq!(errno, Some(ENOSPC));
    assert!(written.len() as u64 > 20 * MIB, "{} bytes went in", written.len());
    expect(&mut bed, "f", &written);
    assert_eq!(shell(&bed.at(), "rm f && echo new > new && cat new"), "new\n");
    bed.finish();
}

#[test]
fn small_records_reach_a_quota_with_whole_sectors() {
    if !usable() {
        return;
    }
    // 4096 bytes on disk for 512 bytes of data.
    let properties = [("quota", 16 * MIB), ("compression", OFF), ("recordsize", 512)];
    let mut bed = Bed::new(512 << 20, &properties);
    let (written, errno) = fill(&bed, "f", 64 << 10, 64 * MIB);
    assert_eq!(errno, Some(EDQUOT));
    bed.pool().sync().unwrap();
    let used = bed.fs().space().unwrap().referenced;
    assert!((15 * MIB..20 * MIB).contains(&used), "{} bytes went in and take {used}", written.len());
    expect(&mut bed, "f", &written);
    bed.finish();
}

#[test]
fn the_quota_of_a_project_ends_a_write_in_its_folder_alone() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, &[("compression", OFF)]);
    std::fs::create_dir(bed.at().join("project")).unwrap();
    let fs = bed.fs().clone();
    let (dir, _) = fs.lookup(fs.root(), b"project").unwrap().unwrap();
    let flags = fs.stat(dir).unwrap().flags | format::znode::pflags::PROJINHERIT;
    fs.setattr(dir, &zpl::SetAttr { projid: Some(7), flags: Some(flags), ..zpl::SetAttr::default() })
        .unwrap();
    fs.set_quota(Owner::Project, Amount::Bytes, 7, 4 * MIB).unwrap();
    drop(fs);
    let (written, errno) = fill(&bed, "project/f", 256 << 10, 100 * MIB);
    assert_eq!(errno, Some(EDQUOT));
    assert!((3 * MIB..=5 * MIB).contains(&(written.len() as u64)), "{} bytes went in", written.len());
    let (other, errno) = fill(&bed, "f", 1 << 20, 8 * MIB);
    assert_eq!(errno, None, "a file of no project");
    expect(&mut bed, "project/f", &written);
    expect(&mut bed, "f", &other);
    bed.finish();
}

#[test]
fn the_reservation_of_another_file_system_is_left_to_it() {
    if !usable() {
        return;
    }
    for limit in ["reservation", "refreservation"] {
        let mut bed = Bed::new(192 << 20, &[("compression", OFF)]);
        let free = bed.fs().space().unwrap().available;
        other_filesystem(&bed, &[(limit, free - 16 * MIB)]);
        let (written, errno) = fill(&bed, "f", 300_000, 200 * MIB);
        assert_eq!(errno, Some(ENOSPC), "{limit}");
        let len = written.len() as u64;
        assert!((12 * MIB..=18 * MIB).contains(&len), "{limit}: {len} bytes went in");
        expect(&mut bed, "f", &written);
        // Its owner has it still.
        let other = zpl::Filesystem::open(bed.pool().open("tank/other").unwrap()).unwrap();
        let id = other.create(other.root(), b"f", &zpl::NewNode::new(zpl::FileKind::Regular, 0o644)).unwrap();
        other.write(id, 0, &Chance(1).bytes(8 << 20)).unwrap();
        drop(other);
        bed.finish();
    }
}

/// `tank/other`, beside the file system that is mounted.
fn other_filesystem(bed: &Bed, properties: &[(&str, u64)]) -> zpl::Filesystem {
    let local = properties.iter().map(|&(name, value)| (name.to_owned(), pool::props::Value::Number(value)));
    let plain = pool::NewFilesystem::plain(bed.pool().host());
    bed.pool().create_filesystem("tank/other", local.collect(), plain, zpl::initialiser()).unwrap();
    zpl::Filesystem::open(bed.pool().open("tank/other").unwrap()).unwrap()
}

#[test]
fn a_quota_above_several_file_systems_ends_the_writes_to_all_of_them() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, &[("compression", OFF)]);
    let other = other_filesystem(&bed, &[("compression", OFF)]);
    let quota = vec![("quota".to_owned(), Some(pool::props::Value::Number(24 * MIB)))];
    bed.pool().set_properties("tank", quota).unwrap();
    let file = zpl::NewNode::new(zpl::FileKind::Regular, 0o644);
    let id = other.create(other.root(), b"f", &file).unwrap();
    other.write(id, 0, &Chance(1).bytes(8 << 20)).unwrap();
    let (written, errno) = fill(&bed, "f", 1 << 20, 64 * MIB);
    assert_eq!(errno, Some(EDQUOT));
    let len = written.len() as u64;
    assert!((14 * MIB..=17 * MIB).contains(&len), "{len} bytes went in");
    assert!(matches!(other.write(id, 8 * MIB, &[1; 4096]), Err(zpl::Error::Quota)));
    drop(other);
    expect(&mut bed, "f", &written);
    bed.finish();
}

#[test]
fn a_quota_that_is_lowered_while_a_file_is_written_ends_the_next_write() {
    if !usable() {
        return;
    }
    for of_user in [false, true] {
        let mut bed = Bed::new(512 << 20, &[("compression", OFF)]);
        let file = File::create(bed.at().join("f")).unwrap();
        let mut written = Vec::new();
        assert_eq!(append(&file, &mut written, 1 << 20, 12 * MIB), None);
        rustix::fs::fsync(&file).unwrap();
        bed.pool().sync().unwrap();
        if of_user {
            // The new quota is lower than the space used already.
            bed.fs().set_quota(Owner::User, Amount::Bytes, 0, MIB).unwrap();
        } else {
            bed.set("quota", 14 * MIB);
        }
        bed.tell(&[Notice::Limits]);
        assert_eq!(append(&file, &mut written, 1 << 20, 64 * MIB), Some(EDQUOT));
        let (len, most) = (written.len() as u64, if of_user { 13 * MIB } else { 15 * MIB });
        assert!((12 * MIB..=most).contains(&len), "{len} bytes went in");
        close(file);
        expect(&mut bed, "f", &written);
        bed.finish();
    }
}

#[test]
fn no_write_passes_unasked_while_pages_are_written_back() {
    if !usable() {
        return;
    }
    let bed = Bed::new(512 << 20, &[("quota", 8 * MIB), ("compression", OFF)]);
    let path = bed.at().join("f");
    let file = File::create(&path).unwrap();
    let mut piece = vec![1; 4 * MIB as usize];
    file.write_all_at(&piece, 0).unwrap();
    let (ends, at) = (AtomicBool::new(false), OpenOptions::new().write(true).open(&path).unwrap());
    std::thread::scope(|scope| {
        let flusher = scope.spawn(|| {
            while !ends.load(Ordering::Acquire) {
                rustix::fs::fdatasync(&at).unwrap();
            }
        });
        let mut most = 0;
        for round in 0..24 {
            piece.fill(round);
            match file.write_at(&piece, u64::from(round) * 4 * MIB) {
                Ok(count) => most = u64::from(round) * 4 * MIB + count as u64,
                Err(error) => assert_eq!(error.raw_os_error(), Some(EDQUOT)),
            }
        }
        ends.store(true, Ordering::Release);
        flusher.join().unwrap();
        assert!(most <= 16 * MIB, "{most} bytes went in");
    });
    drop(at);
    close(file);
    bed.finish();
}

#[test]
fn one_large_write_that_begins_below_a_quota_is_kept_whole() {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, &[("quota", 8 * MIB), ("compression", OFF)]);
    let data: Vec<u8> = (0..20 * MIB / 8).flat_map(|word| Chance(word).next().to_le_bytes()).collect();
    let file = File::create(bed.at().join("f")).unwrap();
    file.write_all_at(&data, 0).unwrap();
    assert_eq!(file.write_at(b"more", 0).unwrap_err().raw_os_error(), Some(EDQUOT));
    close(file);
    expect(&mut bed, "f", &data);
    bed.finish();
}
