//! POSIX ACLs in tar streams: `user::rw-,user:1000:r--,group::r--,mask::r--,other::---`.
//!
//! From:   the extended attribute with an ACL, or the text of a record.
//! To:     the other one. GNU tar (`--acls`), star and libarchive write and read the text.

use format::acl::{PosixAcl, PosixEntry, PosixTag};
use pool::props::dataset::Owner;

use crate::compat::owner_quota::id_of;

/// Keys of records, with the extended attribute that each stands for.
const KEYS: [(&[u8], &[u8]); 2] = [
    (b"SCHILY.acl.access", b"system.posix_acl_access"),
    (b"SCHILY.acl.default", b"system.posix_acl_default"),
];

/// The record for an extended attribute, if that is a valid ACL. Users and groups are numbers, so that no list of users is needed.
pub(super) fn record_of(attribute: &[u8], value: &[u8]) -> Option<(&'static [u8], String)> {
    let (key, _) = KEYS.iter().find(|(_, name)| *name == attribute)?;
    let acl = PosixAcl::decode(value).ok().filter(|acl| !acl.entries().is_empty())?;
    let entries: Vec<String> = acl.entries().iter().map(text).collect();
    Some((key, entries.join(",")))
}

/// The extended attribute that a record stands for; `None` if it is no record of an ACL.
pub(super) fn attribute_of(key: &[u8]) -> Option<&'static [u8]> {
    KEYS.iter().find(|(known, _)| *known == key).map(|(_, name)| *name)
}

fn text(entry: &PosixEntry) -> String {
    let who = match entry.tag {
        PosixTag::UserObj => "user:".to_owned(),
        PosixTag::User(id) => format!("user:{id}"),
        PosixTag::GroupObj => "group:".to_owned(),
        PosixTag::Group(id) => format!("group:{id}"),
        PosixTag::Mask => "mask:".to_owned(),
        PosixTag::Other => "other:".to_owned(),
    };
    let may = |bit: u8, letter: char| if entry.perm & bit != 0 { letter } else { '-' };
    format!("{who}:{}{}{}", may(4, 'r'), may(2, 'w'), may(1, 'x'))
}

/// The value of the extended attribute for the text of a record. Entries are separated by commas or lines; behind `#` is a comment.
///
/// # Errors
/// Which entry cannot be understood, or names somebody whom this system does not know.
pub(super) fn value_of(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "its ACL is no text".to_owned())?;
    let words = text.lines().flat_map(|line| line.split('#').next().unwrap_or("").split(','));
    let words = words.map(str::trim).filter(|word| !word.is_empty());
    let mut entries = words.map(entry).collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(|entry| entry.tag);
    let acl =
        PosixAcl::new(entries).map_err(|_| format!("its ACL is not complete: {}", text.escape_debug()))?;
    Ok(acl.encode())
}

/// `KIND:WHO:PERMISSIONS`; star adds the number of `WHO`. Of mask and others, `WHO` may be left out.
fn entry(word: &str) -> Result<PosixEntry, String> {
    let bad = || format!("its ACL has an entry that is none: '{}'", word.escape_debug());
    let fields: Vec<&str> = word.split(':').map(str::trim).collect();
    let (kind, who, perm, number) = match fields[..] {
        [kind, perm] => (kind, "", perm, None),
        [kind, who, perm] => (kind, who, perm, None),
        [kind, who, perm, number] => (kind, who, perm, Some(number)),
        _ => return Err(bad()),
    };
    let named = |owner: Owner| {
        let id = number.and_then(|digits| digits.parse().ok()).or_else(|| id_of(owner, who));
        let id = id.and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(|| format!("its ACL names '{}', whom this system does not know", who.escape_debug()))
    };
    let tag = match (kind, who.is_empty()) {
        ("user" | "u", true) => PosixTag::UserObj,
        ("user" | "u", false) => PosixTag::User(named(Owner::User)?),
        ("group" | "g", true) => PosixTag::GroupObj,
        ("group" | "g", false) => PosixTag::Group(named(Owner::Group)?),
        ("mask" | "m", true) => PosixTag::Mask,
        ("other" | "o", true) => PosixTag::Other,
        _ => return Err(bad()),
    };
    let perm = perm.bytes().try_fold(0u8, |all, letter| match letter {
        b'r' => Some(all | 4),
        b'w' => Some(all | 2),
        b'x' => Some(all | 1),
        b'-' => Some(all),
        _ => None,
    });
    Ok(PosixEntry { tag, perm: perm.ok_or_else(bad)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use PosixTag::{Group, GroupObj, Mask, Other, User, UserObj};

    fn acl(entries: &[(PosixTag, u8)]) -> Vec<u8> {
        let entries = entries.iter().map(|&(tag, perm)| PosixEntry { tag, perm }).collect();
        PosixAcl::new(entries).expect("valid").encode()
    }

    #[test]
    fn an_acl_becomes_text_and_the_text_the_same_acl() {
        let value =
            acl(&[(UserObj, 6), (User(1000), 4), (GroupObj, 5), (Group(7), 0), (Mask, 7), (Other, 1)]);
        let (key, text) = record_of(b"system.posix_acl_access", &value).expect("an ACL");
        assert_eq!(text, "user::rw-,user:1000:r--,group::r-x,group:7:---,mask::rwx,other::--x");
        assert_eq!(attribute_of(key), Some(b"system.posix_acl_access".as_slice()));
        assert_eq!(value_of(text.as_bytes()), Ok(value));
    }

    #[test]
    fn text_of_other_programs_is_understood() {
        let value = acl(&[(UserObj, 7), (User(0), 6), (GroupObj, 5), (Mask, 7), (Other, 0)]);
        // GNU tar writes lines, with names; star adds numbers; short forms leave fields out.
        for text in [
            "user::rwx\nuser:root:rw-\t#effective:rw-\ngroup::r-x\nmask::rwx\nother::---\n",
            "user::rwx,user:nobody-knows:rw-:0,group::r-x,mask::rwx,other::---",
            "u::rwx,g::rx,m:rwx,u:0:rw,o:-",
        ] {
            assert_eq!(value_of(text.as_bytes()).as_ref(), Ok(&value), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_acl_is_refused() {
        for text in [
            "user:nobody-knows-this-one:rw-,user::rw-",
            "user::rwz",
            "mask:x:rw-",
            "a:b:c:d:e",
            "\u{1}",
            "user::rwx",
        ] {
            assert!(value_of(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(value_of(b""), Ok(PosixAcl::default().encode()));
        assert_eq!(record_of(b"system.posix_acl_access", b"\x02\0\0\0"), None);
        assert_eq!(record_of(b"user.x", b""), None);
    }
}
