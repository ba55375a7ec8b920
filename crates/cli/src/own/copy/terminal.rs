//! The terminal of a client, drawn on by the server that works for it.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

use indicatif::TermLike;

/// The columns of a terminal whose width is not known.
const USUAL_WIDTH: u16 = 80;

/// A terminal in another session: its descriptor came with the command.
#[derive(Debug)]
pub struct Terminal(Arc<File>);

impl Terminal {
    /// `None` if `file` is no terminal.
    pub fn new(file: &Arc<File>) -> Option<Terminal> {
        file.is_terminal().then(|| Terminal(file.clone()))
    }

    fn put(&self, text: &str) -> io::Result<()> {
        (&*self.0).write_all(text.as_bytes())
    }

    fn steer(&self, count: usize, letter: char) -> io::Result<()> {
        if count == 0 { Ok(()) } else { self.put(&format!("\x1b[{count}{letter}")) }
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        let size = rustix::termios::tcgetwinsize(&*self.0);
        size.ok().map(|size| size.ws_col).filter(|columns| *columns > 0).unwrap_or(USUAL_WIDTH)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.steer(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.put(&format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.put(s)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
