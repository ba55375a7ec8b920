//! Values of properties of pools that are judged in the same way wherever they are given.

use std::path::Path;

use pool::props::PropertyError;

use crate::messages::plain;

/// Reads the value of `feature@name`: whether it is to be enabled.
///
/// # Errors
/// Any other word.
pub fn feature_word(name: &str, value: &str) -> Result<bool, PropertyError> {
    match value {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(PropertyError::FeatureWord { name: name.to_owned() }),
    }
}

/// Whether pools can be listed in such a file; else why not.
///
/// # Errors
/// The reason, of a path that cannot be written or that another program wrote.
pub fn check_cachefile(text: &str) -> Result<(), String> {
    if text.is_empty() || text == "none" {
        return Ok(());
    }
    let path = Path::new(text);
    let is_file = path.file_name().is_some() && !text.ends_with(['/']) && !text.ends_with("/.");
    let folder = path.parent().filter(|_| is_file).ok_or_else(|| format!("'{text}' is not a valid file"))?;
    if !folder.is_dir() {
        return Err(format!("'{}' is not a valid directory", folder.display()));
    }
    pool::known::check_cachefile(path).map_err(plain)
}
