//! `userquota@…`, `groupused@…` and their family: space and objects of one user, group or project.
//!
//! From:   property words; the system's lists of users and groups.
//! To:     quotas kept by the file system itself, and `zfs get`, `zfs userspace`.

use std::process::Command;
use std::sync::Arc;

use pool::props::dataset::{self as props, Account, Asked, Owner};
use pool::props::{DatasetKind, PropertyError, Source, Value, number, size};
use pool::{Dataset, DatasetInfo, Pool};
use zpl::{Amount, Filesystem};

use super::dataset_value::{Refusal, Shown};
use crate::suggest;

/// Lists of the system, in the order of [`Owner`].
const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

/// The kind of the owner: users, groups or projects.
pub const fn owner_of(owner: Owner) -> zpl::Owner {
    match owner {
        Owner::User => zpl::Owner::User,
        Owner::Group => zpl::Owner::Group,
        Owner::Project => zpl::Owner::Project,
    }
}

const fn amount_of(account: &Account) -> Amount {
    if account.objects { Amount::Objects } else { Amount::Bytes }
}

/// A line of passwd or group: name and number.
fn entry(line: &str) -> Option<(&str, u64)> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let id = fields.nth(1)?.parse().ok()?;
    Some((name, id))
}

/// Looks for a user or group: in the file, then wherever else the system keeps them.
fn seek(owner: Owner, key: &str, hit: impl Fn(&str, u64) -> bool) -> Option<(String, u64)> {
    let (file, base) = match owner {
        Owner::User => (USERS, "passwd"),
        Owner::Group => (GROUPS, "group"),
        Owner::Project => return None,
    };
    let find = |text: &str| {
        let found = text.lines().filter_map(entry).find(|(name, id)| hit(name, *id));
        found.map(|(name, id)| (name.to_owned(), id))
    };
    let known = std::fs::read_to_string(file).ok().and_then(|text| find(&text));
    known.or_else(|| {
        let asked = Command::new("getent").args(["--", base, key]).output().ok()?;
        find(&String::from_utf8_lossy(&asked.stdout))
    })
}

/// The end of the message about a property that names a missing user or group.
const NOBODY: &str = "' has an invalid user/group name";

/// What a failure that names a property of an unknown user or group probably should have named.
pub fn of_line(line: &str) -> Option<String> {
    let word = line.split_once(NOBODY)?.0.rsplit('\'').next()?;
    let Some(Asked::Account(account)) = props::ask(word) else { return None };
    let near = nearest(&[account.owner], account.who)?;
    Some(format!("did you mean '{}{near}'?", word.strip_suffix(account.who)?))
}

/// The line that says which user or group of the system a misspelt name probably means.
pub fn meant(owners: &[Owner], who: &str) -> Option<String> {
    nearest(owners, who).map(|near| format!("did you mean '{near}'?"))
}

fn nearest(owners: &[Owner], who: &str) -> Option<String> {
    let list = |owner: &Owner| match owner {
        Owner::User => std::fs::read_to_string(USERS).ok(),
        Owner::Group => std::fs::read_to_string(GROUPS).ok(),
        Owner::Project => None,
    };
    let lists: Vec<String> = owners.iter().filter_map(list).collect();
    let entries = lists.iter().flat_map(|list| list.lines()).filter_map(entry);
    suggest::nearest(who, entries.map(|(name, _)| name)).map(str::to_owned)
}

/// The name of a user or group, if it has one.
pub fn name_of(owner: Owner, id: u64) -> Option<String> {
    seek(owner, &id.to_string(), |_, found| found == id).map(|(name, _)| name)
}

/// The number for `who`, which is a name or digits. Projects have numbers only.
pub fn id_of(owner: Owner, who: &str) -> Option<u64> {
    let digits = !who.is_empty() && who.bytes().all(|b| b.is_ascii_digit());
    if digits {
        return who.parse::<u32>().ok().map(u64::from);
    }
    seek(owner, who, |name, _| name == who).map(|(_, id)| id)
}

/// Reads an assignment of the family; `None` if `word` is none of it.
///
/// # Errors
/// The property cannot be set, the user does not exist, or the value is no number.
pub fn parse(word: &str, text: &str, kind: DatasetKind) -> Result<Option<u64>, Refusal> {
    let Some(Asked::Account(account)) = props::ask(word) else { return Ok(None) };
    if !account.quota {
        return Err(Refusal::Reason(format!("'{word}' is readonly")));
    }
    if kind != DatasetKind::Filesystem {
        return Err(PropertyError::OwnerQuotaWrongType { name: word.to_owned() }.into());
    }
    if id_of(account.owner, account.who).is_none() {
        return Err(PropertyError::QuotaName { name: word.to_owned() }.into());
    }
    if text == "none" {
        return Ok(Some(0));
    }
    Ok(Some(size::parse_size(text)?))
}

/// The property whose change gives a file system a newer version.
const VERSION: &str = "version";

/// Whether the value of `word` is kept by the file system itself.
pub fn is_kept_inside(word: &str) -> bool {
    word == VERSION || is_default(word) || matches!(props::ask(word), Some(Asked::Account(_)))
}

/// `defaultuserquota` and its family: quotas of owners that have none of their own.
pub fn is_default(word: &str) -> bool {
    default_of(word).is_some()
}

