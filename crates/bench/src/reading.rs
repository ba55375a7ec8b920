//! A file of a pool, copied into a buffer of its reader as `read(2)` does.
//!
//! From:   the pieces of a file, which are the pool's own records: handing those over moves no byte, and a rate of that
//!         says nothing.
//! To:     [`measure`](crate::measure::measure), which times it, and compares in a second pass what came in the same way.

use std::hint::black_box;
use std::ops::Range;

use storage::Record;
use zpl::Piece;

use crate::Result;
use crate::source::Contents;

/// Bytes that a reader asks for at once.
pub(crate) const READ: u64 = 1 << 20;

/// A file while it is read.
pub(crate) struct Reading<'a> {
    pieces: &'a mut dyn Iterator<Item = Result<Piece>>,
    buf: Vec<u8>,
    now: Now,
    /// The rest of a hole of the pool.
    hole: Range<u64>,
    /// Where the source has data: what a pool keeps as a hole there are zeros that a reader wants.
    data: Vec<Range<u64>>,
}

/// The part that is being handed over.
enum Now {
    /// Bytes of a record that begins at `offset` of the file.
    Data { offset: u64, record: Record, left: Range<usize> },
    /// Bytes of the file.
    Zeros(Range<u64>),
}

impl<'a> Reading<'a> {
    /// Reads the file `contents`, whose `pieces` come from the pool in order.
    pub(crate) fn new(
        contents: &Contents,
        pieces: &'a mut dyn Iterator<Item = Result<Piece>>,
    ) -> Reading<'a> {
        Reading {
            pieces,
            // The pool may have more than it should: that is found out by comparing.
            buf: vec![0; contents.size.clamp(1, READ) as usize],
            now: Now::Zeros(0..0),
            hole: 0..0,
            data: contents.parts(1, u64::MAX),
        }
    }

    /// The next bytes, [`READ`] at most, in the reader's buffer, and where in the file they begin. Holes that both the pool
    /// and the source have are left out; `None` at the end.
    ///
    /// # Errors
    /// Those of the pieces.
    pub(crate) fn next_part(&mut self) -> Result<Option<(u64, &[u8])>> {
        while self.now.is_over() {
            // The memory of a record without holders is used for the next ones.
            self.now = Now::Zeros(0..0);
            match self.begin()? {
                Some(next) => self.now = next,
                None => return Ok(None),
            }
        }
        let (at, len) = self.now.fill(&mut self.buf);
        // Without this, a compiler may leave out the copy, since no code uses it.
        Ok(Some((at, black_box(&self.buf[..len]))))
    }

    /// Begins the part after the present one.
    fn begin(&mut self) -> Result<Option<Now>> {
        loop {
            let first = self.data.partition_point(|data| data.end <= self.hole.start);
            if let Some(data) = self.data.get(first).filter(|data| data.start < self.hole.end) {
                let zeros = data.start.max(self.hole.start)..data.end.min(self.hole.end);
                self.hole.start = zeros.end;
                return Ok(Some(Now::Zeros(zeros)));
            }
            match self.pieces.next().transpose()? {
                Some(Piece::Data { offset, record, len }) => {
                    return Ok(Some(Now::Data { offset, record, left: 0..len }));
                }
                Some(Piece::Hole { offset, len }) => self.hole = offset..offset.saturating_add(len),
                None => return Ok(None),
            }
        }
    }
}

impl Now {
    fn is_over(&self) -> bool {
        match self {
            Now::Data { left, .. } => left.is_empty(),
            Now::Zeros(left) => left.is_empty(),
        }
    }

