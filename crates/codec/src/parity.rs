//! Parity of raidz: up to three columns, P, Q and R, from which as many lost columns are computed again.
//!
//! From:   the data columns of a block, the first ones perhaps a sector longer than the others.
//! To:     parity columns, or the columns that were lost. A short column counts as if zeros followed it.
//! Source: docs/format/02-blocks-checksums-compression.md §7.3, §7.4: GF(2^8) with polynomial 0x11d; of n data columns D_0, D_1, …,
//!         parity column j is the sum of (2^j)^(n−1−i) · D_i.

use crate::galois::{POWERS, combine_plainly, inverse, product, sum};

/// Parity columns that a block has at most.
pub const PARITY_MAX: usize = 3;
/// Data columns from which parity is made at most: for more of them factors repeat.
pub const DATA_MAX: usize = 255;

/// The lost columns cannot be computed from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{lost} data columns are lost and {parity} parity columns are left")]
pub struct TooManyLost {
    /// Lost data columns.
    pub lost: usize,
    /// Parity columns that are left.
    pub parity: usize,
}

/// The factor of data column `column` of `count` in parity column `parity`.
fn weight(parity: usize, column: usize, count: usize) -> u8 {
    POWERS[parity * (count - 1 - column) % 255]
}

/// Fills the parity columns: one is P, two are P and Q, three are P, Q and R.
///
/// # Panics
/// If there are more than [`PARITY_MAX`] parity columns or [`DATA_MAX`] data columns, or a parity column is not as long as the longest
/// data column.
pub fn generate(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    generate_by(combine, data, parity);
}

/// Computes the data columns with the indices `lost` again from the others and from the parity columns that are left: `parity[0]` is P,
/// `parity[1]` Q, `parity[2]` R. The present bytes of the lost columns do not matter. Lost parity columns are for
/// [`generate`] to make again.
///
/// # Errors
/// More data columns are lost than parity columns are left.
///
/// # Panics
/// As [`generate`], and if `lost` names no column or names one twice.
pub fn reconstruct(
    data: &mut [&mut [u8]],
    parity: &[Option<&[u8]>],
    lost: &[usize],
) -> Result<(), TooManyLost> {
    reconstruct_by(combine, data, parity, lost)
}

/// Sets each output to the sum of all inputs, each multiplied with the output's factor for it. All are of one length.
type Combine = fn(factors: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]);

fn generate_by(combine: Combine, data: &[&[u8]], parity: &mut [&mut [u8]]) {
    let longest = check_shape(data.iter().map(|column| column.len()), parity.len());
    assert!(parity.iter().all(|column| column.len() == longest), "parity is as long as the longest column");
    for (from, to) in ranges(data.iter().map(|column| column.len())) {
        let there: Vec<usize> = (0..data.len()).filter(|i| data[*i].len() >= to).collect();
        let inputs: Vec<&[u8]> = there.iter().map(|i| &data[*i][from..to]).collect();
        let row = |j| there.iter().map(|i| weight(j, *i, data.len())).collect();
        let factors: Vec<Vec<u8>> = (0..parity.len()).map(row).collect();
        let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|column| &mut column[from..to]).collect();
        combine(&factors, &inputs, &mut outputs);
    }
}

fn reconstruct_by(
    combine: Combine,
    data: &mut [&mut [u8]],
    parity: &[Option<&[u8]>],
    lost: &[usize],
) -> Result<(), TooManyLost> {
    let longest = check_shape(data.iter().map(|column| column.len()), parity.len());
    let left: Vec<(usize, &[u8])> =
        parity.iter().enumerate().filter_map(|(j, column)| Some((j, (*column)?))).collect();
    assert!(
        left.iter().all(|(_, column)| column.len() == longest),
        "parity is as long as the longest column"
    );
    let too_many = TooManyLost { lost: lost.len(), parity: left.len() };
    let count = data.len();
    let lengths: Vec<usize> = data.iter().map(|column| column.len()).collect();
    // They are written while the others are read.
    let mut found: Vec<&mut [u8]> = lost.iter().map(|i| std::mem::take(&mut data[*i])).collect();
    let mut solve = |from: usize, to: usize| {
        // Behind its end a short column is known: it is zero there.
        let sought: Vec<usize> = (0..lost.len()).filter(|k| lengths[lost[*k]] >= to).collect();
        let used = left.get(..sought.len()).ok_or(too_many)?;
        let equations =
            used.iter().map(|(j, _)| sought.iter().map(|k| weight(*j, lost[*k], count)).collect()).collect();
        let solution = inverse_matrix(equations).ok_or(too_many)?;
        let known: Vec<usize> = (0..count).filter(|i| lengths[*i] >= to && !lost.contains(i)).collect();
        let factors_of = |row: &Vec<u8>| -> Vec<u8> {
            let of_known = known.iter().map(|i| {
                let terms =
                    row.iter().zip(used).map(|(factor, (j, _))| product(*factor, weight(*j, *i, count)));
                terms.fold(0, |sum, term| sum ^ term)
            });
            row.iter().copied().chain(of_known).collect()
        };
        let factors: Vec<Vec<u8>> = solution.iter().map(factors_of).collect();
        let of_parity = used.iter().map(|(_, column)| &column[from..to]);
        let inputs: Vec<&[u8]> = of_parity.chain(known.iter().map(|i| &data[*i][from..to])).collect();
        let is_sought = |(k, column)| sought.contains(&k).then_some(column);
        let columns = found.iter_mut().enumerate().filter_map(is_sought);
        let mut outputs: Vec<&mut [u8]> =
            columns.map(|column: &mut &mut [u8]| &mut column[from..to]).collect();
        combine(&factors, &inputs, &mut outputs);
        Ok(())
    };
    let solved = ranges(lengths.iter().copied()).into_iter().try_for_each(|(from, to)| solve(from, to));
    lost.iter().zip(found).for_each(|(i, column)| data[*i] = column);
    solved
}

