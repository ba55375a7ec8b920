//! Lines with their names, and a place that matters.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{Frame, range};
use super::{Area, Axes, DASHES, Drawn, INK, LINES, Size, Words, dashed, text_width};
use crate::figures::Series;

/// Values that differ by more than this factor are drawn on a logarithmic scale.
const WIDE: f64 = 6.0;

/// Names of lines, several on a line of the legend, at places across; returns how many lines it takes.
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

pub(super) fn legend_lines(series: &[Series], size: Size) -> i32 {
    legend(series, size).1
}

pub(super) fn draw(
    area: &Area<'_>,
    size: Size,
    Axes { x, y }: Axes<'_>,
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
    // A series that is sampled over time has no points of its own, and is zero at times.
    let with_marks = x.log || !x.words.is_empty();
    let (least, most) = all().fold((f64::INFINITY, 0.0_f64), |(a, b), (_, y)| (a.min(y), b.max(y)));
    // On a scale that begins at 0, a single fast line (`off`) would press all others to the bottom.
    let y_log = with_marks && least > 0.0 && most > WIDE * least;
    let frame = Frame {
        left: 52,
        right: size.width() - 14,
        top: 34 + legend_lines * 20,
        bottom: size.height() + legend_lines * 20 - 52,
        x: x_range,
        y: if y_log { range(all().map(|(_, y)| y), true) } else { (0.0, most.max(1e-9) * 1.06) },
        x_log: x.log,
        y_log,
    };
    frame.draw(area, size, x, y)?;
    if let Some((at, why)) = mark {
        let at = frame.across(*at);
        dashed(area, (at, frame.top), (at, frame.bottom), INK)?;
        let side = if at > size.width() / 2 { (at - 6, HPos::Right) } else { (at + 6, HPos::Left) };
        Words { size: size.text(), color: INK, h: side.1, v: VPos::Top }.put(
            area,
            why,
            (side.0, frame.top + 4),
        )?;
    }
    for (index, line) in series.iter().enumerate() {
        let color = LINES[index % LINES.len()];
        let points: Vec<(i32, i32)> =
            line.points.iter().map(|(x, y)| (frame.across(*x), frame.up(*y))).collect();
        // Solid, dashed and dotted in turn, so that lines of the same colour differ.
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
        Words { size: size.text(), color: INK, h: HPos::Left, v: VPos::Center }.put(
            area,
            &line.name,
            (at + 30, middle),
        )?;
    }
    Ok(())
}

fn stroke(area: &Area<'_>, points: &[(i32, i32)], index: usize, color: RGBColor) -> Drawn {
    let style = color.mix(DASHES[index % DASHES.len()].0).stroke_width(2);
    area.draw(&PathElement::new(points.to_vec(), style))?;
    Ok(())
}

/// A mark whose shape distinguishes the lines.
fn sign(area: &Area<'_>, (x, y): (i32, i32), index: usize, color: RGBColor) -> Drawn {
    match index % 4 {
        0 => area.draw(&Circle::new((x, y), 4, color.filled()))?,
        1 => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], color.filled()))?,
        2 => area.draw(&TriangleMarker::new((x, y), 6, color.filled()))?,
        _ => area.draw(&Cross::new((x, y), 4, color.stroke_width(2)))?,
    }
    Ok(())
}
