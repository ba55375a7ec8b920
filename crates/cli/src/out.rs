//! Standard output and standard error of a command.
//!
//! Results go to standard output, remarks to standard error. A reader that goes away (`| head`) ends the
//! command quietly.
//!
//! Names, properties and errors may come from a hostile pool. On a terminal, their control characters are shown as numbers,
//! so that they cannot control the terminal. Into pipes and files they are written unchanged, as OpenZFS does.
//! [`Console::content`], for the contents of files, never changes anything.

pub use crate::colour::{Colour, is_dumb};
use crate::colour::{PLAIN, wants_colour};
use crate::messages::Failure;
use crate::wrap;
use std::borrow::Cow;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;

/// Exit status of a command whose reader went away, as shells report a death by SIGPIPE.
pub const PIPE_CLOSED: u8 = 141;

/// The maximal number of failures whose first lines are kept.
const COMPLAINTS_MAX: usize = 1000;

/// The columns of a terminal whose width is not known.
const USUAL_COLUMNS: usize = 80;

/// Where a command writes. Remembers whether anything failed for one of several operands.
pub struct Console<'a> {
    out: Shown<BufWriter<Box<dyn Write + 'a>>>,
    err: Shown<Box<dyn Write + 'a>>,
    failed: bool,
    /// First lines of the failures of single operands, where there are several operands.
    complaints: Vec<String>,
    quiet: bool,
    /// The result is JSON, so lines of text go to standard error.
    json: bool,
    /// Columns of the terminal to which standard output goes, if it goes to one.
    width: Option<usize>,
    /// The same for standard error.
    remark_width: Option<usize>,
    /// Standard output takes colours.
    colour: bool,
    /// Columns of a line of help.
    help_width: usize,
}

