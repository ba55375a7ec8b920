//! The properties of a command line about encryption: for a new dataset or a new key.
//!
//! From:   `-o` of `zfs create` and `zfs change-key`, `-O` of `zpool create`.
//! To:     a key to be asked for, or what is wrong in the words of OpenZFS.

use std::sync::Arc;

use format::crypt::{KeyFormat, Suite};
use pool::props::Value;
use pool::{Encryption, NewEncryption, OwnKey, UserKey, Wanted};
use storage::host::Host;
use zeroize::Zeroizing;

use super::Call;
use super::key_material::{self, Location, Occasion};
use crate::out::Console;

/// `encryption=on`, as a number.
const ON: u64 = 1;
/// `encryption=off`, as a number.
const OFF: u64 = 2;
/// Rounds in which a pass phrase becomes a key where nothing else is said.
const ITERATIONS: u64 = 350_000;

/// Assignments of a command line about keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyWords {
    encryption: Option<Wanted>,
    format: Option<KeyFormat>,
    location: Option<String>,
    iterations: Option<u64>,
}

/// A key to be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    format: KeyFormat,
    location: String,
    iterations: Option<u64>,
}

/// A key that was asked for.
pub struct Given {
    /// The encryption that the words give.
    pub own: Arc<OwnKey>,
    /// As it was typed.
    pub typed: Zeroizing<Vec<u8>>,
}

impl KeyWords {
    /// Takes an assignment if it is about keys; returns whether it is.
    pub fn take(&mut self, name: &str, value: &Value) -> bool {
        match (name, value) {
            ("encryption", Value::Number(number)) => {
                self.encryption = Some(match *number {
                    OFF => Wanted::Off,
                    ON => Wanted::On(Suite::DEFAULT),
                    number => Suite::from_disk(number).map_or(Wanted::Inherit, Wanted::On),
                });
            }
            ("keyformat", Value::Number(number)) => self.format = KeyFormat::from_disk(*number).ok(),
            ("pbkdf2iters", Value::Number(number)) => {
                self.iterations = Some(*number).filter(|number| *number != 0);
            }
            ("keylocation", Value::Text(text)) => {
                self.location = Some(text.clone()).filter(|text| text != "none");
            }
            ("encryption" | "keyformat" | "pbkdf2iters" | "keylocation", _) => {}
            _ => return false,
        }
        true
    }

    /// Whether they ask for encryption or for a key.
    #[must_use]
    pub fn ask_for_something(&self) -> bool {
        self.are_about_a_key() || matches!(self.encryption, Some(Wanted::On(_)))
    }

    fn are_about_a_key(&self) -> bool {
        self.format.is_some() || self.location.is_some() || self.iterations.is_some()
    }

    /// Judges them for a dataset below one that is encrypted like `above`, in a pool that has the feature or not.
    ///
    /// # Errors
    /// Why there can be no such dataset.
    pub fn judge(
        self,
        above: Option<&Encryption>,
        is_enabled: bool,
    ) -> Result<(NewEncryption, Option<NewKey>), &'static str> {
        if !is_enabled && self.ask_for_something() {
            return Err("Encryption feature not enabled.");
        }
        let wanted = self.encryption.unwrap_or_default();
        let is_on = match wanted {
            Wanted::Inherit => above.is_some(),
            Wanted::Off => false,
            Wanted::On(_) => true,
        };
        if !is_on && self.are_about_a_key() {
            return Err("Encryption must be turned on to set encryption properties.");
        }
        let needs_format = above.is_none() || self.location.is_some();
        if is_on && needs_format && self.format.is_none() {
            return Err("Keyformat required for new encryption root.");
        }
        let key = self.format.map(|format| NewKey {
            format,
            location: self.location.unwrap_or_else(|| "prompt".to_owned()),
            iterations: self.iterations,
        });
        Ok((NewEncryption { wanted, own: None }, key))
    }

    /// Judges them for a dataset that is to get another key, which is encrypted like `now`; its key is looked for at
    /// `location` if it has one of its own.
    ///
    /// # Errors
    /// Why there can be no such key.
    pub fn judge_change(self, now: &Encryption, location: Option<String>) -> Result<NewKey, &'static str> {
        let kept = location.as_ref().map(|_| now.object.user_key.format);
        let format = self.format.or(kept).ok_or("Keyformat required for new encryption root.")?;
        let location = self.location.or(location).unwrap_or_else(|| "prompt".to_owned());
        Ok(NewKey { format, location, iterations: self.iterations })
    }

    /// Whether all words are words that `zfs change-key` takes.
    #[must_use]
    pub fn are_of_a_key_alone(&self) -> bool {
        self.encryption.is_none()
    }
}

impl NewKey {
    /// Where it is looked for from now on.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    /// Gets the key from there.
    ///
    /// # Errors
    /// The reason, without any byte of the key.
    pub(super) fn ask(
        &self,
        occasion: Occasion,
        host: &Host,
        call: &Call,
        console: &mut Console,
    ) -> Result<Given, String> {
        let location = Location::parse(&self.location)?;
        server::keep_secrets();
        let typed = key_material::get(location, self.format, occasion, call.around, console)?;
        if self.format != KeyFormat::Passphrase && self.iterations.is_some() {
            return Err("Cannot specify pbkdf2iters with a non-passphrase keyformat.".to_owned());
        }
        let (salt, iterations) = match self.format {
            KeyFormat::Passphrase => (host.entropy.u64().max(1), self.iterations.unwrap_or(ITERATIONS)),
            KeyFormat::Raw | KeyFormat::Hex => (0, 0),
        };
        let user_key = UserKey { format: self.format, salt, iterations };
        let key = user_key.wrapping(&typed).map_err(|error| words_of(&error))?;
        Ok(Given { own: Arc::new(OwnKey { user_key, key }), typed })
    }
}

fn words_of(error: &pool::CryptError) -> String {
    match error {
        pool::CryptError::NotHex => "Invalid hex character detected.".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(assignments: &[(&str, Value)]) -> KeyWords {
        let mut words = KeyWords::default();
        for (name, value) in assignments {
            assert!(words.take(name, value), "{name}");
        }
        words
    }

    fn number(name: &str, number: u64) -> (&str, Value) {
        (name, Value::Number(number))
    }

    #[test]
    fn a_new_dataset_has_all_that_its_key_needs_or_none_of_it() {
        let judge = |assignments: &[(&str, Value)]| words(assignments).judge(None, true);
        let (encryption, key) = judge(&[]).unwrap();
        assert_eq!((encryption.wanted, key), (Wanted::Inherit, None));
        let (encryption, key) = judge(&[number("encryption", ON), number("keyformat", 3)]).unwrap();
        assert_eq!(encryption.wanted, Wanted::On(Suite::Aes256Gcm));
        assert_eq!(key.unwrap().location(), "prompt");
        let needs = "Keyformat required for new encryption root.";
        assert_eq!(judge(&[number("encryption", 4)]).unwrap_err(), needs);
        let off = "Encryption must be turned on to set encryption properties.";
        for alone in [number("keyformat", 1), number("pbkdf2iters", 200_000)] {
            assert_eq!(judge(&[alone]).unwrap_err(), off);
        }
        let location = ("keylocation", Value::Text("file:///k".into()));
        assert_eq!(judge(&[number("encryption", OFF), location]).unwrap_err(), off);
        let old = words(&[number("encryption", ON)]).judge(None, false);
        assert_eq!(old.unwrap_err(), "Encryption feature not enabled.");
    }
}
