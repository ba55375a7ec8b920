//! Progress events of a measurement for its caller, and the stop request.

use crate::{Configuration, Run};

/// A part of one measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Files are written into a new dataset.
    Write,
    /// Written data becomes durable; timed together with writing.
    Sync,
    /// Not timed: frees settle, caches are made cold or warm.
    Settle,
    /// Everything is read back.
    Read,
    /// Everything is read again from warm caches.
    WarmRead,
    /// Everything is read once more and compared with its source.
    Verify,
    /// An application's steps run on the mounted dataset.
    Steps,
}

impl Phase {
    /// As in a trace.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Write => "write",
            Phase::Sync => "sync",
            Phase::Settle => "settle",
            Phase::Read => "read",
            Phase::WarmRead => "warm read",
            Phase::Verify => "verify",
            Phase::Steps => "steps",
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The source is read into memory, or surveyed and sampled for an advice; this many bytes of `total` are there.
    Loading {
        /// Bytes read so far.
        bytes: u64,
        /// Bytes of all files; 0 while that is not known.
        total: u64,
    },
    /// A note for the user that stops nothing.
    Note(&'a str),
    /// One configuration begins.
    Begin {
        /// The configuration that is measured.
        configuration: &'a Configuration,
        /// Its number, from 0, repetitions counted.
        index: usize,
        /// How many there are, repetitions counted.
        count: usize,
        /// Not measured, only to warm up the machine.
        warm_up: bool,
    },
    /// A part of the present configuration begins.
    Phase(Phase),
    /// This many more bytes were written, read or compared.
    Bytes(u64),
    /// A step of an application begins.
    Step(&'a str),
    /// A configuration was measured.
    Done(&'a Run),
}

/// The caller's side of a measurement. Called from several threads.
pub trait Watch: Sync {
    /// Something happened.
    fn event(&self, event: Event<'_>);

    /// Whether to stop: asked between records. Everything temporary is removed then.
    fn stopped(&self) -> bool;
}

/// Hears nothing and never stops.
pub(crate) struct Deaf;

impl Watch for Deaf {
    fn event(&self, _: Event<'_>) {}
    fn stopped(&self) -> bool {
        false
    }
}

/// Was stopped before it began.
#[cfg(test)]
pub(crate) struct Stopped;

#[cfg(test)]
impl Watch for Stopped {
    fn event(&self, _: Event<'_>) {}
    fn stopped(&self) -> bool {
        true
    }
}
