//! Charts as SVG.
//!
//! From:   a [`Chart`], and how wide it will be.
//! To:     an `<svg>` element with a title and a description, which scales, has no fonts of its own, and whose
//!         colours are those of a page or, for pictures, fixed ones.
//!
//! Nothing is told by colour alone: lines differ in dashes and marks and carry their names, bars stand beside
//! theirs, points too.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::{Axis, Chart, Group, Kind, Series};

/// Colours by what they are for. They stand in the drawing as these values until [`Ink`] says what they become.
const INK: RGBColor = RGBColor(1, 1, 1);
const FAINT: RGBColor = RGBColor(2, 2, 2);
const GRID: RGBColor = RGBColor(3, 3, 3);
const LINES: [RGBColor; 6] = [
    RGBColor(11, 11, 11),
    RGBColor(12, 12, 12),
    RGBColor(13, 13, 13),
    RGBColor(14, 14, 14),
    RGBColor(15, 15, 15),
    RGBColor(16, 16, 16),
];
/// The same as names of the page's colours, and as colours on white paper.
const NAMES: [(&str, &str, &str); 9] = [
    ("#010101", "var(--ink)", "#1c2024"),
    ("#020202", "var(--faint)", "#5b6570"),
    ("#030303", "var(--grid)", "#dde2e7"),
    ("#0B0B0B", "var(--c1)", "#0b62a8"),
    ("#0C0C0C", "var(--c2)", "#b4460a"),
    ("#0D0D0D", "var(--c3)", "#1b7a4b"),
    ("#0E0E0E", "var(--c4)", "#8a3c9c"),
    ("#0F0F0F", "var(--c5)", "#8a6d00"),
    ("#101010", "var(--c6)", "#4a5560"),
];
/// The library knows no dashes: these opacities become dashes, the first a line without.
const DASHES: [(f64, &str); 3] =
    [(1.0, ""), (0.991, " stroke-dasharray=\"7 4\""), (0.992, " stroke-dasharray=\"2 4\"")];
/// Plotters draws text a little smaller than it is told.
const TEXT_SCALE: f64 = 1.24;
/// Width of a character over its height, on average.
const GLYPH: f64 = 0.56;
/// Groups of bars whose longest ones differ by more have scales of their own.
const ONE_SCALE_MAX: f64 = 3.0;
/// A bar with its gap, and a heading of a group.
const BAR: i32 = 22;
const HEADING: i32 = 34;

/// Where colours come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Those of the page: light or dark.
    Page,
    /// Fixed, for white paper.
    Paper,
}

/// How large text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// For a desk and for paper.
    Wide,
    /// For a phone.
    Narrow,
}

impl Size {
    const fn width(self) -> i32 {
        match self {
            Size::Wide => 760,
            Size::Narrow => 350,
        }
    }

    const fn height(self) -> i32 {
        match self {
            Size::Wide => 400,
            Size::Narrow => 330,
        }
    }

    const fn text(self) -> f64 {
        match self {
            Size::Wide => 13.0,
            Size::Narrow => 12.0,
        }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Drawing into a string cannot fail, but the library's types say that it could.
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The chart as an `<svg>` element; `id` must be unique on its page.
pub(crate) fn svg(chart: &Chart, id: &str, size: Size, ink: Ink) -> String {
    let height = match &chart.kind {
        Kind::Bars { groups, .. } => bars_height(groups),
        Kind::Lines { series, .. } => size.height() + legend_lines(series, size) * 20,
        Kind::Scatter { .. } => size.height(),
    };
    let mut text = String::new();
    let drawn = {
        let area =
            SVGBackend::with_string(&mut text, (size.width() as u32, height as u32)).into_drawing_area();
        let drawn = match &chart.kind {
            Kind::Scatter { x, y, points, front } => scatter(&area, size, (x, y), points, front),
            Kind::Bars { decimals, baseline, groups } => bars(&area, size, *decimals, *baseline, groups),
            Kind::Lines { x, y, series, mark } => lines(&area, size, (x, y), series, mark.as_ref()),
        };
        drawn.and_then(|()| area.present().map_err(Into::into))
    };
    assert!(drawn.is_ok(), "drawing into a string does not fail: {drawn:?}");
    dressed(&text, chart, id, (size.width(), height), ink)
}

/// Replaces the head of the drawing by one that scales and says what it shows, and the colours.
fn dressed(text: &str, chart: &Chart, id: &str, (width, height): (i32, i32), ink: Ink) -> String {
    let body = text.split_once('>').map_or("", |(_, body)| body);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"{id}-t {id}-d\"><title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{body}",
        escaped(&chart.title),
        escaped(&chart.description),
    );
    for (drawn, page, paper) in NAMES {
        svg = svg.replace(drawn, if ink == Ink::Page { page } else { paper });
    }
    for (opacity, dashes) in DASHES {
        svg = svg.replace(&format!(" opacity=\"{opacity}\""), dashes);
    }
    // On a page, its style does this: lines that run behind words leave room for them.
    let family = match ink {
        Ink::Page => "",
        Ink::Paper => {
            " font-family=\"Roboto\" paint-order=\"stroke\" stroke=\"#ffffff\" stroke-width=\"4\" \
             stroke-linejoin=\"round\""
        }
    };
    svg.replace(" font-family=\"sans-serif\"", family).replace('\n', "")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn font(size: f64) -> TextStyle<'static> {
    ("sans-serif", size * TEXT_SCALE).into_font().color(&INK)
}

fn put(area: &Area<'_>, text: &str, at: (i32, i32), size: f64, color: RGBColor, h: HPos, v: VPos) -> Drawn {
    let style = font(size).color(&color).pos(Pos::new(h, v));
    area.draw_text(text, &style, at)?;
    Ok(())
}

fn text_width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * GLYPH).ceil() as i32
}

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
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    x: (f64, f64),
    y: (f64, f64),
    x_log: bool,
}

