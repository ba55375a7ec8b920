//! The words of index properties and the numbers that stand for them on disk.
//!
//! From:   what a user types and what a properties ZAP holds.
//! To:     the property tables beside this file.
//! Source: docs/format/06-mos-dsl.md §10.
//!
//! A number may have several words; the first in a table is the one shown (`gzip-6` is shown as `gzip`).

use format::crypt::{KeyFormat, Suite};

use super::Kind;

pub(super) const ON_OFF: Kind = Kind::Index(&[("off", 0), ("on", 1)]);
/// A vdev that allocates for itself is on or off; one that has no say in it is neither.
pub(super) const ON_OFF_NA: Kind = Kind::Index(&[("off", 0), ("on", 1), ("-", 2)]);
/// Only `off` and `on` are stored; a missing value is inherited.
pub(super) const FAILFAST: Kind = Kind::Index(&[("off", 0), ("on", 1), ("inherit", 2)]);
pub(super) const SCHEDULER: Kind = Kind::Index(&[("auto", 0), ("on", 1), ("off", 2)]);
pub(super) const VDEV_BIAS: Kind = Kind::Index(&[("none", 0), ("log", 1), ("special", 2), ("dedup", 3)]);
pub(super) const YES_NO: Kind = Kind::Index(&[("no", 0), ("yes", 1)]);
pub(super) const CHECKSUM: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("fletcher2", 6),
    ("fletcher4", 7),
    ("sha256", 8),
    ("noparity", 10),
    ("sha512", 11),
    ("skein", 12),
    ("edonr", 13),
    ("blake3", 14),
]);
pub(super) const COMPRESSION: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("lzjb", 3),
    ("gzip", 10),
    ("gzip-1", 5),
    ("gzip-2", 6),
    ("gzip-3", 7),
    ("gzip-4", 8),
    ("gzip-5", 9),
    ("gzip-6", 10),
    ("gzip-7", 11),
    ("gzip-8", 12),
    ("gzip-9", 13),
    ("zle", 14),
    ("lz4", 15),
    ("zstd", 16),
    ("zstd-fast", 13200),
    ("zstd-1", 144),
    ("zstd-2", 272),
    ("zstd-3", 400),
    ("zstd-4", 528),
    ("zstd-5", 656),
    ("zstd-6", 784),
    ("zstd-7", 912),
    ("zstd-8", 1040),
    ("zstd-9", 1168),
    ("zstd-10", 1296),
    ("zstd-11", 1424),
    ("zstd-12", 1552),
    ("zstd-13", 1680),
    ("zstd-14", 1808),
    ("zstd-15", 1936),
    ("zstd-16", 2064),
    ("zstd-17", 2192),
    ("zstd-18", 2320),
    ("zstd-19", 2448),
    ("zstd-fast-1", 13200),
    ("zstd-fast-2", 13328),
    ("zstd-fast-3", 13456),
    ("zstd-fast-4", 13584),
    ("zstd-fast-5", 13712),
    ("zstd-fast-6", 13840),
    ("zstd-fast-7", 13968),
    ("zstd-fast-8", 14096),
    ("zstd-fast-9", 14224),
    ("zstd-fast-10", 14352),
    ("zstd-fast-20", 14480),
    ("zstd-fast-30", 14608),
    ("zstd-fast-40", 14736),
    ("zstd-fast-50", 14864),
    ("zstd-fast-60", 14992),
    ("zstd-fast-70", 15120),
    ("zstd-fast-80", 15248),
    ("zstd-fast-90", 15376),
    ("zstd-fast-100", 15504),
    ("zstd-fast-500", 15632),
    ("zstd-fast-1000", 15760),
]);
pub(super) const DEDUP: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    ("verify", 257),
    ("sha256", 8),
    ("sha256,verify", 264),
    ("sha512", 11),
    ("sha512,verify", 267),
    ("skein", 12),
    ("skein,verify", 268),
    ("edonr,verify", 269),
    ("blake3", 14),
    ("blake3,verify", 270),
]);
pub(super) const SNAPDIR: Kind = Kind::Index(&[("hidden", 0), ("visible", 1), ("disabled", 2)]);
pub(super) const SNAPDEV: Kind = Kind::Index(&[("hidden", 0), ("visible", 1)]);
pub(super) const ACLMODE: Kind =
    Kind::Index(&[("discard", 0), ("groupmask", 2), ("passthrough", 3), ("restricted", 4)]);
