//! The properties of pools (features aside: `feature@NAME` words are split here and judged by their table).
//!
//! Source: docs/format/06-mos-dsl.md §1.3; releases, headings and words from the `zpool` interface.

use super::words::{FAILMODE, ON_OFF};
use super::{
    AUTO, DERIVED, INTEGER, PERCENT, Property, PropertyError, QUOTA_OR_AUTO, RATIO, SIZE, SIZE_OR_DASH, TEXT,
    names, number, properties, size, text,
};

/// Every property that `zpool get all` shows before those of allocation classes and features, in its order.
pub static VISIBLE: &[Property] = properties! {
    "size" - "SIZE" SIZE ReadOnly P DERIVED, right 5 "0.6" "<size>";
    "capacity" "cap" "CAP" PERCENT ReadOnly P DERIVED, right 5 "0.6" "<percent>";
    "altroot" - "ALTROOT" TEXT Set P DERIVED, left 7 "0.6" "<path>";
    "health" - "HEALTH" TEXT ReadOnly P DERIVED, right 8 "0.6" "<state>";
    "guid" - "GUID" INTEGER ReadOnly P DERIVED, right 5 "0.6" "<guid>";
    "version" - "VERSION" INTEGER Set P DERIVED, right 7 "0.6" "<version>";
    "bootfs" - "BOOTFS" TEXT Set P DERIVED, left 6 "0.6" "<filesystem>";
    "delegation" - "DELEGATION" ON_OFF Set P number(1), left 10 "0.6" "on | off";
    "autoreplace" "replace" "REPLACE" ON_OFF Set P number(0), left 7 "0.6" "on | off";
    "cachefile" - "CACHEFILE" TEXT Set P DERIVED, left 9 "0.6" "<file> | none";
    "failmode" - "FAILMODE" FAILMODE Set P number(0), left 8 "0.6" "wait | continue | panic";
    "listsnapshots" "listsnaps" "LISTSNAPS" ON_OFF Set P number(0), left 9 "0.6" "on | off";
    "autoexpand" "expand" "EXPAND" ON_OFF Set P number(0), left 6 "0.6" "on | off";
    "dedupratio" "dedup" "DEDUP" RATIO ReadOnly P DERIVED, right 5 "0.6" "<1.00x or higher if deduped>";
    "free" - "FREE" SIZE ReadOnly P DERIVED, right 5 "0.6" "<size>";
    "allocated" "alloc" "ALLOC" SIZE ReadOnly P DERIVED, right 5 "0.6" "<size>";
    "readonly" "rdonly" "RDONLY" ON_OFF Set P number(0), left 6 "0.6" "on | off";
    "ashift" - "ASHIFT" INTEGER Set P number(0), right 6 "0.6" "<ashift, 9-16, or 0=default>";
    "comment" - "COMMENT" TEXT Set P DERIVED, left 7 "0.6" "<comment-string>";
    "expandsize" "expandsz" "EXPANDSZ" SIZE_OR_DASH ReadOnly P DERIVED, right 8 "0.6" "<size>";
    "freeing" - "FREEING" SIZE ReadOnly P DERIVED, right 7 "0.6" "<size>";
    "fragmentation" "frag" "FRAG" PERCENT ReadOnly P DERIVED, right 5 "0.6" "<percent>";
    "leaked" - "LEAKED" SIZE ReadOnly P DERIVED, right 6 "0.6" "<size>";
    "multihost" - "MULTIHOST" ON_OFF Set P number(0), left 9 "0.7" "on | off";
    "checkpoint" "ckpoint" "CKPOINT" SIZE_OR_DASH ReadOnly P DERIVED, right 7 "0.8" "<size>";
    "load_guid" - "LOAD_GUID" INTEGER ReadOnly P DERIVED, right 9 "0.8" "<load_guid>";
    "autotrim" - "AUTOTRIM" ON_OFF Set P number(0), left 8 "0.8" "on | off";
    "compatibility" - "COMPATIBILITY" TEXT Set P text("off"), left 13 "2.1" "<file[,file...]> | off | legacy";
    "bcloneused" "bclone_used" "BCLONE_USED" SIZE ReadOnly P DERIVED, right 11 "2.2" "<size>";
    "bclonesaved" "bclone_saved" "BCLONE_SAVED" SIZE ReadOnly P DERIVED, right 12 "2.2" "<size>";
    "bcloneratio" "bclone_ratio" "BCLONE_RATIO" RATIO ReadOnly P DERIVED, right 12 "2.2" "<1.00x or higher if cloned>";
    "dedup_table_size" "ddtsize" "DDTSIZE" SIZE ReadOnly P DERIVED, right 7 "2.3" "<size>";
    "dedup_table_quota" "ddtquota" "DDTQUOTA" QUOTA_OR_AUTO Set P number(AUTO), right 8 "2.3" "<size>";
    "last_scrubbed_txg" - "LAST_SCRUBBED_TXG" INTEGER ReadOnly P DERIVED, right 17 "2.3" "<txg>";
    "dedupused" "dedup_used" "DEDUP_USED" SIZE ReadOnly P DERIVED, right 10 "post-2.4" "<size>";
    "dedupsaved" "dedup_saved" "DEDUP_SAVED" SIZE ReadOnly P DERIVED, right 11 "post-2.4" "<size>";
    "available" "avail" "AVAIL" SIZE ReadOnly P DERIVED, right 5 "post-2.4" "<size>";
    "usable" - "USABLE" SIZE ReadOnly P DERIVED, right 6 "post-2.4" "<size>";
    "used" - "USED" SIZE ReadOnly P DERIVED, right 5 "post-2.4" "<size>";
};

