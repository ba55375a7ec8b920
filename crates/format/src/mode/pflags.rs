//! Bits of the `FLAGS` attribute.

pub const XATTR: u64 = 0x1;
pub const INHERIT_ACE: u64 = 0x2;
pub const ACL_TRIVIAL: u64 = 0x4;
pub const ACL_OBJ_ACE: u64 = 0x8;
pub const ACL_PROTECTED: u64 = 0x10;
pub const ACL_DEFAULTED: u64 = 0x20;
pub const ACL_AUTO_INHERIT: u64 = 0x40;
pub const BONUS_SCANSTAMP: u64 = 0x80;
pub const NO_EXECS_DENIED: u64 = 0x100;
pub const READONLY: u64 = 1 << 32;
pub const HIDDEN: u64 = 1 << 33;
pub const SYSTEM: u64 = 1 << 34;
pub const ARCHIVE: u64 = 1 << 35;
pub const IMMUTABLE: u64 = 1 << 36;
pub const NOUNLINK: u64 = 1 << 37;
pub const APPENDONLY: u64 = 1 << 38;
pub const NODUMP: u64 = 1 << 39;
pub const OPAQUE: u64 = 1 << 40;
pub const AV_QUARANTINED: u64 = 1 << 41;
pub const AV_MODIFIED: u64 = 1 << 42;
pub const REPARSE: u64 = 1 << 43;
pub const OFFLINE: u64 = 1 << 44;
pub const SPARSE: u64 = 1 << 45;
pub const PROJINHERIT: u64 = 1 << 46;
pub const PROJID: u64 = 1 << 47;
