//! Pools made by OpenZFS read as OpenZFS reads them: every file of the golden pools against its manifest.

mod big_endian;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use pool::{Options, Pool, ReceiveOptions};
use serde_json::Value;
use stream::{Destination, Incoming, Receiver};
use support::disk;
use zpl::{FileKind, Filesystem, NewNode, SetAttr, Time, Volume};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");

fn run(command: &mut Command) -> Option<Vec<u8>> {
    let out = command.output().ok()?;
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Some(out.stdout)
}

/// The manifest of a golden pool, and its images in `folder`; `None` without the programs that unpack it.
fn unpacked(name: &str, folder: &Path) -> Option<(Value, Vec<PathBuf>)> {
    let plain = format!("{GOLDEN}/{name}.json");
    let manifest = match std::fs::read(&plain) {
        Ok(text) => text,
        Err(_) => run(Command::new("zstd").args(["-dc", &format!("{plain}.zst")]))?,
    };
    run(Command::new(format!("{GOLDEN}/unpack")).arg(name).arg(folder))?;
    let mut images: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    images.sort();
    Some((serde_json::from_slice(&manifest).unwrap(), images))
}

fn import(images: &[PathBuf], read_only: bool) -> Pool {
    let disks = images.iter().map(|image| disk(image, !read_only)).collect();
    Pool::import_disks(disks, Options { read_only, ..Options::default() }).unwrap()
}

/// The manifest of a golden pool, and the pool.
fn golden(name: &str, folder: &Path, read_only: bool) -> Option<(Value, Pool)> {
    let (manifest, images) = unpacked(name, folder)?;
    Some((manifest, import(&images, read_only)))
}

fn nanos(time: Time) -> i64 {
    time.secs * 1_000_000_000 + time.nanos as i64
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

fn sha256(data: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), data).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()[..64].to_owned()
}

/// How much of what the manifest says must be so.
#[derive(Clone, Copy, PartialEq)]
enum Expect {
    All,
    /// All but the contents.
    NoSums,
    /// All but times and disk addresses, which depend on when the replay runs.
    Replayed,
}

/// Compares one file with its entry in the manifest.
fn expect_file(fs: &Filesystem, file: &Value, expect: Expect) {
    let path = match &file["path_hex"] {
        Value::String(hex) => unhex(hex),
        _ => file["path"].as_str().unwrap().as_bytes().to_vec(),
    };
    let name = String::from_utf8_lossy(&path).into_owned();
    let id = fs.resolve(&path, false).unwrap_or_else(|error| panic!("{name}: {error}"));
    let stat = fs.stat(id).unwrap();
    let kind = match file["type"].as_str().unwrap() {
        "dir" => FileKind::Directory,
        "file" => FileKind::Regular,
        "symlink" => FileKind::Symlink,
        "fifo" => FileKind::Fifo,
        "socket" => FileKind::Socket,
        "blockdev" => FileKind::BlockDevice,
        "chardev" => FileKind::CharDevice,
        other => panic!("type {other}"),
    };
    let number = |key: &str| file[key].as_u64();
    assert_eq!(stat.kind, kind, "{name}");
    assert_eq!(format!("{:04o}", stat.mode), file["mode"].as_str().unwrap(), "{name}");
    assert_eq!(
        (Some(u64::from(stat.uid)), Some(u64::from(stat.gid))),
        (number("uid"), number("gid")),
        "{name}"
    );
    assert_eq!((Some(stat.nlink), Some(stat.size)), (number("nlink"), number("size")), "{name}: links, size");
    let replayed = expect == Expect::Replayed;
    if let Some(blocks) = number("blocks").filter(|_| !replayed) {
        assert_eq!(stat.blocks, blocks, "{name}: blocks");
    }
    if !replayed {
        assert_eq!(Some(nanos(stat.mtime)), file["mtime_ns"].as_i64(), "{name}: mtime");
        assert_eq!(Some(nanos(stat.ctime)), file["ctime_ns"].as_i64(), "{name}: ctime");
    }
    if let Some(rdev) = file["rdev"].as_str() {
        let (major, minor) = format::znode::rdev::from_user(stat.rdev);
        assert_eq!(format!("{major}:{minor}"), rdev, "{name}");
    }
    if let Some(target) = file["target"].as_str() {
        assert_eq!(fs.readlink(id).unwrap(), target.as_bytes(), "{name}");
    }
    if let Some(data) = file["data"].as_array().filter(|_| !replayed) {
        let pair = |run: &Value| (run[0].as_u64().unwrap(), run[1].as_u64().unwrap());
        assert_eq!(fs.data_runs(id).unwrap(), data.iter().map(pair).collect::<Vec<_>>(), "{name}: data");
    }
    if expect != Expect::NoSums
        && let Some(sum) = file["sha256"].as_str()
    {
        assert_eq!(sha256(&fs.read_all(id, 1 << 30).unwrap()), sum, "{name}: contents");
    }
    let mut xattrs: Vec<(String, Vec<u8>)> = Vec::new();
    for attribute in fs.xattr_list(id).unwrap() {
        let value = fs.xattr_get(id, &attribute).unwrap().unwrap();
        xattrs.push((String::from_utf8(attribute).unwrap(), value));
    }
    xattrs.sort();
    let mut expected: Vec<(String, Vec<u8>)> = match file["xattrs"].as_object() {
        None => Vec::new(),
        Some(map) => map.iter().map(|(name, hex)| (name.clone(), unhex(hex.as_str().unwrap()))).collect(),
    };
    expected.sort();
    assert_eq!(xattrs, expected, "{name}: extended attributes");
}

