//! Named points, and the border of what nothing beats.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::frame::{Frame, range};
use super::{Area, Axes, Drawn, FAINT, INK, LINES, Size, Words, text_width};

pub(super) fn draw(
    area: &Area<'_>,
    size: Size,
    Axes { x, y }: Axes<'_>,
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
    area.draw(&PathElement::new(steps.clone(), LINES[0].stroke_width(2)))?;
    let border: Vec<Rectangle4> = steps.windows(2).map(|ends| around(ends[0], ends[1])).collect();
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
        let off_the_line: Vec<Rectangle4> = taken.iter().chain(&border).copied().collect();
        let place = free_place(name, at(index), size, &frame, &off_the_line);
        // Where there is room on the line only, the line runs behind the name.
        if let Some((place, label)) = place.or_else(|| free_place(name, at(index), size, &frame, &taken)) {
            taken.push(label);
            let color = if bold { INK } else { FAINT };
            Words { size: size.text(), color, h: HPos::Left, v: VPos::Top }.put(area, name, place)?;
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

/// What a line from one point to the other covers.
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