fn default_of(word: &str) -> Option<(zpl::Owner, Amount)> {
    let rest = word.strip_prefix("default")?.strip_suffix("quota")?;
    let (owner, amount) = match rest.strip_suffix("obj") {
        Some(owner) => (owner, Amount::Objects),
        None => (rest, Amount::Bytes),
    };
    let owner = match owner {
        "user" => zpl::Owner::User,
        "group" => zpl::Owner::Group,
        "project" => zpl::Owner::Project,
        _ => return None,
    };
    Some((owner, amount))
}

/// Stores quotas in a file system, and the version that it is to have from now on.
///
/// # Errors
/// If it cannot be opened or changed.
pub fn apply(pool: &Pool, dataset: &str, quotas: &[(String, u64)]) -> Result<(), Refusal> {
    if quotas.is_empty() {
        return Ok(());
    }
    let failed = |error: zpl::Error| Refusal::Reason(error.to_string());
    let dataset: Arc<Dataset> = pool.open(dataset).map_err(|error| Refusal::Reason(error.to_string()))?;
    let fs = Filesystem::open(dataset).map_err(failed)?;
    for (word, quota) in quotas {
        if word == VERSION {
            fs.upgrade(*quota).map_err(failed)?;
        } else if let Some((owner, amount)) = default_of(word) {
            fs.set_default_quota(owner, amount, *quota).map_err(failed)?;
        } else if let Some(Asked::Account(account)) = props::ask(word) {
            let invalid = || PropertyError::QuotaName { name: word.clone() };
            let id = id_of(account.owner, account.who).ok_or_else(invalid)?;
            fs.set_quota(owner_of(account.owner), amount_of(&account), id, *quota).map_err(failed)?;
        }
    }
    pool.log_command().map_err(|error| Refusal::Reason(error.to_string()))
}

/// The value of `zfs get userused@…`.
///
/// # Errors
/// If the pool cannot be read.
pub fn show(pool: &Pool, info: &DatasetInfo, account: &Account, raw: bool) -> pool::Result<Shown> {
    let Some(id) = id_of(account.owner, account.who) else { return Ok(Shown::absent()) };
    let fs = match Filesystem::open(pool.open(&info.name)?) {
        Ok(fs) => fs,
        Err(zpl::Error::Pool(error)) => return Err(error),
        Err(_) => return Ok(Shown::absent()),
    };
    let (owner, amount) = (owner_of(account.owner), amount_of(account));
    let value = if account.quota { fs.quota(owner, amount, id) } else { fs.usage(owner, amount, id) };
    let Ok(value) = value else { return Ok(Shown::absent()) };
    let human = text(value, amount, account.quota);
    let text = if raw { value.to_string() } else { human.clone() };
    Ok(Shown { text, human, value: Some(Value::Number(value)), source: Source::Local })
}

/// A number as people read it; a quota of 0 is none.
pub fn text(value: u64, amount: Amount, quota: bool) -> String {
    match amount {
        _ if quota && value == 0 => "none".to_owned(),
        Amount::Bytes => number::nice_bytes(value),
        Amount::Objects => number::nice(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_read_in_the_words_of_openzfs() {
        let parsed =
            |word, text| parse(word, text, DatasetKind::Filesystem).map_err(|refusal| refusal.to_string());
        assert_eq!(parsed("userquota@root", "4M"), Ok(Some(4 << 20)));
        assert_eq!(parsed("projectobjquota@7", "none"), Ok(Some(0)));
        assert_eq!(parsed("compression", "on"), Ok(None));
        assert_eq!(
            parsed("userquota@nosuchuser", "4M"),
            Err("'userquota@nosuchuser' has an invalid user/group name".to_owned())
        );
        assert_eq!(parsed("userquota@0", "0"), Ok(Some(0)));
        assert_eq!(parsed("userquota@0", "x"), Err("bad numeric value 'x'".to_owned()));
        assert_eq!(parsed("userused@0", "1"), Err("'userused@0' is readonly".to_owned()));
        assert!(parse("userquota@0", "1", DatasetKind::Volume).is_err());
    }

    #[test]
    fn names_and_numbers_are_those_of_the_system() {
        let line = "cannot set property for 'tank': 'userquota@rooot' has an invalid user/group name";
        assert_eq!(of_line(line).as_deref(), Some("did you mean 'userquota@root'?"));
        assert_eq!(meant(&[Owner::User], "rooot").as_deref(), Some("did you mean 'root'?"));
        assert_eq!((meant(&[Owner::Project], "rooot"), meant(&[Owner::User], "no such user")), (None, None));
        assert_eq!(id_of(Owner::User, "root"), Some(0));
        assert_eq!(id_of(Owner::Group, "4242"), Some(4242));
        assert_eq!(id_of(Owner::Project, "root"), None);
        assert_eq!(name_of(Owner::User, 0).as_deref(), Some("root"));
        assert_eq!(entry("root:x:0:0:root:/root:/bin/sh"), Some(("root", 0)));
        assert_eq!(entry("broken"), None);
    }

    #[test]
    fn default_quotas_are_distinguished_from_other_properties() {
        assert_eq!(default_of("defaultgroupobjquota"), Some((zpl::Owner::Group, Amount::Objects)));
        assert!(!is_default("defcontext") && !is_default("refquota"));
        assert!(is_kept_inside("userused@root") && !is_kept_inside("quota"));
    }
}
