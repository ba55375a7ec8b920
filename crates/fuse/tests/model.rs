//! Random work on the mount and on a file system of the kernel's own: the same trees, also after remounts.

mod support;

use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use support::{Bed, Chance, difference, reference, usable};

/// Something to do, with names below the top.
#[derive(Clone, Debug)]
enum Step {
    Create(PathBuf, Vec<u8>),
    Write(PathBuf, u64, Vec<u8>),
    Append(PathBuf, Vec<u8>),
    Truncate(PathBuf, u64),
    Punch(PathBuf, u64, u64),
    Copy(PathBuf, u64, PathBuf, u64, u64),
    Mkdir(PathBuf),
    Rmdir(PathBuf),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Symlink(PathBuf),
    Chmod(PathBuf, u32),
    Setxattr(PathBuf, u64, Vec<u8>),
    Removexattr(PathBuf, u64),
    RemoveTree(PathBuf),
}

impl Step {
    /// There are few names, so that most steps find an existing one.
    fn random(chance: &mut Chance) -> Step {
        let name = |chance: &mut Chance| {
            let mut path = PathBuf::new();
            for _ in 0..chance.below(3) {
                path.push(format!("d{}", chance.below(4)));
            }
            path.join(match chance.below(3) {
                0 => format!("d{}", chance.below(4)),
                _ => format!("f{}", chance.below(8)),
            })
        };
        // Mostly small, sometimes beyond a record and in many requests.
        let place = |chance: &mut Chance| {
            let scale = [100, 5000, 140_000, 3_000_000][chance.below(4) as usize];
            chance.below(scale)
        };
        let bytes = |chance: &mut Chance| {
            let len = place(chance) as usize;
            chance.bytes(len)
        };
        match chance.below(23) {
            0..=2 => Step::Create(name(chance), bytes(chance)),
            3..=5 => Step::Write(name(chance), place(chance), bytes(chance)),
            6 => Step::Append(name(chance), bytes(chance)),
            7 | 8 => Step::Truncate(name(chance), place(chance)),
            9 => Step::Punch(name(chance), place(chance), place(chance) + 1),
            10 => Step::Copy(name(chance), place(chance), name(chance), place(chance), place(chance)),
            11..=13 => Step::Mkdir(name(chance)),
            14 => Step::Rmdir(name(chance)),
            15 => Step::Unlink(name(chance)),
            16 => Step::Rename(name(chance), name(chance)),
            17 => Step::Exchange(name(chance), name(chance)),
            18 => Step::Link(name(chance), name(chance)),
            19 => Step::Symlink(name(chance)),
            20 => Step::Chmod(name(chance), chance.below(0o1000) as u32 | 0o600),
            21 => {
                let len = place(chance).min(3000) as usize;
                Step::Setxattr(name(chance), chance.below(3), chance.bytes(len))
            }
            22 if chance.below(6) == 0 => Step::RemoveTree(name(chance)),
            _ => Step::Removexattr(name(chance), chance.below(3)),
        }
    }

    fn run(&self, top: &Path) -> Result<()> {
        let at = |path: &Path| top.join(path);
        let file = |path: &Path| OpenOptions::new().read(true).write(true).open(at(path));
        match self {
            Step::Create(path, data) => std::fs::write(at(path), data),
            Step::Write(path, offset, data) => file(path)?.write_all_at(data, *offset),
            Step::Append(path, data) => {
                use std::io::Write;
                OpenOptions::new().append(true).open(at(path))?.write_all(data)
            }
            Step::Truncate(path, size) => file(path)?.set_len(*size),
            Step::Punch(path, offset, len) => {
                let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                Ok(rustix::fs::fallocate(file(path)?, flags, *offset, *len)?)
            }
            Step::Copy(from, start, to, offset, len) => {
                let (mut start, mut offset) = (*start, *offset);
                let (from, to) = (File::open(at(from))?, file(to)?);
                let mut left = *len as usize;
                while left > 0 {
                    match rustix::fs::copy_file_range(&from, Some(&mut start), &to, Some(&mut offset), left)?
                    {
                        0 => break,
                        copied => left -= copied,
                    }
                }
                Ok(())
            }
            Step::Mkdir(path) => std::fs::create_dir(at(path)),
            Step::Rmdir(path) => std::fs::remove_dir(at(path)),
            Step::Unlink(path) => std::fs::remove_file(at(path)),
            Step::Rename(from, to) => std::fs::rename(at(from), at(to)),
            Step::Exchange(from, to) => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                Ok(rustix::fs::renameat_with(rustix::fs::CWD, at(from), rustix::fs::CWD, at(to), flags)?)
            }
            Step::Link(from, to) => std::fs::hard_link(at(from), at(to)),
            Step::Symlink(path) => std::os::unix::fs::symlink("somewhere/else", at(path)),
            Step::Chmod(path, mode) => {
                // Not through a symbolic link: it leads out of the tree.
                let kind = at(path).symlink_metadata()?.file_type();
                if kind.is_symlink() {
                    return Ok(());
                }
                let mode = if kind.is_dir() { mode | 0o700 } else { *mode };
                std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode))
            }
            Step::Setxattr(path, number, value) => xattr::set(at(path), format!("user.x{number}"), value),
            Step::Removexattr(path, number) => xattr::remove(at(path), format!("user.x{number}")),
            Step::RemoveTree(path) => std::fs::remove_dir_all(at(path)),
        }
    }
}

fn work(seed: u64, steps: u64, properties: &[(&str, u64)]) {
    if !usable() {
        return;
    }
    let mut bed = Bed::new(512 << 20, properties);
    let theirs = reference();
    let mut chance = Chance(seed);
    for number in 1..=steps {
        let step = Step::random(&mut chance);
        let (our, their) = (step.run(&bed.at()), step.run(theirs.path()));
        let errno = |result: &Result<()>| result.as_ref().err().map(|error| error.raw_os_error());
        assert_eq!(errno(&our), errno(&their), "seed {seed}, step {number}: {step:?}");
        if number % 400 == 0 {
            match chance.below(3) {
                0 => bed.remount(),
                1 => bed.pool().sync().unwrap(),
                _ => {}
            }
            if let Some(difference) = difference(&bed.at(), theirs.path()) {
                panic!("seed {seed}, step {number}: {difference}");
            }
        }
    }
    bed.remount();
    assert_eq!(difference(&bed.at(), theirs.path()), None, "seed {seed}");
    bed.finish();
}

#[test]
fn random_work_leaves_the_same_tree_as_elsewhere() {
    work(1, 3000, &[]);
}

#[test]
fn random_work_with_small_records_and_xattrs_in_folders() {
    work(2, 2000, &[("recordsize", 4096), ("xattr", 1), ("compression", 2)]);
}
