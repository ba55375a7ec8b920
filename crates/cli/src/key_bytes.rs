//! Keys of encrypted datasets as users give them: their lengths, and files that hold them.
//!
//! From:   files and other sources of keys.
//! To:     commands that load keys. The bytes are zeroed after use, and no message holds any of them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use format::crypt::KeyFormat;
use pool::props::{Value, dataset as props};
use pool::{DatasetInfo, Error, Pool};
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::messages::plain;

/// Bytes of a raw key.
const RAW: usize = 32;
/// Digits of a hex key.
const HEX: usize = 64;
/// Fewest bytes of a pass phrase.
const PASSPHRASE_MIN: usize = 8;
/// Most bytes of a pass phrase.
const PASSPHRASE_MAX: usize = 512;

/// Where the key of an encryption root is looked for.
///
/// # Errors
/// It cannot be read.
pub fn keylocation(pool: &Pool, info: &DatasetInfo) -> pool::Result<String> {
    let property = props::parse("keylocation").expect("the table has it");
    Ok(match pool.property(info, property)? {
        Some((Value::Text(text), _)) => text,
        _ => "none".to_owned(),
    })
}

/// Loads the key that the dataset `name` needs, for a command that reads or writes files without a server, if its encryption root
/// says in which file it is. Other keys are not asked for.
///
/// # Errors
/// The file cannot be read, or holds another key.
pub fn load_from_file(pool: &Pool, name: &str) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let Ok(info) = pool.dataset(name) else { return Ok(()) };
    let Some(encryption) = pool.encryption(&info).map_err(text)? else { return Ok(()) };
    let root = pool.dataset(&encryption.root).map_err(text)?;
    let kept = keylocation(pool, &root).map_err(text)?;
    let Some(path) = kept.strip_prefix("file://").filter(|_| !pool.loaded_keys().contains(&root.dir_id.0))
    else {
        return Ok(());
    };
    server::keep_secrets();
    let user = encryption.object.user_key;
    let given = from_file(Path::new(path), user.format)?;
    let key = user.wrapping(&given).map_err(|error| error.to_string())?;
    pool.load_key(&root, key, false).map_err(text)
}

/// Reads a key from a file.
///
/// # Errors
/// It cannot be read, or holds something of another length.
pub fn from_file(path: &Path, format: KeyFormat) -> Result<Zeroizing<Vec<u8>>, String> {
    let failed = |error: io::Error| format!("Failed to open key material file: {}", plain(&error));
    // It does not wait for a writer of a pipe.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let key = read_key(&mut file, format).map_err(failed)?;
    check_length(&key, format).map(|()| key)
}

/// Reads a key: one line, or so many bytes. One byte at a time, as what follows may be the next key.
///
/// # Errors
/// It cannot be read.
pub fn read_key(from: &mut dyn Read, format: KeyFormat) -> io::Result<Zeroizing<Vec<u8>>> {
    let (most, is_line) = match format {
        KeyFormat::Raw => (RAW, false),
        KeyFormat::Hex => (HEX, true),
        KeyFormat::Passphrase => (PASSPHRASE_MAX, true),
    };
    // The buffer has room for all of it from the start, so that no copy is left behind when it grows. One byte more
    // shows that the key is too long.
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

/// Whether a key has a length that keys of its kind have.
///
/// # Errors
/// Which length it should have.
pub fn check_length(key: &[u8], format: KeyFormat) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
