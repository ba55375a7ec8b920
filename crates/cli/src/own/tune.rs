//! `cenote tune`: shows and sets the tunables.
//!
//! From:   names, assignments, perhaps a pool.
//! To:     the user's configuration file, or the open pool.

use pool::Options;
use pool::tune::{self, Kind, Tunable};
use serde_json::json;

use super::Tune;
use crate::config::{self, Config, ConfigError};
use crate::messages::Failure;
use crate::open::{self, Intent};
use crate::out::Console;
use crate::{Surroundings, config::Origin};

/// A word of the command line.
enum Word {
    Show(&'static Tunable),
    Set(&'static Tunable, u64),
}

/// All words of a command line.
#[derive(Default)]
struct Asked {
    /// Tunables to show; all of them without any word.
    shown: Vec<&'static Tunable>,
    /// Tunables to set, with their values.
    set: Vec<(&'static Tunable, u64)>,
}

impl Asked {
    fn read(words: &[String]) -> Result<Asked, Failure> {
        if words.is_empty() {
            return Ok(Asked { shown: tune::ALL.iter().collect(), set: Vec::new() });
        }
        let mut asked = Asked::default();
        for word in words {
            match parse(word)? {
                Word::Show(tunable) => asked.shown.push(tunable),
                Word::Set(tunable, value) => asked.set.push((tunable, value)),
            }
        }
        Ok(asked)
    }
}

/// Carries out `tune`.
///
/// # Errors
/// A name or value that is no good, a pool that cannot be opened, a file that cannot be written.
pub fn run(tune: &Tune, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let (pool, words) = tune.split();
    // All are looked at before one is set.
    let asked = Asked::read(words)?;
    match pool {
        Some(name) => in_effect(tune, name, &asked, around, console),
        None => {
            for (tunable, value) in asked.set {
                config::keep(tunable, value).map_err(failed)?;
            }
            let config = Config::load().map_err(failed)?;
            let mut options = Options::default();
            config.apply(&mut options);
            let rows: Vec<_> =
                asked.shown.iter().map(|t| (*t, t.of(&options), Some(config.origin(t)))).collect();
            print(tune, console, &rows)
        }
    }
}

/// Shows and changes the values of an open pool. Only in its server does a change outlive the command.
fn in_effect(
    tune: &Tune,
    name: &str,
    asked: &Asked,
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    if !asked.set.is_empty() && around.live().is_none() {
        // A pool that is not there is the first thing to say.
        open::find(name, around)?;
        return Err(Failure::refused(format!(
            "cannot tune '{name}': nobody holds it, so that the value would be gone at once"
        ))
        .hint("without a pool's name the value is kept for all pools"));
    }
    let session = open::open_for(name, around, Intent::Read)?;
    for (tunable, value) in &asked.set {
        let tuned = session.pool().tune(tunable.name, &tunable.text(*value));
        tuned.map_err(|error| Failure::refused(error.to_string()))?;
    }
    let values: Vec<_> = session.pool().tunables().collect();
    let value = |tunable: &Tunable| values.iter().find(|(t, _)| t.name == tunable.name).map(|v| v.1);
    let rows = asked.shown.iter().filter_map(|t| Some((*t, value(t)?, None))).collect::<Vec<_>>();
    print(tune, console, &rows)?;
    session.finish()
}

impl Tune {
    /// The pool, if one is named, and the words about tunables.
    pub fn split(&self) -> (Option<&str>, &[String]) {
        match self.words.split_first() {
            Some((first, rest))
                if !first.contains('=') && tune::find(first).is_err() && !looks_like_one(first) =>
            {
                (Some(first), rest)
            }
            _ => (None, &self.words),
        }
    }
}

/// Whether a word can only be meant as a tunable: an unknown one is a mistake, not a pool.
fn looks_like_one(word: &str) -> bool {
    word.starts_with("zfs_") || word.starts_with("gzip_") || word.starts_with("zfetch_")
}

fn parse(word: &str) -> Result<Word, Failure> {
    let refused = |error: tune::TuneError| {
        let failure = Failure::refused(error.to_string());
        let tune::TuneError::Unknown(name) = &error else { return failure };
        match crate::suggest::nearest(name, tune::ALL.iter().map(|tunable| tunable.name)) {
            Some(near) => failure.hint(format!("did you mean '{near}'? 'cenote tune' lists them all")),
            None => failure.hint("'cenote tune' lists them all"),
        }
    };
    match word.split_once('=') {
        None => Ok(Word::Show(tune::find(word).map_err(refused)?)),
        Some((name, text)) => {
            let tunable = tune::find(name).map_err(refused)?;
            Ok(Word::Set(tunable, tunable.parse(text).map_err(refused)?))
        }
    }
}

fn failed(error: ConfigError) -> Failure {
    Failure::refused(error.to_string())
}

fn print(
    tune: &Tune,
    console: &mut Console,
    rows: &[(&'static Tunable, u64, Option<Origin>)],
) -> Result<(), Failure> {
    if tune.json {
        let row = |(t, value, origin): &(&'static Tunable, u64, Option<Origin>)| {
            let origin = origin.as_ref().map(Origin::to_string);
            let value = match t.kind {
                Kind::Word(_) => json!(t.text(*value)),
                _ => json!(value),
            };
            json!({ "name": t.name, "value": value, "unit": t.kind.word(), "source": origin })
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        return console.line(&json!({ "schema": 1, "tunables": rows }).to_string());
    }
    let width = rows.iter().map(|(t, ..)| t.name.len()).max().unwrap_or(0);
    for (tunable, value, origin) in rows {
        let shown = match tunable.kind {
            Kind::Bytes => pool::props::number::nice(*value),
            _ => tunable.text(*value),
        };
        let line = match origin {
            Some(origin) => format!("{:width$}  {shown:>8}  {origin}", tunable.name),
            None => format!("{:width$}  {shown:>8}", tunable.name),
        };
        console.line(&line)?;
    }
    Ok(())
}
