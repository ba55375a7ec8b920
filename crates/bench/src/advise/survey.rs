//! What there is: names and sizes, no data.
//!
//! A survey ends after a time; folders are entered in random order, so that what it saw of an endless tree is no
//! corner of it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use format::ObjectId;
use zpl::{FileKind, Filesystem};

use super::material::{Container, Material, Place};
use super::random::Random;
use super::tar;
use crate::source::{data_segments, open, unreadable};
use crate::{Error, Event, Result, Watch};

/// Smaller files are not asked for their holes beforehand.
const SPARSE_MIN: u64 = 1 << 20;
/// Memory for the pieces of a stream.
const STREAM_MEMORY: usize = 96 << 20;

/// How a survey is made.
pub(crate) struct Survey<'a> {
    pub(crate) until: Instant,
    pub(crate) seed: u64,
    /// Tar files that are named are looked into.
    pub(crate) unpack: bool,
    pub(crate) watch: &'a dyn Watch,
}

impl Material {
    /// Adds a file, a folder with everything below it, or a block device.
    pub(crate) fn add_path(&mut self, path: &Path, survey: &Survey) -> Result<()> {
        let metadata = std::fs::metadata(path).map_err(unreadable(path))?;
        self.name(&path.display().to_string());
        let kind = metadata.file_type();
        if kind.is_dir() {
            self.folder.get_or_insert_with(|| path.to_owned());
            return self.walk(path, survey);
        }
        if let Some(parent) = path.parent().filter(|_| kind.is_file()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            self.folder.get_or_insert_with(|| parent.to_owned());
        }
        if kind.is_block_device() {
            let mut file = File::open(path).map_err(unreadable(path))?;
            let size = file.seek(io::SeekFrom::End(0)).map_err(unreadable(path))?;
            let container = self.container(Container::File { file, path: path.to_owned() });
            let kind = self.kind("(device)");
            self.enter(Place::Part { container, base: 0 }, size, kind, None);
            return Ok(());
        }
        if !kind.is_file() {
            return Err(Error::Unadvisable {
                path: path.to_owned(),
                what: "neither a file, a folder nor a block device",
            });
        }
        if survey.unpack {
            let (file, _) = open(path).map_err(unreadable(path))?;
            let members = tar::members(&file, metadata.len()).map_err(unreadable(path))?;
            let Some(members) = members else {
                return Err(Error::Unadvisable {
                    path: path.to_owned(),
                    what: "no tar that is not compressed",
                });
            };
            let container = self.container(Container::File { file, path: path.to_owned() });
            for member in members {
                let kind = self.kind_of(&member.name);
                self.enter(Place::Part { container, base: member.offset }, member.size, kind, None);
            }
            return Ok(());
        }
        self.file(path, &metadata).map_err(unreadable(path))
    }

    /// Adds the sample that comes with cenote.
    pub(crate) fn add_sample(&mut self) -> Result<()> {
        self.name("the sample that comes with cenote");
        for (name, data) in crate::sample::files()? {
            let size = data.len() as u64;
            let container = self.container(Container::Stream(BTreeMap::from([(0, data)])));
            let kind = self.kind_of(name.as_bytes());
            self.enter(Place::Part { container, base: 0 }, size, kind, None);
        }
        Ok(())
    }

