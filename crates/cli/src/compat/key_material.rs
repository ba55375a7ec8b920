//! What a user gives as the key of an encrypted dataset: typed at a terminal, through a pipe, or in a file.
//!
//! From:   standard input of whoever typed the command, in a server that of its client; or a file.
//! To:     `key_loading`. The bytes are zeroed after use, and no message holds any of them.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use format::crypt::KeyFormat;
use rustix::fs::OFlags;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::client_input::ClientInput;
use crate::around::Surroundings;
use crate::messages::plain;
use crate::out::Console;

/// Bytes of a raw key.
const RAW: usize = 32;
/// Digits of a hex key.
const HEX: usize = 64;
/// Fewest bytes of a pass phrase.
const PASSPHRASE_MIN: usize = 8;
/// Most bytes of a pass phrase.
const PASSPHRASE_MAX: usize = 512;

/// Where a key comes from, as `keylocation` or `-L` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location<'a> {
    /// Standard input.
    Prompt,
    /// A file by its full path.
    File(&'a Path),
}

impl Location<'_> {
    /// Reads `prompt` or `file:///PATH`.
    ///
    /// # Errors
    /// Something else; addresses on the web are understood and refused.
    pub(super) fn parse(text: &str) -> Result<Location<'_>, String> {
        if text == "prompt" {
            return Ok(Location::Prompt);
        }
        match text.strip_prefix("file://") {
            Some(path) if path.starts_with('/') => Ok(Location::File(Path::new(path))),
            _ if text.starts_with("https://") || text.starts_with("http://") => {
                Err("keys from the web (keylocation=https://) are not supported yet".to_owned())
            }
            _ => Err("invalid keylocation".to_owned()),
        }
    }
}

/// Whether a key that turns out to be wrong may be asked for once more: somebody types it.
pub(super) fn may_ask_again(location: Location, around: &Surroundings) -> bool {
    location == Location::Prompt
        && around.input().map_or_else(|| io::stdin().is_terminal(), |input| input.is_terminal())
}

/// Gets the key of a dataset, of a length that such keys have.
///
/// # Errors
/// Why there is none, without a byte of it.
pub(super) fn get(
    location: Location,
    format: KeyFormat,
    dataset: &str,
    around: &Surroundings,
    console: &mut Console,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let key = match location {
        Location::File(path) => from_file(path, format)?,
        Location::Prompt => from_input(format, dataset, around, console)?,
    };
    check_length(&key, format).map(|()| key)
}

fn from_file(path: &Path, format: KeyFormat) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("Failed to open key material file: {}", plain(&error));
    // Nobody is waited for who might write into a pipe.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    read_key(&mut file, format).map_err(failed)
}

fn from_input(
    format: KeyFormat,
    dataset: &str,
    around: &Surroundings,
    console: &mut Console,
) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("Failed to read the key: {}", plain(&error));
    let input = match around.input() {
        Some(input) => input,
        None => Arc::new(File::from(io::stdin().as_fd().try_clone_to_owned().map_err(failed)?)),
    };
    let stop = around.served.clone();
    let stops = move || stop.as_ref().is_some_and(crate::around::Served::stops);
    if !input.is_terminal() {
        return read_key(&mut ClientInput { input, stops }, format).map_err(failed);
    }
    let what = match format {
        KeyFormat::Raw => "raw key",
        KeyFormat::Hex => "hex key",
        KeyFormat::Passphrase => "passphrase",
    };
    let silence = Silence::on(input.clone()).map_err(failed)?;
    write!(console.out(), "Enter {what} for '{dataset}':").map_err(failed)?;
    console.out().flush().map_err(failed)?;
    let key = read_key(&mut ClientInput { input, stops }, format).map_err(failed);
    drop(silence);
    // The user's own line end was not shown.
    console.out().write_all(b"\n").and_then(|()| console.out().flush()).map_err(failed)?;
    key
}

