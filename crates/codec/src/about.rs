//! The implementations on this machine: libraries with their versions, and the processor features that each uses.
//!
//! From:   build.rs, which knows the versions; the processor.
//! To:     commands that show it to users.

use format::{ChecksumKind, Compression};

use crate::Engine;

/// An implementation: its library and its instruction set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Name and version: `zstd 1.5.7`; our own code is `cenote`.
    pub library: String,
    /// Features of the processor that it uses here, such as `AVX-512`; empty for plain code.
    pub cpu: &'static str,
}

fn about(library: String, cpu: &'static str) -> About {
    About { library, cpu }
}

/// A library that is a Cargo dependency, with the version that the build found.
fn library(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

fn ours() -> String {
    format!("cenote {}", env!("CARGO_PKG_VERSION"))
}

/// The first of `names` that the processor has.
#[cfg(target_arch = "x86_64")]
fn first(names: &[&'static str]) -> &'static str {
    let has = |name: &&&'static str| match **name {
        "AVX-512" => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"),
        "AVX2" => is_x86_feature_detected!("avx2"),
        "SSE4.1" => is_x86_feature_detected!("sse4.1"),
        "BMI2" => is_x86_feature_detected!("bmi2"),
        "SHA-NI" => is_x86_feature_detected!("sha") && is_x86_feature_detected!("sse4.1"),
        _ => false,
    };
    names.iter().find(has).copied().unwrap_or("")
}

#[cfg(not(target_arch = "x86_64"))]
fn first(_: &[&'static str]) -> &'static str {
    ""
}

impl Engine {
    /// Library, version and processor features; `None` if it is not in this build.
    #[must_use]
    pub fn about(self) -> Option<About> {
        match self {
            Engine::Libdeflate => {
                Some(about(library("libdeflate", option_env!("VERSION_LIBDEFLATE_SYS")), first(&["BMI2"])))
            }
            #[cfg(isal)]
            Engine::Isal => {
                let portable = env!("ISAL_CODE") == "portable C";
                let cpu = if portable { "" } else { first(&["AVX-512", "AVX2", "SSE4.1"]) };
                Some(about(concat!("ISA-L ", env!("ISAL_VERSION"), ", ", env!("ISAL_CODE")).to_owned(), cpu))
            }
            #[cfg(not(isal))]
            Engine::Isal => None,
        }
    }
}

impl About {
    /// Implementations of compression and decompression; an [`Engine`] compresses with gzip, and libdeflate decompresses it.
    /// `None` for values that are no algorithm.
    #[must_use]
    pub fn compression(algorithm: Compression) -> Option<About> {
        match algorithm {
            Compression::Lzjb | Compression::Zle => Some(about(ours(), "")),
            Compression::Lz4 => {
                let version = option_env!("VERSION_LZ4_SYS").and_then(|v| v.split_once("lz4-")).map(|v| v.1);
                Some(about(format!("{}, reads with {}", ours(), library("LZ4", version)), ""))
            }
            Compression::Gzip(_) => Engine::Libdeflate.about(),
            Compression::Zstd => {
                Some(about(format!("zstd {}", zstd_safe::version_string()), first(&["BMI2"])))
            }
            _ => None,
        }
    }

    /// Implementation of a checksum. `None` if nothing is computed.
    #[must_use]
    pub fn checksum(kind: ChecksumKind) -> Option<About> {
        let sha2 = || library("sha2", option_env!("VERSION_SHA2"));
        match kind {
            ChecksumKind::Fletcher2 | ChecksumKind::Fletcher4 => {
                Some(about(ours(), first(&["AVX-512", "AVX2"])))
            }
            ChecksumKind::Sha256 => Some(about(sha2(), first(&["SHA-NI"]))),
            ChecksumKind::Sha512 => Some(about(sha2(), first(&["AVX2"]))),
            ChecksumKind::Skein | ChecksumKind::Edonr => Some(about(ours(), "")),
            ChecksumKind::Blake3 => {
                let version = option_env!("VERSION_BLAKE3");
                Some(about(library("blake3", version), first(&["AVX-512", "AVX2", "SSE4.1"])))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_named_with_their_versions() {
        let zstd = About::compression(Compression::Zstd).expect("an algorithm");
        assert!(zstd.library.starts_with("zstd 1."), "{zstd:?}");
        let deflate = Engine::Libdeflate.about().expect("always here");
        assert!(deflate.library.starts_with("libdeflate"), "{deflate:?}");
        assert_eq!(Engine::Isal.about().is_some(), Engine::Isal.is_here());
        assert_eq!(About::compression(Compression::Off), None);
        assert_eq!(About::checksum(ChecksumKind::Off), None);
    }
}
