//! Standard output and standard error of a command.
//!
//! Results go to standard output, remarks to standard error. A reader that goes away (`| head`) ends the
//! command quietly.

use crate::messages::Failure;
use std::io::{self, BufWriter, IsTerminal, Write};

/// Exit status of a command whose reader went away, as shells report a death by SIGPIPE.
pub const PIPE_CLOSED: u8 = 141;

/// Where a command writes. Remembers whether anything failed for one of several operands.
pub struct Console<'a> {
    out: BufWriter<Box<dyn Write + 'a>>,
    err: Box<dyn Write + 'a>,
    failed: bool,
    terminal: bool,
    /// Standard error is read by people.
    watched: bool,
}

impl<'a> Console<'a> {
    pub fn new(out: impl Write + 'a, err: impl Write + 'a) -> Console<'a> {
        let (out, err): (BufWriter<Box<dyn Write + 'a>>, Box<dyn Write + 'a>) =
            (BufWriter::new(Box::new(out)), Box::new(err));
        Console { out, err, failed: false, terminal: false, watched: false }
    }

    /// Whether people read standard error.
    #[must_use]
    pub fn watched(self, watched: bool) -> Console<'a> {
        Console { watched, ..self }
    }

    /// Prints one line of the result.
    ///
    /// # Errors
    /// [`Failure::PipeClosed`] when nobody reads any more.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Standard output itself, for file contents and tables.
    pub fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Standard output, and standard error beside it.
    pub fn both(&mut self) -> (&mut impl Write, &mut impl Write) {
        (&mut self.out, &mut self.err)
    }

    /// Whether somebody reads the result on a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Pushes out what was printed so far.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// Says something on standard error that is no failure.
    pub fn remark(&mut self, text: &str) {
        // Nobody can be told that standard error is closed.
        let _ = writeln!(self.err, "{text}");
    }

    /// As [`Console::remark`], but only to people: programs that know OpenZFS expect nothing there.
    pub fn explain(&mut self, text: &str) {
        if self.watched {
            self.remark(text);
        }
    }

    /// Says why one operand failed; the command goes on and ends with status 1.
    pub fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Refused(lines) => lines.iter().for_each(|line| self.remark(line)),
            Failure::Ended(_) => {}
            other => return Err(other),
        }
        self.failed = true;
        Ok(())
    }

    /// Whether any operand failed so far.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Ends the command: says what is left to say, gives the exit status.
    pub fn finish(mut self, ended: Result<(), Failure>, usage: impl FnOnce() -> String) -> u8 {
        let ended = match self.out.flush() {
            Err(error) if ended.is_ok() => Err(Failure::from(error)),
            _ => ended,
        };
        match ended {
            Ok(()) => u8::from(self.failed),
            Err(Failure::PipeClosed) => PIPE_CLOSED,
            Err(Failure::Ended(status)) => status,
            Err(Failure::Refused(lines)) => {
                lines.iter().for_each(|line| self.remark(line));
                1
            }
            Err(Failure::Usage(line)) => {
                if !line.is_empty() {
                    self.remark(&line);
                }
                self.remark(usage().trim_end());
                2
            }
        }
    }
}

/// The console of this process.
pub fn standard() -> Console<'static> {
    let terminal = io::stdout().is_terminal();
    let watched = io::stderr().is_terminal();
    Console { terminal, watched, ..Console::new(io::stdout(), io::stderr()) }
}

/// A byte as `zfs diff` writes one that could be mistaken.
#[must_use]
pub fn octal(byte: u8) -> String {
    format!("\\{byte:04o}")
}

/// A name on one line, which commands no terminal: control characters, bytes that are no text, and the backslash are
/// written as [`octal`] numbers.
#[must_use]
pub fn quoted(name: &[u8]) -> String {
    let mut line = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                line.extend(c.encode_utf8(&mut [0; 4]).bytes().map(octal));
            } else {
                line.push(c);
            }
        }
        line.extend(chunk.invalid().iter().copied().map(octal));
    }
    line
}

/// `1 file`, `2 files`.
#[must_use]
pub fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_ends_a_command_without_a_word() {
        let mut err = Vec::new();
        let mut console = Console::new(Gone, &mut err);
        let ended = console.line(&"x".repeat(100_000));
        assert_eq!(ended, Err(Failure::PipeClosed));
        assert_eq!(console.finish(ended, String::new), PIPE_CLOSED);
        assert!(err.is_empty());
    }

    #[test]
    fn what_explains_is_said_to_people_only() {
        for (watched, said) in [(false, ""), (true, "nothing is shared\n")] {
            let mut err = Vec::new();
            let mut console = Console::new(io::sink(), &mut err).watched(watched);
            console.explain("nothing is shared");
            assert_eq!(console.finish(Ok(()), String::new), 0);
            assert_eq!(String::from_utf8_lossy(&err), said);
        }
    }

    #[test]
    fn a_failed_operand_does_not_stop_the_others() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err);
        console.complain(Failure::refused("cannot open 'b': dataset does not exist")).expect("goes on");
        console.line("a").expect("printed");
        assert_eq!(console.finish(Ok(()), String::new), 1);
        assert_eq!((out, err), (b"a\n".to_vec(), b"cannot open 'b': dataset does not exist\n".to_vec()));
    }

    #[test]
    fn a_usage_error_shows_the_usage_and_ends_with_two() {
        let mut err = Vec::new();
        let console = Console::new(io::sink(), &mut err);
        assert_eq!(
            console.finish(Err(Failure::usage("missing command")), || "usage:\n\tzfs\n".to_owned()),
            2
        );
        assert_eq!(String::from_utf8_lossy(&err), "missing command\nusage:\n\tzfs\n");
    }

    #[test]
    fn a_name_stays_on_its_line_and_can_be_told_from_every_other() {
        assert_eq!(quoted("na me.tar.gz \u{e4}".as_bytes()), "na me.tar.gz \u{e4}");
        assert_eq!(quoted(b"a\x1b[2Jb\n"), "a\\0033[2Jb\\0012");
        assert_eq!(quoted("\u{9b}".as_bytes()), "\\0302\\0233");
        assert_eq!(quoted(b"a\\0012\xff"), "a\\01340012\\0377");
        assert_eq!([counted(0, "file"), counted(1, "file")], ["0 files", "1 file"]);
    }
}
