//! Files for results. A test before the measurement, which may take hours, shows whether they can be written, and leaves
//! nothing. They appear complete or not at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bench::system_reason;

use crate::messages::Failure;

/// As programs create files; the user's mask applies.
const MODE: u32 = 0o666;
/// Bytes that tell text from other data.
const HEAD: u64 = 64 << 10;

enum Target {
    /// A file of this folder, with these permissions, takes the place of the path when it is written.
    Beside(PathBuf, Permissions),
    /// A pipe or a device: nothing can take its place.
    There(File),
}

/// One file that will be written.
pub struct Output {
    path: PathBuf,
    target: Target,
}

impl Output {
    /// Makes sure that a file can be written, as far as can be known before.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn begin(path: &Path) -> Result<Output, Failure> {
        let failed = |error| cannot_write(path, error);
        // If the path is a link, its target is written.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = place.metadata().ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(&place).map_err(failed)?;
            return Ok(Output { path: path.to_owned(), target: Target::There(file) });
        }
        if there.is_some() {
            let mut file = OpenOptions::new().read(true).write(true).open(&place).map_err(failed)?;
            if !has_results(&mut file).map_err(failed)? {
                let line = format!(
                    "cannot write '{}': it exists already, and is neither text nor a picture",
                    path.display()
                );
                return Err(
                    Failure::refused(line).hint("nothing was changed; remove it first, or name another file")
                );
            }
        }
        let folder = match place.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if place.file_name().is_none() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let permissions = there.map_or_else(|| Permissions::from_mode(MODE), |there| there.permissions());
        // The file has no name yet, so nothing is left if the command ends early.
        tempfile::tempfile_in(folder).map_err(|error| failed(system_reason(error)))?;
        let target = Target::Beside(folder.to_owned(), permissions);
        Ok(Output { path: place, target })
    }

    /// Writes the output. On an error the earlier file stays.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let failed = |error| cannot_write(&self.path, error);
        match self.target {
            Target::There(mut file) => file.write_all(bytes).map_err(failed),
            Target::Beside(folder, permissions) => {
                let beside =
                    tempfile::Builder::new().prefix(".cenote-").permissions(permissions).tempfile_in(folder);
                let mut file = beside.map_err(|error| failed(system_reason(error)))?;
                let written = file.write_all(bytes).and_then(|()| file.as_file().sync_data());
                written.map_err(|error| failed(system_reason(error)))?;
                file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
            }
        }
    }
}

/// Whether a file has text or a picture, as results have. Others, such as images of pools, are not overwritten.
fn has_results(file: &mut File) -> io::Result<bool> {
    let mut first = Vec::new();
    file.take(HEAD).read_to_end(&mut first)?;
    Ok(first.starts_with(b"\x89PNG") || !first.contains(&0))
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::refused(format!("cannot write '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_lies_in_the_folder_until_it_is_written() {
        let dir = tempfile::tempdir().expect("a folder");
        let count = || std::fs::read_dir(dir.path()).expect("there").count();
        let output = Output::begin(&dir.path().join("r.json")).expect("it can be written");
        assert_eq!(count(), 0);
        output.write(b"{}").expect("written");
        assert_eq!((count(), std::fs::read(dir.path().join("r.json")).expect("there")), (1, b"{}".to_vec()));
        assert!(Output::begin(&dir.path().join("none/r.json")).is_err());
    }

    #[test]
    fn an_image_is_not_overwritten_and_an_earlier_result_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("r.html");
        for (there, is_taken) in
            [(&b""[..], true), (b"<!doctype html>", true), (b"\x89PNG\r\0", true), (b"a\0b", false)]
        {
            std::fs::write(&path, there).expect("written");
            assert_eq!(Output::begin(&path).is_ok(), is_taken, "{there:?}");
            assert_eq!(std::fs::read(&path).expect("read"), there);
        }
    }
}
