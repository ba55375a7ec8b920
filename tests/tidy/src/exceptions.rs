//! The list of places that may still break a rule (`exceptions.toml`), each with a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::Finding;

/// One allowed place.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// As [`Finding::at`] names it.
    pub at: String,
    /// The largest number allowed there; 0 where the rule measures nothing.
    #[serde(default)]
    pub value: usize,
    /// Why the place stays as it is for now.
    pub reason: String,
}

/// Exceptions by the name of their rule.
pub type Exceptions = BTreeMap<String, Vec<Exception>>;

/// Reads the list.
///
/// # Panics
/// When the file is missing or not of this form.
pub fn read(root: &Path) -> Exceptions {
    let path = root.join("tests/tidy/exceptions.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What remains to be said of `findings` of `rule`: places that are not allowed or have grown, and exceptions that are
/// no longer needed or have no reason.
pub fn judge(rule: &str, findings: &[Finding], exceptions: &Exceptions) -> Vec<String> {
    let allowed = exceptions.get(rule).map_or(&[][..], Vec::as_slice);
    let mut said = Vec::new();
    for finding in findings {
        match allowed.iter().find(|exception| exception.at == finding.at) {
            None => said.push(finding.message.clone()),
            Some(exception) if finding.value > exception.value => {
                said.push(format!("{}\n    (its exception allows {})", finding.message, exception.value));
            }
            Some(_) => {}
        }
    }
    for exception in allowed {
        if !findings.iter().any(|finding| finding.at == exception.at) {
            said.push(format!("exceptions.toml: [[{rule}]] {} is no longer needed; remove it", exception.at));
        }
        if exception.reason.trim().is_empty() {
            said.push(format!("exceptions.toml: [[{rule}]] {} has no reason", exception.at));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(at: &str, value: usize) -> Finding {
        Finding { at: at.into(), value, message: format!("{at} has {value}") }
    }

    #[test]
    fn an_exception_allows_its_number_and_no_more_and_is_removed_when_not_needed() {
        let list = "[[length]]\nat = \"a\"\nvalue = 80\nreason = \"one story\"\n";
        let exceptions: Exceptions = toml::from_str(list).expect("the form of the list");
        assert_eq!(judge("length", &[finding("a", 80)], &exceptions), [] as [String; 0]);
        assert_eq!(judge("length", &[finding("a", 81)], &exceptions).len(), 1);
        assert_eq!(judge("length", &[finding("a", 80), finding("b", 71)], &exceptions), ["b has 71"]);
        assert_eq!(judge("length", &[], &exceptions).len(), 1);
    }
}
