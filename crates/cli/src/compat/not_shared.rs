//! Why a file system is not shared, in words.

use server::ShareError;

use super::select::dataset_failure;
use crate::messages::Failure;

const HOW: &str =
    "use exports(5) or smb.conf(5) to share this filesystem, or set the sharenfs or sharesmb property";

/// The failure of sharing.
pub fn not_shared(name: &str, error: &ShareError) -> Failure {
    match error {
        ShareError::Pool(error) => dataset_failure(name, error),
        ShareError::Off => Failure::refused(format!("cannot share '{name}': legacy share")).hint(HOW),
        error => Failure::refused(format!("cannot share '{name}': {error}")),
    }
}