fn expect_pool(name: &str, sums: usize) {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, images)) = unpacked(name, folder.path()) else { return };
    expect_files(&manifest, &import(&images, true), sums);
}

/// As [`expect_pool`] for what a big-endian machine would have made of it.
fn expect_turned(name: &str, sums: usize) {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, images)) = unpacked(name, folder.path()) else { return };
    let mut image = std::fs::read(&images[0]).unwrap();
    let blocks = big_endian::turn(&mut image);
    assert!(blocks > 100, "{blocks} blocks were turned");
    std::fs::write(&images[0], image).unwrap();
    expect_files(&manifest, &import(&images, true), sums);
}

fn expect_files(manifest: &Value, pool: &Pool, sums: usize) {
    expect_datasets(manifest, pool, |i| if i < sums { Expect::All } else { Expect::NoSums });
}

fn expect_datasets(manifest: &Value, pool: &Pool, expect: impl Fn(usize) -> Expect) {
    for dataset in manifest["datasets"].as_array().unwrap() {
        let Some(files) = dataset["files"].as_array() else { continue };
        let dataset_name = dataset["name"].as_str().unwrap();
        let fs = Filesystem::open(pool.open(dataset_name).unwrap()).unwrap();
        for (i, file) in files.iter().enumerate() {
            expect_file(&fs, file, expect(i));
        }
        let mut problems = Vec::new();
        zpl::check::check_filesystem(&fs, &mut |problem| problems.push(problem.to_string())).unwrap();
        assert!(problems.is_empty(), "{dataset_name}: {problems:#?}");
    }
}

#[test]
fn posix_features_read_as_openzfs_reads_them() {
    expect_pool("gposix", 40);
}

#[test]
fn all_record_sizes_read_as_openzfs_reads_them() {
    expect_pool("grec", 100);
}

#[test]
fn legacy_file_systems_read_as_openzfs_reads_them() {
    expect_pool("gv28", 40);
}

#[test]
fn snapshots_and_clones_read_as_openzfs_reads_them() {
    expect_pool("gsnap", 40);
}

#[test]
fn other_pools_read_as_openzfs_reads_them() {
    for name in ["gashift12", "gcomp", "gdedup", "gfreebsd20", "grandom"] {
        expect_pool(name, 10);
    }
}

#[test]
fn features_newer_than_openzfs_2_1_read_as_in_openzfs() {
    expect_pool("gnew", 100);
}

