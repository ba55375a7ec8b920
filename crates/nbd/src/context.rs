//! The only metadata context of this server: `base:allocation`.

use std::io;

/// Its name.
pub(crate) const ALLOCATION: &str = "base:allocation";
/// The number that replies have for it.
pub(crate) const ID: u32 = 1;
/// Nothing is stored there, and it reads as zeros.
pub(crate) const HOLE: u32 = 1 | 2;

/// A question of a client about contexts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    /// The export.
    pub(crate) name: &'a [u8],
    /// It asks for [`ALLOCATION`].
    pub(crate) wants_allocation: bool,
    /// It names no context.
    pub(crate) is_open: bool,
}

impl<'a> Question<'a> {
    /// Reads the data of an option about contexts. A list of contexts may be asked for by name space.
    ///
    /// # Errors
    /// The lengths in it do not fit.
    pub(crate) fn decode(data: &'a [u8], is_list: bool) -> io::Result<Question<'a>> {
        let mut rest = data;
        let name = text(&mut rest)?;
        let count = number(&mut rest)?;
        let mut wants_allocation = false;
        for _ in 0..count {
            let query = text(&mut rest)?;
            wants_allocation |= query == ALLOCATION.as_bytes() || is_list && query == b"base:";
        }
        if !rest.is_empty() {
            return Err(bad());
        }
        Ok(Question { name, wants_allocation, is_open: count == 0 })
    }
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "lengths in an option do not fit")
}

/// Takes a number of four bytes.
pub(crate) fn number(rest: &mut &[u8]) -> io::Result<u32> {
    let (word, behind) = rest.split_first_chunk().ok_or_else(bad)?;
    *rest = behind;
    Ok(u32::from_be_bytes(*word))
}

/// Takes a text with its length before it.
pub(crate) fn text<'a>(rest: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let length = number(rest)? as usize;
    let (text, behind) = rest.split_at_checked(length).ok_or_else(bad)?;
    *rest = behind;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(name: &str, queries: &[&str]) -> Vec<u8> {
        let mut data = Vec::new();
        let put = |data: &mut Vec<u8>, text: &str| {
            data.extend((text.len() as u32).to_be_bytes());
            data.extend(text.as_bytes());
        };
        put(&mut data, name);
        data.extend((queries.len() as u32).to_be_bytes());
        queries.iter().for_each(|query| put(&mut data, query));
        data
    }

    #[test]
    fn the_allocation_is_asked_for_by_name_or_listed_by_name_space() {
        let asks = |queries: &[&str], list| {
            let data = packed("v", queries);
            Question::decode(&data, list).unwrap().wants_allocation
        };
        assert!(asks(&["x:y", ALLOCATION], false) && asks(&["base:"], true));
        assert!(!asks(&["base:"], false) && !asks(&[], true));
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let good = packed("v", &[ALLOCATION]);
        for length in 0..good.len() {
            assert!(Question::decode(&good[..length], false).is_err(), "{length}");
        }
        assert!(Question::decode(&[0xff; 12], false).is_err());
        assert!(Question::decode(&[&good[..], b"x"].concat(), false).is_err());
    }
}
