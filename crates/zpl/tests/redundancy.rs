//! Pools of OpenZFS with mirrors and raidz lose devices, or devices hold noise: as long as redundancy reaches, every file is what the
//! manifest says.

mod support;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use format::label::{DATA_END, DATA_START};
use pool::{Error, Options, Pool};
use scan::check::Finding;
use serde_json::Value;
use storage::host::{Before, Disk};
use support::disk;
use zpl::{FileKind, Filesystem};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");

/// A device that gives noise for everything between its labels.
#[derive(Debug)]
struct Noise(Arc<dyn Disk>);

impl Before for Noise {
    fn disk(&self) -> &dyn Disk {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buf, offset)?;
        let data = DATA_START..self.0.size() - DATA_END;
        for (at, byte) in (offset..).zip(buf) {
            if data.contains(&at) {
                *byte ^= (at * 7 + at / 251 + at / 70_001) as u8 | 1;
            }
        }
        Ok(())
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The fault of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Whole,
    Missing,
    Noisy,
}

/// A golden pool, unpacked.
struct Golden {
    name: &'static str,
    manifest: Value,
    images: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Golden {
    fn new(name: &'static str) -> Golden {
        let folder = tempfile::tempdir().unwrap();
        let manifest = std::fs::read(format!("{GOLDEN}/{name}.json")).unwrap();
        let unpack = Command::new(format!("{GOLDEN}/unpack")).arg(name).arg(folder.path()).output().unwrap();
        assert!(unpack.status.success(), "{}", String::from_utf8_lossy(&unpack.stderr));
        let mut images: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        images.sort();
        Golden { name, manifest: serde_json::from_slice(&manifest).unwrap(), images, _folder: folder }
    }

    /// The pool with these devices, given in another order each time.
    fn import(&self, fates: &[Fate]) -> pool::Result<Pool> {
        let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
        for (image, fate) in self.images.iter().zip(fates) {
            match fate {
                Fate::Whole => disks.push(disk(image, false)),
                Fate::Noisy => disks.push(Arc::new(Noise(disk(image, false)))),
                Fate::Missing => {}
            }
        }
        let turns = fates.iter().filter(|fate| **fate == Fate::Whole).count() % disks.len().max(1);
        disks.rotate_left(turns);
        let pool = Pool::import_disks(disks, Options { read_only: true, ..Options::default() })?;
        for (name, key) in self.manifest["keys"].as_object().into_iter().flatten() {
            let info = pool.dataset(name)?;
            let user = pool.encryption(&info)?.unwrap().object.user_key;
            pool.load_key(&info, user.wrapping(key.as_str().unwrap().as_bytes()).unwrap(), false)?;
        }
        Ok(pool)
    }

    /// Every way in which `count` devices can be lost, each of them in every way.
    fn losses(&self, count: usize) -> Vec<Vec<Fate>> {
        let devices = self.images.len();
        let masks = (0u32..1 << devices).filter(|mask| mask.count_ones() as usize == count);
        let mut all = Vec::new();
        for mask in masks {
            // How many of the lost ones are missing; the others are noisy.
            for missing in [0, count / 2, count] {
                let lost: Vec<usize> = (0..devices).filter(|device| mask & (1 << device) != 0).collect();
                let mut fates = vec![Fate::Whole; devices];
                lost.iter().for_each(|device| fates[*device] = Fate::Noisy);
                lost.iter().take(missing).for_each(|device| fates[*device] = Fate::Missing);
                all.push(fates);
            }
        }
        all.dedup();
        all
    }
}

type Contents = BTreeMap<(String, String), Vec<u8>>;

/// The contents of all files that the manifest names.
fn contents(golden: &Golden, pool: &Pool) -> Contents {
    let mut all = Contents::new();
    for dataset in golden.manifest["datasets"].as_array().unwrap() {
        let name = dataset["name"].as_str().unwrap();
        let Some(files) = dataset["files"].as_array() else { continue };
        let fs = Filesystem::open(pool.open(name).unwrap()).unwrap();
        for path in files.iter().filter_map(|file| file["path"].as_str()) {
            let id = fs.resolve(path.as_bytes(), false).unwrap_or_else(|error| panic!("{path}: {error}"));
            let stat = fs.stat(id).unwrap();
            let bytes = match stat.kind {
                FileKind::Regular => {
                    fs.read_all(id, 1 << 30).unwrap_or_else(|error| panic!("{path}: {error}"))
                }
                _ => format!("{:?} {:o} {}", stat.kind, stat.mode, stat.nlink).into_bytes(),
            };
            all.insert((name.to_owned(), path.to_owned()), bytes);
        }
    }
    all
}

/// Compares contents with the sums in the manifest.
fn expect_sums(golden: &Golden, contents: &Contents, scratch: &Path) {
    let mut compared = 0;
    for dataset in golden.manifest["datasets"].as_array().unwrap() {
        let name = dataset["name"].as_str().unwrap();
        for file in dataset["files"].as_array().into_iter().flatten() {
            let (Some(path), Some(sum)) = (file["path"].as_str(), file["sha256"].as_str()) else { continue };
            std::fs::write(scratch, &contents[&(name.to_owned(), path.to_owned())]).unwrap();
            let out = Command::new("sha256sum").arg(scratch).output().unwrap().stdout;
            assert_eq!(String::from_utf8(out).unwrap()[..64], *sum, "{path}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} files");
}

fn findings(pool: &Pool) -> Vec<Finding> {
    let mut findings = Vec::new();
    scan::check::check(pool, &mut |finding| findings.push(finding)).unwrap();
    findings
}

/// All files of the pool are right with any `parity` devices lost; with one more it is refused, or its damage is reported.
fn expect_survives(name: &'static str, parity: usize) {
    let golden = expect_right(name, parity);
    for fates in golden.losses(parity + 1) {
        expect_refused(&golden, &fates);
    }
}

/// All files of the pool are right with any `parity` devices lost.
fn expect_right(name: &'static str, parity: usize) -> Golden {
    let golden = Golden::new(name);
    let scratch = tempfile::NamedTempFile::new().unwrap();
    let whole = golden.import(&vec![Fate::Whole; golden.images.len()]).unwrap();
    let wanted = contents(&golden, &whole);
    expect_sums(&golden, &wanted, scratch.path());
    assert_eq!(findings(&whole), [], "{name}");
    for count in 1..=parity {
        for fates in golden.losses(count) {
            let pool = golden.import(&fates).unwrap_or_else(|error| panic!("{name} {fates:?}: {error}"));
            assert!(contents(&golden, &pool) == wanted, "{name} {fates:?}: another content");
            expect_blamed(&golden, &pool, &fates);
        }
    }
    golden
}

/// Only devices that hold noise are counted as damaged.
fn expect_blamed(golden: &Golden, pool: &Pool, fates: &[Fate]) {
    for leaf in pool.storage().vdevs().leaves() {
        let image = golden.images.iter().position(|image| image == leaf.disk.path()).unwrap();
        let errors = leaf.meter.stats().checksum_errors;
        match fates[image] {
            Fate::Whole => assert_eq!(errors, 0, "{} {fates:?}: device {image} is whole", golden.name),
            // The sides of a mirror are read in order, so later ones may not be read at all.
            Fate::Noisy if golden.name == "gmirror" && image > 0 => {}
            Fate::Noisy => assert!(errors > 0, "{} {fates:?}: device {image} holds noise", golden.name),
            Fate::Missing => panic!("it was not given"),
        }
    }
}

fn expect_refused(golden: &Golden, fates: &[Fate]) {
    let opened = golden.import(fates);
    let missing: Vec<&PathBuf> = golden
        .images
        .iter()
        .zip(fates)
        .filter(|(_, fate)| **fate == Fate::Missing)
        .map(|(image, _)| image)
        .collect();
    match opened {
        Err(Error::MissingDevices { devices, .. }) => {
            assert_eq!(devices.len(), missing.len(), "{fates:?}");
            for (device, image) in devices.iter().zip(missing) {
                let file = image.file_name().unwrap().to_str().unwrap();
                assert!(device.contains(file), "{device} is {file}");
            }
        }
        Err(Error::Damaged { .. } | Error::NotAPool { .. }) => {}
        Err(other) => panic!("{} {fates:?}: {other}", golden.name),
        Ok(_) => panic!("{} {fates:?}: it cannot be read", golden.name),
    }
}

#[test]
fn a_mirror_of_openzfs_survives_the_loss_of_a_side() {
    expect_survives("gmirror", 1);
}

#[test]
fn raidz1_of_openzfs_survives_the_loss_of_any_device() {
    expect_survives("graidz1", 1);
}

#[test]
fn raidz2_of_openzfs_survives_the_loss_of_any_two_devices() {
    expect_survives("graidz2", 2);
}

#[test]
fn raidz3_of_openzfs_survives_the_loss_of_any_three_devices() {
    expect_survives("graidz3", 3);
}

/// `gexpand`: a raidz1 of the images 0 to 4 and a raidz2 of the others. Each got devices after its first blocks were written.
#[test]
fn expanded_raidz_of_openzfs_survives_the_loss_of_as_many_devices_as_its_parity() {
    let golden = Golden::new("gexpand");
    let scratch = tempfile::NamedTempFile::new().unwrap();
    let whole = golden.import(&[Fate::Whole; 10]).unwrap();
    let wanted = contents(&golden, &whole);
    expect_sums(&golden, &wanted, scratch.path());
    let pairs = (5..10).flat_map(|second| (5..second).map(move |first| [first, second]));
    for (turn, [first, second]) in pairs.enumerate() {
        for (of_first, others) in [
            (Fate::Missing, Fate::Missing),
            (Fate::Missing, Fate::Noisy),
            (Fate::Noisy, Fate::Missing),
            (Fate::Noisy, Fate::Noisy),
        ] {
            let mut fates = [Fate::Whole; 10];
            (fates[turn % 5], fates[first], fates[second]) = (others, of_first, others);
            let pool = golden.import(&fates).unwrap_or_else(|error| panic!("{fates:?}: {error}"));
            assert!(contents(&golden, &pool) == wanted, "{fates:?}: another content");
            expect_blamed(&golden, &pool, &fates);
        }
    }
    for lost in [[0, 1, 0], [3, 4, 4], [5, 6, 7], [7, 8, 9]] {
        let mut fates = [Fate::Whole; 10];
        lost.iter().for_each(|image| fates[*image] = Fate::Missing);
        assert!(matches!(golden.import(&fates), Err(Error::MissingDevices { .. })), "{fates:?}");
    }
}

/// Of this raidz1 a part of the blocks lies on four devices and the others still lie on three.
#[test]
fn raidz_that_is_being_expanded_survives_the_loss_of_any_device() {
    let golden = expect_right("gexpanding", 1);
    for fates in golden.losses(2).into_iter().filter(|fates| !fates.contains(&Fate::Noisy)) {
        assert!(matches!(golden.import(&fates), Err(Error::MissingDevices { .. })), "{fates:?}");
    }
}

/// Their headers fill a sector, or one sector of each data column.
#[test]
fn large_headers_of_gangs_are_read_also_without_devices() {
    for (name, parity) in [("ggang", 0), ("ggangraidz", 1), ("ggangdraid", 0)] {
        expect_right(name, parity);
    }
    // It is so empty that not every device holds data, so not each is blamed.
    let golden = Golden::new("ggangdraid");
    let wanted = contents(&golden, &golden.import(&[Fate::Whole; 4]).unwrap());
    for fates in golden.losses(1) {
        assert!(contents(&golden, &golden.import(&fates).unwrap()) == wanted, "{fates:?}: another content");
    }
}

/// Device 1 was taken away, and OpenZFS rebuilt what it held on the distributed spare. So one more device may be lost.
#[test]
fn a_distributed_spare_that_openzfs_put_in_use_stands_in_for_its_device() {
    let golden = Golden::new("gdspare");
    let whole = golden.import(&[Fate::Whole; 6]).unwrap();
    assert_eq!(findings(&whole), [Finding::Absent { vdev: 0, child: 1 }]);
    let wanted = contents(&golden, &whole);
    drop(whole);
    expect_sums(&golden, &wanted, &golden.images[0].with_file_name("scratch"));
    for mut fates in golden.losses(1) {
        assert!(contents(&golden, &golden.import(&fates).unwrap()) == wanted, "{fates:?}: another content");
        fates[1] = Fate::Missing;
        assert!(contents(&golden, &golden.import(&fates).unwrap()) == wanted, "{fates:?}: another content");
    }
}

/// Files in snapshots and in a clone share some blocks that `zfs rewrite -P` moved, and have others of their own.
#[test]
fn blocks_that_a_physical_rewrite_moved_are_read() {
    expect_right("grewrite", 0);
}

#[test]
fn a_check_names_the_device_that_holds_noise_and_the_one_that_is_missing() {
    for (name, device) in [("gmirror", 1), ("graidz1", 2), ("graidz2", 0), ("graidz3", 4)] {
        let golden = Golden::new(name);
        let file = golden.images[device].file_name().unwrap().to_str().unwrap();
        let mut fates = vec![Fate::Whole; golden.images.len()];
        fates[device] = Fate::Noisy;
        let found = findings(&golden.import(&fates).unwrap());
        assert!(found.len() > 10, "{name}: {found:#?}");
        for finding in &found {
            let Finding::BadCopy { why, lost: false, .. } = finding else { panic!("{name}: {finding}") };
            assert!(name == "gmirror" || why.contains(file), "{name}: {why}");
        }
        fates[device] = Fate::Missing;
        let found = findings(&golden.import(&fates).unwrap());
        assert_eq!(found, [Finding::Absent { vdev: 0, child: device }], "{name}");
    }
}
