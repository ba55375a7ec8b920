//! `zfs change-key`.

use pool::props::dataset::{self as props};
use pool::props::{Value, names};
use pool::{Encryption, Error, KeyChange, KeyError, Pool};

use super::changing::session;
use super::key_material::Occasion;
use super::key_words::KeyWords;
use super::select::dataset_failure;
use super::{Call, key_loading};
use crate::args::{Assignments, Parsed, flag, property};
use crate::command::{Beside, Command, Run, Targets, Typed};
use crate::key_bytes::keylocation;
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::Console;

/// Exit status where a key is not changed: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;

/// `zfs change-key`.
pub static COMMAND: Command = Command {
    name: "change-key",
    about: "changes the key of an encrypted dataset",
    syntax: &[
        "change-key [-l] [-o PROPERTY=VALUE]… FILESYSTEM|VOLUME",
        "change-key -i [-l] FILESYSTEM|VOLUME",
    ],
    examples: &[
        "zfs change-key tank/secret",
        "zfs change-key -o keyformat=passphrase -o keylocation=prompt tank/secret",
        "zfs change-key -i tank/secret/child",
    ],
    options: &[
        flag("i", "uses the key of the parent"),
        flag("l", "loads the key first"),
        property("o", "sets a property of the key"),
    ],
    targets: Targets::First,
    // A user may take long to type a key, so no lock is held meanwhile.
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs change-key`.
struct Options {
    inherits: bool,
    loads: bool,
    properties: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options { inherits: args.has("i"), loads: args.has("l"), properties: args.texts("o") }
}

fn failed(why: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("Key change error: {why}"))
}

/// Runs `zfs change-key`.
///
/// # Errors
/// The arguments are wrong, or the key cannot be changed. Then nothing was changed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let own = Assignments::collect(call.options.properties.iter().map(String::as_str), |word| {
        props::parse(word).map(|p| p.name)
    })?;
    if call.options.inherits && own.iter().next().is_some() {
        return Err(Failure::usage("Properties not allowed for inheriting key"));
    }
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("Missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("Too many arguments")),
    };
    if call.options.loads && !key_loading::before_mounting(call, console, name, false)? {
        return Err(Failure::Ended(NEGATIVE));
    }
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let done = change(session.pool(), call, console, (name, &own));
    if done.is_err() {
        session.pool().forget_command();
    }
    session.finish().and(done).or_else(|failure| match failure {
        usage @ Failure::Usage(_) => Err(usage),
        failure => {
            console.complain(failure)?;
            Err(Failure::Ended(NEGATIVE))
        }
    })
}

fn change(
    pool: &Pool,
    call: &Typed<Options>,
    console: &mut Console,
    (name, own): (&str, &Assignments),
) -> Result<(), Failure> {
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    let encryption = pool.encryption(&info).map_err(failed)?;
    let encryption = encryption.ok_or_else(|| failed("Dataset not encrypted."))?;
    let origin = props::parse("origin").expect("the table has it");
    if let Some((Value::Text(_), _)) = pool.property(&info, origin).map_err(failed)? {
        return Err(words(&KeyError::Clone.into()));
    }
    let (change, others) = match call.options.inherits {
        true => (inherited(pool, name, &encryption)?, Vec::new()),
        false => own_key(&Subject { pool, name, encryption: &encryption, own }, call, console)?,
    };
    if !encryption.is_loaded {
        return Err(failed("Key must be loaded."));
    }
    let _turn = call.turn()?;
    pool.change_key(name, change, others).map_err(|error| words(&error))
}

fn words(error: &Error) -> Failure {
    match error {
        Error::Key(KeyError::NotLoaded(_)) => failed("Key must be loaded."),
        error => failed(error),
    }
}

/// The change to the key of the parent, if that is possible.
fn inherited(pool: &Pool, name: &str, encryption: &Encryption) -> Result<KeyChange, Failure> {
    if encryption.root != name {
        return Err(words(&KeyError::NotItsRoot.into()));
    }
    let (parent, _) = name.rsplit_once('/').ok_or_else(|| failed("Root dataset cannot inherit key."))?;
    let parent = pool.dataset(parent).map_err(failed)?;
    match pool.encryption(&parent).map_err(failed)? {
        None => Err(words(&KeyError::ParentNotEncrypted.into())),
        Some(above) if !above.is_loaded => Err(words(&KeyError::ParentNotLoaded.into())),
        Some(_) => Ok(KeyChange::Inherit),
    }
}

/// The dataset that gets a key of its own, and the options for it.
struct Subject<'a> {
    pool: &'a Pool,
    name: &'a str,
    encryption: &'a Encryption,
    own: &'a Assignments,
}

/// Asks for a key of the dataset's own. Returns also the user properties that are set with it.
fn own_key(
    subject: &Subject,
    call: &Typed<Options>,
    console: &mut Console,
) -> Result<(KeyChange, Vec<(String, Value)>), Failure> {
    let Subject { pool, name, encryption, own } = *subject;
    const ONLY: &str =
        "Only keyformat, keylocation, pbkdf2iters, and user properties may be set with this command.";
    let (mut key_words, mut others) = (KeyWords::default(), Vec::new());
    for (word, text) in own.iter() {
        let Some(property) = props::parse(word) else {
            names::check_user_property(word, text).map_err(failed)?;
            others.push((word.to_owned(), Value::Text(text.to_owned())));
            continue;
        };
        let value = property.parse_value(text).map_err(failed)?;
        if !key_words.take(property.name, &value) {
            return Err(failed(ONLY));
        }
    }
    if !key_words.are_of_a_key_alone() {
        return Err(failed(ONLY));
    }
    let location = match encryption.root == name {
        true => Some(keylocation(pool, &pool.dataset(name).map_err(failed)?).map_err(failed)?),
        false => None,
    };
    let key = key_words.judge_change(encryption, location).map_err(failed)?;
    if !encryption.is_loaded {
        return Err(failed("Key must be loaded."));
    }
    let given = key.ask(Occasion::Changing(name), pool.host(), call, console).map_err(failed)?;
    Ok((KeyChange::Own { key: given.own, location: Some(key.location().to_owned()) }, others))
}