impl Frame {
    fn across(&self, value: f64) -> i32 {
        let (low, high) = self.x;
        let part = match self.x_log {
            true => (value / low).ln() / (high / low).ln(),
            false => (value - low) / (high - low),
        };
        self.left + (part * f64::from(self.right - self.left)).round() as i32
    }

    fn up(&self, value: f64) -> i32 {
        let part = (value - self.y.0) / (self.y.1 - self.y.0);
        self.bottom - (part * f64::from(self.bottom - self.top)).round() as i32
    }

    /// Lines at the places of the scales, their numbers, and what they count.
    fn draw(&self, area: &Area<'_>, size: Size, x: &Axis, y: &Axis) -> Drawn {
        let text = size.text();
        let vertical = ticks(self.y.0, self.y.1, 6, false);
        let step = vertical.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
        for value in vertical {
            let at = self.up(value);
            area.draw(&PathElement::new([(self.left, at), (self.right, at)], GRID))?;
            let number = number(value, step);
            put(area, &number, (self.left - 8, at), text, FAINT, HPos::Right, VPos::Center)?;
        }
        let wide = size == Size::Wide;
        let places: Vec<(f64, String)> = if x.words.is_empty() {
            let all = ticks(self.x.0, self.x.1, if wide { 8 } else { 5 }, self.x_log);
            let step = all.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(1.0);
            all.into_iter().map(|value| (value, number(value, step))).collect()
        } else {
            x.words.clone()
        };
        for (value, word) in places {
            let at = self.across(value);
            area.draw(&PathElement::new([(at, self.top), (at, self.bottom)], GRID))?;
            put(area, &word, (at, self.bottom + 8), text, FAINT, HPos::Center, VPos::Top)?;
        }
        let bottom = (self.right, self.bottom + 28);
        put(area, &format!("{} →", x.label), bottom, text, INK, HPos::Right, VPos::Top)?;
        put(area, &format!("↑ {}", y.label), (self.left, self.top - 12), text, INK, HPos::Left, VPos::Bottom)
    }
}

