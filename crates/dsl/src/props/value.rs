//! A property's value: read from text, shown as text.
//!
//! From:   `-o`, `set` and `add` operands; numbers and strings of a properties ZAP.
//! To:     the pool, which stores it; the `cli` crate, which prints it.
//! Source: docs/format/06-mos-dsl.md §10.

use std::borrow::Cow;

use codec::crypt::MIN_ITERATIONS;

use super::{Form, Kind, Property, PropertyError, number, size};

/// `auto` where a size may be chosen by the pool (`refreservation` of volumes, `dedup_table_quota`).
pub const AUTO: u64 = u64::MAX;
/// `none` of `filesystem_limit`, `snapshot_limit` and their counts.
pub const UNLIMITED: u64 = u64::MAX;

/// The longest string that a property stores, in bytes.
pub(super) const TEXT_MAX: usize = 8191;
/// The largest record or volume block any pool allows, in bytes.
pub const BLOCK_MAX: u64 = 16 << 20;
/// The largest without the `large_blocks` feature, in bytes.
pub const BLOCK_MAX_PLAIN: u64 = 128 << 10;
/// The smallest block, in bytes.
pub const BLOCK_MIN: u64 = 512;
const MOUNTPOINT_MAX: usize = 1024;
const MOUNTPOINT_PART_MAX: usize = 255;
const COMMENT_MAX: usize = 32;
/// Options of `sharenfs` on Linux, some with a value behind `=`.
const NFS_OPTIONS: [&str; 34] = [
    "ro",
    "rw",
    "sec",
    "anon",
    "root_mapping",
    "nosub",
    "insecure",
    "secure",
    "async",
    "sync",
    "no_wdelay",
    "wdelay",
    "nohide",
    "hide",
    "crossmnt",
    "no_subtree_check",
    "subtree_check",
    "insecure_locks",
    "secure_locks",
    "no_auth_nlm",
    "auth_nlm",
    "no_acl",
    "mountpoint",
    "mp",
    "fsuid",
    "refer",
    "replicas",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "fsid",
    "anonuid",
    "anongid",
];

/// A value as it is stored: sizes in bytes, times in seconds, words of an index by their number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value {
    /// Of properties of [`Kind::Number`](super::Kind) and [`Kind::Index`](super::Kind).
    Number(u64),
    /// Of properties of [`Kind::Text`](super::Kind), and user properties.
    Text(String),
}

impl Property {
    /// Reads `text` as a value of this property.
    ///
    /// # Errors
    /// [`PropertyError`], whose text is the reason that OpenZFS prints.
    pub fn parse_value(&self, text: &str) -> Result<Value, PropertyError> {
        match self.kind {
            Kind::Index(words) => match words.iter().find(|(word, _)| *word == text) {
                Some(&(_, number)) => Ok(Value::Number(number)),
                None => Err(PropertyError::NotOneOf { name: self.name, summary: self.summary }),
            },
            Kind::Text => self.parse_text(text).map(Value::Text),
            Kind::Number(form) => {
                let number = self.parse_number(form, text)?;
                self.check_number(text, number)?;
                Ok(Value::Number(number))
            }
        }
    }

