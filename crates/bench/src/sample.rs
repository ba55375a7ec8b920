//! The small real sample that comes with cenote: fixtures/corpus, see its README.
//!
//! It is kept inside the program (6 MB, feature `sample`), so that an installed `cenote` needs no other file.

use crate::Result;

/// Names and contents of the sample's files.
///
/// # Errors
/// [`crate::Error::NoSample`] in a build without it.
#[cfg(not(feature = "sample"))]
pub(crate) fn files() -> Result<Vec<(&'static str, Vec<u8>)>> {
    Err(crate::Error::NoSample)
}

#[cfg(feature = "sample")]
macro_rules! packed {
    ($($name:literal)*) => {
        [$(($name, include_bytes!(concat!("../corpus/", $name, ".zst")).as_slice())),*]
    };
}

#[cfg(feature = "sample")]
static PACKED: [(&str, &[u8]); 8] = packed! {
    "gc_2mass_k.fits" "hadoop-yarn-head.jar" "libcrypto.so.3" "nt-head.nsq" "pgbench-a.pages"
    "rRNA16S.fasta" "reads-hiseq-head.fastq" "src-ext4.tar"
};

/// Names and contents of the sample's files.
///
/// # Errors
/// [`crate::Error::NoSample`] in a build without it.
#[cfg(feature = "sample")]
pub(crate) fn files() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let unpack = |&(name, packed): &(&'static str, &[u8])| {
        let size = zstd_safe::get_frame_content_size(packed).ok().flatten();
        let size = size.expect("the files of the sample name their size");
        let mut data = vec![0; usize::try_from(size).expect("the sample is small")];
        zstd_safe::decompress(&mut data[..], packed).expect("a test unpacks the sample");
        (name, data)
    };
    Ok(PACKED.iter().map(unpack).collect())
}

#[cfg(all(test, feature = "sample"))]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_sample_is_what_its_sums_say() {
        let sums = include_str!("../corpus/SHA256SUMS");
        let files = files().unwrap();
        assert_eq!(sums.lines().count(), files.len());
        for (name, data) in files {
            let sum: String = Sha256::digest(&data).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(sums.contains(&format!("{sum}  {name}")), "{name}");
        }
    }
}
