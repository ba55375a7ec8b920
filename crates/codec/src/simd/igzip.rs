//! Deflating by ISA-L's igzip, which build.rs compiles: AVX-512 or AVX2 where the machine has them, as it finds out itself.
//!
//! Reading is libdeflate's: igzip's inflate is nearly always slower (docs/performance.md).

use std::cell::RefCell;
use std::mem;

use isal_sys::igzip_lib as isal;

/// igzip's level for each of gzip-1 to gzip-9. Level 0 has fixed codes and loses another tenth; level 3 looks at all
/// positions, which pays for text and programs but not for reads of DNA.
const LEVELS: [u8; 9] = [1, 1, 1, 2, 2, 2, 3, 3, 3];

/// igzip's working memory, aligned for whatever vectors it uses.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

/// A stream's state and its memory, for one thread.
struct Igzip {
    stream: isal::isal_zstream,
    memory: Vec<Line>,
}

thread_local! {
    static IGZIP: RefCell<Option<Box<Igzip>>> = const { RefCell::new(None) };
}

/// Makes one zlib stream of `src`; the bytes used, or `None` if it does not fit.
///
/// # Panics
/// If `level` is not 1 to 9: `format` makes no other.
pub(crate) fn compress(level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    assert!((1..=9).contains(&level), "gzip has levels 1 to 9");
    let level = LEVELS[usize::from(level) - 1];
    IGZIP.with_borrow_mut(|slot| slot.get_or_insert_with(Igzip::new).compress(level, src, dst))
}

impl Igzip {
    fn new() -> Box<Igzip> {
        let len = memory_len(1).max(memory_len(2)).max(memory_len(3)) as usize;
        let memory = vec![Line { _bytes: [0; 64] }; len.div_ceil(64)];
        // SAFETY: a C structure of integers, arrays of them and pointers: all zeros is a value of it.
        let stream = unsafe { mem::zeroed() };
        Box::new(Igzip { stream, memory })
    }

    fn compress(&mut self, level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let src_len = u32::try_from(src.len()).ok()?;
        let dst_len = u32::try_from(dst.len()).ok()?;
        let stream = &mut self.stream;
        // SAFETY: the call sets fields of the structure and reads nothing outside of it.
        unsafe { isal::isal_deflate_stateless_init(stream) };
        stream.level = level.into();
        stream.level_buf = self.memory.as_mut_ptr().cast();
        stream.level_buf_size = memory_len(level);
        stream.gzip_flag = isal::IGZIP_ZLIB as u16;
        stream.end_of_stream = 1;
        stream.next_in = src.as_ptr().cast_mut();
        stream.avail_in = src_len;
        stream.next_out = dst.as_mut_ptr();
        stream.avail_out = dst_len;
        // SAFETY: `next_in` is readable for `avail_in` bytes, which igzip only reads, and `next_out` writable for
        // `avail_out` bytes; the borrow rules keep the two apart. `level_buf` is writable for `level_buf_size` bytes,
        // which `new` made large enough for every level. A stateless call keeps none of them in use afterwards.
        let result = unsafe { isal::isal_deflate_stateless(stream) };
        let used = stream.total_out as usize;
        // The pointers end with the borrows.
        (stream.next_in, stream.next_out) = (std::ptr::null_mut(), std::ptr::null_mut());
        let done = result == isal::COMP_OK as i32 && stream.avail_in == 0;
        assert!(!done || used <= dst.len(), "igzip keeps to its limit");
        done.then_some(used)
    }
}

/// Bytes of working memory for a level of igzip, as its authors advise.
const fn memory_len(level: u8) -> u32 {
    match level {
        1 => isal::ISAL_DEF_LVL1_DEFAULT,
        2 => isal::ISAL_DEF_LVL2_DEFAULT,
        _ => isal::ISAL_DEF_LVL3_DEFAULT,
    }
}