/// The length of the longest column.
fn check_shape(data: impl ExactSizeIterator<Item = usize>, parity: usize) -> usize {
    assert!(parity <= PARITY_MAX, "there are three parity columns at most");
    assert!(data.len() <= DATA_MAX, "there are 255 data columns at most");
    data.max().unwrap_or(0)
}

/// The ranges of bytes throughout which the same columns exist.
fn ranges(lengths: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut ends: Vec<usize> = lengths.filter(|len| *len > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).collect()
}

/// The inverse of a square matrix by Gauss' elimination; `None` if there is none.
fn inverse_matrix(mut left: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = left.len();
    let unit = |row| (0..size).map(|column| u8::from(row == column)).collect();
    let mut right: Vec<Vec<u8>> = (0..size).map(unit).collect();
    for step in 0..size {
        let pivot = (step..size).find(|row| left[*row][step] != 0)?;
        left.swap(step, pivot);
        right.swap(step, pivot);
        let scale = inverse(left[step][step])?;
        for side in [&mut left, &mut right] {
            side[step].iter_mut().for_each(|value| *value = product(*value, scale));
        }
        for row in (0..size).filter(|row| *row != step) {
            let factor = left[row][step];
            for side in [&mut left, &mut right] {
                let of_step = side[step].clone();
                side[row].iter_mut().zip(of_step).for_each(|(value, other)| *value ^= product(factor, other));
            }
        }
    }
    Some(right)
}

