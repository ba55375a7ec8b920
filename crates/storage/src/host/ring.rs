//! Reads of several files that are under way at the same time, made by one thread: io_uring.
//!
//! From:   `together`, which reads the columns of one block from many devices.
//! To:     the kernel. Where it has no io_uring or does not allow it (many containers), [`is_available`] says so.
//! Source: io_uring(7), io_uring_setup(2), io_uring_enter(2).

#![allow(unsafe_code, reason = "STYLE.md: device calls are one of the two places for it")]

use std::cell::RefCell;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::Backing;

/// Requests that are under way at most.
const ENTRIES: u32 = 32;

/// The kernel refused a ring for a reason that will not go away.
static REFUSED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The ring of a thread that reads. Between two calls nothing is under way in it.
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

/// A range to be read.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Of which disk.
    pub(crate) from: Backing,
    /// From which of its bytes on.
    pub(crate) offset: u64,
    pub(crate) buf: &'a mut [u8],
}

/// Whether this thread has a ring, or gets one.
pub(crate) fn is_available() -> bool {
    RING.with_borrow_mut(|ring| {
        if ring.is_some() || REFUSED.load(Ordering::Relaxed) {
            return ring.is_some();
        }
        match IoUring::builder().setup_clamp().build(ENTRIES) {
            Ok(new) => *ring = Some(new),
            // Out of memory or descriptors: another time perhaps.
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOMEM | Errno::MFILE | Errno::NFILE)
                ) => {}
            Err(_) => REFUSED.store(true, Ordering::Relaxed),
        }
        ring.is_some()
    })
}

