//! Volumes: what is written is read, survives crashes as promised, and takes the space that it should.

mod support;

use pool::props::Value;
use support::Bed;
use zpl::{Error, Extent, Volume, volume_initialiser};

const MIB: u64 = 1 << 20;

/// A volume of 16 MiB with blocks of `block` bytes.
fn volume(bed: &Bed, block: u64, properties: &[(&str, u64)]) -> Volume {
    let local = properties.iter().map(|&(name, value)| (name.to_owned(), Value::Number(value))).collect();
    bed.pool()
        .create_volume("tank/vol", local, Default::default(), volume_initialiser(16 * MIB, block))
        .unwrap();
    open(bed)
}

fn open(bed: &Bed) -> Volume {
    Volume::open(bed.pool().open("tank/vol").unwrap()).unwrap()
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn all(volume: &Volume) -> Vec<u8> {
    let mut data = vec![0xaa; volume.size() as usize];
    volume.read(0, &mut data).unwrap();
    data
}

/// The pool as a crash left it, and what it is after the log is replayed.
fn crash(bed: &mut Bed) -> Volume {
    bed.crash();
    bed.expect_clean_as_left();
    bed.ask_zdb(&["--allow-unclean"]);
    bed.reopen();
    bed.expect_clean();
    open(bed)
}

#[test]
fn any_range_is_written_zeroed_and_trimmed_like_a_plain_array() {
    for (seed, block) in [(1, 512), (2, 16 << 10), (3, 2 * MIB)] {
        let bed = Bed::new(seed, &[], 0, 0);
        let volume = volume(&bed, block, &[]);
        let mut model = vec![0; volume.size() as usize];
        let mut random = seed;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % limit
        };
        for round in 0..60 {
            let offset = below(volume.size());
            let length = below(3 * MIB).min(volume.size() - offset);
            let range = offset as usize..(offset + length) as usize;
            match below(4) {
                0 => {
                    volume.zero(offset, length).unwrap();
                    model[range].fill(0);
                }
                1 => {
                    volume.trim(offset, length).unwrap();
                    let (first, last) = (offset.next_multiple_of(block), (offset + length) / block * block);
                    if first < last {
                        model[first as usize..last as usize].fill(0);
                    }
                }
                _ => {
                    let data = noise(round + 1, range.len());
                    volume.write(offset, &data).unwrap();
                    model[range].copy_from_slice(&data);
                }
            }
            if round % 20 == 19 {
                bed.pool().sync().unwrap();
                assert!(all(&volume) == model, "block size {block}, round {round}");
            }
        }
        let mut at = 0;
        for extent in volume.extents(0, volume.size(), usize::MAX).unwrap() {
            let run = &model[at as usize..(at + extent.length) as usize];
            assert!(!extent.is_hole || run.iter().all(|byte| *byte == 0));
            at += extent.length;
        }
        assert!(at == volume.size() || block == 512);
        zpl::check::check_volume(&volume, &mut |problem| panic!("{problem}")).unwrap();
        bed.expect_clean();
    }
}

#[test]
fn flushed_data_survives_a_crash_and_the_rest_is_lost() {
    for (seed, block, properties) in
        [(1, 16 << 10, vec![]), (2, 64 << 10, vec![]), (3, 16 << 10, vec![("logbias", 1)])]
    {
        let mut bed = Bed::stepwise(seed, &[]);
        let volume = volume(&bed, block, &properties);
        volume.flush().unwrap();
        let txg = bed.pool().info().txg;
        let data = noise(9, 3 * MIB as usize);
        volume.write(100, &data).unwrap();
        volume.trim(MIB, MIB).unwrap();
        volume.zero(2 * MIB + 7, 1000).unwrap();
        volume.write(2 * MIB + 100, b"last").unwrap();
        let kept = all(&volume);
        volume.flush().unwrap();
        assert_eq!(bed.pool().info().txg, txg, "a flush needs no sync of the pool");
        volume.write(8 * MIB, b"lost").unwrap();
        drop(volume);
        let volume = crash(&mut bed);
        assert!(all(&volume) == kept, "block size {block}");
    }
}

#[test]
fn with_sync_always_every_write_is_safe_and_with_sync_disabled_no_flush_is() {
    for (sync, is_safe) in [(1, true), (2, false)] {
        let mut bed = Bed::stepwise(7 + sync, &[]);
        let volume = volume(&bed, 16 << 10, &[("sync", sync)]);
        volume.write(0, b"first").unwrap();
        volume.write(40_000, b"second").unwrap();
        if !is_safe {
            volume.flush().unwrap();
        }
        drop(volume);
        let volume = crash(&mut bed);
        let mut read = [0; 6];
        volume.read(40_000, &mut read).unwrap();
        assert_eq!(&read == b"second", is_safe);
    }
}