impl<'a> Console<'a> {
    /// Writes results to `out`, which is buffered, and remarks to `err`. Neither counts as a terminal.
    pub fn new(out: impl Write + 'a, err: impl Write + 'a) -> Console<'a> {
        let (out, err): (BufWriter<Box<dyn Write + 'a>>, Box<dyn Write + 'a>) =
            (BufWriter::new(Box::new(out)), Box::new(err));
        let (out, err) = (Shown { to: out, terminal: false }, Shown { to: err, terminal: false });
        Console {
            out,
            err,
            failed: false,
            complaints: Vec::new(),
            quiet: false,
            json: false,
            width: None,
            remark_width: None,
            colour: false,
            help_width: USUAL_COLUMNS,
        }
    }

    /// Whether standard output is a terminal.
    #[must_use]
    pub fn on_terminal(mut self, terminal: bool) -> Console<'a> {
        self.out.terminal = terminal;
        self
    }

    /// How many columns the terminal has that standard output is; `None` if it is none.
    #[must_use]
    pub fn width(mut self, width: Option<usize>) -> Console<'a> {
        self.width = width;
        self
    }

    /// Whether standard output takes colours.
    #[must_use]
    pub fn coloured(mut self, colour: bool) -> Console<'a> {
        self.colour = colour;
        self
    }

    /// How many columns the terminal has that standard error is; `None` if it is none.
    #[must_use]
    pub fn remark_width(mut self, width: Option<usize>) -> Console<'a> {
        self.remark_width = width;
        self
    }

    /// Lets text be wrapped, and tables be cut, also where standard output is no terminal: to the columns that the variable
    /// `COLUMNS` of the environment says, else to the usual ones. For answers that are read by people only.
    pub fn fold(&mut self, variable: impl Fn(&str) -> Option<std::ffi::OsString>) {
        let said = || variable("COLUMNS").and_then(|value| columns_said(value.to_str()?));
        self.width = self.width.or_else(said).or(Some(USUAL_COLUMNS));
    }

    /// The number of columns that a table may have; `None` if the output is no terminal.
    pub fn columns(&self) -> Option<usize> {
        self.width
    }

    /// How many columns a line of help may have.
    #[must_use]
    pub fn helping(mut self, width: usize) -> Console<'a> {
        self.help_width = width;
        self
    }

    /// How many columns a line of help may have, also where standard output is no terminal.
    pub fn help_width(&self) -> usize {
        self.help_width
    }

    /// Prints a text of help, wrapped at blanks.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn help(&mut self, text: &str) -> Result<(), Failure> {
        wrap::fitting(text.trim_end(), Some(self.help_width)).iter().try_for_each(|line| self.line(line))
    }

    /// Prints a sentence that is the answer: in colour where standard output takes it, and wrapped there as [`Console::sentence`].
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn answer(&mut self, colour: Colour, text: &str) -> Result<(), Failure> {
        if !self.colour {
            return self.sentence(text);
        }
        self.out.to.write_all(colour.codes().as_bytes())?;
        let lines = wrap::fitting(text, self.text_width());
        self.out.write_all(lines.join("\n").as_bytes())?;
        self.out.to.write_all(PLAIN.as_bytes())?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Prints one line of the result of which `word` has a colour, where standard output takes it.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn marked(
        &mut self,
        colour: Option<Colour>,
        [before, word, after]: [&str; 3],
    ) -> Result<(), Failure> {
        let Some(colour) = colour.filter(|_| self.colour) else {
            return self.line(&[before, word, after].concat());
        };
        self.out.write_all(before.as_bytes())?;
        self.out.to.write_all(colour.codes().as_bytes())?;
        self.out.write_all(word.as_bytes())?;
        self.out.to.write_all(PLAIN.as_bytes())?;
        self.line(after)
    }

    /// Whether people read standard error.
    pub fn is_watched(&self) -> bool {
        self.err.terminal
    }

    /// Whether people read standard error.
    #[must_use]
    pub fn watched(mut self, watched: bool) -> Console<'a> {
        self.err.terminal = watched;
        self
    }

    /// Whether results and errors are all that is printed.
    #[must_use]
    pub fn quiet(mut self, quiet: bool) -> Console<'a> {
        self.quiet = quiet;
        self
    }

    /// As [`Console::quiet`].
    pub fn set_quiet(&mut self, quiet: bool) {
        self.quiet = quiet;
    }

    /// Whether results and errors are all that is printed.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Declares that the result is JSON ([`Console::object`]). From now on, lines of text go to standard error.
    pub fn expect_json(&mut self) {
        self.json = true;
    }

    /// Prints a result in JSON, on one line.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn object(&mut self, object: &serde_json::Value) -> Result<(), Failure> {
        Ok(writeln!(self.out, "{object}")?)
    }

    /// Prints one line of the result.
    ///
    /// # Errors
    /// [`Failure::PipeClosed`] when the reader is gone.
    pub fn line(&mut self, text: &str) -> Result<(), Failure> {
        if self.json {
            self.remark(text);
            return Ok(());
        }
        self.out.write_all(text.as_bytes())?;
        Ok(self.out.write_all(b"\n")?)
    }

    /// Standard output, for tables and other text. Each write must consist of whole characters.
    pub fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Standard output, for the contents of files.
    pub fn content(&mut self) -> &mut impl Write {
        &mut self.out.to
    }

    /// Standard output, and standard error beside it.
    pub fn both(&mut self) -> (&mut impl Write, &mut impl Write) {
        (&mut self.out, &mut self.err)
    }

    /// Whether the result goes to a terminal.
    pub fn is_terminal(&self) -> bool {
        self.out.terminal
    }

    /// Writes the output so far.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn flush(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }

    /// Prints a sentence of the result: on a terminal, wrapped at blanks.
    ///
    /// # Errors
    /// As [`Console::line`].
    pub fn sentence(&mut self, text: &str) -> Result<(), Failure> {
        wrap::fitting(text, self.text_width()).iter().try_for_each(|line| self.line(line))
    }

    fn text_width(&self) -> Option<usize> {
        self.width.map(|width| width.clamp(wrap::NARROW, wrap::USUAL))
    }

    /// Prints a remark on standard error that is no failure: on a terminal, wrapped at blanks.
    pub fn remark(&mut self, text: &str) {
        let width = self.remark_width.map(|width| width.max(wrap::NARROW));
        for line in wrap::fitting(text, width) {
            // A closed standard error cannot be reported.
            let _ = writeln!(self.err, "{line}");
        }
    }

    /// As [`Console::remark`], but only to people: programs that know OpenZFS expect nothing there.
    pub fn explain(&mut self, text: &str) {
        if self.err.terminal && !self.quiet {
            self.remark(text);
        }
    }

    /// Prints a remark that is useful, but not needed.
    pub fn note(&mut self, text: &str) {
        if !self.quiet {
            self.remark(text);
        }
    }

    /// Reports why one operand failed. The command continues and ends with status 1.
    pub fn complain(&mut self, failure: Failure) -> Result<(), Failure> {
        match failure {
            Failure::Refused(lines) => {
                lines.iter().for_each(|line| self.remark(line));
                let room = COMPLAINTS_MAX - self.complaints.len();
                self.complaints.extend(lines.into_iter().take(room.min(1)));
            }
            Failure::Ended(_) => {}
            other => return Err(other),
        }
        self.failed = true;
        Ok(())
    }

    /// Notes the first line of a failure that was reported in another way, for suggestions.
    pub fn note_complaint(&mut self, line: &str) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(line.to_owned());
        }
    }

    /// First lines of the first failures that the command went on after.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    /// Whether any operand failed so far.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Ends the command: prints the remaining messages and returns the exit status.
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
    let width = columns_of(&io::stdout());
    let console = Console::new(io::stdout(), io::stderr()).on_terminal(terminal).watched(watched);
    let console = console.remark_width(columns_of(&io::stderr()));
    let console = console.helping(help_width());
    console.width(width).coloured(terminal && wants_colour(|name| std::env::var_os(name)))
}

