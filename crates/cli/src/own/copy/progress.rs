//! Progress of a copy: counters for the summary, and a bar on a terminal.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use pool::props::number::nice_bytes;

use super::terminal::Terminal;
use crate::out::{columns_of, counted, is_dumb};
use crate::wrap;

/// How often the bar is drawn.
const DRAWN_PER_SECOND: u8 = 5;

/// The bar while the size of the whole is not known: the bytes copied so far.
const COUNTING: &str = "{spinner} {binary_bytes} {msg}";
/// The bar when the size is known.
const MEASURING: &str =
    "{wide_bar} {binary_bytes}/{binary_total_bytes} {msg} {binary_bytes_per_sec} {eta} left";

/// Counts the finished work, shows it, and prints failures.
pub struct Progress {
    bar: ProgressBar,
    /// Where lines go instead of this process's standard error.
    err: Option<Arc<File>>,
    started: Instant,
    pub files: AtomicU64,
    pub directories: AtomicU64,
    pub symlinks: AtomicU64,
    pub others: AtomicU64,
    /// Names given to a file that was copied already.
    pub hard_links: AtomicU64,
    pub bytes: AtomicU64,
    /// Files whose copy was complete.
    pub skipped: AtomicU64,
    /// Files under temporary names, which a killed copy had left.
    pub cleared: AtomicU64,
    pub errors: AtomicU64,
    /// A part was not copied because the copy received the order to stop.
    pub cut_short: AtomicBool,
    /// Files of the whole; 0 until it is counted.
    expected_files: AtomicU64,
}

impl Progress {
    /// Shown on standard error, or on `err` in its place, if that is a terminal and `quiet` is not set.
    pub fn new(quiet: bool, err: Option<Arc<File>>) -> Progress {
        let target = match &err {
            _ if quiet => ProgressDrawTarget::hidden(),
            None if is_dumb() => ProgressDrawTarget::hidden(),
            None => ProgressDrawTarget::stderr_with_hz(DRAWN_PER_SECOND),
            Some(err) => match Terminal::new(err) {
                Some(terminal) => ProgressDrawTarget::term_like_with_hz(Box::new(terminal), DRAWN_PER_SECOND),
                None => ProgressDrawTarget::hidden(),
            },
        };
        Progress::on(target, err)
    }

    /// Drawn on `target`.
    fn on(target: ProgressDrawTarget, err: Option<Arc<File>>) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        set_style(&bar, COUNTING);
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Progress {
            bar,
            err,
            started: Instant::now(),
            files: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            symlinks: AtomicU64::new(0),
            others: AtomicU64::new(0),
            hard_links: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            cut_short: AtomicBool::new(false),
            expected_files: AtomicU64::new(0),
        }
    }

    /// Whether it is shown on a terminal.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// The whole is counted: so many files and bytes. Only then is it shown how much is left; a part of the count would
    /// promise an end that is not one.
    pub fn expect(&self, files: u64, bytes: u64) {
        self.expected_files.store(files, Ordering::Relaxed);
        self.bar.set_length(bytes);
        set_style(&self.bar, MEASURING);
        self.tell_files();
    }

    /// Bytes were copied.
    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// One more of `what` is done.
    pub fn done(&self, what: &AtomicU64) {
        what.fetch_add(1, Ordering::Relaxed);
        self.tell_files();
    }

    /// A file of `bytes` needs no copy.
    pub fn passed(&self, bytes: u64) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    fn tell_files(&self) {
        if self.is_shown() {
            let files = self.files.load(Ordering::Relaxed);
            self.bar.set_message(match self.expected_files.load(Ordering::Relaxed) {
                0 => counted(files, "file"),
                expected => format!("{files}/{}", counted(expected, "file")),
            });
        }
    }

    /// Something was not copied.
    pub fn failed(&self, line: &str) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        self.say(line);
    }

    /// A line on standard error, above the bar.
    pub fn say(&self, line: &str) {
        let line = crate::out::harmless_line(line);
        let width = match &self.err {
            Some(err) => columns_of(&**err),
            None => columns_of(&std::io::stderr()),
        };
        let line = wrap::fitting(&line, width).join("\n");
        self.bar.suspend(|| {
            // Standard error is closed, so the error cannot be reported anywhere.
            let _ = match &self.err {
                Some(err) => writeln!(&**err, "{line}"),
                None => writeln!(std::io::stderr(), "{line}"),
            };
        });
    }

    /// Everything is copied; only writing it to disk remains.
    pub fn settle(&self) {
        self.bar.finish_and_clear();
    }

    /// The result of a copy of a folder, as a sentence for people.
    pub fn sentence(&self) -> String {
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        let mut text =
            format!("copied {}, {}", counted(count(&self.files), "file"), nice_bytes(count(&self.bytes)));
        if count(&self.skipped) > 0 {
            text += &format!("; skipped {} whose copy is complete", counted(count(&self.skipped), "file"));
        }
        if count(&self.errors) > 0 {
            text += &format!("; not copied: {}, named above", count(&self.errors));
        }
        text
    }

    /// The summary of `--json`.
    pub fn summary(&self) -> serde_json::Value {
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        serde_json::json!({
            "schema": 1,
            "files": count(&self.files),
            "directories": count(&self.directories),
            "symlinks": count(&self.symlinks),
            "others": count(&self.others),
            "hard_links": count(&self.hard_links),
            "skipped": count(&self.skipped),
            "bytes": count(&self.bytes),
            "errors": count(&self.errors),
            "seconds": self.started.elapsed().as_secs_f64(),
            "stopped": self.cut_short.load(Ordering::Relaxed),
        })
    }
}

fn set_style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use indicatif::TermLike;

    use super::*;

    /// A terminal that keeps the last drawing.
    #[derive(Debug, Default, Clone)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn put(&self, text: &str) -> io::Result<()> {
            self.0.lock().expect("no holder panics").push_str(text);
            Ok(())
        }

        fn line(&self) -> String {
            self.0.lock().expect("no holder panics").trim().to_owned()
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.put(text)
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.put(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            self.0.lock().expect("no holder panics").clear();
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_remaining_time_is_shown_after_all_files_are_counted() {
        let screen = Screen::default();
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), DRAWN_PER_SECOND);
        let progress = Progress::on(target, None);
        let copy = || {
            progress.moved(1 << 20);
            progress.done(&progress.files);
            progress.bar.force_draw();
            screen.line()
        };
        copy();
        let counting = copy();
        assert!(counting.ends_with("2.00 MiB 2 files"), "{counting:?}");
        progress.expect(8, 8 << 20);
        let counted = copy();
        assert!(counted.contains("3.00 MiB/8.00 MiB 3/8 files"), "{counted:?}");
        assert!(counted.ends_with("left"), "{counted:?}");
    }
}