/// Properties that may be asked for by name but are not in `get all`.
pub static HIDDEN: &[Property] = properties! {
    "name" - "NAME" TEXT ReadOnly P DERIVED, left 4 "0.6" "<name>";
    "maxblocksize" - "MAXBLOCKSIZE" SIZE ReadOnly P DERIVED, right 12 "0.6" "<size>";
    "maxdnodesize" - "MAXDNODESIZE" SIZE ReadOnly P DERIVED, right 12 "0.7" "<size>";
    "tname" - "TNAME" ON_OFF ReadOnly P DERIVED, left 5 "0.6" "on | off";
};

/// One row per figure of an allocation class: `class_normal_size` and so on.
macro_rules! class {
    ($name:literal $upper:literal $lower:literal) => {
        [
            class!(@row $name $upper $lower "_size" "_SIZE" "_size" SIZE "<size>"),
            class!(@row $name $upper $lower "_capacity" "_CAP" "_cap" PERCENT "<percent>"),
            class!(@row $name $upper $lower "_free" "_FREE" "_free" SIZE "<size>"),
            class!(@row $name $upper $lower "_allocated" "_ALLOC" "_alloc" SIZE "<size>"),
            class!(@row $name $upper $lower "_available" "_AVAIL" "_avail" SIZE "<size>"),
            class!(@row $name $upper $lower "_usable" "_USABLE" "_usable" SIZE "<size>"),
            class!(@row $name $upper $lower "_used" "_USED" "_used" SIZE "<size>"),
            class!(@row $name $upper $lower "_expandsize" "_EXPANDSZ" "_expandsz" SIZE_OR_DASH "<size>"),
            class!(@row $name $upper $lower "_fragmentation" "_FRAG" "_frag" PERCENT "<percent>"),
        ]
    };
    (@row $name:literal $upper:literal $lower:literal $n:literal $u:literal $l:literal $kind:ident $summary:literal) => {
        Property {
            name: concat!("class_", $name, $n),
            alias: Some(concat!("class_", $lower, $l)),
            heading: concat!("CLASS_", $upper, $u),
            kind: $kind,
            access: super::Access::ReadOnly,
            applies: super::P,
            preset: DERIVED,
            justify: super::Justify::Right,
            min_width: concat!("CLASS_", $upper, $u).len(),
            since: "post-2.4",
            summary: $summary,
        }
    };
}

/// The figures of each allocation class, which follow [`VISIBLE`].
pub static CLASSES: [[Property; 9]; 6] = [
    class!("normal" "NORMAL" "normal"),
    class!("special" "SPECIAL" "special"),
    class!("dedup" "DEDUP" "dedup"),
    class!("log" "LOG" "log"),
    class!("elog" "ELOG" "elog"),
    class!("special_elog" "SELOG" "selog"),
];

/// Every property in the order of `zpool get all`, hidden ones last.
pub fn all() -> impl Iterator<Item = &'static Property> {
    VISIBLE.iter().chain(CLASSES.as_flattened()).chain(HIDDEN)
}