    /// Adds what `id` of a file system is or holds; `name` is what it is called.
    ///
    /// # Errors
    /// [`Error::Filesystem`] where it cannot be read; [`Error::Interrupted`].
    pub(crate) fn add_dataset(
        &mut self,
        fs: &Filesystem,
        id: ObjectId,
        name: &str,
        survey: &Survey,
    ) -> Result<()> {
        let failed = |source: zpl::Error| Error::Filesystem {
            doing: format!("read '{name}'"),
            configuration: "survey".to_owned(),
            source: source.into(),
        };
        self.name(name);
        let container = self.container(Container::Dataset(fs.clone()));
        let stat = fs.stat(id).map_err(failed)?;
        let last = name.rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
        let mut random = Random::new(survey.seed);
        let mut folders = Vec::new();
        match stat.kind {
            FileKind::Directory => folders.push(id),
            FileKind::Regular => {
                let kind = self.kind_of(&last);
                self.enter(Place::Object { container, id }, stat.size, kind, None);
            }
            _ => return Err(Error::Unadvisable { path: name.into(), what: "neither a file nor a folder" }),
        }
        while !folders.is_empty() {
            let folder = folders.swap_remove(random.below(folders.len() as u64) as usize);
            self.folders += 1;
            for entry in fs.entries(folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                match entry.kind {
                    FileKind::Directory => folders.push(entry.id),
                    FileKind::Regular => {
                        let stat = fs.stat(entry.id).map_err(failed)?;
                        if stat.nlink > 1 && !self.seen.insert((u64::from(container), entry.id.0)) {
                            continue;
                        }
                        let sparse = stat.size >= SPARSE_MIN && stat.blocks * 512 < stat.size / 2;
                        let parts = if sparse { fs.data_runs(entry.id).ok() } else { None };
                        let kind = self.kind_of(&entry.name);
                        self.enter(Place::Object { container, id: entry.id }, stat.size, kind, parts);
                    }
                    _ => {}
                }
            }
            if self.over(survey)? && !folders.is_empty() {
                self.complete = false;
                break;
            }
        }
        Ok(())
    }

