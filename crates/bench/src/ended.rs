//! An unfinished measurement: the error, with the results before it.

use crate::{Error, Report};

/// Why a measurement ended early, and what was measured by then.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Ended {
    /// Why.
    pub error: Error,
    /// The results finished before, which may have taken hours; the report says that it is not everything ([`Report::unfinished`]).
    pub report: Option<Box<Report>>,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended { error, report: None }
    }
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Error {
        ended.error
    }
}