/// How many columns a line of help may have: `COLUMNS` if it is set, else those of the terminal, else 80.
pub fn help_width() -> usize {
    help_width_of(std::env::var("COLUMNS").ok().as_deref(), columns_of(&io::stdout()))
}

/// How many columns the variable `COLUMNS` says; `None` if it does not say a number above zero.
fn columns_said(text: &str) -> Option<usize> {
    text.trim().parse().ok().filter(|columns| *columns > 0)
}

fn help_width_of(told: Option<&str>, terminal: Option<usize>) -> usize {
    told.and_then(columns_said).or(terminal).unwrap_or(USUAL_COLUMNS).max(wrap::NARROW)
}

/// How many columns the terminal behind a file has; `None` if it is no terminal.
pub fn columns_of(file: &(impl AsFd + IsTerminal)) -> Option<usize> {
    let columns = || rustix::termios::tcgetwinsize(file).map_or(0, |size| usize::from(size.ws_col));
    file.is_terminal().then(columns).map(|columns| if columns == 0 { USUAL_COLUMNS } else { columns })
}

/// A writer to `to` that makes text [`harmless`] if `to` is a terminal.
struct Shown<W> {
    to: W,
    terminal: bool,
}

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.terminal {
            self.to.write_all(&harmless(text))?;
            return Ok(text.len());
        }
        self.to.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Text that cannot control a terminal: control characters, except line ends and tabs, and bytes that are no text become
/// [`octal`] numbers.
fn harmless(text: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    if text.iter().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() && c != '\n' && c != '\t' {
                shown.extend(c.encode_utf8(&mut [0; 4]).bytes().map(octal));
            } else {
                shown.push(c);
            }
        }
        shown.extend(chunk.invalid().iter().copied().map(octal));
    }
    Cow::Owned(shown.into_bytes())
}

/// A line that cannot control a terminal, for output that bypasses a [`Console`].
#[must_use]
pub fn harmless_line(line: &str) -> String {
    String::from_utf8_lossy(&harmless(line.as_bytes())).into_owned()
}

/// A byte in the form in which `zfs diff` writes characters that could be misread.
#[must_use]
pub fn octal(byte: u8) -> String {
    format!("\\{byte:04o}")
}