#[test]
fn tables_with_logs_are_counted_as_openzfs_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gfast", folder.path(), true) else { return };
    expect_files(&manifest, &pool, 40);
    expect_clean(&pool);
    let ratio = pool.info().dedup.ratio_percent();
    let said = format!("{}.{:02}", ratio / 100, ratio % 100);
    assert_eq!(manifest["zpool_get_Hp_all"]["dedupratio"][0].as_str(), Some(said.as_str()));
    let size = pool.dedup().unwrap().figures.on_disk.to_string();
    assert_eq!(manifest["zpool_get_Hp_all"]["dedup_table_size"][0].as_str(), Some(size.as_str()));
}

/// Loads all keys of an encrypted golden pool.
fn load_keys(manifest: &Value, pool: &Pool) {
    for (name, key) in manifest["keys"].as_object().into_iter().flatten() {
        let info = pool.dataset(name).unwrap();
        let user = pool.encryption(&info).unwrap().unwrap().object.user_key;
        pool.load_key(&info, user.wrapping(key.as_str().unwrap().as_bytes()).unwrap(), false).unwrap();
    }
}

#[test]
fn encrypted_file_systems_read_as_openzfs_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gcrypt", folder.path(), true) else { return };
    load_keys(&manifest, &pool);
    expect_files(&manifest, &pool, 80);
    expect_clean(&pool);
}

/// Removes all that is below a folder.
fn empty(fs: &Filesystem, folder: zpl::ObjectId) {
    let entries: Vec<_> = fs.entries(folder).unwrap().map(Result::unwrap).collect();
    for entry in entries {
        if entry.kind == FileKind::Directory {
            empty(fs, entry.id);
            fs.rmdir(folder, &entry.name).unwrap();
        } else {
            fs.unlink(folder, &entry.name).unwrap();
        }
    }
}

#[test]
fn blocks_cloned_or_deduplicated_by_openzfs_are_freed_with_their_last_reference() {
    for name in ["gnew", "gdedup", "gfast"] {
        let folder = tempfile::tempdir().unwrap();
        let Some((_, pool)) = golden(name, folder.path(), false) else { return };
        expect_clean(&pool);
        let before = pool.info().clone();
        assert!(before.clones.saved + before.dedup.saved() > 0, "{:?} {:?}", before.clones, before.dedup);
        for info in pool.list(name, None, false).unwrap() {
            let fs = Filesystem::open(pool.open(&info.name).unwrap()).unwrap();
            empty(&fs, fs.root());
            fs.dataset().sync().unwrap();
            expect_clean(&pool);
        }
        if name == "gnew" {
            assert_ne!(pool.info().clones, pool::Clones::default(), "a snapshot has some of them");
            pool.destroy_snapshots(&["gnew/clones@before".to_owned()], false).unwrap();
        }
        for _ in 0..3 {
            pool.sync().unwrap();
        }
        assert_eq!((pool.info().clones, pool.info().dedup), Default::default());
        for feature in [&format::features::BLOCK_CLONING, &format::features::FAST_DEDUP] {
            assert_ne!(pool.info().feature(feature), pool::FeatureState::Active);
        }
        expect_clean(&pool);
        pool.export().unwrap();
    }
}

#[test]
fn a_pool_of_a_big_endian_machine_reads_as_that_machine_reads_it() {
    expect_pool("gbig", 1000);
}

#[test]
fn posix_features_read_the_same_from_a_big_endian_machine() {
    expect_turned("gposix", 40);
}

#[test]
fn legacy_file_systems_read_the_same_from_a_big_endian_machine() {
    expect_turned("gv28", 40);
}

