//! Lists of properties and of columns.
//!
//! From:   the first operand of `get`, and `-o`.
//! To:     the subcommands, which judge the words.

use thiserror::Error;

/// Errors in the form of a list. The texts are those of OpenZFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum ListError {
    #[error("bad property list: no properties specified")]
    Empty,
    #[error("bad property list: empty property name")]
    EmptyName,
    #[error("too many fields given to -o option")]
    TooManyFields,
    #[error("\"all\" conflicts with specific fields given to -o option")]
    AllBehindOthers,
}

/// A list of properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Properties<'a> {
    /// The word `all`, which means all of them when it is alone.
    All,
    /// These, in the order given.
    Named(Vec<&'a str>),
}

/// Reads a list of properties. A comma at its end is passed over.
///
/// # Errors
/// [`ListError::Empty`], [`ListError::EmptyName`].
pub fn properties(list: &str) -> Result<Properties<'_>, ListError> {
    if list == "all" {
        return Ok(Properties::All);
    }
    if list.is_empty() {
        return Err(ListError::Empty);
    }
    let words: Vec<&str> = list.strip_suffix(',').unwrap_or(list).split(',').collect();
    if words.contains(&"") { Err(ListError::EmptyName) } else { Ok(Properties::Named(words)) }
}

/// Splits a list of at most `most` columns. `all` stands for all of them and must be alone.
///
/// # Errors
/// [`ListError::TooManyFields`], [`ListError::AllBehindOthers`].
pub fn columns(list: &str, most: usize) -> Result<Vec<&str>, ListError> {
    let words: Vec<&str> = list.strip_suffix(',').unwrap_or(list).split(',').collect();
    match words.iter().position(|word| *word == "all") {
        Some(0) if words.len() > 1 => Err(ListError::TooManyFields),
        Some(at) if at > 0 && at < most => Err(ListError::AllBehindOthers),
        _ if words.len() > most => Err(ListError::TooManyFields),
        _ => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_stands_for_every_property_only_when_it_is_alone() {
        assert_eq!(properties("all"), Ok(Properties::All));
        assert_eq!(properties("used,all"), Ok(Properties::Named(vec!["used", "all"])));
        assert_eq!(properties("used,"), Ok(Properties::Named(vec!["used"])));
        assert_eq!((properties(""), properties(",used")), (Err(ListError::Empty), Err(ListError::EmptyName)));
    }

    #[test]
    fn more_columns_than_there_are_is_an_error() {
        assert_eq!(columns("name,value", 5), Ok(vec!["name", "value"]));
        assert_eq!(columns("all", 5), Ok(vec!["all"]));
        assert_eq!(columns("all,name", 5), Err(ListError::TooManyFields));
        assert_eq!(columns("name,all", 5), Err(ListError::AllBehindOthers));
        assert_eq!(columns("a,b,c,d,e,f", 5), Err(ListError::TooManyFields));
    }
}
