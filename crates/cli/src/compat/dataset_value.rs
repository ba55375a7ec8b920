//! A value of a property of a dataset: why it is refused, and how it is shown.

use pool::props::{PropertyError, Source, Value};

/// Why a value is refused.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// In the words of OpenZFS.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// In words of its own.
    #[error("{0}")]
    Reason(String),
}

/// A property of a dataset as it is shown.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The text of the value: exact with `-p`, else for people.
    pub text: String,
    /// The text for people, also with `-p`.
    pub human: String,
    /// The value by which it is sorted; `None` sorts last.
    pub value: Option<Value>,
    pub source: Source,
}

impl Shown {
    /// A property that this dataset does not have.
    pub(super) fn absent() -> Shown {
        Shown { text: "-".to_owned(), human: "-".to_owned(), value: None, source: Source::None }
    }

    /// A text, by which it is also sorted.
    pub(super) fn text(text: String, source: Source) -> Shown {
        Shown { human: text.clone(), value: Some(Value::Text(text.clone())), text, source }
    }
}