/// Reads a key: one line, or so many bytes. One byte at a time, as what follows may be the next key.
fn read_key(from: &mut dyn Read, format: KeyFormat) -> io::Result<Zeroizing<Vec<u8>>> {
    let (most, is_line) = match format {
        KeyFormat::Raw => (RAW, false),
        KeyFormat::Hex => (HEX, true),
        KeyFormat::Passphrase => (PASSPHRASE_MAX, true),
    };
    // With room for all of it from the start, no copy is left behind when it grows. One more tells that it is too long.
    let mut key = Zeroizing::new(Vec::with_capacity(most + 1));
    let mut byte = Zeroizing::new([0]);
    while key.len() <= most {
        match from.read(&mut *byte) {
            Ok(0) => break,
            Ok(_) if is_line && byte[0] == b'\n' => break,
            Ok(_) => key.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(key)
}

fn check_length(key: &[u8], format: KeyFormat) -> Result<(), String> {
    let (what, least, most) = match format {
        KeyFormat::Raw => ("Raw key", RAW, RAW),
        KeyFormat::Hex => ("Hex key", HEX, HEX),
        KeyFormat::Passphrase => ("Passphrase", PASSPHRASE_MIN, PASSPHRASE_MAX),
    };
    let (min, max) = if least == most { ("expected", "expected") } else { ("min", "max") };
    if key.len() < least {
        return Err(format!("{what} too short ({min} {least})."));
    }
    if key.len() > most {
        return Err(format!("{what} too long ({max} {most})."));
    }
    Ok(())
}

/// A terminal that does not show what is typed, until this is dropped.
struct Silence {
    terminal: Arc<File>,
    before: Termios,
}

impl Silence {
    fn on(terminal: Arc<File>) -> io::Result<Silence> {
        let before = tcgetattr(&*terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&*terminal, OptionalActions::Flush, &silent)?;
        Ok(Silence { terminal, before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing anyway.
        let _ = tcsetattr(&*self.terminal, OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_prompt_or_a_file_by_its_full_path() {
        assert_eq!(Location::parse("prompt"), Ok(Location::Prompt));
        assert_eq!(Location::parse("file:///run/key"), Ok(Location::File(Path::new("/run/key"))));
        assert!(Location::parse("https://example.com/key").unwrap_err().contains("not supported yet"));
        for wrong in ["", "none", "file://key", "/run/key"] {
            assert_eq!(Location::parse(wrong), Err("invalid keylocation".to_owned()), "{wrong}");
        }
    }

    #[test]
    fn keys_follow_one_another_in_a_pipe() {
        let mut pipe: &[u8] = b"correct horse\nbattery staple\nlast";
        for expected in ["correct horse", "battery staple", "last", ""] {
            let key = read_key(&mut pipe, KeyFormat::Passphrase).unwrap();
            assert_eq!(*key, expected.as_bytes());
        }
        let mut raw: &[u8] = &[b'\n'; 40];
        assert_eq!(
            read_key(&mut raw, KeyFormat::Raw).unwrap().len(),
            RAW + 1,
            "a raw key may hold line ends"
        );
    }

    #[test]
    fn keys_of_another_length_are_refused() {
        let check = |length, format| check_length(&vec![b'a'; length], format).err();
        assert_eq!(check(7, KeyFormat::Passphrase).as_deref(), Some("Passphrase too short (min 8)."));
        assert_eq!(check(8, KeyFormat::Passphrase), None);
        assert_eq!(check(512, KeyFormat::Passphrase), None);
        assert_eq!(check(513, KeyFormat::Passphrase).as_deref(), Some("Passphrase too long (max 512)."));
        assert_eq!(check(31, KeyFormat::Raw).as_deref(), Some("Raw key too short (expected 32)."));
        assert_eq!(check(65, KeyFormat::Hex).as_deref(), Some("Hex key too long (expected 64)."));
    }
}
