//! Data that is no file of the user: the sample, and corpora made on the spot.

use pool::props::size::parse_size;
use storage::host::SeededEntropy;

use super::{Contents, Entry, Source};
use crate::generate::generate_until;
use crate::watch::Deaf;
use crate::{Error, Result, Watch, sample};

/// The maximal size of generated data, because it is kept in memory.
const CORPUS_MAX: usize = 8 << 30;
/// A folder with text of programs in many small files, as a source tree has them.
const TREE: &str = "tree";
/// Sizes of the files in [`TREE`]: most are small, some are large, 5 KB on average.
const TREE_SIZES: std::ops::Range<f64> = 256.0..24_576.0;
const TREE_FOLDER: usize = 60;

impl Source {
    /// Data that is no file of the user, in memory: `sample`, the sample that comes with cenote; `sample/NAME`, a file
    /// of it; `KIND:SIZE`, a corpus made on the spot ([`CORPORA`](crate::CORPORA)); `tree:SIZE`, text of programs in
    /// small files.
    ///
    /// # Errors
    /// [`Error::NoSuchData`]; [`Error::NoSample`] where it did not come along.
    pub fn named(words: &[String]) -> Result<Source> {
        Source::named_until(words, &Deaf)
    }

    /// As [`Source::named`], which may take minutes, until it is stopped.
    ///
    /// # Errors
    /// As [`Source::named`]; [`Error::Interrupted`].
    pub fn named_until(words: &[String], watch: &dyn Watch) -> Result<Source> {
        let mut source = Source { in_memory: true, ..Source::empty() };
        for (number, word) in words.iter().enumerate() {
            match word.split_once(':') {
                Some((kind, size)) => source.make(word, kind, size, number + 1, watch)?,
                None => source.take(word)?,
            }
        }
        Ok(source)
    }

    /// Adds the sample or a file of it.
    fn take(&mut self, word: &str) -> Result<()> {
        let unknown = || Error::NoSuchData(word.to_owned());
        let wanted = word.strip_prefix("sample").ok_or_else(unknown)?;
        let is = |name: &str| wanted.is_empty() || wanted.strip_prefix('/') == Some(name);
        let files: Vec<_> = sample::files()?.into_iter().filter(|(name, _)| is(name)).collect();
        if files.is_empty() {
            return Err(unknown());
        }
        files.into_iter().for_each(|(name, data)| self.add(name, data));
        Ok(())
    }

    /// Adds a corpus, the `number`th of its source.
    fn make(&mut self, word: &str, kind: &str, size: &str, number: usize, watch: &dyn Watch) -> Result<()> {
        let unknown = || Error::NoSuchData(word.to_owned());
        let bytes = parse_size(size).ok().and_then(|bytes| usize::try_from(bytes).ok());
        let bytes = bytes.filter(|bytes| (1..=CORPUS_MAX).contains(bytes)).ok_or_else(unknown)?;
        let seed = number as u64;
        let of = if kind == TREE { "source" } else { kind };
        let data = generate_until(of, bytes, seed, &|| watch.stopped()).ok_or_else(unknown)?;
        if watch.stopped() {
            return Err(Error::Interrupted);
        }
        match kind {
            TREE => self.plant(&format!("{number}-{TREE}"), &data, seed),
            _ => self.add(&format!("{number}-{kind}"), data),
        }
        Ok(())
    }

    /// Cuts `text` into files in folders below one of this name.
    fn plant(&mut self, name: &str, text: &[u8], seed: u64) {
        let random = SeededEntropy::new(seed);
        let folder = |parent, name: String| Entry { parent, name: name.into_bytes(), contents: None };
        let top = self.entries.len();
        self.entries.push(folder(None, name.to_owned()));
        let (mut rest, mut inside, mut count) = (text, top, 0);
        while !rest.is_empty() {
            if count % TREE_FOLDER == 0 {
                inside = self.entries.len();
                self.entries.push(folder(Some(top), format!("{}", count / TREE_FOLDER)));
            }
            let part = random.below(1 << 20) as f64 / f64::from(1 << 20);
            let size = TREE_SIZES.start * (TREE_SIZES.end / TREE_SIZES.start).powf(part);
            let (file, others) = rest.split_at(rest.len().min(size as usize));
            let contents = Some(Contents::of_memory(&format!("{name}/{count}.c"), file.to_vec()));
            self.entries.push(Entry {
                parent: Some(inside),
                name: format!("{count}.c").into_bytes(),
                contents,
            });
            (rest, count) = (others, count + 1);
        }
        self.bytes += text.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Stopped;

    fn named(words: &[&str]) -> Result<Source> {
        Source::named(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn generating_large_data_can_be_stopped() {
        let stopped = |word: &str| Source::named_until(&[word.to_owned()], &Stopped);
        for word in ["fastq:4G", "fasta:4G", "fits:4G", "source:4G", "noise:4G", "tree:4G"] {
            assert!(matches!(stopped(word), Err(Error::Interrupted)), "{word}");
        }
    }

    /// About 200 files for each megabyte, so that 256 MB are 50 000 files.
    #[test]
    fn a_tree_is_many_small_files_in_folders_the_same_each_time() {
        let (one, other) = (named(&["tree:2M"]).unwrap(), named(&["tree:2M"]).unwrap());
        assert_eq!(one.bytes(), 2 << 20);
        assert!((300..500).contains(&one.file_count()), "{}", one.file_count());
        let shape = |source: &Source| {
            let size = |entry: &Entry| entry.contents.as_ref().map(|contents| contents.size);
            source.entries().iter().map(|e| (e.parent, e.name.clone(), size(e))).collect::<Vec<_>>()
        };
        assert_eq!(shape(&one), shape(&other));
        let parents = one.entries().iter().enumerate();
        assert!(parents.into_iter().all(|(at, entry)| entry.parent.is_none_or(|parent| parent < at)));
    }

    #[test]
    fn an_unknown_kind_of_data_is_named() {
        for bad in ["text", "tree:", "tree:0", "fast:1M", "fastq:1Q", "samples", "sample/none"] {
            assert!(
                matches!(named(&["noise:1K", bad]), Err(Error::NoSuchData(word)) if word == bad),
                "{bad}"
            );
        }
    }
}
