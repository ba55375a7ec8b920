//! Charts as SVG.
//!
//! From:   a [`Chart`], and how wide it will be.
//! To:     an `<svg>` element with a title and a description, which scales, has no fonts of its own, and whose
//!         colours are those of a page or, for pictures, fixed ones.
//!
//! No information is in the colour alone: lines differ in dashes and marks and carry their names, and so do bars and
//! points.

mod bars;
mod frame;
mod lines;
mod scatter;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::figures::{Axis, Chart, Kind};

/// Colours by their use. The drawing has these values until [`Ink`] replaces them by the real colours.
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
/// Plotters draws text a little smaller than the given size.
const TEXT_SCALE: f64 = 1.24;
/// Width of a character over its height, on average.
const GLYPH: f64 = 0.56;

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
        Kind::Bars { groups, .. } => bars::height(groups),
        Kind::Lines { series, .. } => size.height() + lines::legend_lines(series, size) * 20,
        Kind::Scatter { .. } => size.height(),
    };
    let mut text = String::new();
    let drawn = {
        let area =
            SVGBackend::with_string(&mut text, (size.width() as u32, height as u32)).into_drawing_area();
        let drawn = match &chart.kind {
            Kind::Scatter { x, y, points, front, chosen, groups } => {
                let cloud = scatter::Cloud { points, front, chosen: *chosen, groups };
                scatter::draw(&area, size, Axes { x, y }, &cloud)
            }
            Kind::Bars { decimals, baseline, groups } => {
                bars::draw(&area, size, *decimals, *baseline, groups)
            }
            Kind::Lines { x, y, series, mark } => {
                lines::draw(&area, size, Axes { x, y }, series, mark.as_ref())
            }
        };
        drawn.and_then(|()| area.present().map_err(Into::into))
    };
    assert!(drawn.is_ok(), "drawing into a string does not fail: {drawn:?}");
    dressed(&text, chart, id, (size.width(), height), ink)
}

/// Replaces the head of the drawing by one that can be scaled, has a description, and sets the colours.
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

/// The quantities of the two axes.
struct Axes<'a> {
    x: &'a Axis,
    y: &'a Axis,
}

/// The style of words: their size and colour, and which of their corners or sides is at the given place.
struct Words {
    size: f64,
    color: RGBColor,
    h: HPos,
    v: VPos,
}

impl Words {
    fn put(&self, area: &Area<'_>, text: &str, at: (i32, i32)) -> Drawn {
        let style = font(self.size).color(&self.color).pos(Pos::new(self.h, self.v));
        area.draw_text(text, &style, at)?;
        Ok(())
    }
}

fn text_width(text: &str, size: f64) -> i32 {
    (text.chars().count() as f64 * size * GLYPH).ceil() as i32
}

/// A dashed line.
fn dashed(area: &Area<'_>, from: (i32, i32), to: (i32, i32), color: RGBColor) -> Drawn {
    area.draw(&PathElement::new([from, to], color.mix(DASHES[1].0)))?;
    Ok(())
}
