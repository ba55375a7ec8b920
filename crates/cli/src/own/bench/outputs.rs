//! Files for results. They are begun before hours are spent on what could not be written then, and come into place
//! whole or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bench::system_reason;
use tempfile::NamedTempFile;

use crate::messages::Failure;

/// As programs create files; the user's mask applies.
const MODE: u32 = 0o666;

enum Target {
    /// Takes the place of the path when it is written.
    Beside(NamedTempFile),
    /// A pipe or a device: nothing can take its place.
    There(File),
}

/// One file that will be written.
pub struct Output {
    path: PathBuf,
    target: Target,
}

impl Output {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be written there.
    pub fn begin(path: &Path) -> Result<Output, Failure> {
        let failed = |error| cannot_write(path, error);
        // Through a link, what it leads to is written.
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let there = place.metadata().ok();
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let file = OpenOptions::new().write(true).open(&place).map_err(failed)?;
            return Ok(Output { path: path.to_owned(), target: Target::There(file) });
        }
        if there.is_some() {
            OpenOptions::new().write(true).open(&place).map_err(failed)?;
        }
        let folder = match place.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        if place.file_name().is_none() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        let mode = there.map_or(MODE, |there| there.permissions().mode());
        let beside = tempfile::Builder::new()
            .prefix(".cenote-")
            .permissions(std::fs::Permissions::from_mode(mode))
            .tempfile_in(folder)
            .map_err(|error| failed(system_reason(error)))?;
        Ok(Output { path: place, target: Target::Beside(beside) })
    }

    /// Writes it. On an error whatever was there before still is.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let failed = |error| cannot_write(&self.path, error);
        match self.target {
            Target::There(mut file) => file.write_all(bytes).map_err(failed),
            Target::Beside(mut file) => {
                let written = file.write_all(bytes).and_then(|()| file.as_file().sync_data());
                written.map_err(|error| failed(system_reason(error)))?;
                file.persist(&self.path).map(drop).map_err(|error| failed(error.error))
            }
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    Failure::refused(format!("cannot write '{}': {error}", path.display()))
}