    /// The value as text; with `raw`, the exact numbers of `-p`. Dates are returned in seconds, because only the caller knows
    /// the time zone (see [`Form::Date`]).
    pub fn format_value<'a>(&self, value: &'a Value, raw: bool) -> Cow<'a, str> {
        match (value, self.kind) {
            (Value::Text(text), _) if text.is_empty() => Cow::Borrowed("-"),
            (Value::Text(text), _) => Cow::Borrowed(text),
            (&Value::Number(n), Kind::Index(words)) => match words.iter().find(|(_, number)| *number == n) {
                Some((word, _)) => Cow::Borrowed(word),
                // A value of a newer release: its number is the truth we have.
                None => Cow::Owned(n.to_string()),
            },
            (&Value::Number(n), Kind::Text) => Cow::Owned(n.to_string()),
            (&Value::Number(n), Kind::Number(form)) => form.show(n, raw),
        }
    }

    /// Whether `bytes` is a block size that a pool with blocks of up to `max` bytes may use.
    ///
    /// # Errors
    /// [`PropertyError::BlockSize`], naming the pool's maximum.
    pub fn check_block_size(&self, bytes: u64, max: u64) -> Result<(), PropertyError> {
        assert!((BLOCK_MIN..=BLOCK_MAX).contains(&max), "a pool's largest block is 512 bytes to 16 MiB");
        if bytes.is_power_of_two() && (BLOCK_MIN..=max).contains(&bytes) {
            return Ok(());
        }
        Err(PropertyError::BlockSize { name: self.name, max })
    }

    fn parse_number(&self, form: Form, text: &str) -> Result<u64, PropertyError> {
        match (text, form) {
            ("none", Form::Limit | Form::Threshold) => Ok(UNLIMITED),
            ("none", _) => Ok(0),
            ("auto", Form::QuotaOrAuto) => Ok(AUTO),
            ("auto", _) if self.name == "refreservation" => Ok(AUTO),
            ("auto", _) => Err(PropertyError::NotAuto { name: self.name }),
            _ => size::parse_size(text),
        }
    }

    /// Limits that hold in every pool.
    fn check_number(&self, text: &str, number: u64) -> Result<(), PropertyError> {
        match self.name {
            "recordsize" | "volblocksize" => self.check_block_size(number, BLOCK_MAX),
            "quota" | "refquota" if number == 0 && text != "none" => Err(PropertyError::QuotaZero),
            "volsize" if number == 0 => Err(PropertyError::VolumeSizeZero),
            "special_small_blocks" if number > BLOCK_MAX => Err(PropertyError::SpecialSmallBlocks),
            "pbkdf2iters" if number < MIN_ITERATIONS => Err(PropertyError::Pbkdf2Iterations),
            "ashift" if number != 0 && !(9..=16).contains(&number) => {
                Err(PropertyError::Ashift { text: text.to_owned() })
            }
            "version" if !(1..=28).contains(&number) && number != 5000 => {
                Err(PropertyError::PoolVersion { text: text.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn parse_text(&self, text: &str) -> Result<String, PropertyError> {
        if text.len() > TEXT_MAX {
            return Err(PropertyError::ValueTooLong);
        }
        match self.name {
            "mountpoint" => check_mountpoint(text)?,
            "sharenfs" if text != "off" && !is_nfs_options(text) => {
                return Err(PropertyError::ShareOptions { name: self.name });
            }
            "sharesmb" if !matches!(text, "on" | "off") => {
                return Err(PropertyError::ShareOptions { name: self.name });
            }
            "mlslabel" if text != "none" => return Err(PropertyError::NoLabels),
            "keylocation" if !is_keylocation(text) => return Err(PropertyError::KeyLocation),
            "altroot" if !text.starts_with('/') => {
                return Err(PropertyError::NotAbsolute { text: text.to_owned() });
            }
            "cachefile" if !(text.is_empty() || text == "none" || text.starts_with('/')) => {
                return Err(PropertyError::CacheFile { text: text.to_owned() });
            }
            "comment" => {
                if !text.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
                    return Err(PropertyError::CommentCharacters);
                }
                if text.len() > COMMENT_MAX {
                    return Err(PropertyError::CommentTooLong { max: COMMENT_MAX });
                }
            }
            _ => {}
        }
        Ok(text.to_owned())
    }
}

/// Whether `text` is a list of NFS share options: known words with commas between them.
fn is_nfs_options(text: &str) -> bool {
    let mut words = text.split(',').filter(|word| !word.is_empty());
    text == "on" || words.all(|word| NFS_OPTIONS.contains(&word.split('=').next().unwrap_or(word)))
}

impl Form {
    /// Shows a number; `raw` gives it exactly. Dates come back as seconds either way.
    pub fn show(self, n: u64, raw: bool) -> Cow<'static, str> {
        match self {
            Form::SizeOrDash if n == 0 => return Cow::Borrowed("-"),
            Form::QuotaOrAuto if n == AUTO && !raw => return Cow::Borrowed("auto"),
            Form::Limit if n == UNLIMITED => return Cow::Borrowed("none"),
            Form::Threshold if n == UNLIMITED => return Cow::Borrowed("-"),
            Form::VdevState if !raw => return Cow::Borrowed(vdev_state(n)),
            Form::Quota | Form::QuotaOrAuto if n == 0 && !raw => return Cow::Borrowed("none"),
            _ => {}
        }
        Cow::Owned(match self {
            Form::Ratio => number::ratio(n, raw),
            Form::Percent => number::percent(n, raw),
            _ if raw => n.to_string(),
            Form::Bytes => number::nice_bytes(n),
            Form::Size | Form::Quota | Form::QuotaOrAuto | Form::Limit | Form::SizeOrDash => number::nice(n),
            Form::Integer | Form::Threshold | Form::VdevState | Form::Date | Form::DateSeconds => {
                n.to_string()
            }
        })
    }
}

/// The word of a vdev's state number, as OpenZFS counts states.
fn vdev_state(n: u64) -> &'static str {
    match n {
        1 => "CLOSED",
        2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

fn check_mountpoint(text: &str) -> Result<(), PropertyError> {
    if matches!(text, "none" | "legacy") {
        return Ok(());
    }
    if !text.starts_with('/') || text.contains('\0') {
        return Err(PropertyError::Mountpoint);
    }
    if text.len() >= MOUNTPOINT_MAX || text.split('/').any(|part| part.len() > MOUNTPOINT_PART_MAX) {
        return Err(PropertyError::MountpointTooLong);
    }
    Ok(())
}

fn is_keylocation(text: &str) -> bool {
    matches!(text, "none" | "prompt")
        || text.strip_prefix("file://").is_some_and(|path| path.starts_with('/'))
        || text.starts_with("https://")
        || text.starts_with("http://")
}

#[cfg(test)]
mod tests {
    use super::super::{dataset, pool};
    use super::*;
    use format::compression::CompressionSetting;

    fn read(name: &str, text: &str) -> Result<Value, String> {
        let property = dataset::parse(name).or_else(|| pool::parse(name)).expect("known property");
        property.parse_value(text).map_err(|e| e.to_string())
    }

    fn shown(name: &str, text: &str, raw: bool) -> String {
        let property = dataset::parse(name).expect("known property");
        property.format_value(&property.parse_value(text).expect("good value"), raw).into_owned()
    }

    #[test]
    fn equal_values_are_shown_by_their_short_word() {
        for (typed, word) in [
            ("gzip-6", "gzip"),
            ("zstd-fast-1", "zstd-fast"),
            ("zstd-3", "zstd-3"),
            ("zstd", "zstd"),
            ("on", "on"),
        ] {
            assert_eq!(shown("compression", typed, false), word);
        }
        assert_eq!(shown("xattr", "on", false), "sa");
        assert_eq!(shown("acltype", "posixacl", false), "posix");
        assert_eq!(shown("version", "current", false), "5");
    }

    #[test]
    fn every_compression_is_one_that_the_format_knows() {
        let property = dataset::parse("compression").expect("known property");
        let Kind::Index(words) = property.kind else { panic!("compression is an index") };
        for &(word, number) in words {
            let setting = CompressionSetting::from_property(number).expect(word);
            assert_eq!(setting.to_property(), number, "{word}");
        }
    }

    #[test]
    fn words_are_case_sensitive_and_named_in_the_refusal() {
        assert_eq!(read("atime", "yes"), Err("'atime' must be one of 'on | off'".to_owned()));
        assert_eq!(read("atime", "ON"), Err("'atime' must be one of 'on | off'".to_owned()));
        assert!(read("compression", "gzip-0").is_err() && read("compression", "zstd-20").is_err());
        assert_eq!(
            read("failmode", "ignore"),
            Err("'failmode' must be one of 'wait | continue | panic'".to_owned())
        );
    }

    #[test]
    fn block_sizes_are_powers_of_two_up_to_what_the_pool_allows() {
        let refused = "'recordsize' must be power of 2 from 512B to 16M".to_owned();
        assert_eq!(read("recordsize", "1m"), Ok(Value::Number(1 << 20)));
        assert_eq!(read("recordsize", "512"), Ok(Value::Number(512)));
        for bad in ["1000", "256", "32M", "none", "0"] {
            assert_eq!(read("recordsize", bad), Err(refused.clone()), "{bad}");
        }
        assert_eq!(read("recordsize", "abc"), Err("bad numeric value 'abc'".to_owned()));
        let recordsize = dataset::parse("recsize").expect("an alias");
        assert_eq!(
            recordsize.check_block_size(2 << 20, 1 << 20).map_err(|e| e.to_string()),
            Err("'recordsize' must be power of 2 from 512B to 1M".to_owned())
        );
    }

    #[test]
    fn a_limit_is_lifted_by_none_and_a_quota_not_by_zero() {
        assert_eq!(read("quota", "none"), Ok(Value::Number(0)));
        let share = |word: &str| Err(format!("'{word}' cannot be set to invalid options"));
        for good in ["on", "off", "rw=@10.0.0.0/8,no_root_squash,,anonuid=7", "ro,crossmnt"] {
            assert_eq!(read("sharenfs", good), Ok(Value::Text(good.to_owned())));
        }
        assert_eq!(
            (read("sharenfs", "foo"), read("sharenfs", "rw,on")),
            (share("sharenfs"), share("sharenfs"))
        );
        assert_eq!(read("sharesmb", "on"), Ok(Value::Text("on".to_owned())));
        assert_eq!(read("sharesmb", "bar"), share("sharesmb"));
        assert_eq!(read("quota", "0"), Err("use 'none' to disable quota/refquota".to_owned()));
        assert_eq!(read("reservation", "0"), Ok(Value::Number(0)));
        assert_eq!(read("filesystem_limit", "none"), Ok(Value::Number(UNLIMITED)));
        assert_eq!(shown("quota", "none", false), "none");
        assert_eq!(shown("quota", "none", true), "0");
        assert_eq!(shown("quota", "1.5M", false), "1.50M");
        assert_eq!(shown("filesystem_limit", "none", true), "none");
        assert_eq!(shown("filesystem_limit", "10000", false), "9.77K");
        assert_eq!(read("recordsize", "auto"), Err("'auto' is invalid value for 'recordsize'".to_owned()));
        assert_eq!(read("refreservation", "auto"), Ok(Value::Number(AUTO)));
    }

    #[test]
    fn a_mountpoint_is_absolute_or_a_word() {
        let refused = "'mountpoint' must be an absolute path, 'none', or 'legacy'".to_owned();
        for good in ["none", "legacy", "/", "/mnt/a b"] {
            assert_eq!(read("mountpoint", good), Ok(Value::Text(good.to_owned())));
        }
        assert_eq!(read("mountpoint", "relative"), Err(refused.clone()));
        assert_eq!(read("mountpoint", ""), Err(refused));
        let long = format!("/{}", "n".repeat(256));
        assert_eq!(read("mountpoint", &long), Err("component of 'mountpoint' is too long".to_owned()));
    }

    #[test]
    fn pool_values_are_judged_in_pool_words() {
        assert_eq!(read("ashift", "12"), Ok(Value::Number(12)));
        assert_eq!(
            read("ashift", "99"),
            Err("property 'ashift' number 99 is invalid, only values between 9 and 16 are allowed."
                .to_owned())
        );
        assert_eq!(read("comment", "my pool"), Ok(Value::Text("my pool".to_owned())));
        assert!(read("comment", &"c".repeat(33)).is_err());
    }

    #[test]
    fn ratios_sizes_and_absences_have_their_own_looks() {
        assert_eq!(Form::Ratio.show(149, false), "1.49x");
        assert_eq!(Form::Ratio.show(149, true), "1.49");
        assert_eq!(Form::Bytes.show(0, false), "0B");
        assert_eq!(Form::Size.show(0, false), "0");
        assert_eq!(Form::SizeOrDash.show(0, true), "-");
        assert_eq!(Form::QuotaOrAuto.show(AUTO, false), "auto");
        assert_eq!(Form::Percent.show(9, false), "9%");
    }
}
