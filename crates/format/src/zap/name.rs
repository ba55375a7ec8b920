//! Normal forms of names: what a normalising ZAP hashes and compares instead of the name itself.
//!
//! Source: docs/format/04-zap.md §5. OpenZFS folds with the tables of Unicode 5.0; characters whose simple
//! upper case cannot be told from today's tables are refused rather than hashed to a wrong place.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use unicode_normalization::UnicodeNormalization;

/// normflags: fold to upper case.
pub const UPPER: u64 = 0x02;
/// normflags: canonical decomposition (NFD).
pub const DECOMPOSE: u64 = 0x10;
/// normflags: compatibility decomposition (NFKD).
pub const COMPATIBILITY: u64 = 0x20;
/// normflags: canonical composition, after a decomposition (NFC, NFKC).
pub const COMPOSE: u64 = 0x40;

/// Why a key has no hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A string key in a ZAP of integer keys, or the other way round.
    WrongKind,
    /// normflags with bits or a combination that is not known here.
    Unsupported {
        /// The object's normflags.
        normflags: u64,
    },
    /// A character whose upper case is several characters in today's Unicode.
    Folding {
        /// The character.
        character: char,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::WrongKind => f.write_str("the key is not of the kind this ZAP uses"),
            NameError::Unsupported { normflags } => {
                write!(f, "normalisation {normflags:#x} is not supported")
            }
            NameError::Folding { character } => {
                write!(f, "folding the case of {character:?} is not supported")
            }
        }
    }
}

impl core::error::Error for NameError {}

/// The normal form of `name` under an object's `normflags`. Bytes that aren't UTF-8 stay as they are.
///
/// # Errors
/// [`NameError`] when the normal form that OpenZFS would use isn't known here.
pub fn normalise(name: &[u8], normflags: u64) -> Result<Cow<'_, [u8]>, NameError> {
    let form = normflags & !UPPER;
    if !matches!(form, 0 | 0x10 | 0x20 | 0x50 | 0x60) {
        return Err(NameError::Unsupported { normflags });
    }
    let fold = normflags & UPPER != 0;
    if name.is_ascii() {
        // ASCII is its own normal form in each of the four.
        return Ok(if fold { Cow::Owned(name.to_ascii_uppercase()) } else { Cow::Borrowed(name) });
    }
    if normflags == 0 {
        return Ok(Cow::Borrowed(name));
    }
    let mut normal = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        let text = if fold { Cow::Owned(upper(chunk.valid())?) } else { Cow::Borrowed(chunk.valid()) };
        let text: String = match form {
            0x10 => text.nfd().collect(),
            0x20 => text.nfkd().collect(),
            0x50 => text.nfc().collect(),
            0x60 => text.nfkc().collect(),
            _ => text.into_owned(),
        };
        normal.extend_from_slice(text.as_bytes());
        normal.extend_from_slice(chunk.invalid());
    }
    Ok(Cow::Owned(normal))
}

/// Upper case by the simple (one to one) mapping.
fn upper(text: &str) -> Result<String, NameError> {
    text.chars()
        .map(|c| match (c.to_uppercase().count(), c) {
            (1, _) => Ok(c.to_uppercase().next().unwrap_or(c)),
            // Greek with iota subscript: the simple mapping exists, but only in tables we don't have.
            (_, '\u{1f80}'..='\u{1fff}') => Err(NameError::Folding { character: c }),
            // ß, ŉ, ligatures: several characters in full upper case, themselves in the simple one.
            _ => Ok(c),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, normflags: u64) -> String {
        String::from_utf8(normalise(name.as_bytes(), normflags).unwrap().into_owned()).unwrap()
    }

    #[test]
    fn no_flags_leave_any_bytes_alone() {
        assert_eq!(normalise(b"a\xff\xc3", 0).unwrap(), Cow::Borrowed(b"a\xff\xc3"));
    }

    #[test]
    fn forms_compose_decompose_and_fold() {
        assert_eq!(text("re\u{301}sume\u{301}", 0x50), "r\u{e9}sum\u{e9}");
        assert_eq!(text("r\u{e9}sum\u{e9}", 0x10), "re\u{301}sume\u{301}");
        assert_eq!(text("\u{fb01}n", 0x60), "fin");
        assert_eq!(text("r\u{e9}sum\u{e9}", 0x02), "R\u{c9}SUM\u{c9}");
        assert_eq!(text("stra\u{df}e", 0x52), "STRA\u{df}E");
        assert_eq!(text("daily-2024", 0x02), "DAILY-2024");
    }

    #[test]
    fn bytes_that_are_not_utf8_pass_through() {
        assert_eq!(normalise(b"a\xffb\xc3\xa9", 2).unwrap().as_ref(), b"A\xffB\xc3\x89");
    }

    #[test]
    fn unknown_forms_and_doubtful_letters_are_refused() {
        assert_eq!(normalise(b"a", 0x80), Err(NameError::Unsupported { normflags: 0x80 }));
        assert_eq!(normalise(b"a", 0x40), Err(NameError::Unsupported { normflags: 0x40 }));
        assert!(matches!(normalise("\u{1fb3}".as_bytes(), 2), Err(NameError::Folding { .. })));
    }
}
