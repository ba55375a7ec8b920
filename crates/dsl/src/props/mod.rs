//! Properties of datasets and pools, declared once: names, kinds, words, defaults, columns.
//!
//! From:   the words of a user; numbers and strings of a properties ZAP.
//! To:     `zfs`/`zpool` `get`, `set`, `list`, `create`, inheritance, help and completion.
//! Source: docs/format/06-mos-dsl.md §10 for what is stored; the `zfs` and `zpool` interface for the rest.
//!
//! Nothing here opens a pool: a value is read, judged and shown from its text or number alone. What needs
//! a pool (space left, features, other datasets) is judged by the caller, with an error from [`error`].

pub mod dataset;
pub mod error;
pub mod names;
pub mod number;
pub mod pool;
pub mod size;
mod source;
mod value;
pub mod vdev;
mod words;

pub use error::PropertyError;
pub use source::Source;
pub use value::{AUTO, BLOCK_MAX, BLOCK_MAX_PLAIN, BLOCK_MIN, UNLIMITED, Value};

/// The words of an index property with the numbers that stand for them on disk; several words may share a
/// number, the first of them is the one shown.
pub type Words = &'static [(&'static str, u64)];

/// One property: everything that is known about it without a pool.
#[derive(Debug, PartialEq, Eq)]
pub struct Property {
    /// The name by which it is stored and shown.
    pub name: &'static str,
    /// The other name by which a user may ask for it (the heading in lower case).
    pub alias: Option<&'static str>,
    /// Its column heading in `list`.
    pub heading: &'static str,
    /// The form of its values.
    pub kind: Kind,
    /// When and by which command it may be set.
    pub access: Access,
    /// The datasets that have it.
    pub applies: Applies,
    /// Its value where none was set.
    pub preset: Preset,
    /// The side that its column in `list` is aligned to.
    pub justify: Justify,
    /// The width its column starts with, at least that of its heading.
    pub min_width: usize,
    /// The first OpenZFS release that had it.
    pub since: &'static str,
    /// The allowed values in words, as error texts quote them.
    pub summary: &'static str,
}

/// How the values of a property look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number, shown in this form.
    Number(Form),
    /// Free text.
    Text,
    /// One of these words.
    Index(Words),
}

/// How a number is shown (and, for the first five, read).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A size; zero is written `0B`.
    Bytes,
    /// A size or a count; zero is written `0`.
    Size,
    /// A size; zero means no limit and is written `none`.
    Quota,
    /// A size; zero says `none`, [`AUTO`] says `auto`.
    QuotaOrAuto,
    /// A count; [`UNLIMITED`] says `none`.
    Limit,
    /// A size; zero says `-`.
    SizeOrDash,
    /// A count of events or seconds; [`UNLIMITED`] says `-`.
    Threshold,
    /// The state of a vdev: a word, with `-p` its number.
    VdevState,
    /// Digits, never shortened: identities, transaction groups.
    Integer,
    /// Hundredths: 149 says `1.49x`.
    Ratio,
    /// A whole percentage.
    Percent,
    /// Seconds since 1970, shown to the minute.
    Date,
    /// Seconds since 1970, shown to the second.
    DateSeconds,
}

/// Whether users may set a property, and whether children inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Computed by the pool; no user may set it.
    ReadOnly,
    /// May be set; not inherited.
    Set,
    /// May be set; inherited.
    Inherit,
    /// May be given when the dataset is made, never later.
    CreateOnly,
}

/// The value of a property that was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// A number; for an index, the number of its word.
    Number(u64),
    /// A text.
    Text(&'static str),
    /// Computed from the dataset or the pool, or absent.
    Derived,
}

/// The side that a column is aligned to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Justify {
    /// Words.
    Left,
    /// Most numbers.
    Right,
}

/// The kinds of dataset. Bookmarks are listed like datasets, so they count as one here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatasetKind {
    /// A dataset with files.
    Filesystem,
    /// A dataset that is one block device.
    Volume,
    /// `dataset@name`: the state of a file system or volume at one txg.
    Snapshot,
    /// `dataset#name`: the txg of a snapshot, kept as a start of incremental streams.
    Bookmark,
}

impl DatasetKind {
    /// The word of the `type` property.
    pub const fn word(self) -> &'static str {
        match self {
            DatasetKind::Filesystem => "filesystem",
            DatasetKind::Volume => "volume",
            DatasetKind::Snapshot => "snapshot",
            DatasetKind::Bookmark => "bookmark",
        }
    }
}

/// A set of [`DatasetKind`]s. Snapshots have some properties only if they are of a file system or of a
/// volume; see `Property::applies_to_snapshot_of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applies(u8);

