//! Why a property or its value is refused, in the words that OpenZFS prints.
//!
//! The text of each error is the *reason*: what follows `cannot set property for 'tank/a': `.

use super::number;
use thiserror::Error;

/// A property or value that cannot be taken. `Display` is the reason as scripts know it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum PropertyError {
    #[error("invalid property '{name}'")]
    Unknown { name: String },
    #[error("invalid property: '{name}'")]
    UnknownOfVdev { name: String },
    #[error("'{name}' is readonly")]
    ReadOnly { name: &'static str },
    #[error("'{name}' does not apply to datasets of this type")]
    WrongType { name: &'static str },
    #[error("this property can not be modified for snapshots")]
    NotForSnapshots,
    #[error("'{name}' must be one of '{summary}'")]
    NotOneOf { name: &'static str, summary: &'static str },
    #[error("bad numeric value '{text}'")]
    BadNumber { text: String },
    #[error("invalid numeric suffix '{suffix}'")]
    BadSuffix { suffix: String },
    #[error("numeric value is too large")]
    NumberTooLarge,
    #[error("'{name}' must be power of 2 from 512B to {}", number::nice(*max))]
    BlockSize { name: &'static str, max: u64 },
    #[error("invalid 'special_small_blocks' property: must be between zero and 16M")]
    SpecialSmallBlocks,
    #[error("use 'none' to disable quota/refquota")]
    QuotaZero,
    #[error("'{name}' does not apply to datasets of this type")]
    OwnerQuotaWrongType { name: String },
    #[error("'{name}' has an invalid user/group name")]
    QuotaName { name: String },
    #[error("'volsize' cannot be zero")]
    VolumeSizeZero,
    #[error("'volsize' must be a multiple of volume block size ({})", number::nice(*block))]
    VolumeSizeNotMultiple { block: u64 },
    #[error("'{name}=auto' only allowed on volumes")]
    AutoOnlyOnVolumes { name: &'static str },
    #[error("'auto' is invalid value for '{name}'")]
    NotAuto { name: &'static str },
    #[error("'mountpoint' must be an absolute path, 'none', or 'legacy'")]
    Mountpoint,
    #[error("component of 'mountpoint' is too long")]
    MountpointTooLong,
    #[error("'{name}' cannot be set to invalid options")]
    ShareOptions { name: &'static str },
    #[error("mlslabels are unsupported")]
    NoLabels,
    #[error("invalid keylocation")]
    KeyLocation,
    #[error("minimum pbkdf2 iterations is 100000")]
    Pbkdf2Iterations,
    #[error("'utf8only' must be set 'on' if normalization chosen")]
    Utf8Only,
    #[error("Can not downgrade; already at version {at}")]
    Downgrade { at: u64 },
    #[error("property name '{name}' is too long")]
    NameTooLong { name: String },
    #[error("property value too long")]
    ValueTooLong,
    #[error("pool must be upgraded to set this property or value")]
    NeedsFeature,
    #[error("size is less than current used or reserved space")]
    BelowUse,
    #[error("size is greater than available space")]
    AboveSpace,

    // `inherit` prints these without a "cannot …" before them.
    #[error("'{name}' property cannot be inherited")]
    CannotInherit { name: &'static str },
    #[error("{name} property is read-only")]
    InheritReadOnly { name: &'static str },

    // Pools.
    #[error("property 'ashift' number {text} is invalid, only values between 9 and 16 are allowed.")]
    Ashift { text: String },
    /// `-o ashift=` of `create` and `add`; printed without a "cannot …" before it.
    #[error("invalid 'ashift={text}' property: only values between 9 and 16 are allowed.")]
    AshiftOption { text: String },
    #[error("property 'version' number {text} is invalid.")]
    PoolVersion { text: String },
    #[error("invalid argument for this pool operation")]
    PoolOperation,
    #[error("property '{name}' can only be set at import time")]
    OnlyAtImport { name: &'static str },
    #[error("property '{name}' can only be set during pool creation or import")]
    OnlyAtCreateOrImport { name: &'static str },
    #[error("'{text}' is not an absolute path")]
    NotAbsolute { text: String },
    #[error("property 'cachefile' must be empty, an absolute path, or 'none'; not '{text}'")]
    CacheFile { text: String },
    #[error("comment may only have printable characters")]
    CommentCharacters,
    #[error("comment must not exceed {max} characters")]
    CommentTooLong { max: usize },
    #[error("'{name}' is an invalid name")]
    BootName { name: String },
    #[error("property '{name}' can only be set to 'disabled' at creation time")]
    FeatureDisable { name: String },
    #[error("property '{name}' can only be set to 'enabled' or 'disabled'")]
    FeatureWord { name: String },
    #[error("requires a non-zero system hostid")]
    NeedsHostId,
}