/// Files made, grown, given away and removed in every file system of a golden pool: the accounts that OpenZFS began
/// are right when we have gone on with them.
#[test]
fn golden_pools_stay_counted_right_when_they_are_written() {
    let names = ["gposix", "gprops", "gcomp", "gdedup", "gnew", "gcompat21", "gfreebsd20", "gcrypt"];
    for name in names {
        let folder = tempfile::tempdir().unwrap();
        let Some((manifest, pool)) = golden(name, folder.path(), false) else { return };
        load_keys(&manifest, &pool);
        assert_eq!(pool.read_only(), None, "{name}");
        let mut written = 0;
        for info in pool.list(&pool.name(), None, false).unwrap() {
            let dataset = pool.open(&info.name).unwrap();
            if info.kind != pool::props::DatasetKind::Filesystem || dataset.check_writable().is_err() {
                continue;
            }
            let fs = match Filesystem::open(dataset) {
                Ok(fs) => fs,
                Err(zpl::Error::Unsupported(_)) => continue,
                Err(error) => panic!("{}: {error}", info.name),
            };
            let new = NewNode { uid: 4242, gid: 4243, ..NewNode::new(FileKind::Regular, 0o600) };
            let mine = fs.create(fs.root(), b"counted", &new).unwrap();
            fs.write(mine, 0, &vec![7; 300_000]).unwrap();
            let old =
                fs.entries(fs.root()).unwrap().map(Result::unwrap).filter(|e| e.kind == FileKind::Regular);
            let old: Vec<_> = old.filter(|entry| entry.id != mine).collect();
            if let Some(entry) = old.first() {
                fs.setattr(entry.id, &SetAttr { uid: Some(4242), ..SetAttr::default() }).unwrap();
            }
            fs.dataset().sync().unwrap();
            if let Some(entry) = old.last() {
                // It may be a name of several.
                fs.unlink(fs.root(), &entry.name).unwrap();
            }
            fs.setattr(mine, &SetAttr { gid: Some(7), ..SetAttr::default() }).unwrap();
            fs.dataset().sync().unwrap();
            let mut problems = Vec::new();
            zpl::check::check_filesystem(&fs, &mut |problem| problems.push(problem.to_string())).unwrap();
            assert!(problems.is_empty(), "{}: {problems:#?}", info.name);
            written += 1;
        }
        assert!(written > 0, "{name}");
        let mut findings = Vec::new();
        scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{name}: {findings:#?}");
        pool.export().unwrap();
    }
}

/// Receives a stream of the golden pool `gsend`, as `zfs receive tank/NAME` does.
fn receive(pool: &Pool, folder: &Path, stream: &str, name: &str) {
    let file = std::fs::File::open(folder.join(format!("gsend.{stream}.zstream"))).unwrap();
    let mut stream = Incoming::open(std::io::BufReader::new(file)).unwrap();
    let top = stream.package().map(|(begin, _)| String::from_utf8(begin.toname.clone()).unwrap());
    let destination = Destination::Into(format!("tank/{name}"));
    while let Some((begin, _)) = stream.next_stream().unwrap() {
        let into = destination.name_of(std::str::from_utf8(&begin.toname).unwrap(), top.as_deref());
        let list = stream.package().map(|(_, list)| list.clone()).unwrap_or_default();
        let received = stream::properties_of(&list, begin.toguid, pool::props::DatasetKind::Filesystem);
        let options = ReceiveOptions { received, ..ReceiveOptions::default() };
        let done = Receiver::new(pool).receive(&mut stream, (&begin, &list), &into, &options).unwrap();
        assert_eq!((done.snapshot, done.skipped), (into, false));
    }
}

#[test]
fn streams_of_openzfs_are_received_as_openzfs_receives_them() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_) = unpacked("gsend", folder.path()) else { return };
    let Some((manifest, _)) = unpacked("grecv", folder.path()) else { return };
    let mut bed = support::Bed::new(1, &[], 0, 0);
    let pool = bed.pool();
    for (stream, name) in [
        ("full", "full"),
        ("incr", "full"),
        ("compressed", "compressed"),
        ("full", "all"),
        ("incr-all", "all"),
        ("replicate", "tree"),
        ("props", "props"),
        ("large-compressed", "large"),
        ("nolarge", "nolarge"),
        ("volume", "vol"),
        ("embedded", "embedded"),
    ] {
        receive(pool, folder.path(), stream, name);
    }
    let mut seen = 0;
    for dataset in manifest["datasets"].as_array().unwrap() {
        let name = dataset["name"].as_str().unwrap();
        if name == "grecv" || name.starts_with("grecv/crypt") || name.starts_with("grecv/override") {
            continue;
        }
        let ours = name.replacen("grecv", "tank", 1);
        let info = pool.dataset(&ours).unwrap();
        if info.is_snapshot() {
            let property = |key: &str| dataset["properties"][key][0].as_str().unwrap().to_owned();
            assert_eq!(info.phys.guid.0.to_string(), property("guid"), "{ours}");
            assert_eq!(info.phys.creation_time.to_string(), property("creation"), "{ours}");
        }
        seen += 1;
        let Some(files) = dataset["files"].as_array() else { continue };
        let fs = Filesystem::open(pool.open(&ours).unwrap()).unwrap();
        for file in files {
            let mut file = file.clone();
            // Compressed anew, on another layout.
            file.as_object_mut().unwrap().remove("blocks");
            expect_file(&fs, &file, Expect::All);
        }
        let mut problems = Vec::new();
        zpl::check::check_filesystem(&fs, &mut |problem| problems.push(problem.to_string())).unwrap();
        assert!(problems.is_empty(), "{ours}: {problems:#?}");
    }
    assert!(seen > 25, "{seen} datasets were compared");
    bed.close();
    bed.ask_zdb(&[]);
    bed.reopen();
    bed.expect_clean();
}

