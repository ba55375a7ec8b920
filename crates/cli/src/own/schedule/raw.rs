//! Whether the copy of an encrypted dataset was sent raw, with its blocks as they are.
//!
//! From:   properties of the source and of the copy.
//! To:     the backup, which must go on in the same form.

use crate::messages::Failure;
use crate::own::child::Zfs;

/// The user property of a copy that says how its blocks were sent.
const RAW: &str = "cenote:raw";

/// The assignment for a copy that is made now.
pub(super) fn mark(is_raw: bool) -> String {
    format!("{RAW}={}", if is_raw { "on" } else { "off" })
}

/// Whether a dataset is encrypted.
///
/// # Errors
/// What `zfs get` said.
pub(super) fn is_encrypted(zfs: &Zfs, dataset: &str) -> Result<bool, Failure> {
    Ok(!matches!(zfs.read(&["get", "-H", "-o", "value", "encryption", dataset])?.trim(), "off" | "-"))
}

/// Whether the copy `to` of `dataset` was sent raw; `None` where that makes no difference. `top` is the uppermost dataset of the
/// whole copy. A copy without the mark is raw if its key comes from `top` or from a dataset below it.
///
/// # Errors
/// What `zfs get` said.
pub(super) fn of_copy(zfs: &Zfs, dataset: &str, to: &str, top: &str) -> Result<Option<bool>, Failure> {
    if !is_encrypted(zfs, dataset)? {
        return Ok(None);
    }
    let properties = format!("{RAW},encryptionroot");
    let text = zfs.read(&["get", "-H", "-o", "property,value,source", &properties, to])?;
    Ok(Some(is_raw(&text, top)))
}

fn is_raw(text: &str, top: &str) -> bool {
    let mut is_raw = false;
    for line in text.lines() {
        match line.split('\t').collect::<Vec<_>>()[..] {
            [RAW, value, "local"] => return value == "on",
            ["encryptionroot", root, _] => {
                is_raw = root == top || root.strip_prefix(top).is_some_and(|below| below.starts_with('/'));
            }
            _ => {}
        }
    }
    is_raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_copy_counts_more_than_where_it_has_its_key_from() {
        let text = |mark: &str, root: &str| format!("cenote:raw\t{mark}\nencryptionroot\t{root}\t-\n");
        assert!(is_raw(&text("on\tlocal", "usb"), "usb/copy"));
        assert!(!is_raw(&text("off\tlocal", "usb/copy"), "usb/copy"));
        // Copies of older versions have no mark; a mark that is inherited is another dataset's.
        assert!(
            is_raw(&text("-\t-", "usb/copy"), "usb/copy") && is_raw(&text("-\t-", "usb/copy/a"), "usb/copy")
        );
        assert!(!is_raw(&text("on\tinherited from usb", "usb"), "usb/copy"));
        assert!(!is_raw(&text("-\t-", "-"), "usb/copy") && !is_raw(&text("-\t-", "usb/copy2"), "usb/copy"));
    }
}
