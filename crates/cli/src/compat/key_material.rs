//! Reading the user's key of an encrypted dataset: typed at a terminal, from a pipe, or from a file.
//!
//! From:   standard input of the command, in a server that of its client; or a file.
//! To:     `key_loading`. The bytes are zeroed after use, and no message holds any of them.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use format::crypt::KeyFormat;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::client_input::ClientInput;
use crate::around::Surroundings;
use crate::key_bytes::{check_length, from_file, read_key};
use crate::messages::plain;
use crate::out::Console;

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

/// The occasion for which a key is asked.
#[derive(Clone, Copy, Debug)]
pub(super) enum Occasion<'a> {
    /// It is to open this dataset.
    Loading(&'a str),
    /// A new dataset is to have it.
    Creating,
    /// This dataset gets it as its new key.
    Changing(&'a str),
}

impl Occasion<'_> {
    /// The text before the colon of the prompt, for a key of this kind.
    fn prompts(self, what: &str) -> Vec<String> {
        match self {
            Occasion::Loading(dataset) => vec![format!("Enter {what} for '{dataset}'")],
            Occasion::Creating => vec![format!("Enter new {what}"), format!("Re-enter new {what}")],
            Occasion::Changing(dataset) => {
                ["Enter", "Re-enter"].map(|verb| format!("{verb} new {what} for '{dataset}'")).to_vec()
            }
        }
    }
}

/// Whether a key that turns out to be wrong may be asked for once more, because a user types it.
pub(super) fn may_ask_again(location: Location, around: &Surroundings) -> bool {
    location == Location::Prompt
        && around.input().map_or_else(|| io::stdin().is_terminal(), |input| input.is_terminal())
}

/// Gets the key of a dataset, of a length that such keys have.
///
/// # Errors
/// The reason, without any byte of the key.
pub(super) fn get(
    location: Location,
    format: KeyFormat,
    occasion: Occasion,
    around: &Surroundings,
    console: &mut Console,
) -> Result<Zeroizing<Vec<u8>>, String> {
    match location {
        Location::File(path) => from_file(path, format),
        Location::Prompt => from_input(format, occasion, around, console),
    }
}

fn from_input(
    format: KeyFormat,
    occasion: Occasion,
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
    let mut from = ClientInput { input: input.clone(), stops };
    if !input.is_terminal() {
        let key = read_key(&mut from, format).map_err(failed)?;
        return check_length(&key, format).map(|()| key);
    }
    let what = match format {
        KeyFormat::Raw => "raw key",
        KeyFormat::Hex => "hex key",
        KeyFormat::Passphrase => "passphrase",
    };
    let mut typed: Option<Zeroizing<Vec<u8>>> = None;
    for prompt in occasion.prompts(what) {
        let silence = Silence::on(input.clone()).map_err(failed)?;
        write!(console.out(), "{prompt}:").map_err(failed)?;
        console.out().flush().map_err(failed)?;
        let key = read_key(&mut from, format).map_err(failed);
        drop(silence);
        // The user's own line end was not shown.
        console.out().write_all(b"\n").and_then(|()| console.out().flush()).map_err(failed)?;
        let key = key?;
        check_length(&key, format)?;
        if typed.as_ref().is_some_and(|first| *first != key) {
            return Err("Provided keys do not match.".to_owned());
        }
        typed = Some(key);
    }
    typed.ok_or_else(|| "Failed to read the key".to_owned())
}

/// A terminal that does not show typed characters, until this is dropped.
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
}
