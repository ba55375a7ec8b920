//! Sizes as people write them: digits with a unit.
//!
//! From:   what a user types.
//! To:     exact counts.

use super::PropertyError;

/// Reads a size: digits, perhaps with a decimal point, then nothing or a unit (`K`, `kb`, `KiB`, …).
///
/// # Errors
/// [`PropertyError::BadNumber`] without a leading digit or point, [`PropertyError::BadSuffix`],
/// [`PropertyError::NumberTooLarge`] above 64 bits.
pub fn parse_size(text: &str) -> Result<u64, PropertyError> {
    let bad_number = || PropertyError::BadNumber { text: text.to_owned() };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let fraction = match text[digits..].strip_prefix('.') {
        Some(rest) => 1 + rest.bytes().take_while(u8::is_ascii_digit).count(),
        None => 0,
    };
    let (number, suffix) = text.split_at(digits + fraction);
    if number.is_empty() || number == "." {
        return Err(bad_number());
    }
    let shift = unit_shift(suffix).ok_or_else(|| PropertyError::BadSuffix { suffix: suffix.to_owned() })?;
    if fraction == 0 {
        let n = number.parse::<u64>().map_err(|_| PropertyError::NumberTooLarge)?;
        let scaled = if shift < 64 { n.checked_mul(1 << shift) } else { (n == 0).then_some(0) };
        return scaled.ok_or(PropertyError::NumberTooLarge);
    }
    let scaled = number.parse::<f64>().map_err(|_| bad_number())? * 2f64.powi(shift as i32);
    // 2^64 itself is representable as a float and is the first that does not fit.
    if scaled >= 2f64.powi(64) {
        return Err(PropertyError::NumberTooLarge);
    }
    Ok(scaled as u64)
}

/// log2 of a unit as it may be typed; none is ones.
fn unit_shift(suffix: &str) -> Option<u32> {
    let Some(letter) = suffix.bytes().next() else { return Some(0) };
    let power = b"BKMGTPEZ".iter().position(|u| *u == letter.to_ascii_uppercase())?;
    let tail = &suffix[1..];
    let plain = tail.is_empty();
    let spelled = power > 0 && (tail.eq_ignore_ascii_case("B") || tail.eq_ignore_ascii_case("iB"));
    (plain || spelled).then_some(10 * power as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::props::number::nice;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_openzfs_reads_them() {
        let read = |text| parse_size(text).map_err(|e| e.to_string());
        for good in ["65536b", "65536B", "64k", "64K", "64kb", "64KB", "64KiB", "64kib", "65536"] {
            assert_eq!(read(good), Ok(65536), "{good}");
        }
        for (text, n) in [
            ("1P", 1 << 50),
            ("1E", 1 << 60),
            ("0.5M", 524288),
            ("1.5m", 1572864),
            ("1.5", 1),
            ("1.M", 1 << 20),
            (".5M", 524288),
            ("0200000", 200000),
            ("15.99E", 18435214858663483392),
            ("8E", 1 << 63),
            ("7.99E", 9211842821808707584),
            ("0Z", 0),
        ] {
            assert_eq!(read(text), Ok(n), "{text}");
        }
        for big in ["1Z", "16E", "16.0E", "18446744073709551616", "99999999999999999999999"] {
            assert_eq!(read(big), Err("numeric value is too large".to_owned()), "{big}");
        }
        for (text, suffix) in [
            ("1e6", "e6"),
            ("0x10000", "x10000"),
            ("1,5M", ",5M"),
            ("1_000", "_000"),
            ("1MM", "MM"),
            ("1KBB", "KBB"),
            ("1iB", "iB"),
            ("5M ", "M "),
            ("1 M", " M"),
            ("1BB", "BB"),
            ("1é", "é"),
        ] {
            assert_eq!(read(text), Err(format!("invalid numeric suffix '{suffix}'")), "{text}");
        }
        for bad in ["+5M", " 5M", "", "M", "-1", ".", ".M", "é"] {
            assert_eq!(read(bad), Err(format!("bad numeric value '{bad}'")), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,12}") {
            let _ = parse_size(&text);
        }

        #[test]
        fn sizes_for_people_are_short_and_parse_to_nearly_the_same_number(n: u64) {
            let shown = nice(n);
            prop_assert!(shown.len() <= 5, "{}", shown);
            if let Ok(back) = parse_size(&shown) {
                prop_assert!(back.abs_diff(n) as f64 <= 0.01 * n as f64, "{} {} {}", n, shown, back);
            }
        }
    }
}