impl Applies {
    /// Whether `kind` is in the set.
    pub const fn contains(self, kind: DatasetKind) -> bool {
        self.0 & (1 << kind as u8) != 0
    }
}

const F: Applies = Applies(1);
const V: Applies = Applies(2);
const S: Applies = Applies(4);
const FV: Applies = Applies(3);
const FS: Applies = Applies(5);
const VS: Applies = Applies(6);
const FVS: Applies = Applies(7);
const FVSB: Applies = Applies(15);
/// Properties of pools apply to no dataset.
const P: Applies = Applies(0);

const TEXT: Kind = Kind::Text;
const BYTES: Kind = Kind::Number(Form::Bytes);
const SIZE: Kind = Kind::Number(Form::Size);
const COUNT: Kind = SIZE;
const QUOTA: Kind = Kind::Number(Form::Quota);
const QUOTA_OR_AUTO: Kind = Kind::Number(Form::QuotaOrAuto);
const LIMIT: Kind = Kind::Number(Form::Limit);
const SIZE_OR_DASH: Kind = Kind::Number(Form::SizeOrDash);
const THRESHOLD: Kind = Kind::Number(Form::Threshold);
const VDEV_STATE: Kind = Kind::Number(Form::VdevState);
const INTEGER: Kind = Kind::Number(Form::Integer);
const RATIO: Kind = Kind::Number(Form::Ratio);
const PERCENT: Kind = Kind::Number(Form::Percent);
const DATE: Kind = Kind::Number(Form::Date);
const DATE_SECONDS: Kind = Kind::Number(Form::DateSeconds);

const DERIVED: Preset = Preset::Derived;

const fn number(value: u64) -> Preset {
    Preset::Number(value)
}

const fn text(value: &'static str) -> Preset {
    Preset::Text(value)
}

/// Rows of a property table: name, alias (`-` for none), heading, kind or words, access, types of datasets, preset,
/// justification and least width, release, summary.
macro_rules! properties {
    ($($name:literal $alias:tt $heading:literal $kind:ident $access:ident $applies:ident $preset:expr,
       $justify:ident $width:literal $since:literal $summary:literal;)*) => {
        &[$($crate::props::Property {
            name: $name,
            alias: $crate::props::properties!(@alias $alias),
            heading: $heading,
            kind: $kind,
            access: $crate::props::Access::$access,
            applies: $crate::props::$applies,
            preset: $preset,
            justify: $crate::props::properties!(@justify $justify),
            min_width: $width,
            since: $since,
            summary: $summary,
        }),*]
    };
    (@alias -) => { None };
    (@alias $alias:literal) => { Some($alias) };
    (@justify left) => { $crate::props::Justify::Left };
    (@justify right) => { $crate::props::Justify::Right };
}
use properties;

impl Property {
    /// Whether `word` asks for this property: its name or its alias, in lower case as they are.
    pub fn is_called(&self, word: &str) -> bool {
        self.name == word || self.alias == Some(word)
    }

    /// Whether children have it from their parents.
    pub(crate) const fn is_inheritable(&self) -> bool {
        matches!(self.access, Access::Inherit)
    }

    /// Whether snapshots of a `head` (file system or volume) have it. Of the properties of snapshots those
    /// that also belong to one kind of head only belong to that kind's snapshots only.
    pub(crate) fn applies_to_snapshot_of(&self, head: DatasetKind) -> bool {
        assert!(matches!(head, DatasetKind::Filesystem | DatasetKind::Volume), "only heads have snapshots");
        let heads =
            self.applies.contains(DatasetKind::Filesystem) || self.applies.contains(DatasetKind::Volume);
        self.applies.contains(DatasetKind::Snapshot) && (!heads || self.applies.contains(head))
    }

    /// The value in effect when none was set; `None` if it is computed or absent.
    pub fn default_value(&self) -> Option<Value> {
        match self.preset {
            Preset::Number(n) => Some(Value::Number(n)),
            Preset::Text(t) => Some(Value::Text(t.to_owned())),
            Preset::Derived => None,
        }
    }

    /// Whether a column of human-readable values must look at them to know its width: strings, dates and
    /// identities have no bound, sizes and words have.
    pub const fn grows(&self) -> bool {
        match self.kind {
            Kind::Text => true,
            Kind::Number(form) => matches!(form, Form::Date | Form::DateSeconds | Form::Integer),
            Kind::Index(_) => false,
        }
    }

