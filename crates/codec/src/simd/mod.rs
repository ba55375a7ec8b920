//! The one place of `unsafe` in this crate: vector instructions, and thin calls of foreign code.
//!
//! Each block states the facts that make it sound; each vector path is tested against its safe twin.

#[cfg(target_arch = "x86_64")]
pub(crate) mod fletcher2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod fletcher4;
#[cfg(isal)]
pub(crate) mod igzip;
pub(crate) mod lz4;
pub(crate) mod lz4_encoder;
#[cfg(target_arch = "x86_64")]
pub(crate) mod parity;
