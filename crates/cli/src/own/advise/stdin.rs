//! Standard input with a time limit, which Ctrl-C ends.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Bytes read from standard input at a time, and how many such pieces wait.
const STREAM_STEP: usize = 1 << 20;
const STREAM_READY: usize = 4;
/// After this long without data, the reader checks for Ctrl-C and the time limit.
const STREAM_WAIT: Duration = Duration::from_millis(100);

/// Standard input, read by a thread; one that is silent says [`io::ErrorKind::WouldBlock`].
pub(super) struct Stdin {
    pieces: Receiver<io::Result<Vec<u8>>>,
    present: Vec<u8>,
    at: usize,
    ended: bool,
    /// Set when the receiver is gone, for the reading thread.
    over: Arc<AtomicBool>,
}

impl Stdin {
    pub(super) fn new() -> Stdin {
        let (sender, pieces) = sync_channel(STREAM_READY);
        let over = Arc::new(AtomicBool::new(false));
        // The thread is not joined, because its read may never end.
        let heard = over.clone();
        std::thread::spawn(move || read_stdin(&sender, &heard));
        Stdin { pieces, present: Vec::new(), at: 0, ended: false, over }
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn read_stdin(sender: &SyncSender<io::Result<Vec<u8>>>, over: &AtomicBool) {
    let mut stdin = io::stdin().lock();
    while !over.load(Ordering::Relaxed) {
        let mut piece = vec![0; STREAM_STEP];
        let read = match stdin.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Another process that has it open may have set the flag.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(STREAM_WAIT);
                continue;
            }
            read => read,
        };
        let ended = !matches!(read, Ok(1..));
        let sent = sender.send(read.map(|len| {
            piece.truncate(len);
            piece
        }));
        if ended || sent.is_err() {
            return;
        }
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.present.len() {
            if self.ended {
                return Ok(0);
            }
            match self.pieces.recv_timeout(STREAM_WAIT) {
                Ok(piece) => {
                    (self.present, self.at) = (piece?, 0);
                    self.ended = self.present.is_empty();
                }
                Err(RecvTimeoutError::Timeout) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(RecvTimeoutError::Disconnected) => self.ended = true,
            }
        }
        let len = buf.len().min(self.present.len() - self.at);
        buf[..len].copy_from_slice(&self.present[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