/// Carries out all reads, as many as possible at the same time, and waits for them. `ended` is called with the number and
/// the result of each read as
/// soon as it is known.
pub(crate) fn read_all(requests: &mut [Request<'_>], ended: &mut dyn FnMut(usize, io::Result<()>)) {
    for (batch, requests) in requests.chunks_mut(ENTRIES as usize).enumerate() {
        let first = batch * ENTRIES as usize;
        let ended = &mut |number, result| ended(first + number, result);
        let rest = match is_available() {
            true => RING.with_borrow_mut(|ring| at_once(ring, requests, ended)),
            false => (0..requests.len()).collect(),
        };
        for number in rest {
            let Request { from, offset, buf } = &mut requests[number];
            ended(number, from.read_at(buf, *offset));
        }
    }
}

/// Carries out at most [`ENTRIES`] reads. Returns the numbers of the reads that are left to the usual call: the ring
/// did not take them, or read only a part of them.
fn at_once(
    ring: &mut Option<IoUring>,
    requests: &mut [Request<'_>],
    ended: &mut dyn FnMut(usize, io::Result<()>),
) -> Vec<usize> {
    let lens: Vec<usize> = requests.iter().map(|request| request.buf.len()).collect();
    let mut has_ended = vec![false; requests.len()];
    let mut flight = Flight { ring, left: 0 };
    for (number, request) in requests.iter_mut().enumerate() {
        flight.begin(number, request);
    }
    while let Some((number, said)) = flight.next() {
        let result = match said {
            bytes if usize::try_from(bytes) == Ok(lens[number]) => Ok(()),
            error if error < 0 && !is_of_the_ring(-error) => Err(io::Error::from_raw_os_error(-error)),
            _ => continue,
        };
        has_ended[number] = true;
        ended(number, result);
    }
    (0..lens.len()).filter(|number| !has_ended[*number]).collect()
}

/// Whether the error is about the ring or a passing state, and not about the device.
fn is_of_the_ring(error: i32) -> bool {
    let errors = [Errno::AGAIN, Errno::INTR, Errno::CANCELED, Errno::INVAL, Errno::OPNOTSUPP];
    errors.contains(&Errno::from_raw_os_error(error))
}

/// Reads under way. Dropping it waits for all of them.
struct Flight<'a> {
    /// `None` once it has failed.
    ring: &'a mut Option<IoUring>,
    /// Reads that were begun and not answered.
    left: usize,
}

impl Flight<'_> {
    /// Begins a read, if the ring takes it. The caller keeps `request` borrowed until the flight has ended.
    fn begin(&mut self, number: usize, request: &mut Request<'_>) {
        let Request { from, offset, buf } = request;
        let (Some(ring), Ok(len)) = (self.ring.as_mut(), u32::try_from(buf.len())) else { return };
        let Some(place) = from.place(*offset, u64::from(len)) else { return };
        let file = types::Fd(from.file().as_raw_fd());
        let read = opcode::Read::new(file, buf.as_mut_ptr(), len).offset(place);
        // SAFETY: the kernel uses the descriptor and the buffer until it has answered the entry. `at_once` holds both borrowed, declared
        // before the flight, and does not touch the buffer; the flight ends, also when a panic drops it, only when every entry that the
        // kernel took is answered. Entries that the kernel did not take go with the ring that holds them.
        let is_taken = unsafe { ring.submission().push(&read.build().user_data(number as u64)) }.is_ok();
        self.left += usize::from(is_taken);
    }

    /// Waits for the next answer: the number of the read, and bytes, or an error below zero. `None` when nothing is under way.
    fn next(&mut self) -> Option<(usize, i32)> {
        while self.left > 0 {
            let ring = self.ring.as_mut()?;
            let answer = ring.completion().next();
            if let Some(answer) = answer {
                self.left -= 1;
                return Some((answer.user_data() as usize, answer.result()));
            }
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                // The kernel did not see the requests that wait in the ring, and nothing else is under way.
                Err(_) if ring.submission().len() == self.left => {
                    (*self.ring, self.left) = (None, 0);
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        None
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::Arc;

    use super::*;

    /// A file with these bytes, seen as a disk of `size` bytes that begins at `start`.
    fn backing(bytes: &[u8], start: u64, size: u64) -> Backing {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(bytes).expect("written");
        Backing::new(Arc::new(file), start, size)
    }

    /// Reads each disk: the bytes, or the kind of the error.
    fn read(from: &[(Backing, u64)], len: usize) -> Vec<Result<Vec<u8>, io::ErrorKind>> {
        let mut buffers = vec![vec![0; len]; from.len()];
        let mut requests: Vec<Request<'_>> = from
            .iter()
            .zip(&mut buffers)
            .map(|((from, offset), buf)| Request { from: from.clone(), offset: *offset, buf })
            .collect();
        let mut results = vec![None; from.len()];
        read_all(&mut requests, &mut |number, result| {
            assert!(
                results[number].replace(result.map_err(|error| error.kind())).is_none(),
                "{number} ended before"
            );
        });
        results
            .into_iter()
            .map(|result| result.expect("each ends"))
            .zip(buffers)
            .map(|(result, buf)| result.map(|()| buf))
            .collect()
    }

    #[test]
    fn many_reads_give_the_bytes_of_their_places_and_each_its_own_error() {
        let disks: Vec<Backing> = (0..100).map(|n| backing(&[n; 3000], 1000, 2000)).collect();
        let mut wanted: Vec<(Backing, u64)> = disks.iter().map(|disk| (disk.clone(), 1488)).collect();
        // Past the end of the disk; past the end of a file that was cut.
        wanted[7].1 = 1489;
        wanted[50].0.file().set_len(2500).expect("cut");
        for turn in 0..3 {
            for (number, found) in read(&wanted, 512).into_iter().enumerate() {
                match number {
                    7 | 50 => assert_eq!(found, Err(io::ErrorKind::UnexpectedEof), "{turn}"),
                    _ => assert_eq!(found, Ok(vec![number as u8; 512]), "{turn}"),
                }
            }
        }
    }

    #[test]
    fn an_error_of_the_device_is_reported_as_the_kernel_says_it() {
        let folder = Backing::new(Arc::new(File::open("/").expect("a folder")), 0, 1 << 20);
        let good = backing(&[3; 4096], 0, 4096);
        let found = read(&[(folder, 0), (good, 0)], 512);
        assert_eq!(found, [Err(io::ErrorKind::IsADirectory), Ok(vec![3; 512])]);
    }

    #[test]
    fn requests_that_io_uring_refuses_are_read_by_the_usual_call() {
        let mut buf = [0; 512];
        let mut request = Request { from: backing(&[9; 512], 0, 512), offset: 0, buf: &mut buf };
        let left = at_once(&mut None, std::slice::from_mut(&mut request), &mut |_, _| {
            unreachable!("there is no ring")
        });
        assert_eq!(left, [0]);
        assert!(
            is_of_the_ring(22) && !is_of_the_ring(5),
            "an old kernel does not know the request; a device has an error"
        );
    }

    #[test]
    fn a_panic_of_the_listener_waits_for_the_other_reads() {
        let disks: Vec<Backing> = (0..8).map(|n| backing(&[n; 4096], 0, 4096)).collect();
        let mut buffers = vec![[0xff; 4096]; 8];
        let mut requests: Vec<Request<'_>> = disks
            .iter()
            .zip(&mut buffers)
            .map(|(from, buf)| Request { from: from.clone(), offset: 0, buf })
            .collect();
        let given_up = || read_all(&mut requests, &mut |_, _| panic!("the listener gives up"));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(given_up)).expect_err("it panics");
        if is_available() {
            let all: Vec<[u8; 4096]> = (0..8).map(|n| [n; 4096]).collect();
            assert!(buffers == all, "every read that was begun has ended");
        }
        assert_eq!(read(&[(disks[3].clone(), 0)], 512), [Ok(vec![3; 512])], "the ring can be used again");
    }
}
