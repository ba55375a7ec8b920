//! Horizontal bars in groups, with the value that they are compared with.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Area, Drawn, FAINT, INK, LINES, Size, Words, dashed, text_width};
use crate::figures::Group;

/// Groups of bars whose longest ones differ by more have scales of their own.
const ONE_SCALE_MAX: f64 = 3.0;
/// A bar with its gap, and a heading of a group.
const BAR: i32 = 22;
const HEADING: i32 = 34;

pub(super) fn height(groups: &[Group]) -> i32 {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    12 + groups.len() as i32 * HEADING + bars as i32 * BAR
}

pub(super) fn draw(
    area: &Area<'_>,
    size: Size,
    decimals: usize,
    baseline: Option<f64>,
    groups: &[Group],
) -> Drawn {
    let text = size.text();
    let all = || groups.iter().flat_map(|group| &group.bars);
    let names = all().map(|(name, _)| text_width(name, text)).max().unwrap_or(0);
    let numbers = all().map(|(_, v)| text_width(&format!("{v:.decimals$}"), text)).max().unwrap_or(0);
    let (left, right) = (names + 14, size.width() - numbers - 16);
    let longest = |group: &Group| {
        let values = group.bars.iter().map(|(_, value)| *value);
        values.fold(baseline.unwrap_or(0.0), f64::max).max(1e-9)
    };
    let (most, least) = groups
        .iter()
        .map(longest)
        .fold((0.0, f64::INFINITY), |(most, least), value| (f64::max(most, value), f64::min(least, value)));
    let is_one = |value: f64| baseline.is_some_and(|base| (value - base).abs() < 1e-12);
    // Where all others are compared with off, that is 1.00 in every group.
    let off = || all().filter(|(name, _)| name == "off");
    let is_over_off = off().count() > 0 && off().all(|(_, value)| is_one(*value));
    let mut top = 0;
    for group in groups {
        // One scale for all, unless it would make the bars of some too short to compare.
        let scale = if most > least * ONE_SCALE_MAX { longest(group) } else { most };
        let place = |value: f64| left + (value / scale * f64::from(right - left)).round() as i32;
        Words { size: text + 1.0, color: INK, h: HPos::Left, v: VPos::Bottom }.put(
            area,
            &group.name,
            (0, top + HEADING - 8),
        )?;
        top += HEADING;
        let end = top + group.bars.len() as i32 * BAR;
        for (index, (name, value)) in group.bars.iter().enumerate() {
            let from = top + index as i32 * BAR;
            let middle = from + BAR / 2 - 1;
            Words { size: text, color: INK, h: HPos::Right, v: VPos::Center }.put(
                area,
                name,
                (left - 8, middle),
            )?;
            // The bar that others are compared with is only an outline.
            let is_base = is_over_off && name == "off";
            let color = if is_base { LINES[5] } else { LINES[0] };
            let corners = [(left, from + 3), (place(*value).max(left + 1), from + BAR - 4)];
            match is_base {
                true => area.draw(&Rectangle::new(corners, color.stroke_width(2)))?,
                false => area.draw(&Rectangle::new(corners, color.filled()))?,
            }
            let label = format!("{value:.decimals$}");
            // The dashed line goes through no number: where there is no room before it, the number stands behind it.
            let beside = place(*value) + 7 + text_width(&label, text) + 4;
            let end = baseline.filter(|base| value < base && beside > place(*base)).unwrap_or(*value);
            Words { size: text, color: INK, h: HPos::Left, v: VPos::Center }.put(
                area,
                &label,
                (place(end) + 7, middle),
            )?;
        }
        if let Some(base) = baseline {
            dashed(area, (place(base), top - 2), (place(base), end), FAINT)?;
        }
        top = end;
    }
    Ok(())
}
