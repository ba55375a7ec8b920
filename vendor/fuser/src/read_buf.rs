use std::cell::RefCell;
use std::mem::align_of;
use std::mem::take;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::ll::fuse_abi as abi;
use crate::session::MAX_WRITE_SIZE;

/// Size of the buffer for reading a request from the kernel. Since the kernel may send
/// up to `MAX_WRITE_SIZE` bytes in a write request, we use that value plus some extra space.
const BUFFER_SIZE: usize = MAX_WRITE_SIZE + 4096;

/// Buffers of ended threads and of messages that are no longer kept, for the next ones.
static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
/// More spare buffers than this are freed.
const SPARE_MAX: usize = 8;

thread_local! {
    /// The message that this thread serves.
    static CURRENT: RefCell<Option<KeptMessage>> = const { RefCell::new(None) };
}

/// A buffer that provides an aligned sub-slice for FUSE operations.
///
/// This struct wraps a `Vec<u8>` and provides access to an aligned portion
/// of the buffer, ensuring proper alignment for `fuse_in_header`.
#[derive(Debug)]
pub(crate) struct FuseReadBuf {
    buffer: Vec<u8>,
}

impl FuseReadBuf {
    /// Creates a new `FuseReadBuf` with the default buffer size.
    ///
    /// The actual buffer may be slightly larger to accommodate alignment requirements.
    pub(crate) fn new() -> Self {
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self {
            buffer: spare.unwrap_or_else(|| vec![0; BUFFER_SIZE]),
        }
    }

    /// Where the aligned portion of the buffer begins.
    fn start(&self) -> usize {
        let alignment = align_of::<abi::fuse_in_header>();
        (alignment - (self.buffer.as_ptr() as usize) % alignment) % alignment
    }

    /// Returns a mutable reference to the aligned portion of the buffer.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        let start = self.start();
        &mut self.buffer[start..]
    }

    /// The first `size` bytes of the aligned portion of the buffer.
    pub(crate) fn message(&self, size: usize) -> &[u8] {
        &self.buffer[self.start()..][..size]
    }
}

impl Drop for FuseReadBuf {
    fn drop(&mut self) {
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE_MAX {
            spare.push(take(&mut self.buffer));
        }
    }
}

/// A message of the kernel. Its bytes stay as they are until all copies of this value are dropped.
#[derive(Clone, Debug)]
pub struct KeptMessage {
    buffer: Arc<FuseReadBuf>,
    size: usize,
}

impl KeptMessage {
    /// Keeps the message that the calling thread serves, without a copy of its bytes. The thread receives its next
    /// message in another buffer.
    pub fn current() -> Option<KeptMessage> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// All bytes of the message, with its header. The data of a write are the last ones.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.message(self.size)
    }

    /// Bytes of memory that this value keeps.
    pub fn held(&self) -> usize {
        self.buffer.buffer.len()
    }
}

/// Calls `serve`, which may keep the message of `size` bytes in `buffer`.
pub(crate) fn serving(buffer: &Arc<FuseReadBuf>, size: usize, serve: impl FnOnce()) {
    CURRENT.set(Some(KeptMessage {
        buffer: buffer.clone(),
        size,
    }));
    serve();
    CURRENT.set(None);
}
