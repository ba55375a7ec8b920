//! Progress on a terminal: a table that fills, and a line about the present measurement.

use std::io::Write;
use std::time::Duration;

use bench::{Event, Phase, Run, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use zpl::rank::RankedMutex;

use super::table;
use crate::stop::Stop;

/// Lines of the terminal that are not for the table.
const OTHER_LINES: u16 = 4;
/// Where the terminal does not say how high it is.
const USUAL_LINES: u16 = 24;

pub struct Screen {
    bar: ProgressBar,
    quiet: bool,
    stop: Stop,
    bytes: u64,
    /// The configuration that is being measured.
    subject: RankedMutex<String>,
    done: RankedMutex<Vec<Run>>,
}

impl Screen {
    /// Shown on standard error if that is a terminal.
    pub fn new(stop: Stop, quiet: bool) -> Screen {
        let target = match quiet || crate::out::is_dumb() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(5),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = "{prefix}{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message("looking at the files");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Screen { bar, quiet, stop, bytes: 0, subject: RankedMutex::default(), done: RankedMutex::default() }
    }

    /// Each phase moves so many bytes.
    pub fn expect(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.bar.set_length(bytes);
    }

    fn begin(&self, what: String) {
        self.bar.reset();
        self.bar.set_length(self.bytes);
        self.bar.set_message(what);
    }

    /// Removes the display from the screen.
    pub fn finish(self) {
        self.bar.finish_and_clear();
    }

    /// The table with one more row.
    fn add(&self, run: &Run) {
        let mut done = self.done.lock();
        done.push(run.clone());
        if self.bar.is_hidden() {
            return;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stderr());
        let (rows, columns) = size.map_or((USUAL_LINES, 80), |size| (size.ws_row, size.ws_col));
        let lines = table::of_runs(&done);
        let room = usize::from(rows.saturating_sub(OTHER_LINES)).max(2);
        let first = lines.len().saturating_sub(room).max(1);
        let mut text = String::new();
        for line in lines.iter().take(1).chain(lines.iter().skip(first)) {
            text.extend(line.chars().take(usize::from(columns)));
            text.push('\n');
        }
        self.bar.set_prefix(text);
    }
}

impl Watch for Screen {
    fn event(&self, event: Event<'_>) {
        let subject = || self.subject.lock();
        match event {
            Event::Loading { bytes, total } => {
                if self.bar.position() == 0 {
                    self.begin("reading the files into memory".to_owned());
                    self.bar.set_length(total);
                }
                self.bar.set_position(bytes);
            }
            Event::Note(_) if self.quiet => {}
            Event::Note(note) => self.bar.suspend(|| {
                // Standard error is closed, so the error cannot be reported anywhere.
                let note = crate::out::harmless_line(note);
                let lines = crate::wrap::fitting(&note, crate::out::columns_of(&std::io::stderr()));
                let _ = writeln!(std::io::stderr(), "{}", lines.join("\n"));
            }),
            Event::Begin { configuration, warm_up: true, .. } => {
                *subject() = format!("warming up ({configuration})")
            }
            Event::Begin { configuration, index, count, .. } => {
                *subject() = format!("{}/{count} {configuration}", index + 1);
            }
            Event::Phase(phase) => {
                let what = match phase {
                    Phase::Write => "writing",
                    Phase::Sync => {
                        // All is in memory; the bar stays where it is.
                        self.bar.set_message(format!("{}: syncing", *subject()));
                        return;
                    }
                    Phase::Settle => "settling",
                    Phase::Read => "reading",
                    Phase::WarmRead => "reading again",
                    Phase::Verify => "comparing",
                    Phase::Steps => "running programs",
                };
                let text = format!("{}: {what}", *subject());
                self.begin(text);
            }
            Event::Step(name) => {
                let text = format!("{}: {name}", *subject());
                self.begin(text);
            }
            Event::Bytes(bytes) => self.bar.inc(bytes),
            Event::Done(run) => self.add(run),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.asked()
    }
}
