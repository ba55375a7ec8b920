//! Rates as people write them: `200M` is what is printed on a disk, 200 million bytes a second.
//!
//! From:   what a user types.
//! To:     bytes a second. Sizes are another matter: their units are powers of 1024.

use pool::props::PropertyError;

const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Reads a rate: digits, perhaps with a decimal point, then nothing or a unit (`K`, `M`, `MB`, `MB/s`: powers of 1000;
/// `MiB`, `MiB/s`: powers of 1024).
///
/// # Errors
/// [`PropertyError::BadNumber`], [`PropertyError::BadSuffix`], [`PropertyError::NumberTooLarge`].
pub fn parse_rate(text: &str) -> Result<u64, PropertyError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| PropertyError::BadNumber { text: text.to_owned() })?;
    let factor = factor(suffix).ok_or_else(|| PropertyError::BadSuffix { suffix: suffix.to_owned() })?;
    let rate = (number * factor).round();
    // 2^64 itself is representable as a float and is the first that does not fit.
    if rate < 2f64.powi(64) { Ok(rate as u64) } else { Err(PropertyError::NumberTooLarge) }
}

fn factor(suffix: &str) -> Option<f64> {
    let unit = suffix.strip_suffix("/s").unwrap_or(suffix);
    let mut letters = unit.chars().map(|c| c.to_ascii_uppercase());
    let (first, rest) = (letters.next(), letters.collect::<String>());
    let power = match first {
        None | Some('B') => 0,
        Some(letter) => UNITS.iter().position(|unit| *unit == letter)? as i32 + 1,
    };
    match (rest.as_str(), power) {
        ("", _) => Some(1000f64.powi(power)),
        ("B", 1..) => Some(1000f64.powi(power)),
        ("IB", 1..) => Some(1024f64.powi(power)),
        _ => None,
    }
}

/// A rate in words: `200 MB/s`.
pub(crate) fn in_words(rate: u64) -> String {
    let power = if rate < 1000 { 0 } else { (rate.ilog10() / 3) as usize };
    let unit = power.checked_sub(1).map_or(String::new(), |at| UNITS[at].to_string());
    let number = rate as f64 / 1000f64.powi(power as i32);
    let number = format!("{number:.2}");
    format!("{} {unit}B/s", number.trim_end_matches('0').trim_end_matches('.')).replace("KB", "kB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_rates_are_powers_of_a_thousand_unless_they_say_otherwise() {
        let cases = [
            ("200M", 200_000_000),
            ("1.5GB/s", 1_500_000_000),
            ("110mb", 110_000_000),
            ("200MiB/s", 209_715_200),
            ("977k", 977_000),
            ("1000000", 1_000_000),
            ("7B/s", 7),
        ];
        for (text, rate) in cases {
            assert_eq!(parse_rate(text).unwrap(), rate, "{text}");
        }
        for bad in ["", "M", "1..5M", "5X", "5MX", "-1M", "5 M", "Bi", "1BB", "1Mi", "99999999E"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rates_are_printed_in_the_same_units() {
        let said = [0, 200, 1_000_000, 209_715_200, 1_500_000_000, 977_000].map(in_words);
        assert_eq!(said, ["0 B/s", "200 B/s", "1 MB/s", "209.72 MB/s", "1.5 GB/s", "977 kB/s"]);
    }
}
