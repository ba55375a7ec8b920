//! Space of a dataset besides its records: block pointers, files and folders.
//!
//! compressratio counts metadata as it lies on the disk in both of its sums, so it draws the ratio of many small files
//! towards 1. How many blocks there are follows from the counts; how far lz4 shrinks them does not, and is
//! measured: on datasets of 1 to 10,000 files that cenote wrote (`used` of 1,000 files of 4 KiB in 10 folders: 434,176 bytes
//! more than the files; of 10,000: 2,932,736; of one of 64 MiB in 512 records: 147,456; of 600 in 300 folders, two names of
//! 6 letters in each: 327,680, since a folder with so few names is embedded in its pointer).
//!
//! Source: docs/format/03-dmu.md (128 bytes a pointer, 1024 pointers a block, 512 bytes a dnode, 32 a block).

use super::Question;
use super::layout::Layout;
use super::material::Material;

/// Bytes of a pointer in an indirect block after lz4.
const POINTER: f64 = 55.0;
/// Bytes of an indirect block after lz4, without its pointers.
const INDIRECT: f64 = 600.0;
/// Number of pointers in an indirect block.
const POINTERS: f64 = 1024.0;
/// Bytes of a file after lz4: its dnode and its name in the folder.
const FILE: f64 = 139.0;
/// Sectors of a folder that its pointer cannot hold, besides the names in it.
const FOLDER_SECTORS: f64 = 1.0;
/// Sectors that every dataset has.
const BASE_SECTORS: f64 = 8.0;
/// Metadata is stored twice, and `used` counts both.
const COPIES: f64 = 2.0;

/// Files and folders, and where they lie.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) files: f64,
    pub(crate) folders: f64,
    /// Folders among them that fit into their block pointers.
    pub(crate) short_folders: f64,
    /// Files with more than one record, by the size of records: they have blocks of pointers of their own.
    pub(crate) long_files: Vec<(u64, f64)>,
    pub(crate) ashift: u32,
    pub(crate) layout: Layout,
}

/// Sizes of metadata.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sizes {
    /// After compression, one copy.
    pub(crate) psize: f64,
    pub(crate) used: f64,
    pub(crate) raw: f64,
}

impl Metadata {
    /// Of what was found.
    pub(crate) fn new(material: &Material, question: &Question) -> Metadata {
        // Files that are not remembered are like the others.
        let scale = material.file_count as f64 / (material.files.len() as f64).max(1.0);
        let long = |recordsize: &u64| {
            let count = material.files.iter().filter(|file| file.size > *recordsize).count() as f64;
            (*recordsize, count * scale)
        };
        Metadata {
            files: material.file_count as f64,
            folders: material.folders as f64,
            short_folders: material.short_folders as f64,
            long_files: question.recordsizes.iter().map(long).collect(),
            ashift: question.ashift,
            layout: question.layout,
        }
    }

    /// Of so many of the files, in a dataset of their own.
    pub(crate) fn part(&self, files: f64) -> Metadata {
        let share = files / self.files.max(1.0);
        let long_files = self.long_files.iter().map(|(size, count)| (*size, count * share)).collect();
        let (folders, short_folders) = (self.folders * share, self.short_folders * share);
        Metadata { files, folders, short_folders, long_files, ..*self }
    }

    /// The sizes of all metadata, with so many records of `recordsize`.
    pub(crate) fn of(&self, records: f64, recordsize: u64) -> Sizes {
        let sector = (1u64 << self.ashift) as f64;
        let in_sectors = |bytes: f64| (bytes / sector).ceil().max(1.0) * sector;
        // Each long file has its own blocks of pointers; a short one has its pointer in the dnode.
        let long_files =
            self.long_files.iter().find(|(size, _)| *size == recordsize).map_or(0.0, |(_, count)| *count);
        let short = self.files - long_files;
        let pointers = (records - short).max(0.0);
        let indirect = match long_files > 0.0 {
            true => {
                let each = pointers / long_files;
                let full = (each / POINTERS).floor();
                let rest = each - full * POINTERS;
                let of = |pointers: f64| in_sectors(INDIRECT + pointers * POINTER);
                let rest = if rest > 0.0 { of(rest) } else { 0.0 };
                let above = if full > 0.0 { of(full + 1.0) } else { 0.0 };
                long_files * (full * of(POINTERS) + rest + above)
            }
            false => 0.0,
        };
        let long_folders = self.folders - self.short_folders;
        let files =
            in_sectors((self.files + self.short_folders) * FILE) + long_folders * FOLDER_SECTORS * sector;
        let psize = indirect + files + BASE_SECTORS * sector;
        // With raidz, a block of one or two sectors takes much more space than its size.
        let typical = (2.0 * sector) as u64;
        let used = self.layout.used_bytes(typical, self.ashift) as f64 / typical as f64;
        let raw = self.layout.raw_bytes(typical, self.ashift) as f64 / typical as f64;
        Sizes { psize, used: psize * COPIES * used, raw: psize * COPIES * raw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that `used` counts beyond the data of so many files in so many folders.
    fn used(files: f64, (folders, short_folders): (f64, f64), long: f64, records: f64) -> f64 {
        let long_files = vec![(131_072, long)];
        let layout = Layout::Stripe;
        let metadata = Metadata { files, folders, short_folders, long_files, ashift: 12, layout };
        metadata.of(records, 131_072).used
    }

    #[test]
    fn the_estimate_agrees_with_measured_datasets() {
        for (found, measured) in [
            (used(1000.0, (11.0, 0.0), 0.0, 1000.0), 434_176.0),
            (used(10_000.0, (11.0, 0.0), 0.0, 10_000.0), 2_932_736.0),
            (used(1.0, (2.0, 0.0), 1.0, 512.0), 147_456.0),
            (used(200.0, (11.0, 0.0), 200.0, 800.0), 1_867_776.0),
            (used(600.0, (301.0, 300.0), 0.0, 600.0), 327_680.0),
        ] {
            assert!((found / measured - 1.0).abs() < 0.1, "{found} {measured}");
        }
    }
}