/// From the least to the greatest, with room around; never empty.
fn range(values: impl Iterator<Item = f64> + Clone, log: bool) -> (f64, f64) {
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

fn scatter(
    area: &Area<'_>,
    size: Size,
    (x, y): (&Axis, &Axis),
    points: &[(String, f64, f64)],
    front: &[usize],
) -> Drawn {
    let (low, high) = range(points.iter().map(|point| point.2), false);
    let frame = Frame {
        left: 44,
        right: size.width() - 14,
        top: 34,
        bottom: size.height() - 52,
        x: range(points.iter().map(|point| point.1), x.log),
        y: (low.min(0.95), high),
        x_log: x.log,
    };
    frame.draw(area, size, x, y)?;
    let at = |index: usize| (frame.across(points[index].1), frame.up(points[index].2));
    // Down to the right: each step keeps the ratio of the point it leads to.
    let steps: Vec<(i32, i32)> = staircase(&front.iter().map(|index| at(*index)).collect::<Vec<_>>(), &frame);
    area.draw(&PathElement::new(steps, LINES[0].stroke_width(2)))?;
    let mut taken: Vec<(i32, i32, i32, i32)> = Vec::new();
    for index in 0..points.len() {
        let (px, py) = at(index);
        taken.push((px - 6, py - 6, px + 6, py + 6));
        match front.contains(&index) {
            true => area.draw(&Circle::new((px, py), 6, LINES[0].filled()))?,
            false => area.draw(&Circle::new((px, py), 5, FAINT.stroke_width(2)))?,
        }
    }
    // Those of the front come first: they get the best places.
    let rest = (0..points.len()).filter(|index| !front.contains(index));
    for index in front.iter().copied().chain(rest) {
        let name = &points[index].0;
        let bold = front.contains(&index);
        if let Some((place, label)) = free_place(name, at(index), size, &frame, &taken) {
            taken.push(label);
            let color = if bold { INK } else { FAINT };
            put(area, name, place, size.text(), color, HPos::Left, VPos::Top)?;
        }
    }
    Ok(())
}

/// The border of what nothing reaches: from each point down to the height of the next one to the right.
fn staircase(points: &[(i32, i32)], frame: &Frame) -> Vec<(i32, i32)> {
    let mut steps = Vec::new();
    if let Some((_, first)) = points.first() {
        steps.push((frame.left, *first));
    }
    for (index, (x, y)) in points.iter().enumerate() {
        steps.push((*x, *y));
        steps.push((*x, points.get(index + 1).map_or(frame.bottom, |next| next.1)));
    }
    steps
}

type Rectangle4 = (i32, i32, i32, i32);

/// A place beside a point for its name that covers no other name or point; the name is left out where there is none.
fn free_place(
    name: &str,
    (x, y): (i32, i32),
    size: Size,
    frame: &Frame,
    taken: &[Rectangle4],
) -> Option<((i32, i32), Rectangle4)> {
    let (width, height) = (text_width(name, size.text()), size.text() as i32 + 2);
    let half = height / 2;
    let near = [
        (x + 10, y - half),
        (x - width - 10, y - half),
        (x - width / 2, y - height - 8),
        (x - width / 2, y + 9),
        (x + 8, y - height - 5),
        (x + 8, y + 6),
        (x - width - 8, y - height - 5),
        (x - width - 8, y + 6),
        (x + 8, y - 2 * height - 4),
        (x + 8, y + height + 4),
        (x - width - 8, y + height + 4),
    ];
    near.into_iter().map(|(left, top)| ((left, top), (left, top, left + width, top + height))).find(
        |(_, label)| {
            label.0 >= frame.left
                && label.2 <= frame.right + 8
                && label.1 >= frame.top - 6
                && label.3 <= frame.bottom
                && taken.iter().all(|other| apart(label, other))
        },
    )
}

fn apart(a: &Rectangle4, b: &Rectangle4) -> bool {
    a.2 < b.0 || b.2 < a.0 || a.3 < b.1 || b.3 < a.1
}

fn bars_height(groups: &[Group]) -> i32 {
    let bars: usize = groups.iter().map(|group| group.bars.len()).sum();
    12 + groups.len() as i32 * HEADING + bars as i32 * BAR
}

fn bars(area: &Area<'_>, size: Size, decimals: usize, baseline: Option<f64>, groups: &[Group]) -> Drawn {
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
    let mut top = 0;
    for group in groups {
        // One scale for all, unless it would make the bars of some too short to compare.
        let scale = if most > least * ONE_SCALE_MAX { longest(group) } else { most };
        let place = |value: f64| left + (value / scale * f64::from(right - left)).round() as i32;
        put(area, &group.name, (0, top + HEADING - 8), text + 1.0, INK, HPos::Left, VPos::Bottom)?;
        top += HEADING;
        let end = top + group.bars.len() as i32 * BAR;
        for (index, (name, value)) in group.bars.iter().enumerate() {
            let from = top + index as i32 * BAR;
            let middle = from + BAR / 2 - 1;
            put(area, name, (left - 8, middle), text, INK, HPos::Right, VPos::Center)?;
            // What others are compared with is only an outline.
            let is_base = baseline.is_some_and(|base| (value - base).abs() < 1e-12) && name == "off";
            let color = if is_base { LINES[5] } else { LINES[0] };
            let corners = [(left, from + 3), (place(*value).max(left + 1), from + BAR - 4)];
            match is_base {
                true => area.draw(&Rectangle::new(corners, color.stroke_width(2)))?,
                false => area.draw(&Rectangle::new(corners, color.filled()))?,
            }
            let label = format!("{value:.decimals$}");
            // The dashed line goes through no number.
            let end = baseline.filter(|base| value < base).unwrap_or(*value);
            put(area, &label, (place(end) + 7, middle), text, INK, HPos::Left, VPos::Center)?;
        }
        if let Some(base) = baseline {
            dashed(area, (place(base), top - 2), (place(base), end), FAINT)?;
        }
        top = end;
    }
    Ok(())
}

/// A dashed line.
fn dashed(area: &Area<'_>, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Drawn {
    area.draw(&PathElement::new([from, to], color.mix(DASHES[1].0)))?;
    Ok(())
}

/// Names of lines, several on a line of the legend, at places across; gives how many lines it takes.
fn legend(series: &[Series], size: Size) -> (Vec<(i32, i32)>, i32) {
    let (mut x, mut line) = (44, 0);
    let mut places = Vec::new();
    for each in series {
        let width = text_width(&each.name, size.text()) + 46;
        if x + width > size.width() && x > 44 {
            (x, line) = (44, line + 1);
        }
        places.push((x, line));
        x += width;
    }
    (places, line + 1)
}

fn legend_lines(series: &[Series], size: Size) -> i32 {
    legend(series, size).1
}

fn lines(
    area: &Area<'_>,
    size: Size,
    (x, y): (&Axis, &Axis),
    series: &[Series],
    mark: Option<&(f64, String)>,
) -> Drawn {
    let (places, legend_lines) = legend(series, size);
    let all = || series.iter().flat_map(|line| line.points.iter().copied());
    let across = all().map(|(x, _)| x).chain(mark.map(|mark| mark.0));
    let x_range = match (x.words.is_empty(), x.log) {
        (false, _) => (-0.25, x.words.len() as f64 - 0.75),
        (true, true) => range(across, true),
        (true, false) => (0.0, across.fold(0.0, f64::max).max(1e-3)),
    };
    let frame = Frame {
        left: 52,
        right: size.width() - 14,
        top: 34 + legend_lines * 20,
        bottom: size.height() + legend_lines * 20 - 52,
        x: x_range,
        y: (0.0, all().map(|(_, y)| y).fold(0.0, f64::max).max(1e-9) * 1.06),
        x_log: x.log,
    };
    frame.draw(area, size, x, y)?;
    if let Some((at, why)) = mark {
        let at = frame.across(*at);
        dashed(area, (at, frame.top), (at, frame.bottom), INK)?;
        let side = if at > size.width() / 2 { (at - 6, HPos::Right) } else { (at + 6, HPos::Left) };
        put(area, why, (side.0, frame.top + 4), size.text(), INK, side.1, VPos::Top)?;
    }
    // What is sampled over time has no points of its own.
    let with_marks = x.log || !x.words.is_empty();
    for (index, line) in series.iter().enumerate() {
        let color = LINES[index % LINES.len()];
        let points: Vec<(i32, i32)> =
            line.points.iter().map(|(x, y)| (frame.across(*x), frame.up(*y))).collect();
        // Solid, dashed, dotted, in turn: what has the same colour differs in this.
        stroke(area, &points, index, color)?;
        if with_marks {
            points.iter().try_for_each(|point| sign(area, *point, index, color))?;
        }
        let (at, row) = places[index];
        let middle = 10 + row * 20;
        stroke(area, &[(at, middle), (at + 24, middle)], index, color)?;
        if with_marks {
            sign(area, (at + 12, middle), index, color)?;
        }
        put(area, &line.name, (at + 30, middle), size.text(), INK, HPos::Left, VPos::Center)?;
    }
    Ok(())
}

fn stroke(area: &Area<'_>, points: &[(i32, i32)], index: usize, color: RGBColor) -> Drawn {
    let style = color.mix(DASHES[index % DASHES.len()].0).stroke_width(2);
    area.draw(&PathElement::new(points.to_vec(), style))?;
    Ok(())
}

/// A mark whose form tells lines apart.
fn sign(area: &Area<'_>, (x, y): (i32, i32), index: usize, color: RGBColor) -> Drawn {
    match index % 4 {
        0 => area.draw(&Circle::new((x, y), 4, color.filled()))?,
        1 => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], color.filled()))?,
        2 => area.draw(&TriangleMarker::new((x, y), 6, color.filled()))?,
        _ => area.draw(&Cross::new((x, y), 4, color.stroke_width(2)))?,
    }
    Ok(())
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

    #[test]
    fn names_never_cover_each_other() {
        let frame =
            Frame { left: 40, right: 340, top: 30, bottom: 280, x: (1.0, 2.0), y: (1.0, 2.0), x_log: false };
        let mut taken = vec![(94, 94, 106, 106), (97, 96, 109, 108)];
        for _ in 0..6 {
            let Some((_, label)) = free_place("zstd-fast-1", (100, 100), Size::Narrow, &frame, &taken) else {
                break;
            };
            assert!(taken.iter().all(|other| apart(&label, other)));
            taken.push(label);
        }
        assert!(taken.len() > 3);
    }
}
