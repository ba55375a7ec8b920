use super::*;

const WRITER: Access = Access::ReadWrite { exclusive: true };

fn file(size: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

#[test]
fn data_written_in_many_pieces_is_read_back_as_one() {
    let file = file(1 << 20);
    let disk = FileDisk::open(file.path(), WRITER).unwrap();
    let data: Vec<u8> = (0..3000u32).flat_map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
    let mut bufs = vec![IoSlice::new(&[])];
    bufs.extend(data.chunks(3).map(IoSlice::new));
    bufs.push(IoSlice::new(&[]));
    assert!(bufs.len() > 2 * BUFS_MAX);
    disk.write_at(&bufs, 4096).unwrap();
    disk.write_at(&[], 0).unwrap();
    disk.write_at(&[IoSlice::new(&[]), IoSlice::new(&[])], 0).unwrap();
    disk.flush().unwrap();
    disk.drop_cache();
    disk.hint_willneed(0, 8192);
    let mut back = vec![0; data.len()];
    disk.read_at(&mut back, 4096).unwrap();
    assert_eq!(back, data);
    assert_eq!((disk.size(), disk.sector_size(), disk.is_block_device()), (1 << 20, 512, false));
}

#[test]
fn a_range_past_the_end_is_an_error_and_the_file_does_not_grow() {
    let file = file(4096);
    let disk = FileDisk::open(file.path(), WRITER).unwrap();
    let error = disk.write_at(&[IoSlice::new(&[1; 512])], 4096 - 511).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(disk.write_at(&[IoSlice::new(&[1; 512])], u64::MAX - 5).is_err());
    assert!(disk.discard(0, 4097).is_err());
    let error = disk.read_at(&mut [0; 512], 4096 - 511).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
}

/// An image of 1 MiB with two partitions of 256 KiB in an MBR, from sector 63 and from the sector behind it. The first
/// does not begin at the start of a page, and one page contains parts of both.
fn parted() -> (tempfile::NamedTempFile, [u64; 2]) {
    let image = file(1 << 20);
    let mut mbr = vec![0; 512];
    let (starts, count) = ([63, 63 + 512], 512u32);
    for (at, start) in starts.iter().enumerate() {
        let entry = &mut mbr[446 + at * 16..][..16];
        entry[4] = 0xbf;
        entry[8..12].copy_from_slice(&u32::to_le_bytes(*start));
        entry[12..16].copy_from_slice(&count.to_le_bytes());
    }
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    image.as_file().write_all_at(&mbr, 0).unwrap();
    (image, starts.map(|start| u64::from(start) * 512))
}

#[test]
fn nothing_outside_a_partition_changes() {
    let (image, [start, _]) = parted();
    let len = 256 << 10;
    let before = fs::read(image.path()).unwrap();
    image.as_file().write_all_at(&vec![0xee; (1 << 20) - 512], 512).unwrap();
    let part = partitions::partition_path(image.path(), 1);
    let disk = FileDisk::open(&part, WRITER).unwrap();
    assert_eq!((disk.size(), disk.path()), (len, part.as_path()));
    let data: Vec<u8> = (0..len).map(|at| (at / 512) as u8 ^ at as u8).collect();
    disk.write_at(&[IoSlice::new(&data)], 0).unwrap();
    disk.write_at(&[IoSlice::new(&[9; 512])], len - 512).unwrap();
    disk.discard(0, 512).unwrap();
    for offset in [len - 511, len, u64::MAX - start] {
        assert!(disk.write_at(&[IoSlice::new(&[1; 512])], offset).is_err());
        assert!(disk.read_at(&mut [0; 512], offset).is_err());
        assert!(disk.discard(offset, 512).is_err());
    }
    disk.flush().unwrap();
    disk.drop_cache();
    let mut back = vec![0; len as usize];
    disk.read_at(&mut back, 0).unwrap();
    assert!(back[512..back.len() - 512] == data[512..data.len() - 512]);
    assert!(back[back.len() - 512..].iter().all(|byte| *byte == 9));
    let after = fs::read(image.path()).unwrap();
    let (from, to) = (start as usize, (start + len) as usize);
    assert_eq!(after.len(), 1 << 20);
    assert!(after[..512] == before[..512] && after[512..from].iter().all(|byte| *byte == 0xee));
    assert!(after[to..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn partitions_of_one_file_are_locked_each_for_itself_and_against_the_whole_file() {
    let (image, _) = parted();
    let [one, two] = [1, 2].map(|number| partitions::partition_path(image.path(), number));
    let held = FileDisk::open(&one, WRITER).unwrap();
    let other = FileDisk::open(&two, WRITER).unwrap();
    for access in [WRITER, Access::ReadOnly] {
        assert!(matches!(FileDisk::open(&one, access), Err(OpenError::InUse { .. })), "{access:?}");
    }
    assert!(matches!(FileDisk::open(image.path(), WRITER), Err(OpenError::InUse { .. })));
    FileDisk::open(&one, Access::Peek).unwrap();
    drop(held);
    FileDisk::open(&one, WRITER).unwrap();
    drop(other);
    let whole = FileDisk::open(image.path(), WRITER).unwrap();
    assert!(matches!(FileDisk::open(&one, Access::ReadOnly), Err(OpenError::InUse { .. })));
    drop(whole);
    let readers = [&one, &one].map(|path| FileDisk::open(path, Access::ReadOnly).unwrap());
    assert!(matches!(FileDisk::open(&one, WRITER), Err(OpenError::InUse { .. })));
    drop(readers);
    FileDisk::open(&one, WRITER).unwrap();
}

#[test]
fn a_missing_partition_is_reported() {
    let (image, _) = parted();
    let refused = |number| {
        let path = partitions::partition_path(image.path(), number);
        FileDisk::open(&path, Access::Peek).unwrap_err().to_string()
    };
    assert!(refused(3).ends_with("-part3': the file has no partition 3"), "{}", refused(3));
    image.as_file().set_len(300 << 10).unwrap();
    assert!(refused(2).ends_with("-part2': partition 2 ends beyond the end of the file"));
    image.as_file().write_all_at(&[0; 2], 510).unwrap();
    assert!(refused(1).ends_with("-part1': the file has no partition table"));
    // A file of that name is itself.
    let named = partitions::partition_path(image.path(), 1);
    fs::write(&named, [7; 600]).unwrap();
    assert_eq!(FileDisk::open(&named, Access::Peek).unwrap().size(), 600);
    fs::remove_file(&named).unwrap();
}

#[test]
fn a_flush_tells_that_the_file_was_cut_within_or_before_the_partition() {
    let (image, [_, second]) = parted();
    let disk = FileDisk::open(&partitions::partition_path(image.path(), 2), WRITER).unwrap();
    let end = second + disk.size();
    // The space behind the partition does not belong to it.
    image.as_file().set_len(end).unwrap();
    disk.flush().unwrap();
    // Longer than the partition has bytes, but not than where it ends.
    image.as_file().set_len(end - 1).unwrap();
    assert!(disk.flush().unwrap_err().to_string().contains("was cut"));
}

#[test]
fn discarded_ranges_keep_the_size_and_their_neighbours() {
    let file = file(1 << 20);
    let disk = FileDisk::open(file.path(), WRITER).unwrap();
    disk.write_at(&[IoSlice::new(&vec![9; 1 << 20])], 0).unwrap();
    disk.discard(64 << 10, 64 << 10).unwrap();
    disk.discard(0, 0).unwrap();
    let mut all = vec![0; 1 << 20];
    disk.read_at(&mut all, 0).unwrap();
    assert!(all[..64 << 10].iter().chain(&all[128 << 10..]).all(|byte| *byte == 9));
}

#[test]
fn a_closed_disk_is_unlocked_although_a_child_has_the_descriptor() {
    let file = file(4096);
    let held = FileDisk::open(file.path(), WRITER).unwrap();
    let of_a_child = held.file.try_clone().unwrap();
    drop(held);
    FileDisk::open(file.path(), WRITER).unwrap();
    drop(of_a_child);
}

#[test]
fn a_second_open_names_the_holder_of_the_disk() {
    let file = file(4096);
    let held = FileDisk::open(file.path(), WRITER).unwrap();
    for access in [WRITER, Access::ReadOnly] {
        match FileDisk::open(file.path(), access) {
            Err(OpenError::InUse { holder, .. }) => {
                // Some sandboxes hide the lock table. No name is acceptable; a wrong one is not.
                assert!(holder.is_none_or(|holder| holder.pid == std::process::id()));
            }
            other => panic!("{other:?}"),
        }
    }
    FileDisk::open(file.path(), Access::Peek).unwrap();
    drop(held);
    let readers = [Access::ReadOnly; 2].map(|access| FileDisk::open(file.path(), access).unwrap());
    assert!(matches!(FileDisk::open(file.path(), WRITER), Err(OpenError::InUse { .. })));
    assert!(readers[0].write_at(&[IoSlice::new(&[1])], 0).is_err());
    drop(readers);
    FileDisk::open(file.path(), WRITER).unwrap();
}

#[test]
fn directories_devices_of_characters_and_missing_files_are_refused() {
    for path in ["/", "/dev/null"] {
        let error = FileDisk::open(Path::new(path), Access::ReadOnly).unwrap_err();
        assert!(matches!(error, OpenError::NotADisk { .. }), "{path}");
    }
    let error = FileDisk::open(Path::new("/no/such/disk"), Access::ReadOnly).unwrap_err();
    assert!(matches!(error, OpenError::Io { .. }));
    assert!(error.to_string().starts_with("cannot open '/no/such/disk': "));
}

#[test]
fn large_writes_past_the_cache_and_small_ones_through_it_agree() {
    let file = file(8 << 20);
    let disk = FileDisk::open(file.path(), WRITER).unwrap();
    let mut expected = vec![0; 8 << 20];
    let mut all = expected.clone();
    let mut x = 7u64;
    for round in 0..60usize {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Borders anywhere, on sectors and on pages; large and small; small ones leave dirty pages behind.
        let unit = [1, 512, 4096][round % 3];
        let len = if round % 2 == 0 { (x >> 40) as usize % (5 << 20) } else { (x >> 40) as usize % 9000 };
        let len = len / unit * unit;
        let at = (x >> 20) as usize % (expected.len() - len) / unit * unit;
        expected[at..at + len].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 31 + round) as u8);
        let bufs: Vec<_> = expected[at..at + len].chunks(100_000).map(IoSlice::new).collect();
        disk.write_at(&bufs, at as u64).unwrap();
        disk.read_at(&mut all, 0).unwrap();
        assert!(all == expected, "round {round}");
    }
    disk.flush().unwrap();
    disk.drop_cache();
    disk.read_at(&mut all, 0).unwrap();
    assert!(all == expected);
}

#[test]
fn writers_and_readers_of_one_disk_at_the_same_time_see_what_was_written() {
    let file = file(16 << 20);
    let disk = FileDisk::open(file.path(), WRITER).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..30u8 {
                    // Neighbours of odd length, so that pages and read-ahead overlap.
                    let len = if (u64::from(round) + thread).is_multiple_of(2) { 700_000 } else { 5000 };
                    let at = thread * 700_000;
                    let data = vec![round ^ thread as u8; len];
                    disk.write_at(&[IoSlice::new(&data)], at).unwrap();
                    let mut back = vec![0; len];
                    disk.read_at(&mut back, at).unwrap();
                    assert!(back == data, "thread {thread} round {round}");
                }
            });
        }
    });
}

#[test]
fn without_direct_writes_the_page_cache_is_used() {
    let file = file(4 << 20);
    let mut disk = FileDisk::open(file.path(), WRITER).unwrap();
    disk.direct = None;
    disk.write_at(&[IoSlice::new(&vec![5; 3 << 20])], 512).unwrap();
    let mut back = vec![0; 3 << 20];
    disk.read_at(&mut back, 512).unwrap();
    assert!(back.iter().all(|&byte| byte == 5));
}

#[test]
fn a_part_of_several_buffers_is_cut_on_any_border() {
    let bufs = [&b"abc"[..], b"", b"defg", b"h"].map(IoSlice::new);
    let text = |skip, len| cut(&bufs, skip, len).iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>();
    assert_eq!(text(0, 8), b"abcdefgh");
    assert_eq!(text(2, 3), b"cde");
    assert_eq!(text(3, 4), b"defg");
    assert_eq!(text(7, 1), b"h");
    assert_eq!(text(5, 0), b"");
}