#[test]
fn a_volume_grows_with_zeros_and_shrinks_for_good() {
    let mut bed = Bed::new(4, &[], 0, 0);
    let volume = volume(&bed, 16 << 10, &[]);
    volume.write(0, &noise(1, 16 * MIB as usize)).unwrap();
    bed.pool().sync().unwrap();
    let used = |bed: &Bed| bed.get("tank/vol", "used");
    let full = used(&bed);
    volume.resize(4 * MIB).unwrap();
    bed.pool().sync().unwrap();
    assert_eq!((volume.size(), bed.get("tank/vol", "volsize")), (4 * MIB, 4 * MIB));
    assert!(used(&bed) < full / 3);
    for bad in [0, 5, 4 * MIB + 512, u64::MAX] {
        assert!(matches!(volume.resize(bad), Err(Error::Invalid)));
    }
    let beyond = [volume.write(4 * MIB - 1, b"no"), volume.read(4 * MIB, &mut [0]), volume.trim(u64::MAX, 2)];
    assert!(beyond.iter().all(|done| matches!(done, Err(Error::Invalid))));
    volume.resize(32 * MIB).unwrap();
    assert_eq!(all(&volume)[4 * MIB as usize..], vec![0; 28 * MIB as usize]);
    let hole = Extent { length: 28 * MIB, is_hole: true };
    assert_eq!(volume.extents(4 * MIB, 28 * MIB, 9).unwrap(), [hole]);
    drop(volume);
    bed.close();
    bed.reopen();
    assert_eq!(open(&bed).size(), 32 * MIB);
}

#[test]
fn snapshots_clones_rollback_promotion_and_names_are_those_of_any_dataset() {
    let bed = Bed::new(5, &[], 0, 0);
    let pool = bed.pool();
    let volume = volume(&bed, 16 << 10, &[]);
    let before = noise(1, 100_000);
    volume.write(0, &before).unwrap();
    pool.snapshot(&["tank/vol@s".into()], &[]).unwrap();
    volume.write(0, &noise(2, 100_000)).unwrap();
    volume.resize(8 * MIB).unwrap();
    let snapshot = Volume::open(pool.open("tank/vol@s").unwrap()).unwrap();
    assert_eq!(snapshot.size(), 16 * MIB);
    assert!(all(&snapshot)[..100_000] == before && snapshot.is_read_only());
    assert!(matches!(snapshot.write(0, b"no"), Err(Error::ReadOnly(_))));
    assert!(matches!(snapshot.resize(MIB), Err(Error::ReadOnly(_))));
    assert!(matches!(pool.rollback("tank/vol@s"), Err(pool::Error::DatasetBusy(_))));
    drop((volume, snapshot));
    pool.rollback("tank/vol@s").unwrap();
    let volume = open(&bed);
    assert!(volume.size() == 16 * MIB && all(&volume)[..100_000] == before);
    pool.clone_snapshot("tank/vol@s", "tank/clone", Vec::new()).unwrap();
    let clone = Volume::open(pool.open("tank/clone").unwrap()).unwrap();
    clone.write(50_000, b"other").unwrap();
    pool.promote("tank/clone").unwrap();
    pool.rename_dataset("tank/clone", "tank/fs/moved").unwrap();
    assert_eq!(clone.dataset().name(), "tank/fs/moved");
    assert!(all(&volume)[..100_000] == before && all(&clone)[50_000..50_005] == *b"other");
    drop((volume, clone));
    pool.destroy_dataset("tank/vol").unwrap();
    bed.set("tank/fs/moved", "readonly", 1).unwrap();
    let moved = Volume::open(pool.open("tank/fs/moved").unwrap()).unwrap();
    assert!(matches!(moved.write(0, b"no"), Err(Error::ReadOnly(_))));
    drop(moved);
    bed.expect_clean();
}

#[test]
fn a_reserved_volume_is_written_all_over_although_the_pool_is_full() {
    let bed = Bed::sized(96 * MIB, 6, &[], 0, 0);
    let pool = bed.pool();
    let reserved = pool.volume_reservation(16 * MIB, 16 << 10);
    let volume = volume(&bed, 16 << 10, &[("refreservation", reserved)]);
    assert!(reserved - bed.get("tank/vol", "usedbyrefreservation") < 64 << 10);
    let too_big = vec![("refreservation".to_owned(), Value::Number(200 * MIB))];
    let init = volume_initialiser(200 * MIB, 16 << 10);
    assert!(pool.create_volume("tank/big", too_big, Default::default(), init).unwrap_err().is_no_space());
    assert!(pool.dataset("tank/big").is_err());
    let file =
        bed.fs().create(bed.fs().root(), b"f", &zpl::NewNode::new(zpl::FileKind::Regular, 0o644)).unwrap();
    let chunk = noise(3, MIB as usize);
    let mut at = 0;
    let full = loop {
        match bed.fs().write(file, at, &chunk) {
            Ok(()) => at += MIB,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace), "{full}");
    for pass in 0..2 {
        for at in 0..16 {
            volume.write(at * MIB, &noise(at + pass, MIB as usize)).unwrap();
        }
        pool.sync().unwrap();
    }
    bed.expect_clean();
}

#[test]
fn threads_that_write_parts_of_the_same_blocks_lose_nothing() {
    let bed = Bed::new(8, &[], 0, 0);
    let volume = volume(&bed, 16 << 10, &[]);
    let size = 2 * MIB;
    std::thread::scope(|scope| {
        for id in 0..4u64 {
            let volume = &volume;
            scope.spawn(move || {
                for at in (id * 1024..size).step_by(4096) {
                    volume.write(at, &[id as u8 + 1; 1024]).unwrap();
                }
                volume.flush().unwrap();
            });
        }
    });
    let data = all(&volume);
    assert!(
        data[..size as usize].chunks(1024).enumerate().all(|(i, part)| part == [(i % 4) as u8 + 1; 1024])
    );
    bed.expect_clean();
}
