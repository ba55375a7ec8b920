//! The description of a subcommand of `zfs` or `zpool`, in one value.
//!
//! From:   the modules of the subcommands (`compat/zfs_send.rs`), each with its value `COMMAND`.
//! To:     the tables in [`crate::compat`]. From the values are derived: the option parser, the usage texts, `help`, manual
//!         pages, completions; the way to a pool's server, the commands of other users, and the answer "not supported".

use std::ops::Deref;

use crate::args::{Choice, Parsed};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::Console;

/// The two programs whose interface is OpenZFS's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Datasets: `zfs`.
    Zfs,
    /// Pools and their vdevs: `zpool`.
    Zpool,
}

impl Program {
    /// Both.
    pub const ALL: [Program; 2] = [Program::Zfs, Program::Zpool];

    /// The word that users type.
    pub const fn name(self) -> &'static str {
        match self {
            Program::Zfs => "zfs",
            Program::Zpool => "zpool",
        }
    }
}

/// A subcommand. A value begins with what differs and ends with `..Command::ZFS` or `..Command::ZPOOL`.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// The program that it belongs to.
    pub program: Program,
    /// The word after the program's name.
    pub name: &'static str,
    /// Another name for it.
    pub alias: Option<&'static str>,
    /// The purpose of the command, in a few words.
    pub about: &'static str,
    /// Syntax lines, without the name of the program.
    pub syntax: &'static [&'static str],
    /// Whole command lines, for help and manual pages. A command that is not supported yet has none.
    pub examples: &'static [&'static str],
    /// All options that it takes. Each is read once, by the function `read` of the command's module.
    pub options: &'static [Choice],
    /// The pools whose servers carry it out.
    pub targets: Targets,
    /// How it runs in a server concurrently with other commands.
    pub beside: Beside,
    /// The command makes one report about several pools, and asks each server for its figures.
    pub gathers: bool,
    /// Its operands are files, which may be written as paths in a mount. The server gets their places in the pool.
    pub takes_files: bool,
    /// The command line for a server, with values that only this process knows.
    pub completed: Option<Completed>,
    /// The listing that the option `-c` prints without an argument, if it names programs that are run for each vdev.
    pub scripts: Option<Listing>,
    /// How other users may run it on root's pools; `None`: not at all.
    pub visitors: Option<Visitors>,
    /// The function that carries it out, or why there is none.
    pub run: Run,
}

/// A function that carries a command out.
pub type Function = fn(&Call, &mut Console) -> Result<(), Failure>;
/// A function that completes a command line for a server; `None` if nothing must be added.
pub type Completed = fn(&Call) -> Result<Option<Vec<String>>, Failure>;

/// A function that lists the programs that `-c` of the command of this name may run.
pub type Listing = fn(&mut Console, &str) -> Result<(), Failure>;

/// How a command is carried out.
#[derive(Debug, Clone, Copy)]
pub enum Run {
    /// By this function.
    Here(Function),
    /// Not supported yet; with a reason, if there is one.
    Missing(Option<&'static str>),
}

/// The pools whose servers carry a command out: the pools of the operands that it changes.
#[derive(Debug, Clone, Copy)]
pub enum Targets {
    /// No server carries it out: it only reads, or finds its servers itself.
    Nothing,
    /// The first operand.
    First,
    /// The second operand.
    Second,
    /// The last operand.
    Last,
    /// All operands.
    All,
    /// All operands but the first.
    AllButFirst,
    /// The pools that this function returns.
    Of(fn(&Call) -> Result<Vec<String>, Failure>),
}

/// How a command runs in a server concurrently with others. Only one command at a time changes datasets and properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It waits until no other command changes anything.
    Alone,
    /// It takes the lock only for its changes, because it takes long or changes files.
    TakesTurns,
    /// It changes nothing and takes no lock. It prints once; if devices do not answer, from values that a server has in
    /// memory. With one of these options it waits like others.
    Reads {
        /// Names of the options with which the command waits like others.
        but: &'static [&'static str],
    },
    /// It changes nothing and takes no lock, and the pool may be exported while it runs.
    Watches,
}

/// How other users may run a command. The allowed options exclude those that run programs (`-c`) or follow paths (`-L`).
#[derive(Debug, Clone, Copy)]
pub struct Visitors {
    /// The kind of the operands.
    pub operands: Subjects,
    /// The options that are allowed.
    pub options: &'static [&'static str],
}

/// The kind of operands that other users may give a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subjects {
    /// No operands are allowed, because with operands the command changes something.
    None,
    /// Names of datasets.
    Datasets,
    /// A list of properties, then datasets.
    PropertiesOfDatasets,
    /// Names of pools.
    Pools,
    /// A list of properties, then pools.
    PropertiesOfPools,
}

