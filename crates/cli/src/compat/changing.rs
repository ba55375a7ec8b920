//! Code shared by commands that change datasets: opening the pool and wording its errors.

use super::Call;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session, open_for};

/// The words of an error while changing something.
pub(super) fn words(action: Action, error: &pool::Error) -> Failure {
    use pool::Error;
    match error {
        Error::Exists(_) => action.failed(reason::ALREADY_EXISTS),
        Error::NoDataset(_) => action.failed(reason::DATASET_MISSING),
        Error::HasChildren(_) => action.failed(reason::HAS_CHILDREN),
        Error::DatasetBusy(_) => action.failed(reason::BUSY),
        Error::ReadOnly { .. } => action.failed(reason::POOL_READ_ONLY),
        error if error.is_no_space() => action.failed(reason::OUT_OF_SPACE),
        error => action.failed(error),
    }
}

/// Opens the pool of a dataset for changing it.
pub(super) fn session(call: &Call, name: &str, intent: Intent) -> Result<Session, NotOpen> {
    let session = open_for(name, call.around, intent)?;
    session.command(&call.line);
    Ok(session)
}

/// Whether an error says that there is no such dataset.
pub(super) fn is_missing(error: &pool::Error) -> bool {
    matches!(error, pool::Error::NoDataset(_))
}