/// Nothing is wrong with the pool, also after its next sync.
fn expect_clean(pool: &Pool) {
    let mut findings = Vec::new();
    scan::check::check(pool, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
fn an_intent_log_of_openzfs_is_left_alone_when_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gzil", folder.path(), true) else { return };
    expect_datasets(&manifest["before_replay"], &pool, |_| Expect::All);
    expect_clean(&pool);
}

#[test]
fn an_intent_log_of_openzfs_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gzil", folder.path(), false) else { return };
    assert_eq!(pool.logs_to_replay(), ["gzil", "gzil/a"]);
    // Claimed, and nothing else may be changed.
    expect_clean(&pool);
    let refused = pool.open("gzil").unwrap().begin(pool::Hold::write(1));
    assert!(matches!(refused, Err(pool::Error::ReadOnly { .. })));
    let replayed = zpl::replay_logs(&pool).unwrap();
    println!("{replayed:?}");
    assert!(replayed.iter().all(|(_, records)| *records > 3), "{replayed:?}");
    assert!(pool.logs_to_replay().is_empty());
    expect_datasets(&manifest, &pool, |_| Expect::Replayed);
    expect_clean(&pool);
    pool.export().unwrap();
    judged(folder.path(), "gzil");
}

#[test]
fn volumes_of_openzfs_read_as_their_devices_did() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gzvol", folder.path(), false) else { return };
    let mut seen = 0;
    for dataset in manifest["datasets"].as_array().unwrap().iter().filter(|d| d["type"] == "volume") {
        let name = dataset["name"].as_str().unwrap();
        let volume = Volume::open(pool.open(name).unwrap()).unwrap();
        let mut data = vec![0; volume.size() as usize];
        assert_eq!(Some(volume.size()), dataset["volume"]["size"].as_u64());
        volume.read(0, &mut data).unwrap();
        assert_eq!(sha256(&data), dataset["volume"]["sha256"].as_str().unwrap(), "{name}");
        let info = pool.dataset(name).unwrap();
        for (key, value) in dataset["properties"].as_object().unwrap() {
            let property = pool::props::dataset::parse(key).unwrap();
            let is_ours =
                ["volsize", "volblocksize", "refreservation", "volmode", "snapdev"].contains(&key.as_str());
            if let Some((found, source)) = pool.property(&info, property).unwrap().filter(|_| is_ours) {
                assert_eq!(property.format_value(&found, true), value[0].as_str().unwrap(), "{name} {key}");
                let source = source.to_string();
                // The default of OpenZFS 2.1 is another one.
                if key != "volblocksize" {
                    assert_eq!(source, value[2].as_str().unwrap(), "{name} {key}");
                }
            }
        }
        zpl::check::check_volume(&volume, &mut |problem| panic!("{name}: {problem}")).unwrap();
        // Our change, for zdb to judge.
        volume.write(volume.size() / 2, &[7; 5000]).unwrap();
        volume.trim(0, volume.size() / 4).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 4);
    expect_clean(&pool);
    pool.export().unwrap();
    judged(folder.path(), "gzvol");
}

