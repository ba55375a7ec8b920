//! Scripted disks do what their script says.

use super::*;

fn put(disk: &ScriptedDisk, offset: u64, bytes: &[u8]) {
    disk.write_at(&[IoSlice::new(bytes)], offset).unwrap();
}

fn get(disk: &ScriptedDisk, offset: u64, len: usize) -> Vec<u8> {
    let mut buf = vec![0xee; len];
    disk.read_at(&mut buf, offset).unwrap();
    buf
}

#[test]
fn a_disk_of_many_tebibytes_costs_what_was_written() {
    let disk = ScriptedDisk::new(100 << 40);
    put(&disk, (99 << 40) - 3, b"across a page border");
    assert_eq!(get(&disk, (99 << 40) - 4, 21), b"\0across a page border");
    assert_eq!(get(&disk, 5 << 40, 9), [0; 9]);
    assert!(disk.memory_bytes() <= 128 << 10);
    assert!(disk.read_at(&mut [0; 2], (100 << 40) - 1).is_err());
    assert!(disk.write_at(&[IoSlice::new(&[0; 2])], (100 << 40) - 1).is_err());
}

#[test]
fn flushed_writes_survive_the_cut_and_later_ones_do_not() {
    let disk = ScriptedDisk::new(1 << 20);
    put(&disk, 0, &[1; 4096]); // Operation 0.
    disk.flush().unwrap();
    put(&disk, 0, &[2; 4096]); // Operation 2.
    put(&disk, 8192, &[3; 4096]);
    disk.flush().unwrap();
    put(&disk, 0, &[4; 4096]); // Operation 5.
    let value_at = |cut, policy, offset| get(&disk.image_after(cut, policy, 1), offset, 1)[0];
    use CrashPolicy::{KeepAll, LoseAllUnflushed};
    assert_eq!(value_at(0, KeepAll, 0), 0);
    assert_eq!((value_at(1, LoseAllUnflushed, 0), value_at(1, KeepAll, 0)), (0, 1));
    assert_eq!((value_at(4, LoseAllUnflushed, 0), value_at(4, LoseAllUnflushed, 8192)), (1, 0));
    assert_eq!((value_at(5, LoseAllUnflushed, 0), value_at(5, LoseAllUnflushed, 8192)), (2, 3));
    assert_eq!((value_at(6, LoseAllUnflushed, 0), value_at(6, KeepAll, 0)), (2, 4));
}

#[test]
fn a_cut_is_the_same_moment_on_every_disk_and_a_flush_belongs_to_one() {
    let script = Script::new();
    let (a, b) = (script.disk("a", 1 << 20), script.disk("b", 1 << 20));
    put(&a, 0, b"a");
    put(&b, 0, b"b");
    a.flush().unwrap();
    put(&b, 1, b"B");
    let disks = script.image_after(3, CrashPolicy::LoseAllUnflushed, 0).disks();
    assert_eq!((get(&disks[0], 0, 2), get(&disks[1], 0, 2)), (b"a\0".to_vec(), b"\0\0".to_vec()));
    let disks = script.image_after(3, CrashPolicy::KeepAll, 0).disks();
    assert_eq!((get(&disks[0], 0, 2), get(&disks[1], 0, 2)), (b"a\0".to_vec(), b"b\0".to_vec()));
    assert_eq!(disks[1].path(), Path::new("b"));
}

#[test]
fn torn_writes_keep_sectors_whole_and_every_outcome_occurs() {
    let disk = ScriptedDisk::new(1 << 20);
    put(&disk, 0, &[7; 8 * SECTOR]);
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let bytes = get(&disk.image_after(1, CrashPolicy::Torn, seed), 0, 8 * SECTOR);
        let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        outcomes.insert(sectors);
        let again = get(&disk.image_after(1, CrashPolicy::Torn, seed), 0, 8 * SECTOR);
        assert_eq!(again, bytes, "the same seed gives the same image");
        let whole = get(&disk.image_after(1, CrashPolicy::RandomSubset, seed), 0, 8 * SECTOR);
        assert!(whole == [0; 8 * SECTOR] || whole == [7; 8 * SECTOR]);
    }
    assert!(outcomes.contains(&vec![0; 8]));
    assert!(outcomes.contains(&vec![7; 8]));
    assert!(outcomes.len() > 20);
}

#[test]
fn a_later_write_may_survive_without_an_earlier_one() {
    let disk = ScriptedDisk::new(1 << 20);
    put(&disk, 0, &[1]);
    put(&disk, 512, &[1]);
    let found = |seed| {
        let image = disk.image_after(2, CrashPolicy::RandomSubset, seed);
        (get(&image, 0, 1)[0], get(&image, 512, 1)[0])
    };
    let all: std::collections::BTreeSet<_> = (0..50).map(found).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn each_injected_fault_of_a_scripted_disk_has_its_effect() {
    let disk = ScriptedDisk::new(1 << 20);
    put(&disk, 0, &[1; 512]);
    disk.inject(Fault::ReadError(100..101));
    assert!(disk.read_at(&mut [0; 512], 0).is_err());
    disk.read_at(&mut [0; 100], 0).unwrap();
    disk.rot(0, 0x80);
    assert_eq!(get(&disk, 0, 2), [0x81, 1]);
    disk.inject(Fault::Misdirect { op: 1, to: 4096 });
    disk.inject(Fault::Forget { op: 2 });
    put(&disk, 512, &[2; 512]);
    put(&disk, 1024, &[3; 512]);
    assert_eq!((get(&disk, 512, 1), get(&disk, 4096, 1), get(&disk, 1024, 1)), (vec![0], vec![2], vec![0]));
    disk.inject(Fault::WriteError { from_op: 3 });
    assert!(disk.write_at(&[IoSlice::new(&[1])], 0).is_err());
    assert!(disk.flush().is_err());
    disk.read_at(&mut [0], 0).unwrap();
    disk.inject(Fault::Vanish { from_op: 3 });
    assert!(disk.read_at(&mut [0], 0).is_err());
    disk.heal();
    put(&disk, 0, &[9]);
    assert_eq!(get(&disk, 100, 1), [1]);
}

#[test]
fn rot_shows_in_images_unless_written_over() {
    let disk = ScriptedDisk::new(1 << 20);
    put(&disk, 0, &[1; 512]);
    disk.script().forget();
    disk.rot(3, 0xff);
    assert_eq!(get(&disk.image_after(0, CrashPolicy::KeepAll, 0), 3, 1), [0xfe]);
    put(&disk, 0, &[1; 512]);
    assert_eq!(get(&disk.image_after(1, CrashPolicy::KeepAll, 0), 3, 1), [1]);
}