/// The pool property called `word` (name or alias).
pub fn parse(word: &str) -> Option<&'static Property> {
    all().find(|p| p.is_called(word))
}

/// Everything that a word may ask for of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A property of OpenZFS itself.
    Native(&'static Property),
    /// `feature@name`: the short name or guid of the feature.
    Feature(&'a str),
    /// `unsupported@guid`: a feature of the pool that this build does not know.
    Unsupported(&'a str),
    /// `module:name`
    User(&'a str),
}

/// The property or feature that `word` asks for; `None` if it is neither a native property nor has the form of another.
pub fn ask(word: &str) -> Option<Asked<'_>> {
    if let Some(property) = parse(word) {
        return Some(Asked::Native(property));
    }
    match word.split_once('@') {
        Some(("feature", name)) => return Some(Asked::Feature(name)),
        Some(("unsupported", guid)) => return Some(Asked::Unsupported(guid)),
        _ => {}
    }
    names::is_user_property(word).then_some(Asked::User(word))
}

/// When a pool property is being given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// `zpool create -o`.
    Create,
    /// `zpool import -o`.
    Import,
    /// `zpool set`.
    Set,
}

/// Whether a pool property can be given at this moment.
///
/// # Errors
/// Read-only ones, and those that belong to creation or import.
pub fn check_settable(property: &'static Property, moment: Moment) -> Result<(), PropertyError> {
    let name = property.name;
    match (name, moment) {
        _ if property.access == super::Access::ReadOnly => Err(PropertyError::ReadOnly { name }),
        ("readonly", Moment::Create | Moment::Set) => Err(PropertyError::OnlyAtImport { name }),
        ("altroot", Moment::Set) => Err(PropertyError::OnlyAtCreateOrImport { name }),
        _ => Ok(()),
    }
}

/// Reads `-o ashift=` of `create` and `add`, which is refused in other words than `set ashift=`.
///
/// # Errors
/// Not a number, or neither 0 (chosen by the device) nor 9 to 16.
pub fn ashift_option(text: &str) -> Result<u32, PropertyError> {
    match size::parse_size(text)? {
        0 => Ok(0),
        shift @ 9..=16 => Ok(shift as u32),
        _ => Err(PropertyError::AshiftOption { text: text.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_properties_answer_to_one_word() {
        let mut words = HashSet::new();
        for p in all() {
            assert!(words.insert(p.name), "{}", p.name);
            assert!(p.alias.is_none_or(|alias| alias == p.name || words.insert(alias)), "{}", p.name);
        }
        assert_eq!((VISIBLE.len(), CLASSES.as_flattened().len()), (39, 54));
    }

    #[test]
    fn short_names_and_families_are_understood() {
        assert_eq!(parse("cap").map(|p| p.name), Some("capacity"));
        assert_eq!(parse("class_selog_frag").map(|p| p.name), Some("class_special_elog_fragmentation"));
        assert_eq!(ask("feature@lz4_compress"), Some(Asked::Feature("lz4_compress")));
        assert_eq!(ask("unsupported@x"), Some(Asked::Unsupported("x")));
        assert_eq!((ask("bogus"), ask("SIZE")), (None, None));
    }

    #[test]
    fn some_properties_are_given_only_at_their_moment() {
        let reason =
            |name: &str, moment| check_settable(parse(name).expect(name), moment).map_err(|e| e.to_string());
        assert_eq!(reason("size", Moment::Create), Err("'size' is readonly".to_owned()));
        assert_eq!(
            reason("readonly", Moment::Set),
            Err("property 'readonly' can only be set at import time".to_owned())
        );
        assert_eq!(
            reason("altroot", Moment::Set),
            Err("property 'altroot' can only be set during pool creation or import".to_owned())
        );
        assert_eq!(reason("altroot", Moment::Import), Ok(()));
        assert_eq!(reason("comment", Moment::Set), Ok(()));
    }

    #[test]
    fn ashift_is_read_at_creation_in_its_own_words() {
        assert_eq!((ashift_option("12"), ashift_option("0")), (Ok(12), Ok(0)));
        assert_eq!(
            ashift_option("8").map_err(|e| e.to_string()),
            Err("invalid 'ashift=8' property: only values between 9 and 16 are allowed.".to_owned())
        );
    }
}
