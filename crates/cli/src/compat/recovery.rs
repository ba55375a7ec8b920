//! `zpool import -F`: going back to an earlier state of a pool, in the words of OpenZFS.

use format::Txg;
use pool::{Found, FoundState, Options, Pool, Rewind};

use crate::dates::{self, Form};
use crate::messages::{Action, Failure, reason};
use crate::out::Console;

/// The options about going back, as they were typed.
pub struct Asked {
    /// `-F`.
    pub rewind: bool,
    /// `-n`.
    pub dry_run: bool,
    /// `-X`.
    pub extreme: bool,
    /// `-T`.
    pub txg: Option<String>,
}

/// The options of the command line for returning to an earlier txg.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recovery {
    /// Which states may be chosen; `None`: only the newest.
    rewind: Option<Rewind>,
    /// Only say what would happen.
    dry_run: bool,
}

impl Recovery {
    /// Reads the options.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn of(asked: &Asked) -> Result<Recovery, Failure> {
        let (dry_run, mut extreme) = (asked.dry_run, asked.extreme);
        if (dry_run || extreme) && !asked.rewind {
            return Err(Failure::usage("-n or -X only meaningful with -F"));
        }
        let mut max_txg = None;
        if let Some(text) = &asked.txg {
            let txg = text.parse().map_err(|_| Failure::usage("invalid txg value"))?;
            max_txg = Some(Txg(txg));
            extreme = true;
        }
        let rewind = (asked.rewind || max_txg.is_some()).then_some(Rewind { extreme, max_txg });
        Ok(Recovery { rewind, dry_run })
    }

    /// Whether an earlier state may be chosen, or is only sought.
    pub fn is_asked(&self) -> bool {
        self.rewind.is_some()
    }

    /// The state to import: `Some(None)` for the newest, `None` if everything is reported and nothing is imported.
    ///
    /// # Errors
    /// No state can be used.
    pub fn choose(
        self,
        found: &Found,
        options: &Options,
        action: Action<'_>,
        console: &mut Console,
    ) -> Result<Option<Option<FoundState>>, Failure> {
        let Some(rewind) = self.rewind else { return Ok(Some(None)) };
        let state = Pool::find_state(found, rewind, options).map_err(|error| action.failed(error))?;
        let Some(state) = state else {
            console.line("\tDestroy and re-create the pool from\n\ta backup source.")?;
            return Err(action.failed(reason::IO));
        };
        if !self.dry_run {
            return Ok(Some(Some(state)));
        }
        if state.is_newest() {
            return Ok(None);
        }
        exclaim(&found.config.name, &state, true, console)?;
        Err(Failure::Ended(1))
    }
}

/// Prints the state to which the pool was, or would be, returned.
///
/// # Errors
/// The output is closed.
pub fn exclaim(name: &str, state: &FoundState, dry_run: bool, console: &mut Console) -> Result<(), Failure> {
    let when = dates::show(state.time(), Form::Scan);
    let (returned, discarded) = match dry_run {
        true => (format!("Would be able to return {name}"), "Would discard"),
        false => (format!("Pool {name} returned"), "Discarded"),
    };
    console.line(&format!("{returned} to its state as of {when}."))?;
    if let Some((count, unit)) = loss(state) {
        console.line(&format!("{discarded} approximately {count} {unit} of transactions."))?;
    }
    Ok(())
}

/// The failure of an import; says the way out, if there is an earlier state, where OpenZFS says it: on standard output.
///
/// # Errors
/// The output is closed.
pub fn explain(
    found: &Found,
    options: &Options,
    action: Action<'_>,
    error: pool::Error,
    console: &mut Console,
) -> Result<Failure, Failure> {
    let plain = action.refused_by(&error);
    let is_damage = matches!(error, pool::Error::Damaged { .. } | pool::Error::Dmu(_) | pool::Error::Read(_));
    if !is_damage || options.state.is_some() {
        return Ok(plain);
    }
    let Ok(Some(state)) = Pool::find_state(found, Rewind::default(), options) else { return Ok(plain) };
    if state.is_newest() {
        return Ok(plain);
    }
    let when = dates::show(state.time(), Form::Scan);
    let mut text = format!(
        "\tRecovery is possible, but will result in some data loss.\n\tReturning the pool to its state as of {when}\n\t\
         should correct the problem.  "
    );
    if let Some((count, unit)) = loss(&state) {
        text.push_str(&format!("Approximately {count} {unit} of data\n\tmust be discarded, irreversibly.  "));
    }
    text.push_str(match state.data_errors {
        0 => "",
        1 => "After rewind, at least\n\tone persistent user-data error will remain.  ",
        _ => "After rewind, several\n\tpersistent user-data errors will remain.  ",
    });
    let name = &found.config.name;
    text.push_str(&format!(
        "Recovery can be attempted\n\tby executing 'zpool import -F {name}'.  A scrub of the pool\n\tis strongly \
         recommended after recovery."
    ));
    console.line(&text)?;
    Ok(action.failed(reason::IO).hint(format!("cenote: {error}")))
}

/// The loss: the time between the state and the newest one.
fn loss(state: &FoundState) -> Option<(u64, &'static str)> {
    match state.seconds_lost() {
        0 => None,
        seconds @ 1..=120 => Some((seconds, "seconds")),
        seconds => Some(((seconds + 30) / 60, "minutes")),
    }
}
