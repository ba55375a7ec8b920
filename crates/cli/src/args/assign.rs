//! `property=value` arguments.
//!
//! From:   `-o`, `-O` and the operands of `set`.
//! To:     the pool, which judges names and values.

use thiserror::Error;

/// Errors of assignments that need no dataset. The texts are those of OpenZFS.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum AssignError {
    #[error("missing '=' for property=value argument")]
    NoEquals,
    #[error("property '{0}' specified multiple times")]
    Twice(String),
}

/// Splits `property=value` at the first `=`.
///
/// # Errors
/// [`AssignError::NoEquals`].
pub fn assignment(text: &str) -> Result<(&str, &str), AssignError> {
    text.split_once('=').ok_or(AssignError::NoEquals)
}

/// Assignments in the order given, no name twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignments(Vec<(String, String)>);

impl Assignments {
    /// Collects assignments; `canonical` turns a short name into the name of its property, so that
    /// `compress=` and `compression=` count as the same.
    ///
    /// # Errors
    /// A missing `=`, or a name given twice.
    pub fn collect<'a>(
        texts: impl IntoIterator<Item = &'a str>,
        canonical: impl Fn(&str) -> Option<&'static str>,
    ) -> Result<Assignments, AssignError> {
        let mut list = Assignments::default();
        for text in texts {
            let (name, value) = assignment(text)?;
            list.add(canonical(name).unwrap_or(name), value)?;
        }
        Ok(list)
    }

    /// Adds one.
    ///
    /// # Errors
    /// [`AssignError::Twice`].
    pub fn add(&mut self, name: &str, value: &str) -> Result<(), AssignError> {
        if self.get(name).is_some() {
            return Err(AssignError::Twice(name.to_owned()));
        }
        self.0.push((name.to_owned(), value.to_owned()));
        Ok(())
    }

    /// The value given to a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Names and values in the order given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether nothing is assigned.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::props::dataset;

    fn collect(texts: &[&str]) -> Result<Assignments, String> {
        let name = |word: &str| dataset::parse(word).map(|p| p.name);
        Assignments::collect(texts.iter().copied(), name).map_err(|e| e.to_string())
    }

    #[test]
    fn an_assignment_is_split_at_its_first_equals_sign() {
        let list = collect(&["compress=lz4", "a:b=c=d", "user:x="]).expect("good");
        assert_eq!(list.iter().collect::<Vec<_>>(), [("compression", "lz4"), ("a:b", "c=d"), ("user:x", "")]);
    }

    #[test]
    fn a_missing_sign_and_a_second_value_are_refused() {
        assert_eq!(collect(&["compression"]), Err("missing '=' for property=value argument".to_owned()));
        assert_eq!(
            collect(&["compression=lz4", "compress=off"]),
            Err("property 'compression' specified multiple times".to_owned())
        );
    }
}
