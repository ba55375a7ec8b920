//! The properties of vdevs, as `zpool get PROPERTY POOL VDEV` shows them and `zpool set` changes them.
//!
//! Source: docs/format/05-space-maps.md §7 for where set ones are stored; names, order, headings and words from the
//! `zpool` interface.

use super::words::{FAILFAST, ON_OFF, ON_OFF_NA, SCHEDULER, VDEV_BIAS};
use super::{
    DERIVED, INTEGER, PERCENT, Property, PropertyError, SIZE, SIZE_OR_DASH, TEXT, THRESHOLD, UNLIMITED,
    VDEV_STATE, Value, names, number, properties,
};

/// Every property that `zpool get all POOL VDEV` shows, in its order; the last ones only of raidz and draid.
pub static VISIBLE: &[Property] = properties! {
    "capacity" "cap" "CAP" PERCENT ReadOnly P DERIVED, right 5 "2.2" "<size>";
    "state" - "STATE" VDEV_STATE ReadOnly P DERIVED, right 5 "2.2" "<state>";
    "guid" - "GUID" INTEGER ReadOnly P DERIVED, right 5 "2.2" "<guid>";
    "asize" - "ASIZE" SIZE ReadOnly P DERIVED, right 5 "2.2" "<asize>";
    "psize" - "PSIZE" SIZE ReadOnly P DERIVED, right 5 "2.2" "<psize>";
    "ashift" - "ASHIFT" INTEGER ReadOnly P DERIVED, right 6 "2.2" "<ashift>";
    "size" - "SIZE" SIZE ReadOnly P DERIVED, right 5 "2.2" "<size>";
    "free" - "FREE" SIZE ReadOnly P DERIVED, right 5 "2.2" "<size>";
    "allocated" "alloc" "ALLOC" SIZE ReadOnly P DERIVED, right 5 "2.2" "<size>";
    "comment" - "COMMENT" TEXT Set P DERIVED, left 7 "2.2" "<comment-string>";
    "expandsize" "expandsz" "EXPANDSZ" SIZE_OR_DASH ReadOnly P DERIVED, right 8 "2.2" "<size>";
    "fragmentation" "frag" "FRAG" PERCENT ReadOnly P DERIVED, right 5 "2.2" "<percent>";
    "bootsize" - "BOOTSIZE" SIZE ReadOnly P number(0), right 8 "2.2" "<size>";
    "parity" - "PARITY" INTEGER ReadOnly P DERIVED, right 6 "2.2" "<parity>";
    "path" - "PATH" TEXT Set P DERIVED, left 4 "2.2" "<device-path>";
    "devid" - "DEVID" TEXT ReadOnly P DERIVED, left 5 "2.2" "<devid>";
    "physpath" - "PHYSPATH" TEXT ReadOnly P DERIVED, left 8 "2.2" "<physpath>";
    "encpath" - "ENCPATH" TEXT ReadOnly P DERIVED, left 7 "2.2" "<encpath>";
    "fru" - "FRU" TEXT ReadOnly P DERIVED, left 3 "2.2" "<fru>";
    "parent" - "PARENT" TEXT ReadOnly P DERIVED, left 6 "2.2" "<parent>";
    "children" - "CHILDREN" TEXT ReadOnly P DERIVED, left 8 "2.2" "<child[,...]>";
    "numchildren" "numchild" "NUMCHILD" INTEGER ReadOnly P DERIVED, right 8 "2.2" "<number-of-children>";
    "read_errors" "rderr" "RDERR" SIZE ReadOnly P DERIVED, right 5 "2.2" "<errors>";
    "write_errors" "wrerr" "WRERR" SIZE ReadOnly P DERIVED, right 5 "2.2" "<errors>";
    "checksum_errors" "ckerr" "CKERR" SIZE ReadOnly P DERIVED, right 5 "2.2" "<errors>";
    "initialize_errors" "initerr" "INITERR" SIZE ReadOnly P DERIVED, right 7 "2.2" "<errors>";
    "null_ops" "nullop" "NULLOP" SIZE ReadOnly P DERIVED, right 6 "2.2" "<operations>";
    "read_ops" "readop" "READOP" SIZE ReadOnly P DERIVED, right 6 "2.2" "<operations>";
    "write_ops" "writeop" "WRITEOP" SIZE ReadOnly P DERIVED, right 7 "2.2" "<operations>";
    "free_ops" "freeop" "FREEOP" SIZE ReadOnly P DERIVED, right 6 "2.2" "<operations>";
    "claim_ops" "claimop" "CLAIMOP" SIZE ReadOnly P DERIVED, right 7 "2.2" "<operations>";
    "trim_ops" "trimop" "TRIMOP" SIZE ReadOnly P DERIVED, right 6 "2.2" "<operations>";
    "null_bytes" "nullbyte" "NULLBYTE" SIZE ReadOnly P DERIVED, right 8 "2.2" "<bytes>";
    "read_bytes" "readbyte" "READBYTE" SIZE ReadOnly P DERIVED, right 8 "2.2" "<bytes>";
    "write_bytes" "writebyte" "WRITEBYTE" SIZE ReadOnly P DERIVED, right 9 "2.2" "<bytes>";
    "free_bytes" "freebyte" "FREEBYTE" SIZE ReadOnly P DERIVED, right 8 "2.2" "<bytes>";
    "claim_bytes" "claimbyte" "CLAIMBYTE" SIZE ReadOnly P DERIVED, right 9 "2.2" "<bytes>";
    "trim_bytes" "trimbyte" "TRIMBYTE" SIZE ReadOnly P DERIVED, right 8 "2.2" "<bytes>";
    "removing" - "REMOVING" ON_OFF ReadOnly P DERIVED, left 8 "2.2" "on | off";
    "allocating" - "ALLOCATING" ON_OFF_NA Set P number(1), left 10 "2.2" "on | off";
    "failfast" - "FAILFAST" FAILFAST Set P number(2), left 8 "2.2" "on | off | inherit";
    "checksum_n" "cksum_n" "CKSUM_N" THRESHOLD Set P number(UNLIMITED), right 7 "2.2" "<events>";
    "checksum_t" "cksum_t" "CKSUM_T" THRESHOLD Set P number(UNLIMITED), right 7 "2.2" "<seconds>";
    "io_n" - "IO_N" THRESHOLD Set P number(UNLIMITED), right 5 "2.2" "<events>";
    "io_t" - "IO_T" THRESHOLD Set P number(UNLIMITED), right 5 "2.2" "<seconds>";
    "slow_io_n" - "SLOW_IO_N" THRESHOLD Set P number(UNLIMITED), right 9 "2.3" "<events>";
    "slow_io_t" - "SLOW_IO_T" THRESHOLD Set P number(UNLIMITED), right 9 "2.3" "<seconds>";
    "trim_support" "trimsup" "TRIMSUP" ON_OFF ReadOnly P DERIVED, left 7 "2.3" "on | off";
    "trim_errors" "trimerr" "TRIMERR" SIZE ReadOnly P DERIVED, right 7 "2.3" "<errors>";
    "slow_ios" "slow" "SLOW" SIZE ReadOnly P DERIVED, right 5 "2.3" "<slowios>";
    "slow_io_events" - "SLOW_IO_EVENTS" ON_OFF Set P number(1), left 14 "2.4" "on | off";
    "scheduler" "io_scheduler" "IO_SCHEDULER" SCHEDULER Set P number(0), left 12 "post-2.4" "auto | on | off";
    "failure_domain" "fdom" "FDOM" THRESHOLD ReadOnly P number(UNLIMITED), right 5 "post-2.4" "<fdomain>";
    "failure_group" "fgrp" "FGRP" THRESHOLD ReadOnly P number(UNLIMITED), right 5 "post-2.4" "<fgroup>";
    "alloc_bias" - "ALLOC_BIAS" VDEV_BIAS Set P DERIVED, left 10 "post-2.4" "none | log | special | dedup";
    "rotational" - "ROTATIONAL" ON_OFF ReadOnly P DERIVED, left 10 "post-2.4" "on | off";
};

