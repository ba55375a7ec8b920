//! Two scales with their numbers, and the places of values between them.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Area, Drawn, FAINT, GRID, INK, Size, Words};
use crate::figures::Axis;

/// Places for numbers on a scale from `min` to `max`, at most about `count`.
fn ticks(min: f64, max: f64, count: usize, log: bool) -> Vec<f64> {
    if max - min <= max.abs() * 1e-9 {
        return vec![min];
    }
    if log {
        let mut found = Vec::new();
        let mut decade = 10f64.powf(min.log10().floor());
        while decade <= max {
            found.extend([1.0, 2.0, 5.0].map(|n| n * decade).into_iter().filter(|t| *t >= min && *t <= max));
            decade *= 10.0;
        }
        if found.len() > count {
            let step = found.len().div_ceil(count);
            found = found.into_iter().step_by(step).collect();
        }
        if found.len() >= 2 {
            return found;
        }
    }
    let rough = ((max - min) / count as f64).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (min / step).ceil() as i64;
    let last = (max / step + 1e-9).floor() as i64;
    (first..=last.min(first + 100)).map(|n| n as f64 * step).collect()
}

/// A number as short as its neighbours on the scale allow.
fn number(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 || step <= 0.0 { 0 } else { (-step.log10()).ceil().min(4.0) as usize };
    let fits = |d: usize| ((step * 10f64.powi(d as i32)).fract()).abs() < 1e-6;
    let decimals = (decimals..=decimals + 1).find(|d| fits(*d)).unwrap_or(decimals);
    format!("{value:.decimals$}")
}

/// A frame with two scales: turns values into places.
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
    pub(super) x: (f64, f64),
    pub(super) y: (f64, f64),
    pub(super) x_log: bool,
    pub(super) y_log: bool,
}

impl Frame {
    pub(super) fn across(&self, value: f64) -> i32 {
        let (low, high) = self.x;
        let part = part(value, (low, high), self.x_log);
        self.left + (part * f64::from(self.right - self.left)).round() as i32
    }

    pub(super) fn up(&self, value: f64) -> i32 {
        let part = part(value, self.y, self.y_log);
        self.bottom - (part * f64::from(self.bottom - self.top)).round() as i32
    }

    /// Draws the lines of the scales, their numbers, and their units.
    pub(super) fn draw(&self, area: &Area<'_>, size: Size, x: &Axis, y: &Axis) -> Drawn {
        let text = size.text();
        let vertical = ticks(self.y.0, self.y.1, 6, self.y_log);
        let step = vertical.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
        for value in vertical {
            let at = self.up(value);
            area.draw(&PathElement::new([(self.left, at), (self.right, at)], GRID))?;
            let number = number(value, if self.y_log { value } else { step });
            Words { size: text, color: FAINT, h: HPos::Right, v: VPos::Center }.put(
                area,
                &number,
                (self.left - 8, at),
            )?;
        }
        let wide = size == Size::Wide;
        let places: Vec<(f64, String)> = if x.words.is_empty() {
            let all = ticks(self.x.0, self.x.1, if wide { 8 } else { 5 }, self.x_log);
            let step = all.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
            // A step of a logarithmic scale is as large as its number.
            let step = |value: f64| if self.x_log { value } else { step };
            all.into_iter().map(|value| (value, number(value, step(value)))).collect()
        } else {
            x.words.clone()
        };
        for (value, word) in places {
            let at = self.across(value);
            area.draw(&PathElement::new([(at, self.top), (at, self.bottom)], GRID))?;
            Words { size: text, color: FAINT, h: HPos::Center, v: VPos::Top }.put(
                area,
                &word,
                (at, self.bottom + 8),
            )?;
        }
        let bottom = (self.right, self.bottom + 28);
        Words { size: text, color: INK, h: HPos::Right, v: VPos::Top }.put(
            area,
            &format!("{} →", x.label),
            bottom,
        )?;
        Words { size: text, color: INK, h: HPos::Left, v: VPos::Bottom }.put(
            area,
            &format!("↑ {}", y.label),
            (self.left, self.top - 12),
        )
    }
}

/// Where a value is on a scale: 0 is its beginning, 1 its end.
fn part(value: f64, (low, high): (f64, f64), log: bool) -> f64 {
    match log {
        true => (value / low).ln() / (high / low).ln(),
        false => (value - low) / (high - low),
    }
}

/// From the least to the greatest, with room around; never empty.
pub(super) fn range(values: impl Iterator<Item = f64> + Clone, log: bool) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if !low.is_finite() || !high.is_finite() {
        return (1.0, 2.0);
    }
    if log {
        let low = low.max(1e-3);
        return (low / 1.25, (high.max(low)) * 1.35);
    }
    let room = ((high - low) * 0.08).max(high.abs() * 0.02).max(1e-3);
    (low - room, high + room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_numbers() {
        assert_eq!(ticks(0.0, 1.0, 5, false), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(40.0, 1200.0, 8, true), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(
            (number(0.25, 0.25), number(2.0, 0.5), number(100.0, 50.0)),
            ("0.25".into(), "2.0".into(), "100".into())
        );
        assert_eq!((ticks(3.0, 3.0, 5, true), ticks(0.0, 0.0, 5, false)), (vec![3.0], vec![0.0]));
    }
}
