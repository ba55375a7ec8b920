//! Named points, and the line of the points that no other one beats.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{Frame, range};
use super::{Area, Axes, Drawn, FAINT, INK, LINES, Size, Words, text_width};

/// How far below the others the lowest point must be, as a share of the whole height, to be drawn at the lower edge. On
/// one scale with `off`, the ratios of all others would lie in a narrow band.
const FAR: f64 = 0.3;
/// Fewer points need no more room.
const MANY: usize = 4;
/// Half the size of a mark.
const HALF: i32 = 5;

/// The points that are drawn.
pub(super) struct Cloud<'a> {
    /// Name, x, y.
    pub(super) points: &'a [(String, f64, f64)],
    /// The points that no other beats, from left to right.
    pub(super) front: &'a [usize],
    pub(super) chosen: Option<usize>,
    /// Points that look alike, by name.
    pub(super) groups: &'a [(String, Vec<usize>)],
}

impl Cloud<'_> {
    /// The number of the group that a point is in.
    fn group(&self, index: usize) -> usize {
        self.groups.iter().position(|(_, points)| points.contains(&index)).unwrap_or(0)
    }

    /// Where the scale of the ratios begins. A single point far below all others does not count.
    fn low(&self) -> f64 {
        let mut heights: Vec<f64> = self.points.iter().map(|point| point.2).collect();
        heights.sort_by(f64::total_cmp);
        match heights.as_slice() {
            [low, next, .., high] if heights.len() >= MANY && next - low > FAR * (high - low) => {
                next - 0.08 * (high - next)
            }
            [low, ..] => low.min(0.95),
            [] => 0.95,
        }
    }

    /// A name, with the ratio of a point that is drawn at the lower edge.
    fn name(&self, index: usize, low: f64) -> String {
        let (name, _, ratio) = &self.points[index];
        match (*ratio < low, self.chosen == Some(index)) {
            (true, _) => format!("{name}: {ratio:.2}x, below"),
            (false, true) => format!("{name}, recommended"),
            (false, false) => name.clone(),
        }
    }
}

pub(super) fn draw(area: &Area<'_>, size: Size, Axes { x, y }: Axes<'_>, cloud: &Cloud<'_>) -> Drawn {
    let Cloud { points, front, .. } = *cloud;
    let (_, high) = range(points.iter().map(|point| point.2), false);
    let low = cloud.low();
    let frame = Frame {
        left: 44,
        right: size.width() - 14,
        top: 34,
        bottom: size.height() - 52,
        x: range(points.iter().map(|point| point.1), x.log),
        y: (low, high),
        x_log: x.log,
        y_log: false,
    };
    frame.draw(area, size, x, y)?;
    let at = |index: usize| (frame.across(points[index].1), frame.up(points[index].2).min(frame.bottom));
    // Down to the right: each step keeps the ratio of the point it leads to.
    let steps: Vec<(i32, i32)> = staircase(&front.iter().map(|index| at(*index)).collect::<Vec<_>>(), &frame);
    area.draw(&PathElement::new(steps.clone(), FAINT.stroke_width(1)))?;
    let border: Vec<Rectangle4> = steps.windows(2).map(|ends| around(ends[0], ends[1])).collect();
    legend(area, size, cloud, &frame)?;
    let mut taken: Vec<Rectangle4> = Vec::new();
    for index in 0..points.len() {
        let (px, py) = at(index);
        taken.push((px - 6, py - 6, px + 6, py + 6));
        mark(area, (px, py), cloud.group(index), front.contains(&index))?;
        if cloud.chosen == Some(index) {
            area.draw(&Circle::new((px, py), 2 * HALF - 1, INK.stroke_width(2)))?;
        }
    }
    // The recommended one comes first, then those of the front: they get the best places.
    let rest = (0..points.len()).filter(|index| !front.contains(index));
    let mut order: Vec<usize> = front.iter().copied().chain(rest).collect();
    order.sort_by_key(|index| cloud.chosen != Some(*index));
    for index in order {
        let name = cloud.name(index, low);
        let bold = front.contains(&index) || cloud.chosen == Some(index);
        let off_the_line: Vec<Rectangle4> = taken.iter().chain(&border).copied().collect();
        // Around the recommended one is a ring.
        let point = Beside { at: at(index), more: if cloud.chosen == Some(index) { HALF } else { 0 } };
        let place = free_place(&name, point, size, &frame, &off_the_line);
        // Where there is room on the line only, the line runs behind the name.
        if let Some((place, label)) = place.or_else(|| free_place(&name, point, size, &frame, &taken)) {
            taken.push(label);
            let color = if bold { INK } else { FAINT };
            Words { size: size.text(), color, h: HPos::Left, v: VPos::Top }.put(area, &name, place)?;
        }
    }
    Ok(())
}