/// [`Combine`] by the fastest way that this machine has.
fn combine(factors: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    if let ([row], [output]) = (factors, &mut *outputs)
        && row.iter().all(|factor| *factor == 1)
    {
        return sum(inputs, output);
    }
    #[cfg(target_arch = "x86_64")]
    if crate::simd::parity::combine(factors, inputs, outputs) {
        return;
    }
    combine_plainly(factors, inputs, outputs);
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn refs(columns: &[Vec<u8>]) -> Vec<&[u8]> {
        columns.iter().map(Vec::as_slice).collect()
    }

    fn muts(columns: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
        columns.iter_mut().map(Vec::as_mut_slice).collect()
    }

    fn parity_by(combine: Combine, data: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
        let longest = data.iter().map(Vec::len).max().unwrap_or(0);
        let mut parity = vec![vec![0xee; longest]; count];
        generate_by(combine, &refs(data), &mut muts(&mut parity));
        parity
    }

    /// Columns of which the first `longer` have one more unit of bytes than the others.
    fn columns(count: usize, longer: usize, units: usize, unit: usize, seed: u8) -> Vec<Vec<u8>> {
        let byte = |i: usize, at: usize| (at * 31 + i * 97 + usize::from(seed) * 13 + at * at / 7) as u8;
        let len = |i| (units + usize::from(i < longer)) * unit;
        (0..count).map(|i| (0..len(i)).map(|at| byte(i, at)).collect()).collect()
    }

    #[test]
    fn the_example_of_the_format_page_comes_out() {
        let parity = parity_by(combine_plainly, &[vec![0x01], vec![0x80], vec![0x55]], 3);
        assert_eq!(parity, [[0xd4], [0x4c], [0x7f]]);
        // Column 1 of 8 from P, R and the others, with 1 and 2 lost.
        let data: Vec<Vec<u8>> = (0..8).map(|i| vec![i * 29 + 3]).collect();
        let parity = parity_by(combine_plainly, &data, 3);
        let terms = [(167, &parity[0]), (100, &parity[2]), (5, &data[0]), (71, &data[3]), (159, &data[4])];
        let rest = [(169, &data[5]), (42, &data[6]), (195, &data[7])];
        let sum =
            terms.iter().chain(&rest).fold(0, |sum, (factor, column)| sum ^ product(*factor, column[0]));
        assert_eq!(sum, data[1][0]);
    }

    #[test]
    fn parity_is_what_horner_s_scheme_gives() {
        let data = columns(5, 2, 1, 3, 7);
        let zero_extended = |i: usize, at: usize| data[i].get(at).copied().unwrap_or(0);
        let horner = |base: u8, at: usize| (0..5).fold(0, |sum, i| product(sum, base) ^ zero_extended(i, at));
        let wanted = [1, 2, 4].map(|base| (0..6).map(|at| horner(base, at)).collect::<Vec<u8>>());
        assert_eq!(parity_by(combine_plainly, &data, 3), wanted);
    }

    /// Every way to lose columns that parity allows.
    fn losses(data: usize, parity: usize) -> impl Iterator<Item = Vec<usize>> {
        let all = data + parity;
        (1u32..1 << all)
            .filter(move |mask| mask.count_ones() as usize <= parity)
            .map(move |mask| (0..all).filter(|column| mask & (1 << column) != 0).collect())
    }

    #[test]
    fn every_combination_of_lost_columns_is_restored() {
        for width in 2..=12 {
            for parity in 1..=PARITY_MAX.min(width - 1) {
                let count = width - parity;
                let whole = columns(count, count / 2, 1, 37, width as u8);
                let of_whole = parity_by(combine, &whole, parity);
                for lost in losses(count, parity) {
                    let mut data = whole.clone();
                    let lost_data: Vec<usize> = lost.iter().copied().filter(|i| *i < count).collect();
                    lost_data.iter().for_each(|i| data[*i].fill(0xab));
                    let left: Vec<Option<&[u8]>> = (0..parity)
                        .map(|j| (!lost.contains(&(count + j))).then_some(of_whole[j].as_slice()))
                        .collect();
                    for way in [combine as Combine, combine_plainly] {
                        reconstruct_by(way, &mut muts(&mut data), &left, &lost_data).unwrap();
                        assert_eq!(data, whole, "width {width}, parity {parity}, lost {lost:?}");
                        assert_eq!(parity_by(way, &data, parity), of_whole);
                    }
                }
            }
        }
    }

    #[test]
    fn one_more_than_parity_allows_is_refused() {
        let mut data = columns(4, 0, 1, 8, 1);
        let parity = parity_by(combine, &data, 2);
        let one_left = [None, Some(parity[1].as_slice())];
        let lost = reconstruct(&mut muts(&mut data), &one_left, &[0, 3]);
        assert_eq!(lost, Err(TooManyLost { lost: 2, parity: 1 }));
        let before = columns(4, 0, 1, 8, 1);
        assert_eq!(data, before, "columns stay what they are");
    }

    #[test]
    fn blocks_of_no_bytes_and_of_the_most_columns_are_fine() {
        reconstruct(&mut muts(&mut [vec![], vec![]]), &[Some(&[])], &[1]).unwrap();
        let whole = columns(DATA_MAX, 3, 1, 5, 9);
        let parity = parity_by(combine, &whole, 3);
        let left: Vec<Option<&[u8]>> = parity.iter().map(|column| Some(column.as_slice())).collect();
        let mut data = whole.clone();
        [0, 100, 254].iter().for_each(|i| data[*i].fill(0));
        reconstruct(&mut muts(&mut data), &left, &[0, 100, 254]).unwrap();
        assert_eq!(data, whole);
    }

    proptest! {
        #[test]
        fn the_fast_way_equals_the_plain_one(
            inputs in (0usize..300, 1usize..9).prop_flat_map(|(len, count)| vec(vec(any::<u8>(), len), count)),
            factors in vec(vec(any::<u8>(), 8), 1..=PARITY_MAX),
        ) {
            let factors: Vec<Vec<u8>> = factors.iter().map(|row| row[..inputs.len()].to_vec()).collect();
            let blank = vec![vec![0x5a; inputs[0].len()]; factors.len()];
            let (mut fast, mut plain) = (blank.clone(), blank);
            combine(&factors, &refs(&inputs), &mut muts(&mut fast));
            combine_plainly(&factors, &refs(&inputs), &mut muts(&mut plain));
            prop_assert_eq!(fast, plain);
        }

        #[test]
        fn sums_equal_products_with_one(
            inputs in (0usize..20_000, 1usize..4).prop_flat_map(|(len, count)| vec(vec(any::<u8>(), len), count)),
        ) {
            let factors = vec![vec![1; inputs.len()]];
            let (mut fast, mut plain) = (vec![vec![1; inputs[0].len()]], vec![vec![2; inputs[0].len()]]);
            combine(&factors, &refs(&inputs), &mut muts(&mut fast));
            combine_plainly(&factors, &refs(&inputs), &mut muts(&mut plain));
            prop_assert_eq!(fast, plain);
        }
    }
}