/// Properties that may be asked for by name; those of raidz and draid have no value elsewhere.
pub static HIDDEN: &[Property] = properties! {
    "name" - "NAME" TEXT ReadOnly P DERIVED, left 4 "2.2" "<name>";
    "raidz_expanding" - "RAIDZ_EXPANDING" ON_OFF ReadOnly P DERIVED, left 15 "2.3" "on | off";
    "sit_out" - "SIT_OUT" ON_OFF Set P DERIVED, left 7 "2.4" "on | off";
    "autosit" - "AUTOSIT" ON_OFF Set P DERIVED, left 7 "2.4" "on | off";
};

/// A property of a vdev that a word may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A property of OpenZFS itself.
    Native(&'static Property),
    /// `module:name`
    User(&'a str),
}

/// The property that `word` asks for; `None` if it is neither a native property nor has the form of a user property.
pub fn ask(word: &str) -> Option<Asked<'_>> {
    match VISIBLE.iter().chain(HIDDEN).find(|p| p.is_called(word)) {
        Some(property) => Some(Asked::Native(property)),
        None => names::is_user_property(word).then_some(Asked::User(word)),
    }
}

/// The change that `set` makes to a vdev: the name under which the value is stored, and the value; `None` removes it.
///
/// # Errors
/// Unknown and read-only properties, and values that are none of theirs.
pub fn change(word: &str, text: &str) -> Result<(String, Option<Value>), PropertyError> {
    let property = match ask(word) {
        None => return Err(PropertyError::UnknownOfVdev { name: word.to_owned() }),
        Some(Asked::User(name)) => {
            if text.len() > super::value::TEXT_MAX {
                return Err(PropertyError::ValueTooLong);
            }
            let value = Some(Value::Text(text.to_owned())).filter(|_| !text.is_empty());
            return Ok((name.to_owned(), value));
        }
        Some(Asked::Native(property)) => property,
    };
    if property.access == super::Access::ReadOnly {
        return Err(PropertyError::ReadOnly { name: property.name });
    }
    let value = match property.parse_value(text)? {
        // A missing value and the default mean the same; this default has no number of its own on disk.
        value if property.name == "failfast" && Some(&value) == property.default_value().as_ref() => None,
        Value::Text(text) if text.is_empty() => None,
        value => Some(value),
    };
    Ok((property.name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str, text: &str) -> String {
        change(word, text).map_err(|error| error.to_string()).unwrap_err()
    }

    #[test]
    fn properties_are_stored_under_their_full_names() {
        assert_eq!(change("cksum_n", "7"), Ok(("checksum_n".to_owned(), Some(Value::Number(7)))));
        assert_eq!(change("io_t", "none"), Ok(("io_t".to_owned(), Some(Value::Number(UNLIMITED)))));
        assert_eq!(
            change("comment", "bay 4"),
            Ok(("comment".to_owned(), Some(Value::Text("bay 4".to_owned()))))
        );
        assert_eq!(change("failfast", "off"), Ok(("failfast".to_owned(), Some(Value::Number(0)))));
        assert_eq!(change("failfast", "inherit"), Ok(("failfast".to_owned(), None)));
        assert_eq!(change("my:bay", ""), Ok(("my:bay".to_owned(), None)));
    }

    #[test]
    fn invalid_properties_are_refused_in_the_words_of_openzfs() {
        assert_eq!(refused("size", "1"), "'size' is readonly");
        assert_eq!(refused("bogus", "1"), "invalid property: 'bogus'");
        assert_eq!(refused("allocating", "maybe"), "'allocating' must be one of 'on | off'");
        assert_eq!(refused("checksum_n", "many"), "bad numeric value 'many'");
    }

    #[test]
    fn columns_are_as_wide_as_their_headings_and_words() {
        let mut called = std::collections::HashSet::new();
        for p in VISIBLE.iter().chain(HIDDEN) {
            assert!(p.min_width >= p.heading.len(), "{}", p.name);
            assert!(called.insert(p.name) && p.alias.is_none_or(|alias| called.insert(alias)), "{}", p.name);
            assert!(p.alias.is_none_or(|alias| alias == p.heading.to_lowercase()), "{}", p.name);
        }
    }
}
