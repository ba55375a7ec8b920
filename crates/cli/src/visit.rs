//! The commands that other users of the machine may run on root's pools. All other commands are refused.
//!
//! From:   a command line taken apart, in the visitor's process, in the pool's server, and in the reader that answers.
//! To:     permission, or the one line that says why not. The rules are those of OpenZFS, where everybody may open
//!         /dev/zfs and the kernel module refuses what an ordinary user may not do.
//! Why it is so: docs/decisions/0016-visitors.md.

use std::io;

use pool::props::dataset::{self as props, Asked};
use pool::props::names;
use rustix::process::{Resource, Rlimit, Signal};
use server::visitors::OUTPUT_MAX;

use crate::args::{Argument, Parsed};
use crate::command::{Command, Subjects};
use crate::messages::{Action, Failure};

/// The longest time, in seconds, that a command with an interval and a count may take: its reader and its lease live as long.
const ROUNDS_MAX: f64 = 15.0;

/// The commands that other users may ask for about a pool, in words.
pub const ANSWERED: &str = "'zfs get|holds|list' and 'zpool get|iostat|list|status'";

/// The reader's limits: bytes of address space, seconds of a processor, and how far it gives way to others.
const MEMORY_MAX: u64 = 512 << 20;
const PROCESSOR_SECONDS: u64 = 20;
const NICENESS: i32 = 10;

/// Whether other users may run a command of this kind. Some commands only read without operands; with operands, or with an
/// option that changes something, they are refused.
#[must_use]
pub fn is_allowed(command: &Command, args: &Parsed) -> bool {
    command.visitors.is_some_and(|allowed| {
        let looks = || args.options.iter().all(|(name, _)| allowed.options.contains(name));
        allowed.operands != Subjects::None || args.operands.is_empty() && looks()
    })
}

/// The operands that name datasets or pools.
#[must_use]
pub fn subjects<'a>(command: &Command, operands: &'a [String]) -> &'a [String] {
    let lists = command.visitors.map_or(0, |allowed| match allowed.operands {
        Subjects::None | Subjects::Datasets | Subjects::Pools => 0,
        Subjects::PropertiesOfDatasets | Subjects::PropertiesOfPools => 1,
    });
    operands.get(lists..).unwrap_or_default()
}

/// Whether another user may have this command line carried out.
///
/// # Errors
/// One line that says why not.
pub fn judge(command: &Command, args: &Parsed) -> Result<(), Failure> {
    let called = command.called();
    let Some(allowed) = command.visitors else {
        return Err(Failure::refused(format!(
            "cenote: {called}: permission denied: on a pool of another user only {ANSWERED} work"
        )));
    };
    let refused = |what: &str| {
        Failure::refused(format!("cenote: {called}: {what} is not possible on a pool of another user"))
    };
    if let Some((option, _)) = args.options.iter().find(|(name, _)| !allowed.options.contains(name)) {
        let dashes = if option.len() == 1 { "-" } else { "--" };
        return Err(refused(&format!("the option '{dashes}{option}'")));
    }
    let mut lists: Vec<&str> = about_properties(command, args);
    if allowed.operands == Subjects::PropertiesOfDatasets {
        lists.extend(args.operands.first().map(String::as_str));
    }
    let mut words = lists.into_iter().flat_map(|list| list.split(','));
    if let Some(word) = words.find(|word| matches!(props::ask(word), Some(Asked::Account(_)))) {
        return Err(refused(&format!("the property '{word}'")));
    }
    let named = match without_rounds(subjects(command, &args.operands)) {
        Some(named) if allowed.operands != Subjects::PropertiesOfPools => named,
        Some(_) => subjects(command, &args.operands),
        None => return Err(refused("an interval without a count, or for more than 15 s in all,")),
    };
    for name in named {
        match allowed.operands {
            Subjects::None => {
                return Err(Failure::refused(format!("cenote: {called}: permission denied")));
            }
            Subjects::Datasets | Subjects::PropertiesOfDatasets => {
                names::check(name).map_err(|error| Action::Open(name).failed(error))?;
            }
            Subjects::Pools | Subjects::PropertiesOfPools => {
                names::check_pool(name, false).map_err(|error| Action::Open(name).failed(error))?;
            }
        }
    }
    Ok(())
}

/// The arguments of options that are about properties.
fn about_properties<'a>(command: &Command, args: &'a Parsed) -> Vec<&'a str> {
    let choices = command.options.iter().filter(|choice| choice.argument == Argument::Property);
    let options = args.options.iter();
    let about = options.filter(|(name, _)| choices.clone().any(|choice| choice.name() == *name));
    about.filter_map(|(_, value)| value.as_deref()).collect()
}

/// The names among operands, without the interval and the count that may follow them; `None` for an interval that is not
/// allowed.
fn without_rounds(operands: &[String]) -> Option<&[String]> {
    let is_number = |word: &&String| word.starts_with(|c: char| c.is_ascii_digit());
    let names = operands.len() - operands.iter().rev().take_while(is_number).count();
    let (names, rounds) = operands.split_at(names);
    let is_short = match rounds {
        [] => true,
        [interval, count] => {
            let seconds = interval.parse::<f64>().ok().zip(count.parse::<u32>().ok());
            seconds.is_some_and(|(interval, count)| {
                interval > 0.0 && count > 0 && interval * f64::from(count) <= ROUNDS_MAX
            })
        }
        _ => false,
    };
    is_short.then_some(names)
}

/// Limits this process, which answers one question of another user: it ends with the thread that started it, and when it
/// takes more memory, time or output than one answer may.
///
/// # Errors
/// The system refuses the limits.
pub fn limit_this_process() -> io::Result<()> {
    let limits = [
        (Resource::As, MEMORY_MAX),
        (Resource::Cpu, PROCESSOR_SECONDS),
        (Resource::Fsize, OUTPUT_MAX),
        (Resource::Core, 0),
    ];
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    for (resource, most) in limits {
        rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    rustix::process::nice(NICENESS)?;
    // On a machine without memory the kernel ends a reader before anything else.
    std::fs::write("/proc/self/oom_score_adj", "1000")
}