    /// Copies the next bytes into `buf`; returns their place in the file, and their number.
    fn fill(&mut self, buf: &mut [u8]) -> (u64, usize) {
        match self {
            Now::Data { offset, record, left } => {
                let (at, len) = (*offset + left.start as u64, left.len().min(buf.len()));
                buf[..len].copy_from_slice(&record[left.start..left.start + len]);
                left.start += len;
                (at, len)
            }
            Now::Zeros(left) => {
                let (at, len) = (left.start, (left.end - left.start).min(buf.len() as u64) as usize);
                buf[..len].fill(0);
                left.start += len as u64;
                (at, len)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::Arc;

    use super::*;
    use crate::Source;

    /// The pieces that a reader got: the place of each, and a copy.
    fn all(contents: &Contents, pieces: Vec<Piece>) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = pieces.into_iter().map(Ok);
        let mut reading = Reading::new(contents, &mut pieces);
        let mut got = Vec::new();
        while let Some((at, bytes)) = reading.next_part().unwrap() {
            got.push((at, bytes.to_vec()));
        }
        got
    }

    #[test]
    fn every_byte_is_copied_into_the_one_buffer_of_the_reader() {
        let bytes: Vec<u8> = (0..5_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let source = Source::of_memory(vec![("file".to_owned(), bytes.clone())]);
        let contents = source.entries()[0].contents.as_ref().unwrap();
        let records: Vec<Record> = bytes.chunks(1 << 22).map(|part| Arc::new(part.to_vec())).collect();
        let piece = |(index, record): (usize, &Record)| Piece::Data {
            offset: (index << 22) as u64,
            record: record.clone(),
            len: record.len(),
        };
        let pieces: Vec<Piece> = records.iter().enumerate().map(piece).collect();
        let mut pieces = pieces.into_iter().map(Ok);
        let mut reading = Reading::new(contents, &mut pieces);
        let (mut got, mut buffers) = (Vec::new(), Vec::new());
        while let Some((at, part)) = reading.next_part().unwrap() {
            assert!(at == got.len() as u64 && part.len() as u64 <= READ, "{at} {}", part.len());
            assert!(records.iter().all(|record| !record.as_ptr_range().contains(&part.as_ptr())));
            buffers.push(part.as_ptr());
            got.extend_from_slice(part);
        }
        assert!(got == bytes);
        buffers.dedup();
        assert_eq!(buffers.len(), 1, "memory for all of the file would be another measurement");
    }

    #[test]
    fn zeros_that_a_pool_does_not_store_are_read_and_holes_of_the_source_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        // Zeros that were written, and data that a pool keeps.
        file.write_all_at(&vec![0; 3 << 20], 1 << 30).unwrap();
        file.write_all_at(&[7; 4096], 1 << 35).unwrap();
        drop(file);
        let source = Source::scan(&[path]).unwrap();
        if source.bytes() == 1 << 40 {
            return; // The file system does not tell where its holes are.
        }
        let contents = source.entries()[0].contents.as_ref().unwrap();
        let hole = |range: Range<u64>| Piece::Hole { offset: range.start, len: range.end - range.start };
        let record = Piece::Data { offset: 1 << 35, record: Arc::new(vec![7; 4096]), len: 4096 };
        let got = all(contents, vec![hole(0..1 << 35), record, hole((1 << 35) + 4096..1 << 40)]);
        let places: Vec<(u64, usize)> = got.iter().map(|(at, bytes)| (*at, bytes.len())).collect();
        let mib = |n: u64| ((1 << 30) + (n << 20), 1 << 20);
        assert_eq!(places, [mib(0), mib(1), mib(2), (1 << 35, 4096)]);
        assert!(got[..3].iter().all(|(_, bytes)| bytes.iter().all(|byte| *byte == 0)));
        assert_eq!(got[3].1, [7; 4096]);
    }

    #[test]
    fn a_pool_with_more_than_the_source_has_is_read_to_its_end() {
        let source = Source::of_memory(vec![("empty".to_owned(), Vec::new())]);
        let contents = source.entries()[0].contents.as_ref().unwrap();
        let got = all(contents, vec![Piece::Data { offset: 0, record: Arc::new(vec![1; 512]), len: 3 }]);
        assert_eq!(got, [(0, vec![1]), (1, vec![1]), (2, vec![1])]);
    }
}
