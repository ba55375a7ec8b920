//! Standard input of a client, read in the server of a pool.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Interval at which a wait for input checks whether to stop.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Standard input of a client. A read ends when the client goes away or the command must stop.
pub(crate) struct ClientInput<F> {
    pub(crate) input: Arc<File>,
    /// Whether to stop.
    pub(crate) stops: F,
}

impl<F: Fn() -> bool> Read for ClientInput<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.stops)() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "told to stop"));
            }
            let mut fds = [PollFd::new(&*self.input, PollFlags::IN)];
            match poll(&mut fds, Some(&GLANCE)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return (&*self.input).read(buf),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