/// A point: each group has a shape and a colour of its own. A point that another one beats is only outlined.
fn mark(area: &Area<'_>, (x, y): (i32, i32), group: usize, is_filled: bool) -> Drawn {
    let color = LINES[group % LINES.len()];
    let style = if is_filled { color.filled() } else { color.stroke_width(2) };
    let (half, wide) = (HALF, HALF + 2);
    let closed = |corners: &[(i32, i32)]| -> Drawn {
        let mut corners: Vec<(i32, i32)> = corners.iter().map(|(dx, dy)| (x + dx, y + dy)).collect();
        if is_filled {
            area.draw(&Polygon::new(corners, style))?;
            return Ok(());
        }
        corners.push(corners[0]);
        area.draw(&PathElement::new(corners, style))?;
        Ok(())
    };
    match group % 4 {
        0 => {
            area.draw(&Circle::new((x, y), half + i32::from(is_filled), style))?;
            Ok(())
        }
        1 => closed(&[(-half, -half), (half, -half), (half, half), (-half, half)]),
        2 => closed(&[(0, -wide), (wide, half), (-wide, half)]),
        _ => closed(&[(0, -wide), (wide, 0), (0, wide), (-wide, 0)]),
    }
}

/// Says which shape is which group, above the frame at the right.
fn legend(area: &Area<'_>, size: Size, cloud: &Cloud<'_>, frame: &Frame) -> Drawn {
    let mut right = frame.right;
    let top = frame.top - 12 - size.text() as i32;
    for (number, (name, _)) in cloud.groups.iter().enumerate().rev() {
        // On a phone there is room for the numbers only.
        let name = if size == Size::Narrow { name.rsplit(' ').next().unwrap_or(name) } else { name };
        let left = right - text_width(name, size.text());
        Words { size: size.text(), color: INK, h: HPos::Left, v: VPos::Top }.put(area, name, (left, top))?;
        mark(area, (left - 12, top + size.text() as i32 / 2 + 1), number, true)?;
        right = left - 34;
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

/// A point that has a name beside it, `more` away from it than usual.
#[derive(Clone, Copy)]
struct Beside {
    at: (i32, i32),
    more: i32,
}

/// A place beside a point for its name that covers no other name or point; the name is left out where there is none.
fn free_place(
    name: &str,
    Beside { at: (x, y), more }: Beside,
    size: Size,
    frame: &Frame,
    taken: &[Rectangle4],
) -> Option<((i32, i32), Rectangle4)> {
    let (width, height) = (text_width(name, size.text()), size.text() as i32 + 2);
    let half = height / 2;
    let near = [
        (x + 10 + more, y - half),
        (x - width - 10 - more, y - half),
        (x - width / 2, y - height - 8 - more),
        (x - width / 2, y + 9 + more),
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

/// The rectangle that a line from one point to the other covers.
fn around(a: (i32, i32), b: (i32, i32)) -> Rectangle4 {
    (a.0.min(b.0) - 1, a.1.min(b.1) - 1, a.0.max(b.0) + 1, a.1.max(b.1) + 1)
}

fn apart(a: &Rectangle4, b: &Rectangle4) -> bool {
    a.2 < b.0 || b.2 < a.0 || a.3 < b.1 || b.3 < a.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_point_far_below_does_not_flatten_the_others() {
        let points =
            |ratios: &[f64]| ratios.iter().map(|ratio| ("x".to_owned(), 1.0, *ratio)).collect::<Vec<_>>();
        let low =
            |ratios: &[f64]| Cloud { points: &points(ratios), front: &[], chosen: None, groups: &[] }.low();
        assert!(low(&[1.0, 3.0, 3.2, 3.4]) > 2.9);
        assert_eq!(
            (low(&[1.0, 1.5, 2.0, 3.0]), low(&[1.0, 3.0]), low(&[1.0, 1.0, 1.0, 1.0])),
            (0.95, 0.95, 0.95)
        );
    }

    #[test]
    fn names_never_cover_each_other() {
        let frame = Frame {
            left: 40,
            right: 340,
            top: 30,
            bottom: 280,
            x: (1.0, 2.0),
            y: (1.0, 2.0),
            x_log: false,
            y_log: false,
        };
        let mut taken = vec![(94, 94, 106, 106), (97, 96, 109, 108)];
        for _ in 0..6 {
            let Some((_, label)) =
                free_place("zstd-fast-1", Beside { at: (100, 100), more: 0 }, Size::Narrow, &frame, &taken)
            else {
                break;
            };
            assert!(taken.iter().all(|other| apart(&label, other)));
            taken.push(label);
        }
        assert!(taken.len() > 3);
    }
}
