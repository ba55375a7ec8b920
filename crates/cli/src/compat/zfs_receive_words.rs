//! How `zfs receive` names streams and words the errors of receiving.

use format::stream::Begin;
use pool::Error;

use super::changing::is_missing;
use crate::messages::{Action, Failure, reason};

/// The name of the snapshot that a stream is of.
pub(super) fn name(begin: &Begin) -> String {
    String::from_utf8_lossy(&begin.toname).into_owned()
}

/// The beginning of an error: "cannot receive incremental stream".
pub(super) fn cannot(begin: &Begin) -> String {
    let what = if begin.fromguid.0 == 0 { "new filesystem" } else { "incremental" };
    format!("cannot receive {what} stream")
}

/// Why a stream was not received, in the words of OpenZFS.
pub(super) fn receiving(begin: &Begin, error: &Error) -> Failure {
    let text = match error {
        Error::NoDataset(parent) if is_missing(error) => {
            let opened = Action::Open(parent).failed(reason::DATASET_MISSING);
            return opened.hint(format!("{}: unable to restore to destination", cannot(begin)));
        }
        Error::Exists(name) => format!("destination '{name}' exists"),
        Error::DatasetBusy(_) => "destination is busy".to_owned(),
        Error::ReadOnly { .. } => reason::POOL_READ_ONLY.to_owned(),
        error if error.is_no_space() => reason::OUT_OF_SPACE.to_owned(),
        error => error.to_string(),
    };
    let mut lines = text.split('\n').map(str::to_owned);
    let first = format!("{}: {}", cannot(begin), lines.next().unwrap_or_default());
    Failure::Refused(std::iter::once(first).chain(lines).collect())
}
