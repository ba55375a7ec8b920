//! A file that gets its name when it is complete: a command that is killed leaves nothing that looks whole.
//!
//! From:   the name that it is to have.
//! To:     a file without a name in that folder (`O_TMPFILE`). Where the file system has none, one with a temporary name.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::copy::temporary;

/// A file that has no name yet. It is gone when it is dropped before [`Unnamed::give`].
#[derive(Debug)]
pub(super) struct Unnamed {
    file: File,
    name: PathBuf,
    /// Its temporary name, if it must have one.
    partial: Option<PathBuf>,
}

impl Unnamed {
    /// A file that will have the name `name`.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something has it; else what the system says.
    pub(super) fn new(name: &Path) -> io::Result<Unnamed> {
        if fs::symlink_metadata(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let folder = match name.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        if let Ok(file) = rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)) {
            let unnamed = Unnamed { file: file.into(), name: name.to_owned(), partial: None };
            // Without /proc nothing can open it.
            if unnamed.place().exists() {
                return Ok(unnamed);
            }
        }
        let partial = folder.join(String::from_utf8_lossy(&temporary(0)).as_ref());
        let file = File::options().read(true).write(true).create_new(true).open(&partial)?;
        Ok(Unnamed { file, name: name.to_owned(), partial: Some(partial) })
    }

    /// Where it can be opened.
    pub(super) fn place(&self) -> PathBuf {
        self.partial.clone().unwrap_or_else(|| format!("/proc/self/fd/{}", self.file.as_raw_fd()).into())
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, on disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if something has got the name meanwhile; else what the system says.
    pub(super) fn give(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let linked = rustix::fs::linkat(CWD, self.place(), CWD, &self.name, AtFlags::SYMLINK_FOLLOW);
        match (linked, &self.partial) {
            (Err(rustix::io::Errno::EXIST), _) => return Err(io::ErrorKind::AlreadyExists.into()),
            // A file system without hard links.
            (Err(_), Some(partial)) => {
                if fs::symlink_metadata(&self.name).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(partial, &self.name)?;
                self.partial = None;
            }
            (linked, _) => linked?,
        }
        match self.name.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // If it cannot be removed, its name says that it is not whole.
            let _ = fs::remove_file(partial);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_has_its_name_when_it_is_complete_and_never_replaces_another() {
        let folder = tempfile::tempdir().expect("made");
        let name = folder.path().join("image");
        let count = || fs::read_dir(folder.path()).expect("read").count();
        let unnamed = Unnamed::new(&name).expect("made");
        unnamed.file().write_all(b"half").expect("written");
        assert_eq!(fs::read(unnamed.place()).expect("opened"), b"half");
        assert!(!name.exists());
        drop(unnamed);
        assert_eq!(count(), 0);
        for partial in [false, true] {
            let mut unnamed = Unnamed::new(&name).expect("made");
            if partial {
                let path = folder.path().join("temporary");
                unnamed = Unnamed {
                    file: File::create(&path).expect("made"),
                    name: name.clone(),
                    partial: Some(path),
                };
            }
            unnamed.give().expect("named");
            assert_eq!((name.exists(), count()), (true, 1));
            assert_eq!(Unnamed::new(&name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            fs::remove_file(&name).expect("removed");
        }
        let late = Unnamed::new(&name).expect("made");
        fs::write(&name, "other").expect("written");
        assert_eq!(late.give().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&name).expect("read"), b"other");
    }
}