impl Command {
    /// The values that most subcommands of `zfs` have in common.
    pub const ZFS: Command = Command::of(Program::Zfs);
    /// The values that most subcommands of `zpool` have in common.
    pub const ZPOOL: Command = Command::of(Program::Zpool);

    const fn of(program: Program) -> Command {
        Command {
            program,
            name: "",
            alias: None,
            about: "",
            syntax: &[],
            examples: &[],
            options: &[],
            targets: Targets::Nothing,
            beside: Beside::Alone,
            gathers: false,
            takes_files: false,
            completed: None,
            scripts: None,
            visitors: None,
            run: Run::Missing(None),
        }
    }

    /// The usage of this subcommand.
    pub fn usage(&self) -> String {
        let mut text = "usage:\n".to_owned();
        for line in self.syntax {
            text.push_str(&format!("\t{line}\n"));
        }
        if self.syntax.iter().any(|line| line.contains("PROPERTY")) {
            text.push_str("\nProperties and their values: 'help properties'.\n");
        }
        text
    }

    /// The usage of this subcommand and its examples, for a user who asks for help.
    ///
    /// A mistake is answered with [`Self::usage`] alone, as OpenZFS does.
    pub fn help(&self) -> String {
        let mut text = self.usage();
        let examples = self.examples_text();
        if !examples.is_empty() {
            text.push_str(&format!("\n{examples}"));
        }
        if let Run::Missing(Some(why)) = self.run {
            text.push_str(&format!("\nNot supported yet: {why}\n"));
        }
        text
    }

    /// A heading and the examples, one a line; empty if there are none.
    pub fn examples_text(&self) -> String {
        let lines: String = self.examples.iter().map(|example| format!("  {example}\n")).collect();
        if lines.is_empty() { lines } else { format!("Examples:\n{lines}") }
    }

    /// Program and subcommand, as they are typed.
    pub fn called(&self) -> String {
        format!("{} {}", self.program.name(), self.name)
    }

    /// Whether it changes nothing, so that it waits for no command that does.
    pub fn reads_only(&self) -> bool {
        matches!(self.beside, Beside::Reads { .. })
    }

    /// The option that means every pool, if it has one.
    pub fn every_pool(&self) -> Option<&'static str> {
        self.options.iter().find(|choice| choice.is_for_every_pool()).map(Choice::name)
    }

    /// The failure "not supported yet".
    pub fn missing(&self, why: Option<&str>) -> Failure {
        let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
        Failure::refused(format!("cenote: not supported yet: {}{why}", self.called()))
    }
}

/// A command line of `zfs` or `zpool`, ready to be carried out.
#[derive(Debug)]
pub struct Call<'a> {
    /// The subcommand that the line names.
    pub command: &'static Command,
    /// Its options and operands.
    pub args: Parsed,
    /// Folders to search, environment and user.
    pub around: &'a Surroundings,
    /// The command line for the pool's history: program and words, one blank apart.
    pub line: String,
}

/// A command line whose options have names and types, as the command's struct `Options` has them.
#[derive(Debug)]
pub struct Typed<'a, O> {
    call: &'a Call<'a>,
    /// The options by name.
    pub options: O,
}

impl<'a, O> Deref for Typed<'a, O> {
    type Target = Call<'a>;

    fn deref(&self) -> &Call<'a> {
        self.call
    }
}

impl<'a> Call<'a> {
    /// Reads the options of the command.
    pub fn typed<O>(&'a self, read: fn(&Parsed) -> O) -> Typed<'a, O> {
        Typed { call: self, options: read(&self.args) }
    }
}

impl Call<'_> {
    /// The operands that decide which servers carry the command out.
    ///
    /// # Errors
    /// Those of the command's own function.
    pub fn targets(&self) -> Result<Vec<String>, Failure> {
        let operands = &self.args.operands;
        Ok(match self.command.targets {
            Targets::Nothing => Vec::new(),
            Targets::First => operands.first().into_iter().cloned().collect(),
            Targets::Second => operands.get(1).into_iter().cloned().collect(),
            Targets::Last => operands.last().into_iter().cloned().collect(),
            Targets::All => operands.clone(),
            Targets::AllButFirst => operands.iter().skip(1).cloned().collect(),
            Targets::Of(function) => function(self)?,
        })
    }

    /// Carries it out in this process.
    ///
    /// # Errors
    /// Those of the command; or it is not supported yet.
    pub fn run(&self, console: &mut Console) -> Result<(), Failure> {
        match self.command.run {
            Run::Here(function) => function(self, console),
            Run::Missing(why) => Err(self.command.missing(why)),
        }
    }
}
