//! The field GF(2^8) of raidz's parity as tables and plain loops: for any machine, and for what the vector form leaves over.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §7.3: polynomial 0x11d; a sum is an exclusive or.

/// The products of one factor with every byte: of its low four bits and of its high four bits.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

impl Factor {
    const fn of(factor: u8) -> Factor {
        let (mut low, mut high) = ([0; 16], [0; 16]);
        let mut nibble = 0;
        while nibble < 16 {
            low[nibble] = product(factor, nibble as u8);
            high[nibble] = product(factor, (nibble as u8) << 4);
            nibble += 1;
        }
        Factor { low, high }
    }

    pub(crate) const fn times(&self, byte: u8) -> u8 {
        self.low[(byte & 15) as usize] ^ self.high[(byte >> 4) as usize]
    }
}

/// Every factor.
pub(crate) static FACTORS: [Factor; 256] = {
    let mut all = [Factor::of(0); 256];
    let mut factor = 1;
    while factor < 256 {
        all[factor] = Factor::of(factor as u8);
        factor += 1;
    }
    all
};

/// `POWERS[e]` is 2^e.
pub(crate) const POWERS: [u8; 255] = {
    let mut powers = [1; 255];
    let mut exponent = 1;
    while exponent < 255 {
        powers[exponent] = product(powers[exponent - 1], 2);
        exponent += 1;
    }
    powers
};

/// The product of two numbers.
pub(crate) const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = (a << 1) ^ if a & 0x80 != 0 { 0x1d } else { 0 };
        b >>= 1;
    }
    sum
}

/// The number whose product with `a` is 1; `None` for 0.
pub(crate) fn inverse(a: u8) -> Option<u8> {
    let exponent = POWERS.iter().position(|power| *power == a)?;
    Some(POWERS[(255 - exponent) % 255])
}

/// Bytes of a piece whose sum stays in the nearest cache while all inputs are added.
const PIECE: usize = 8 << 10;

/// The sum of all inputs.
pub(crate) fn sum(inputs: &[&[u8]], output: &mut [u8]) {
    for (piece, output) in output.chunks_mut(PIECE).enumerate() {
        let from = piece * PIECE;
        output.fill(0);
        for input in inputs {
            let input = &input[from..from + output.len()];
            output.iter_mut().zip(input).for_each(|(sum, byte)| *sum ^= byte);
        }
    }
}

/// Sets each output to the sum of all inputs, each multiplied with the output's factor for it, byte by byte: for any machine, and for what the vector form leaves over.
pub(crate) fn combine_plainly(factors: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    for (row, output) in factors.iter().zip(outputs) {
        output.fill(0);
        for (factor, input) in row.iter().zip(inputs) {
            let factor = &FACTORS[usize::from(*factor)];
            output.iter_mut().zip(*input).for_each(|(sum, byte)| *sum ^= factor.times(*byte));
        }
    }
}
