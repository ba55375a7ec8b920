use super::*;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::host::{Access, FileDisk};

/// An image whose tables tests write.
struct Image {
    file: tempfile::NamedTempFile,
    sector: u64,
}

/// A partition as tests write it: number, first sector, count of sectors.
type Part = (u32, u64, u64);

impl Image {
    fn new(size: u64, sector: u64) -> Image {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        Image { file, sector }
    }

    fn file(&self) -> &File {
        self.file.as_file()
    }

    fn sectors(&self) -> u64 {
        self.file().metadata().unwrap().len() / self.sector
    }

    fn write(&self, bytes: &[u8], sector: u64) {
        self.file().write_all_at(bytes, sector * self.sector).unwrap();
    }

    /// An MBR, or a link of a chain of logical partitions: type, first sector and count of each entry.
    fn mbr(&self, at: u64, entries: &[(u8, u32, u32)]) {
        let mut bytes = vec![0; 512];
        for (index, (kind, first, count)) in entries.iter().enumerate() {
            let entry = &mut bytes[446 + index * 16..][..16];
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&first.to_le_bytes());
            entry[12..16].copy_from_slice(&count.to_le_bytes());
        }
        bytes[510..].copy_from_slice(&MBR_MAGIC);
        self.write(&bytes, at);
    }

    /// A GPT with both copies and its protective MBR.
    fn gpt(&self, parts: &[Part]) {
        let last = self.sectors() - 1;
        self.mbr(0, &[(PROTECTIVE, 1, u32::MAX)]);
        let mut entries = vec![0; 128 * 128];
        for (number, first, count) in parts {
            let entry = &mut entries[(*number as usize - 1) * 128..][..128];
            entry[..16].fill(0xbf);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&(first + count - 1).to_le_bytes());
        }
        let behind = last - entries.len() as u64 / self.sector;
        for (at, entries_at) in [(1, 2), (last, behind)] {
            self.write(&entries, entries_at);
            self.header(at, entries_at, 128, crc32fast::hash(&entries));
        }
    }

    /// A GPT header with a right checksum.
    fn header(&self, at: u64, entries_at: u64, count: u32, sum: u32) {
        let mut header = vec![0; 92];
        header[..8].copy_from_slice(GPT_MAGIC);
        header[12..16].copy_from_slice(&92u32.to_le_bytes());
        header[24..32].copy_from_slice(&at.to_le_bytes());
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&count.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&sum.to_le_bytes());
        let sum = crc32fast::hash(&header);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        self.write(&header, at);
    }

    fn table(&self) -> Result<Option<Table>, TableError> {
        read_table(&FileDisk::open(self.file.path(), Access::Peek).unwrap())
    }

    /// The partitions as tests write them.
    fn parts(&self) -> Vec<Part> {
        let table = self.table().unwrap().expect("a table");
        let part = |part: &Partition| (part.number, part.start / self.sector, part.len / self.sector);
        table.partitions.iter().map(part).collect()
    }

    #[track_caller]
    fn refused(&self, why: &str) {
        let text = self.table().unwrap_err().to_string();
        assert_eq!(text, format!("its partition table is damaged: {why}"));
    }
}

const PARTS: [Part; 2] = [(1, 64, 1000), (9, 1064, 100)];

#[test]
fn a_gpt_is_read_from_either_copy_with_both_sector_sizes() {
    for sector in SECTOR_SIZES {
        let image = Image::new(8 << 20, sector);
        assert_eq!(image.table().unwrap(), None);
        image.gpt(&PARTS);
        assert_eq!(image.parts(), PARTS, "{sector}");
        // The header, or one entry, of the first copy is damaged.
        for (at, byte) in [(1, 30), (2, 40)] {
            image.gpt(&PARTS);
            image.file().write_all_at(&[0xff], at * sector + byte).unwrap();
            assert_eq!(image.parts(), PARTS, "{sector} {at}");
        }
        // All that is before the first partition is gone.
        image.write(&vec![0; 30 * sector as usize], 0);
        assert_eq!(image.parts(), PARTS, "{sector}");
        image.gpt(&PARTS);
        for at in [1, image.sectors() - 1] {
            image.file().write_all_at(&[0xff], at * sector + 30).unwrap();
        }
        image.refused("the checksum of its GPT header is wrong");
        image.write(&vec![0; sector as usize], 1);
        image.write(&vec![0; sector as usize], image.sectors() - 1);
        image.refused("neither copy of its GPT is there");
    }
}

#[test]
fn an_mbr_is_read_with_its_logical_partitions() {
    let image = Image::new(8 << 20, 512);
    image.mbr(0, &[(0xbf, 63, 100), (0, 0, 0), (0x05, 1000, 5000)]);
    image.mbr(1000, &[(0xa5, 63, 100), (0x05, 2000, 1000)]);
    image.mbr(3000, &[(0xbf, 1, 999), (0x05, 500, 200)]);
    image.mbr(1500, &[(0xbf, 10, 20)]);
    assert_eq!(image.parts(), [(1, 63, 100), (5, 1063, 100), (6, 3001, 999), (7, 1510, 20)]);
}