pub(super) const ACLINHERIT: Kind = Kind::Index(&[
    ("discard", 0),
    ("noallow", 1),
    ("restricted", 4),
    ("passthrough", 3),
    ("secure", 4),
    ("passthrough-x", 5),
]);
pub(super) const ACLTYPE: Kind =
    Kind::Index(&[("off", 0), ("posix", 1), ("nfsv4", 2), ("disabled", 0), ("noacl", 0), ("posixacl", 1)]);
pub(super) const CANMOUNT: Kind = Kind::Index(&[("off", 0), ("on", 1), ("noauto", 2)]);
pub(super) const XATTR: Kind = Kind::Index(&[("off", 0), ("sa", 2), ("on", 2), ("dir", 1)]);
pub(super) const COPIES: Kind = Kind::Index(&[("1", 1), ("2", 2), ("3", 3)]);
pub(super) const ZPL_VERSION: Kind =
    Kind::Index(&[("1", 1), ("2", 2), ("3", 3), ("4", 4), ("5", 5), ("current", 5)]);
pub(super) const NORMALIZATION: Kind =
    Kind::Index(&[("none", 0), ("formD", 16), ("formKC", 96), ("formC", 80), ("formKD", 32)]);
pub(super) const CASE: Kind = Kind::Index(&[("sensitive", 0), ("insensitive", 1), ("mixed", 2)]);
pub(super) const CACHE: Kind = Kind::Index(&[("none", 0), ("metadata", 1), ("all", 2)]);
pub(super) const LOGBIAS: Kind = Kind::Index(&[("latency", 0), ("throughput", 1)]);
pub(super) const SYNC: Kind = Kind::Index(&[("standard", 0), ("always", 1), ("disabled", 2)]);
pub(super) const DNODESIZE: Kind = Kind::Index(&[
    ("legacy", 0),
    ("auto", 1),
    ("1k", 1024),
    ("2k", 2048),
    ("4k", 4096),
    ("8k", 8192),
    ("16k", 16384),
]);
pub(super) const VOLMODE: Kind =
    Kind::Index(&[("default", 0), ("full", 1), ("geom", 1), ("dev", 2), ("none", 3)]);
pub(super) const REDUNDANT_METADATA: Kind = Kind::Index(&[("all", 0), ("most", 1), ("some", 2), ("none", 3)]);
pub(super) const ENCRYPTION: Kind = Kind::Index(&[
    ("on", 1),
    ("off", 2),
    of_suite(Suite::Aes128Ccm),
    of_suite(Suite::Aes192Ccm),
    of_suite(Suite::Aes256Ccm),
    of_suite(Suite::Aes128Gcm),
    of_suite(Suite::Aes192Gcm),
    of_suite(Suite::Aes256Gcm),
]);
pub(super) const KEYFORMAT: Kind = Kind::Index(&[
    ("none", 0),
    of_key_format(KeyFormat::Raw),
    of_key_format(KeyFormat::Hex),
    of_key_format(KeyFormat::Passphrase),
]);
pub(super) const KEYSTATUS: Kind = Kind::Index(&[("none", 0), ("unavailable", 1), ("available", 2)]);
pub(super) const DIRECT: Kind = Kind::Index(&[("disabled", 0), ("standard", 1), ("always", 2)]);
pub(super) const FAILMODE: Kind = Kind::Index(&[("wait", 0), ("continue", 1), ("panic", 2)]);

const fn of_suite(suite: Suite) -> (&'static str, u64) {
    (suite.name(), suite.to_disk())
}

const fn of_key_format(format: KeyFormat) -> (&'static str, u64) {
    (format.name(), format.to_disk())
}