    /// Reads a stream up to its end or until the survey's time is over, and keeps pieces of `piece` bytes drawn at
    /// random, as many as fit into its memory.
    pub(crate) fn add_stream(
        &mut self,
        stream: &mut dyn io::Read,
        piece: usize,
        survey: &Survey,
    ) -> Result<()> {
        self.name("standard input");
        let failed = unreadable(Path::new("-"));
        let keep = (STREAM_MEMORY / piece).max(2) as u64;
        let mut random = Random::new(survey.seed);
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut size, mut count) = (0u64, 0u64);
        let done = loop {
            let mut bytes = Vec::new();
            match stream.take(piece as u64).read_to_end(&mut bytes) {
                Ok(_) => {}
                Err(error) => return Err(failed(error)),
            }
            let last = bytes.len() < piece;
            if !bytes.is_empty() {
                let (offset, index) = (size, count);
                size += bytes.len() as u64;
                count += 1;
                // Each piece so far is kept with the same probability.
                if (kept.len() as u64) < keep {
                    kept.push((offset, bytes));
                } else {
                    let at = random.below(index + 1);
                    if at < keep {
                        kept[at as usize] = (offset, bytes);
                    }
                }
            }
            if last {
                break true;
            }
            if self.over(survey)? {
                break false;
            }
        };
        self.complete &= done;
        if !done {
            self.notes.push(
                "standard input went on when the time was over: the answer is about what came before"
                    .to_owned(),
            );
        }
        // What was kept stands for everything: parts that are not there are never drawn.
        let mut parts: Vec<(u64, u64)> =
            kept.iter().map(|(offset, bytes)| (*offset, bytes.len() as u64)).collect();
        parts.sort_unstable();
        let whole = kept.len() as u64 == count;
        let container = self.container(Container::Stream(kept.into_iter().collect()));
        let kind = self.kind("(stream)");
        self.enter(Place::Part { container, base: 0 }, size, kind, if whole { None } else { Some(parts) });
        self.bytes = size;
        Ok(())
    }

    fn walk(&mut self, root: &Path, survey: &Survey) -> Result<()> {
        // The root itself must be readable, what is below it may not be.
        drop(std::fs::read_dir(root).map_err(unreadable(root))?);
        let mut random = Random::new(survey.seed);
        let mut folders = vec![root.to_owned()];
        while !folders.is_empty() {
            let folder = folders.swap_remove(random.below(folders.len() as u64) as usize);
            self.folders += 1;
            let Ok(found) = std::fs::read_dir(&folder) else {
                self.unreadable += 1;
                continue;
            };
            let mut names: Vec<_> =
                found.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
            names.sort_unstable();
            for (number, name) in names.into_iter().enumerate() {
                let path = folder.join(name);
                let Ok(metadata) = path.symlink_metadata() else {
                    self.unreadable += 1;
                    continue;
                };
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() && self.file(&path, &metadata).is_err() {
                    self.unreadable += 1;
                }
                if number % 1024 == 1023 && self.over(survey)? {
                    self.complete = false;
                    return Ok(());
                }
            }
            if self.over(survey)? && !folders.is_empty() {
                self.complete = false;
                return Ok(());
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        if metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let size = metadata.len();
        // A file system that compresses looks sparse too; asking costs an open.
        let parts = if size >= SPARSE_MIN && metadata.blocks() * 512 < size / 10 * 9 {
            Some(data_segments(&open(path)?.0, size)?)
        } else {
            None
        };
        let kind = self.kind_of(path.file_name().unwrap_or_default().as_bytes());
        self.enter(Place::Path(path.into()), size, kind, parts);
        Ok(())
    }

    fn name(&mut self, subject: &str) {
        if !self.subject.is_empty() {
            self.subject.push_str(", ");
        }
        self.subject.push_str(subject);
    }

    fn over(&self, survey: &Survey) -> Result<bool> {
        if survey.watch.stopped() {
            return Err(Error::Interrupted);
        }
        survey.watch.event(Event::Loading { bytes: self.bytes, total: 0 });
        Ok(Instant::now() >= survey.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Deaf;
    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    fn survey() -> Survey<'static> {
        Survey { until: Instant::now() + Duration::from_secs(60), seed: 1, unpack: false, watch: &Deaf }
    }

    #[test]
    fn a_folder_is_surveyed_with_its_kinds_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("a.TXT"), "text").unwrap();
        std::fs::write(at("sub/b.txt"), "text too").unwrap();
        std::fs::hard_link(at("a.TXT"), at("sub/again.txt")).unwrap();
        std::fs::write(at("sub/noname"), b"\x1f\x8b\x08 packed").unwrap();
        let sparse = File::create(at("big.img")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        sparse.write_all_at(b"here", 1 << 29).unwrap();
        let mut material = Material::new();
        material.add_path(dir.path(), &survey()).unwrap();
        material.settle("x").unwrap();
        assert_eq!((material.file_count, material.folders, material.complete), (4, 2, true));
        assert!(material.kinds.iter().any(|kind| kind == "gz"), "{:?}", material.kinds);
        assert!(material.bytes < 1 << 20 || material.files.iter().all(|file| file.parts.is_none()));
        let text = material.files.iter().find(|file| file.size == 8).unwrap();
        assert_eq!(material.read(text, 5, 3).unwrap().bytes, b"too");
    }

    #[test]
    fn a_stream_keeps_pieces_from_everywhere() {
        let mut data = Vec::new();
        for number in 0..400u32 {
            data.extend(number.to_le_bytes().repeat(1 << 16));
        }
        let mut material = Material::new();
        material.add_stream(&mut &data[..], 1 << 20, &survey()).unwrap();
        assert_eq!((material.bytes, material.file_count), (data.len() as u64, 1));
        let entry = &material.files[0];
        let kept: Vec<u64> = match &entry.parts {
            Some(parts) => parts.iter().map(|(offset, _)| *offset).collect(),
            None => vec![],
        };
        assert!(kept.is_empty() || kept.len() == STREAM_MEMORY >> 20 && kept.iter().any(|at| *at > 90 << 20));
        for offset in kept {
            let piece = material.read(entry, offset, 4).unwrap();
            assert_eq!(piece.bytes, data[offset as usize..][..4]);
        }
        assert!(matches!(Material::new().settle("nothing"), Err(Error::NoData { .. })));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let missing = Material::new().add_path(Path::new("/none/x"), &survey()).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read '/none/x': "), "{missing}");
        assert!(matches!(
            Material::new().add_path(Path::new("/dev/null"), &survey()),
            Err(Error::Unadvisable { .. })
        ));
    }
}
