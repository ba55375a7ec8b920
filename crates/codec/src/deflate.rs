//! The gzip engines, and the library of each on this machine.
//!
//! From:   `storage`'s write pipeline, which asks for one by name.
//! To:     [`crate::gzip`], which calls it.
//! An engine turns a record into one zlib stream that any zlib reads; the disk does not show which one did.
//! A card (QAT, a GPU) would be one more name here, with its session in the thread's context.

use std::fmt;

#[cfg(isal)]
use crate::simd;

/// A maker of zlib streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// libdeflate: ratios within a hundredth of zlib's, at about three times its rate.
    Libdeflate,
    /// igzip of Intel's ISA-L: many times that rate; 80 to 95 % of the ratio.
    Isal,
}

impl Engine {
    /// All there are, in the order of their [`Engine::index`].
    pub const ALL: [Engine; 2] = [Engine::Libdeflate, Engine::Isal];

    /// The name that users write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Libdeflate => "libdeflate",
            Engine::Isal => "isal",
        }
    }

    /// The engine of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Its place in [`Engine::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether it is in this build and runs on this machine.
    #[must_use]
    pub const fn is_here(self) -> bool {
        match self {
            Engine::Libdeflate => true,
            Engine::Isal => cfg!(isal),
        }
    }

    /// This engine if the program has it, else libdeflate.
    #[must_use]
    pub const fn or_libdeflate(self) -> Engine {
        if self.is_here() { self } else { Engine::Libdeflate }
    }

    /// Compresses `src` into `dst` as gzip-`level` means it to this engine.
    pub(crate) fn compress(self, level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        match self {
            #[cfg(isal)]
            Engine::Isal => simd::igzip::compress(level, src, dst),
            _ => crate::gzip::compress(level, src, dst),
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
