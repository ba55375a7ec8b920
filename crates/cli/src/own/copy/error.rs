//! Why one file could not be copied.

use std::fmt;
use std::io;

use crate::messages::io_words;

/// Which side of the copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

#[derive(Debug)]
enum Why {
    Io(io::Error),
    Zpl(Box<zpl::Error>),
    Said(String),
    Stopped,
}

/// Why a file was not copied. Its text is printed behind the colon of a message.
#[derive(Debug)]
pub struct CopyError {
    side: Side,
    why: Why,
}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Why {
        Why::Io(error)
    }
}

impl From<zpl::Error> for Why {
    fn from(error: zpl::Error) -> Why {
        Why::Zpl(Box::new(error))
    }
}

impl From<rustix::io::Errno> for Why {
    fn from(error: rustix::io::Errno) -> Why {
        Why::Io(error.into())
    }
}

/// The source cannot be read.
#[allow(private_bounds, reason = "errors of this module and of those below")]
pub fn reading(error: impl Into<Why>) -> CopyError {
    CopyError { side: Side::Source, why: error.into() }
}

/// This run made the name, so the node that has it is not replaced.
pub fn made_twice() -> CopyError {
    CopyError::destination("this copy has already made something with that name")
}

/// The destination cannot be written.
#[allow(private_bounds, reason = "errors of this module and of those below")]
pub fn writing(error: impl Into<Why>) -> CopyError {
    CopyError { side: Side::Destination, why: error.into() }
}

impl CopyError {
    /// The source changed since it was opened.
    pub fn changed() -> CopyError {
        CopyError::source("it changed while it was copied")
    }

    /// The command was asked to stop.
    pub fn stopped() -> CopyError {
        CopyError { side: Side::Source, why: Why::Stopped }
    }

    pub fn unsupported(what: &str) -> CopyError {
        CopyError::source(format!("not supported: {what}"))
    }

    /// Something about the source.
    pub fn source(line: impl Into<String>) -> CopyError {
        CopyError { side: Side::Source, why: Why::Said(line.into()) }
    }

    /// A fault of the destination.
    pub fn destination(line: impl Into<String>) -> CopyError {
        CopyError { side: Side::Destination, why: Why::Said(line.into()) }
    }

    pub fn is_stopped(&self) -> bool {
        matches!(self.why, Why::Stopped)
    }

    /// Whether nothing at all can be written any more, so that going on is no use.
    pub fn is_fatal(&self) -> bool {
        if self.side != Side::Destination {
            return false;
        }
        match &self.why {
            Why::Io(error) => matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::ReadOnlyFilesystem
            ),
            Why::Zpl(error) => matches!(
                **error,
                zpl::Error::NoSpace | zpl::Error::Quota | zpl::Error::ReadOnly(_) | zpl::Error::Pool(_)
            ),
            _ => false,
        }
    }

    /// The whole line about a source.
    pub fn about(&self, source: &str) -> String {
        match self.side {
            Side::Source => format!("cannot read '{source}': {self}"),
            Side::Destination => format!("cannot write the copy of '{source}': {self}"),
        }
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Io(error) => f.write_str(&io_words(error)),
            Why::Zpl(error) => error.fmt(f),
            Why::Said(line) => f.write_str(line),
            Why::Stopped => f.write_str("stopped"),
        }
    }
}