#[test]
fn an_mbr_that_counts_in_large_sectors_is_known_by_the_device_that_it_leads_to() {
    let image = Image::new(8 << 20, 4096);
    image.mbr(0, &[(0xbf, 256, 1000)]);
    let magic = (256 * 4096) + LABEL_MAGIC.0;
    image.file().write_all_at(&LABEL_MAGIC.1.to_be_bytes(), magic).unwrap();
    assert_eq!(image.parts(), [(1, 256, 1000)]);
}

#[test]
fn a_table_that_would_harm_its_reader_is_refused() {
    let image = Image::new(8 << 20, 512);
    for (count, sum) in [(u32::MAX, 0), (1 << 20, 1)] {
        image.mbr(0, &[(PROTECTIVE, 1, u32::MAX)]);
        image.header(1, 2, count, sum);
        image.refused(&format!("its GPT claims {count} entries of 128 bytes"));
    }
    image.header(1, u64::MAX, 128, 0);
    image.refused("the checksum of its GPT entries is wrong");
    image.gpt(&[(1, 64, 1000), (2, 1063, 100)]);
    image.refused("partitions 1 and 2 overlap");
    image.gpt(&[(3, 2, 1000)]);
    image.refused("partition 3 overlaps the table");
    image.gpt(&[(1, u64::MAX / 512, 1 << 20)]);
    image.refused("partition 1 has impossible bounds");
    image.gpt(&[(1, 64, 1000), (2, 1064, 1 << 40)]);
    let table = image.table().unwrap().unwrap();
    assert_eq!((table.partitions.len(), table.beyond), (1, vec![2]));
}

#[test]
fn a_chain_of_logical_partitions_that_does_not_end_is_refused() {
    let image = Image::new(8 << 20, 512);
    image.mbr(0, &[(0x05, 1000, 5000)]);
    image.mbr(1000, &[(0xbf, 1, 10), (0x05, 100, 100)]);
    for back in [0, 100] {
        image.mbr(1100, &[(0xbf, 1, 10), (0x05, back, 100)]);
        image.refused("the chain of its extended partitions has a loop");
    }
    image.mbr(1100, &[(0xbf, 1, 10), (0x05, 5000, 100)]);
    image.refused("a logical partition lies outside its extended partition");
    for at in 0..300 {
        image.mbr(1000 + at, &[(0, 0, 0), (0x05, at as u32 + 1, 1)]);
    }
    image.refused("it has more than 256 logical partitions");
    image.mbr(0, &[(0x05, u32::MAX, 5000)]);
    image.refused("an extended partition lies beyond the end");
}

#[test]
fn the_boot_sector_of_a_file_system_and_an_empty_one_are_no_tables() {
    let image = Image::new(8 << 20, 512);
    image.mbr(0, &[]);
    assert_eq!(image.table().unwrap(), None);
    let mut boot = vec![0x41; 512];
    boot[510..].copy_from_slice(&MBR_MAGIC);
    image.write(&boot, 0);
    assert_eq!(image.table().unwrap(), None);
    assert_eq!(Image::new(100, 512).table().unwrap(), None);
    assert_eq!(Image::new(512, 512).table().unwrap(), None);
}

#[test]
fn any_bytes_in_the_place_of_a_table_end_in_an_answer_or_an_error() {
    let image = Image::new(1 << 20, 512);
    let mut state = 1u64;
    for round in 0..2000 {
        match round % 2 {
            0 => image.gpt(&[(1, 64, 100), (9, 164, 100)]),
            _ => {
                image.mbr(0, &[(0xbf, 63, 100), (0x05, 200, 1000)]);
                image.mbr(200, &[(0xbf, 1, 100), (0x05, 300, 1000)]);
            }
        }
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at =
                [446 + (state >> 20) % 66, 512 + (state >> 20) % 92, 200 * 512 + 446 + (state >> 20) % 66];
            image.file().write_all_at(&[(state >> 50) as u8], at[(state >> 60) as usize % 3]).unwrap();
        }
        if let Ok(Some(table)) = image.table() {
            assert!(table.partitions.iter().all(|part| part.start >= 512 && part.end() <= 1 << 20));
        }
        // Wipes the table, so that no rest of it is read together with the next kind of table.
        image.write(&[0; 512], 0);
        image.write(&[0; 512], 1);
        image.write(&[0; 512], image.sectors() - 1);
    }
}

#[test]
fn a_name_means_a_partition_only_where_no_file_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.img");
    let part = partition_path(&image, 12);
    assert_eq!(part, folder.path().join("disk.img-part12"));
    assert_eq!((partition_of(&part), backing_file(&part)), (None, part.clone()));
    std::fs::write(&image, "x").unwrap();
    assert_eq!((partition_of(&part), backing_file(&part)), (Some((image.clone(), 12)), image.clone()));
    for name in
        ["disk.img-part", "disk.img-part0", "disk.img-part01", "disk.img-part1x", "disk.img-part99999999999"]
    {
        assert_eq!(partition_of(&folder.path().join(name)), None, "{name}");
    }
    std::fs::write(&part, "y").unwrap();
    assert_eq!(partition_of(&part), None);
}
