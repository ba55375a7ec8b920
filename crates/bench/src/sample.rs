//! The small real sample that comes with cenote: fixtures/corpus, see its README.
//!
//! With the feature `sample` it is inside the program (6 MB), so that a program that a user built or copied needs no
//! other file. Packages have it in files beside the program, because only `bench` and `advise` need it.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Names of the sample's files.
const NAMES: [&str; 8] = [
    "gc_2mass_k.fits",
    "hadoop-yarn-head.jar",
    "libcrypto.so.3",
    "nt-head.nsq",
    "pgbench-a.pages",
    "rRNA16S.fasta",
    "reads-hiseq-head.fastq",
    "src-ext4.tar",
];

/// No file of the sample is as large, packed or not.
const MAX: u64 = 16 << 20;

/// The sample inside the program: a compressed file for each of [`NAMES`].
#[cfg(feature = "sample")]
const INSIDE: Option<[&[u8]; NAMES.len()]> = Some([
    include_bytes!("../corpus/gc_2mass_k.fits.zst"),
    include_bytes!("../corpus/hadoop-yarn-head.jar.zst"),
    include_bytes!("../corpus/libcrypto.so.3.zst"),
    include_bytes!("../corpus/nt-head.nsq.zst"),
    include_bytes!("../corpus/pgbench-a.pages.zst"),
    include_bytes!("../corpus/rRNA16S.fasta.zst"),
    include_bytes!("../corpus/reads-hiseq-head.fastq.zst"),
    include_bytes!("../corpus/src-ext4.tar.zst"),
]);
#[cfg(not(feature = "sample"))]
const INSIDE: Option<[&[u8]; NAMES.len()]> = None;

/// Names and contents of the sample's files.
///
/// # Errors
/// [`Error::NoSample`] where the sample is neither inside the program nor beside it; [`Error::Unreadable`].
pub(crate) fn files() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let Some(inside) = INSIDE else { return installed(&folder()) };
    let unpack = |(name, packed)| (name, unpack(packed).expect("a test unpacks the sample"));
    Ok(NAMES.into_iter().zip(inside).map(unpack).collect())
}

/// Where packages put the sample: `share/cenote/sample` beside the folder of the program.
fn folder() -> PathBuf {
    let program = env::current_exe().and_then(fs::canonicalize).ok();
    let prefix = program.as_deref().and_then(Path::parent).and_then(Path::parent);
    prefix.unwrap_or(Path::new("/usr")).join("share/cenote/sample")
}

/// The files of the sample in `folder`, compressed there.
fn installed(folder: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    if !folder.is_dir() {
        return Err(Error::NoSample { folder: folder.to_owned() });
    }
    let file = |name| {
        let path = folder.join(format!("{name}.zst"));
        let mut packed = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MAX).read_to_end(&mut packed))
            .and_then(|_| unpack(&packed))
            .map(|data| (name, data))
            .map_err(|source| Error::Unreadable { path, source })
    };
    NAMES.into_iter().map(file).collect()
}

/// Decompresses `packed`.
///
/// # Errors
/// The reason why it is no frame of Zstandard of at most [`MAX`] bytes.
fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let size = zstd_safe::get_frame_content_size(packed).ok().flatten().filter(|size| *size <= MAX);
    let size = size.ok_or_else(|| io::Error::other("not a file of the sample"))?;
    let mut data = vec![0; usize::try_from(size).map_err(io::Error::other)?];
    let found = zstd_safe::decompress(&mut data[..], packed);
    let found = found.map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
    data.truncate(found);
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn check(files: &[(&str, Vec<u8>)]) {
        let sums = include_str!("../corpus/SHA256SUMS");
        assert_eq!(sums.lines().count(), files.len());
        for (name, data) in files {
            let sum: String = Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(sums.contains(&format!("{sum}  {name}")), "{name}");
        }
    }

    #[cfg(feature = "sample")]
    #[test]
    fn the_sample_is_what_its_sums_say() {
        check(&files().unwrap());
    }

    #[test]
    fn the_sample_of_a_package_is_the_same() {
        check(&installed(Path::new("corpus")).unwrap());
    }

    #[test]
    fn a_missing_or_damaged_sample_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("none");
        assert!(matches!(installed(&none), Err(Error::NoSample { folder }) if folder == none));
        let first = folder.path().join(format!("{}.zst", NAMES[0]));
        assert!(matches!(installed(folder.path()), Err(Error::Unreadable { path, .. }) if path == first));
        let whole = std::fs::read(format!("corpus/{}.zst", NAMES[0])).unwrap();
        for damaged in [&b"neither"[..], &whole[..whole.len() / 2]] {
            std::fs::write(&first, damaged).unwrap();
            assert!(matches!(installed(folder.path()), Err(Error::Unreadable { path, .. }) if path == first));
        }
    }
}