/// Lets zdb judge a closed pool, where it is installed.
fn judged(folder: &Path, pool: &str) {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
    let out = Command::new(oracle).arg("--dir").arg(folder).arg(pool).output().unwrap();
    let missing = out.status.code() == Some(2);
    assert!(missing || out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}

#[test]
fn no_data_stays_on_a_device_for_logs() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("glog", folder.path(), false) else { return };
    expect_datasets(&manifest, &pool, |_| Expect::All);
    assert_eq!(pool.read_only(), None);
    let log_writes = |pool: &Pool| -> u64 {
        let logs = pool.storage().vdevs().tops().iter().filter(|top| top.is_log());
        logs.flat_map(storage::TopVdev::leaves).map(|leaf| leaf.meter.stats().write_bytes).sum()
    };
    let before = log_writes(&pool);
    let data: Vec<u8> = (0..300_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for name in ["glog", "glog/a"] {
        let fs = Filesystem::open(pool.open(name).unwrap()).unwrap();
        let id = fs.create(fs.root(), b"large", &NewNode::new(FileKind::Regular, 0o644)).unwrap();
        for _ in 0..3 {
            fs.write(id, 0, &data).unwrap();
            fs.fsync(id).unwrap();
        }
    }
    assert!(log_writes(&pool) > before + data.len() as u64, "logs lie on their device");
    expect_clean(&pool);
    pool.export().unwrap();
    judged(folder.path(), "glog");
    // All but the labels.
    let log = std::fs::OpenOptions::new().write(true).open(folder.path().join("glog.1.img")).unwrap();
    let (front, back) = (4 << 20, 512 << 10);
    let len = log.metadata().unwrap().len() - front - back;
    std::os::unix::fs::FileExt::write_all_at(&log, &vec![0xee; len as usize], front).unwrap();
    let images = [0, 1].map(|n| folder.path().join(format!("glog.{n}.img")));
    let pool = import(&images, true);
    expect_clean(&pool);
    for name in ["glog", "glog/a"] {
        let fs = Filesystem::open(pool.open(name).unwrap()).unwrap();
        let (id, _) = fs.lookup(fs.root(), b"large").unwrap().unwrap();
        assert!(fs.read_all(id, 1 << 20).unwrap() == data);
    }
}

#[test]
fn an_intent_log_of_a_newer_openzfs_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((mut manifest, pool)) = golden("gnewzil", folder.path(), true) else { return };
    expect_datasets(&manifest["before_replay"], &pool, |_| Expect::All);
    expect_clean(&pool);
    drop(pool);
    let pool = import(&[folder.path().join("gnewzil.0.img")], false);
    let mut logs = pool.logs_to_replay();
    logs.sort();
    assert_eq!(logs, ["gnewzil/copies", "gnewzil/dirs", "gnewzil/points"]);
    expect_clean(&pool);
    zpl::replay_logs(&pool).unwrap();
    // The mode goes with the ACL, whose mask is rwx: programs saw that. The record holds the ACL alone, and OpenZFS
    // replays no more (docs/format/08-zil.md §3).
    for dataset in manifest["datasets"].as_array_mut().unwrap() {
        let has_acl = dataset["name"] == "gnewzil/copies";
        let small = dataset["files"].as_array_mut().unwrap().iter_mut().find(|file| file["path"] == "small");
        small.filter(|_| has_acl).into_iter().for_each(|file| file["mode"] = "0670".into());
    }
    expect_datasets(&manifest, &pool, |_| Expect::Replayed);
    expect_clean(&pool);
    pool.export().unwrap();
}

#[test]
fn a_replay_that_a_crash_interrupts_is_taken_up_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some((manifest, pool)) = golden("gzil", folder.path(), false) else { return };
    // Claimed, written down, and gone.
    drop(pool);
    let image = folder.path().join("gzil.0.img");
    let pool = Pool::import_disks(vec![disk(&image, true)], Options::default()).unwrap();
    assert_eq!(pool.logs_to_replay(), ["gzil", "gzil/a"]);
    expect_clean(&pool);
    Filesystem::open(pool.open("gzil/a").unwrap()).unwrap();
    drop(pool);
    let pool = Pool::import_disks(vec![disk(&image, true)], Options::default()).unwrap();
    assert_eq!(pool.logs_to_replay(), ["gzil"]);
    zpl::replay_logs(&pool).unwrap();
    expect_datasets(&manifest, &pool, |_| Expect::Replayed);
    expect_clean(&pool);
}