/// A name on one line that cannot control a terminal: control characters, bytes that are no text, and the backslash are
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
    fn help_is_as_wide_as_columns_say_then_the_terminal_then_80() {
        assert_eq!(help_width_of(Some("60"), Some(120)), 60);
        assert_eq!((help_width_of(Some("x"), Some(120)), help_width_of(None, Some(120))), (120, 120));
        assert_eq!((help_width_of(None, None), help_width_of(Some("3"), None)), (80, wrap::NARROW));
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, io::sink()).helping(30);
        console.help("\tlist [-r] [-o PROPERTY[,PROPERTY]…] [DATASET]…\n").expect("printed");
        console.finish(Ok(()), String::new);
        assert_eq!(
            String::from_utf8_lossy(&out),
            "\tlist [-r]\n\t  [-o PROPERTY[,PROPERTY]…]\n\t  [DATASET]…\n"
        );
    }

    #[test]
    fn an_answer_has_a_colour_where_the_terminal_takes_one() {
        for (colour, wanted) in [(true, "\x1b[1;32ma\\0033\x1b[0m\n"), (false, "a\\0033\n")] {
            let mut out = Vec::new();
            let mut console = Console::new(&mut out, io::sink()).on_terminal(true).coloured(colour);
            console.answer(Colour::Green, "a\x1b").expect("printed");
            console.finish(Ok(()), String::new);
            assert_eq!(String::from_utf8_lossy(&out), wanted);
        }
    }

    #[test]
    fn answers_for_people_are_folded_without_a_terminal_too() {
        let columns = |terminal, said: Option<&str>| {
            let mut console = Console::new(io::sink(), io::sink()).width(terminal);
            console.fold(|_| said.map(Into::into));
            console.columns()
        };
        assert_eq!(columns(None, None), Some(80));
        assert_eq!(columns(None, Some("60")), Some(60));
        assert_eq!(columns(Some(100), Some("60")), Some(100));
        assert_eq!([columns(None, Some("wide")), columns(None, Some("0"))], [Some(80); 2]);
    }

    #[test]
    fn a_word_of_a_line_has_a_colour_where_the_terminal_takes_one() {
        for (colour, wanted) in
            [(true, "a\\0033 \x1b[1;31mFAULTED\x1b[0m 0\n"), (false, "a\\0033 FAULTED 0\n")]
        {
            let mut out = Vec::new();
            let mut console = Console::new(&mut out, io::sink()).on_terminal(true).coloured(colour);
            console.marked(Some(Colour::Red), ["a\x1b ", "FAULTED", " 0"]).expect("printed");
            console.finish(Ok(()), String::new);
            assert_eq!(String::from_utf8_lossy(&out), wanted);
        }
    }

    #[test]
    fn a_quiet_console_says_errors_only() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console::new(&mut out, &mut err).watched(true).quiet(true);
        console.note("made");
        console.explain("shared");
        console.line("result").expect("printed");
        assert_eq!(console.finish(Err(Failure::refused("failed")), String::new), 1);
        assert_eq!((out, err), (b"result\n".to_vec(), b"failed\n".to_vec()));
    }

    #[test]
    fn explanations_are_printed_to_terminals_only() {
        for (watched, said) in [(false, ""), (true, "nothing is shared\n")] {
            let mut err = Vec::new();
            let mut console = Console::new(io::sink(), &mut err).watched(watched);
            console.explain("nothing is shared");
            assert_eq!(console.finish(Ok(()), String::new), 0);
            assert_eq!(String::from_utf8_lossy(&err), said);
        }
    }

    #[test]
    fn control_characters_are_escaped_on_terminals_and_unchanged_in_pipes() {
        let name = "a\x1b]0;b\x07\u{9b}2J\u{e4}\tc";
        let shown = "a\\0033]0;b\\0007\\0302\\02332J\u{e4}\tc";
        for (terminal, wanted) in [(true, shown), (false, name)] {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut console = Console::new(&mut out, &mut err).on_terminal(terminal).watched(terminal);
            console.line(name).expect("printed");
            writeln!(console.out(), "{name}").expect("printed");
            console.content().write_all(b"\x1b\xff\n").expect("printed");
            let (first, second) = console.both();
            writeln!(first, "{name}").and_then(|()| writeln!(second, "{name}")).expect("printed");
            console.explain(name);
            console.remark(name);
            assert_eq!(console.finish(Err(Failure::refused(name)), String::new), 1);
            let lines = format!("{wanted}\n{wanted}\n");
            assert_eq!(out, [lines.as_bytes(), b"\x1b\xff\n", wanted.as_bytes(), b"\n"].concat());
            let explained = if terminal { format!("{wanted}\n") } else { String::new() };
            assert_eq!(String::from_utf8(err).expect("text"), format!("{wanted}\n{explained}{lines}"));
        }
        assert_eq!(&*harmless(b"a\xff\x9b\xe4"), b"a\\0377\\0233\\0344");
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
