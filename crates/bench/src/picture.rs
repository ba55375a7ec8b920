//! A picture of the charts, as PNG.
//!
//! From:   the charts of a report's [`Figures`](crate::Figures).
//! To:     a place where a page is too much: a README, a message. Text is drawn with the font inside the program.

use std::collections::HashMap;
use std::sync::Arc;

use resvg::{tiny_skia, usvg};

use crate::chart::{self, Ink, Size};
use crate::{Chart, Figures};

/// A subset of Roboto (Apache-2.0): fonts/README.md.
static FONT: &[u8] = include_bytes!("../fonts/Roboto-Regular.ttf");
/// Pixels for each unit of the drawing, so that it is sharp on today's screens.
const SCALE: f32 = 2.0;
const WIDTH: f32 = 760.0;
const MARGIN: f32 = 24.0;
/// Charts in a picture: more would not be looked at.
const CHARTS: usize = 3;
/// Of each channel: enough for smooth edges of text.
const SHADES: u16 = 16;

/// A title, a sentence, and charts one below the other.
pub(crate) fn png(title: &str, sentence: &str, charts: &[Chart]) -> Result<Vec<u8>, String> {
    let mut body = String::new();
    let mut y = MARGIN + 22.0;
    let text = |line: &str, size: f32, y: f32| {
        let line = escaped(line);
        format!(
            "<text x=\"{MARGIN}\" y=\"{y}\" font-family=\"Roboto\" font-size=\"{size}\" fill=\"#1c2024\">{line}</text>"
        )
    };
    body += &text(title, 22.0, y);
    y += 10.0;
    for line in wrapped(sentence, 108) {
        y += 20.0;
        body += &text(&line, 14.0, y);
    }
    for (index, chart) in charts.iter().take(CHARTS).enumerate() {
        y += 34.0;
        body += &text(&chart.title, 17.0, y);
        y += 8.0;
        let svg = chart::svg(chart, &format!("p{index}"), Size::Wide, Ink::Paper);
        let (width, height) = size_of(&svg).ok_or("a chart without a size")?;
        let open = format!("<svg x=\"{MARGIN}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" ");
        body += &svg.replacen("<svg ", &open, 1);
        y += height;
    }
    let (width, height) = (WIDTH + 2.0 * MARGIN, y + MARGIN);
    let whole = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{body}</svg>"
    );
    rendered(&whole, (width, height), SCALE)
}

/// Width and height of the picture for the top of an article, as sites that show links want it.
const SOCIAL: (f32, f32) = (1200.0, 630.0);
/// Lines of the answer in it.
const SOCIAL_LINES: usize = 2;

/// A title, the answer, the first chart with the numbers of the answer beside it, and a line about data and machine.
pub(crate) fn social(title: &str, sentence: &str, figures: &Figures, below: &str) -> Result<Vec<u8>, String> {
    let mut body = String::new();
    let mut text = |line: &str, (x, y): (f32, f32), size: f32, ink: &str| {
        let line = escaped(line);
        body += &format!(
            "<text x=\"{x}\" y=\"{y}\" font-family=\"Roboto\" font-size=\"{size}\" fill=\"{ink}\">{line}</text>"
        );
    };
    let (left, ink, faint) = (48.0, "#1c2024", "#5b6570");
    text(title, (left, 76.0), 42.0, ink);
    let lines = wrapped(sentence, 98);
    for (index, line) in lines.iter().take(SOCIAL_LINES).enumerate() {
        let goes_on = index + 1 == SOCIAL_LINES && lines.len() > SOCIAL_LINES;
        let line = if goes_on { format!("{line} ...") } else { line.clone() };
        text(&line, (left, 118.0 + 30.0 * index as f32), 23.0, ink);
    }
    let column = 860.0;
    for (index, (name, number, against)) in figures.tiles.iter().take(3).enumerate() {
        let top = 236.0 + 118.0 * index as f32;
        text(name, (column, top - 44.0), 20.0, faint);
        text(number, (column, top), 42.0, "#0b62a8");
        // Beside the large number there is room for the comparison only.
        let short = against.split(';').next().unwrap_or_default();
        text(short, (column, top + 26.0), 18.0, faint);
    }
    for (index, line) in wrapped(below, 128).iter().take(1).enumerate() {
        text(line, (left, 604.0 + 20.0 * index as f32), 18.0, faint);
    }
    if let Some(chart) = figures.charts.first() {
        let svg = chart::svg(chart, "s", Size::Wide, Ink::Paper);
        let open = format!("<svg x=\"{left}\" y=\"164\" width=\"780\" height=\"411\" ");
        body += &svg.replacen("<svg ", &open, 1);
    }
    let (width, height) = SOCIAL;
    let whole = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
         {height}\"><rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{body}</svg>"
    );
    rendered(&whole, SOCIAL, 1.0)
}

/// A drawing as PNG.
fn rendered(whole: &str, (width, height): (f32, f32), scale: f32) -> Result<Vec<u8>, String> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    let options =
        usvg::Options { fontdb: Arc::new(fonts), font_family: "Roboto".into(), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(whole, &options).map_err(|error| error.to_string())?;
    let pixels = |length: f32| (length * scale).ceil() as u32;
    let mut map = tiny_skia::Pixmap::new(pixels(width), pixels(height)).ok_or("the picture is too large")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(scale, scale), &mut map.as_mut());
    match packed(&map) {
        Some(small) => small.map_err(|error| error.to_string()),
        None => map.encode_png().map_err(|error| error.to_string()),
    }
}

/// A picture of few colours, each channel rounded to [`SHADES`], as a palette and places in it: a sixth of the size. `None` if
/// there are more colours than a palette holds.
fn packed(map: &tiny_skia::Pixmap) -> Option<Result<Vec<u8>, png::EncodingError>> {
    let rounded =
        |channel: u8| ((u16::from(channel) * (SHADES - 1) + 127) / 255 * (255 / (SHADES - 1))) as u8;
    let mut places: HashMap<[u8; 3], u8> = HashMap::new();
    let (mut palette, mut indices) = (Vec::new(), Vec::with_capacity(map.pixels().len()));
    for pixel in map.pixels() {
        let color = [pixel.red(), pixel.green(), pixel.blue()].map(rounded);
        let place = match places.get(&color) {
            Some(place) => *place,
            None => {
                let place = u8::try_from(places.len()).ok()?;
                palette.extend(color);
                *places.entry(color).or_insert(place)
            }
        };
        indices.push(place);
    }
    let encode = || {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, map.width(), map.height());
        encoder.set_color(png::ColorType::Indexed);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_palette(palette);
        encoder.set_compression(png::Compression::Best);
        encoder.set_filter(png::FilterType::NoFilter);
        encoder.set_adaptive_filter(png::AdaptiveFilterType::NonAdaptive);
        encoder.write_header()?.write_image_data(&indices)?;
        Ok(bytes)
    };
    Some(encode())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Width and height from the `viewBox`.
fn size_of(svg: &str) -> Option<(f32, f32)> {
    let mut numbers = svg.split_once("viewBox=\"0 0 ")?.1.split_once('"')?.0.split(' ');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Lines of at most about `width` characters.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
            continue;
        }
        if !last.is_empty() {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines
}
