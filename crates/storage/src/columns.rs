//! The columns of a block of a vdev with parity, read from its sides.
//!
//! From:   `raidz`, which knows which columns it needs.
//! To:     the sides: all columns at the same time where the machine can do that (`together`).

use format::Txg;

use crate::distributed::Ways;
use crate::error::ReadError;
use crate::layout::Column;
use crate::meter::Purpose;
use crate::side::Side;
use crate::together::{self, Wanted};

/// The children of a raidz vdev that are read, and what for.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    /// By number.
    pub(crate) sides: &'a [Side],
    /// The whole vdev, also the leaves that are not read.
    pub(crate) ways: Ways<'a>,
    pub(crate) purpose: Purpose,
    /// Id of the vdev.
    pub(crate) vdev: u32,
    /// When the block was written.
    pub(crate) born: Txg,
}

impl Columns<'_> {
    /// Fills `buf` with a column. Returns the number of the leaf that it was read from, among the leaves of its side.
    pub(crate) fn read(&self, column: &Column, buf: &mut [u8]) -> Result<usize, ReadError> {
        self.read_side(&self.sides[column.child], column, buf)
    }

    fn read_side(&self, side: &Side, column: &Column, buf: &mut [u8]) -> Result<usize, ReadError> {
        let read = self.ways.read_side(side, self.purpose, column.offset, buf);
        read.unwrap_or(Err(ReadError::Missing { vdev: self.vdev }))
    }

    /// Fills the buffer of each column. Returns, in their order, the number of the leaf that gave each.
    pub(crate) fn read_all(&self, mut columns: Vec<(Column, &mut [u8])>) -> Vec<Result<usize, ReadError>> {
        if let [(column, buf)] = &mut columns[..] {
            return vec![self.read(column, buf)];
        }
        let sides = self.sides;
        let firsts: Vec<_> = columns.iter().map(|(column, _)| sides[column.child].first()).collect();
        let mut wanted: Vec<Wanted<'_>> = Vec::with_capacity(columns.len());
        for ((column, buf), first) in columns.iter_mut().zip(&firsts) {
            wanted.extend(first.map(|(_, leaf)| Wanted { leaf, offset: column.offset, buf }));
        }
        let mut together = together::read(self.purpose, &mut wanted).into_iter();
        let mut read = Vec::with_capacity(columns.len());
        for ((column, buf), first) in columns.iter_mut().zip(firsts) {
            let first = first.and_then(|(place, _)| Some((place, together.next()??)));
            read.push(match first {
                Some((place, Ok(()))) => Ok(place),
                // The leaves behind it have their turn. If there is none, its own error counts.
                Some((place, Err(error))) => match sides[column.child].without(|other| other <= place) {
                    others if others.is_there() => self.read_side(&others, column, buf),
                    _ => Err(error),
                },
                None => self.read(column, buf),
            });
        }
        read
    }

    /// The number of the first leaf of a side among all leaves.
    pub(crate) fn number_of(&self, side: usize) -> usize {
        self.sides[..side].iter().map(|side| side.places().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use format::label::DATA_START;

    use super::*;
    use crate::host::{Access, FileDisk, ring};
    use crate::leaf::Leaf;

    const LEN: u64 = 8192;

    /// Four files: each holds its number, from `DATA_START` on.
    struct Bed {
        _folder: tempfile::TempDir,
        files: Vec<File>,
        leaves: Vec<Leaf>,
    }

    fn bed() -> Bed {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut files, mut leaves) = (Vec::new(), Vec::new());
        for n in 0..4 {
            let path = folder.path().join(n.to_string());
            let file = File::create(&path).expect("a file");
            file.set_len(DATA_START + (1 << 20)).expect("long");
            file.write_all_at(&[n; LEN as usize], DATA_START + 4096).expect("written");
            files.push(file);
            let disk = FileDisk::open(&path, Access::ReadOnly).expect("opened");
            leaves.push(Leaf::new(u64::from(n), Arc::new(disk)));
        }
        Bed { _folder: folder, files, leaves }
    }

    /// Reads one column of each side: which leaf gave it, and its first byte.
    fn read(sides: &[Side]) -> Vec<Option<(usize, u8)>> {
        let from = Columns {
            sides,
            ways: Ways::without_spares(),
            purpose: Purpose::AsyncRead,
            vdev: 0,
            born: Txg(0),
        };
        let mut buffers = vec![vec![0xff; LEN as usize]; sides.len()];
        let column = |child| Column { child, offset: 4096, len: LEN, filled: LEN, start: 0 };
        let wanted =
            buffers.iter_mut().enumerate().map(|(child, buf)| (column(child), &mut buf[..])).collect();
        let read = from.read_all(wanted);
        let one = |(read, buf): (Result<usize, ReadError>, Vec<u8>)| {
            assert!(read.is_err() || buf.iter().all(|byte| *byte == buf[0]), "one file holds one byte");
            read.ok().map(|place| (place, buf[0]))
        };
        read.into_iter().zip(buffers).map(one).collect()
    }

    #[test]
    fn each_column_comes_from_the_first_leaf_of_its_side_that_can_be_read() {
        let Bed { _folder, files, leaves } = bed();
        let leaf = |n: usize| Some(leaves[n].clone());
        let sides = [
            Side::new(vec![None, leaf(0)]),
            Side::new(vec![leaf(1), leaf(2)]),
            Side::from(leaf(3)),
            Side::from(None),
        ];
        assert_eq!(read(&sides), [Some((1, 0)), Some((0, 1)), Some((0, 3)), None]);
        // The files end before the column.
        files[1].set_len(DATA_START).expect("cut");
        files[3].set_len(DATA_START).expect("cut");
        assert_eq!(read(&sides), [Some((1, 0)), Some((1, 2)), None, None]);
        let counted = |n: usize| {
            let stats = leaves[n].meter.stats();
            (stats.reads, stats.read_bytes, stats.read_errors)
        };
        let found: Vec<(u64, u64, u64)> = (0..4).map(counted).collect();
        assert_eq!(found, [(2, 2 * LEN, 0), (2, LEN, 1), (1, LEN, 0), (2, LEN, 1)]);
        assert!(leaves.iter().all(|leaf| leaf.meter.oldest().is_none()), "nothing is under way");
    }

    #[test]
    fn files_are_read_together_but_for_one_that_has_enough_to_do() {
        let Bed { _folder, leaves, .. } = bed();
        let mut buffers = vec![vec![0; 512]; 3];
        let mut wanted: Vec<Wanted<'_>> =
            leaves.iter().zip(&mut buffers).map(|(leaf, buf)| Wanted { leaf, offset: 4096, buf }).collect();
        let busy: Vec<_> =
            std::iter::from_fn(|| leaves[1].begin_read(Purpose::AsyncRead, (0, 512))).take(50).collect();
        assert!(busy.len() < 50, "there is a limit");
        let read: Vec<bool> =
            together::read(Purpose::AsyncRead, &mut wanted).iter().map(Option::is_some).collect();
        let here = ring::is_available();
        assert_eq!(read, [here, false, here]);
    }
}