    /// Whether a dataset of `kind` can be given this property, now (`creating`) or later.
    ///
    /// # Errors
    /// The reason in the order in which OpenZFS looks: wrong kind, then read-only.
    pub fn check_settable(&self, kind: DatasetKind, creating: bool) -> Result<(), PropertyError> {
        if matches!(kind, DatasetKind::Snapshot | DatasetKind::Bookmark) {
            return Err(PropertyError::NotForSnapshots);
        }
        if !self.applies.contains(kind) {
            return Err(PropertyError::WrongType { name: self.name });
        }
        match self.access {
            Access::ReadOnly => Err(PropertyError::ReadOnly { name: self.name }),
            Access::CreateOnly if !creating => Err(PropertyError::ReadOnly { name: self.name }),
            _ => Ok(()),
        }
    }

    /// Whether `zfs inherit` may clear this property on a dataset of `kind`.
    ///
    /// # Errors
    /// [`PropertyError::CannotInherit`] for those that are set but not inherited, and so on.
    pub fn check_inheritable(&self) -> Result<(), PropertyError> {
        match self.access {
            Access::Inherit => Ok(()),
            Access::ReadOnly => Err(PropertyError::InheritReadOnly { name: self.name }),
            Access::Set | Access::CreateOnly => Err(PropertyError::CannotInherit { name: self.name }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> impl Iterator<Item = &'static Property> {
        dataset::VISIBLE.iter().chain(dataset::HIDDEN).chain(pool::all())
    }

    #[test]
    fn no_column_is_narrower_than_its_heading() {
        for p in every() {
            assert!(p.min_width >= p.heading.len(), "{}", p.name);
            if let Kind::Number(form) = p.kind {
                assert!(p.min_width >= 5 || matches!(form, Form::Date), "{}", p.name);
            }
        }
    }

    #[test]
    fn an_index_column_is_as_wide_as_its_longest_word() {
        for p in dataset::VISIBLE.iter().chain(pool::VISIBLE) {
            if let Kind::Index(words) = p.kind {
                let longest = words.iter().map(|(w, _)| w.len()).max().unwrap_or(0);
                assert_eq!(p.min_width, longest.max(p.heading.len()), "{}", p.name);
            }
        }
    }

    #[test]
    fn every_preset_is_a_value_of_its_property() {
        for p in every() {
            match (p.kind, p.preset) {
                (_, Preset::Derived)
                | (Kind::Number(_), Preset::Number(_))
                | (Kind::Text, Preset::Text(_)) => {}
                (Kind::Index(words), Preset::Number(n)) => {
                    assert!(words.iter().any(|&(_, v)| v == n), "{}", p.name)
                }
                other => panic!("{}: {other:?}", p.name),
            }
        }
    }

    #[test]
    fn every_word_of_every_index_is_read_as_its_number() {
        for p in every().filter(|p| p.access != Access::ReadOnly) {
            let Kind::Index(words) = p.kind else { continue };
            for &(word, number) in words {
                assert_eq!(p.parse_value(word), Ok(Value::Number(number)), "{} {word}", p.name);
                let shown = p.format_value(&Value::Number(number), false).into_owned();
                assert_eq!(p.parse_value(&shown), Ok(Value::Number(number)), "{} {shown}", p.name);
            }
        }
    }

    #[test]
    fn settable_properties_follow_from_access_and_kind() {
        use DatasetKind::*;
        let text = |name: &str, kind, creating| {
            dataset::parse(name).expect("known").check_settable(kind, creating).map_err(|e| e.to_string())
        };
        assert_eq!(text("compression", Filesystem, false), Ok(()));
        assert_eq!(text("used", Filesystem, false), Err("'used' is readonly".to_owned()));
        assert_eq!(text("encryption", Filesystem, false), Err("'encryption' is readonly".to_owned()));
        assert_eq!(text("utf8only", Filesystem, true), Ok(()));
        assert_eq!(
            text("volsize", Filesystem, true),
            Err("'volsize' does not apply to datasets of this type".to_owned())
        );
        assert_eq!(
            text("compression", Snapshot, false),
            Err("this property can not be modified for snapshots".to_owned())
        );
    }

    #[test]
    fn snapshots_have_the_properties_of_their_head() {
        let of = |name: &str, head| dataset::parse(name).expect("known").applies_to_snapshot_of(head);
        assert!(of("volsize", DatasetKind::Volume) && !of("volsize", DatasetKind::Filesystem));
        assert!(of("exec", DatasetKind::Filesystem) && !of("exec", DatasetKind::Volume));
        assert!(of("userrefs", DatasetKind::Volume) && of("used", DatasetKind::Volume));
    }
}
