//! `zfs create`.

use std::sync::Arc;

use super::Call;
use super::changing::{is_missing, session, words};
use super::dataset_values::{self};
use super::key_material::Occasion;
use super::key_words::NewKey;
use super::mounting;
use super::no_effect;
use super::owner_quota;
use super::parents::{create_parents, nearest_ancestor};
use super::volumes;
use crate::args::Assignments;
use crate::args::{Parsed, flag, property, value};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, Session};
use crate::out::Console;
use pool::props::DatasetKind;
use pool::props::dataset::{self as props};
use pool::props::names::{self};
use pool::{DatasetInfo, OwnKey, Pool};

/// `zfs create`.
pub static COMMAND: Command = Command {
    name: "create",
    about: "makes a file system or a volume",
    syntax: &[
        "create [-Pnpuv] [-o PROPERTY=VALUE]… FILESYSTEM",
        "create [-Pnpsv] [-b BLOCKSIZE] [-o PROPERTY=VALUE]… -V SIZE VOLUME",
    ],
    examples: &[
        "zfs create tank/home",
        "zfs create -p -o compression=zstd -o recordsize=1M tank/media/films",
        "zfs create -s -V 20G tank/disk",
    ],
    options: &[
        flag("P", "prints what is made in a form for programs"),
        flag("n", "makes nothing, only shows what would be made"),
        flag("p", "also creates missing parents; no error if it exists"),
        flag("u", "does not mount it"),
        flag("v", "says what is made"),
        flag("s", "reserves no space for the volume"),
        value("b", "block size of the volume"),
        property("o", "sets a property; may be repeated"),
        value("V", "makes a volume of this size"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs create`.
struct Options {
    parsable: bool,
    dry_run: bool,
    parents: bool,
    unmounted: bool,
    verbose: bool,
    sparse: bool,
    blocksize: Option<String>,
    properties: Vec<String>,
    volume: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        parsable: args.has("P"),
        dry_run: args.has("n"),
        parents: args.has("p"),
        unmounted: args.has("u"),
        verbose: args.has("v"),
        sparse: args.has("s"),
        blocksize: args.text("b"),
        properties: args.texts("o"),
        volume: args.text("V"),
    }
}

/// Runs `zfs create`.
///
/// # Errors
/// The arguments are wrong, or the file system cannot be created. Then nothing was changed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let volume = call.options.volume.as_deref();
    let volume = volume.map(|size| volumes::asked(size, call.options.sparse)).transpose()?;
    if volume.is_none() && (call.options.sparse || call.options.blocksize.is_some()) {
        return Err(Failure::usage("'-s' and '-b' can only be used when creating a volume"));
    }
    let block = call.options.blocksize.as_deref().map(volumes::block_assignment).transpose()?;
    let texts = block.iter().chain(&call.options.properties).map(String::as_str);
    let own = Assignments::collect(texts, |word| props::parse(word).map(|p| p.name))?;
    if volume.is_some() && call.options.unmounted {
        return Err(Failure::usage("'-u' can only be used when creating a filesystem"));
    }
    let kind = if volume.is_some() { "volume" } else { "filesystem" };
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage(format!("missing {kind} argument"))),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let action = Action::Create(name);
    names::check_new(name, DatasetKind::Filesystem).map_err(|error| action.failed(error))?;
    if !name.contains('/') {
        return Err(action.failed(reason::MISSING_DATASET_NAME));
    }
    let intent = if call.options.dry_run { Intent::Read } else { Intent::Write };
    let session = session(call, name, intent).map_err(|error| match error {
        NotOpen::Missing(pool) => action.failed(format!("{} '{pool}'", reason::NO_SUCH_POOL)),
        other => other.into(),
    })?;
    let wanted = Wanted { name, own: &own, volume: volume.as_ref() };
    let done = create_in(&session, call, console, &wanted);
    session.finish().and(done)
}

/// The file system that is to be made.
struct Wanted<'a> {
    name: &'a str,
    own: &'a Assignments,
    /// It is a volume, like this.
    volume: Option<&'a volumes::Asked>,
}

/// The new dataset, with its properties.
enum Made {
    Filesystem(dataset_values::Creation),
    Volume(volumes::Creation),
}

impl Made {
    /// How it is to be encrypted.
    fn encryption_mut(&mut self) -> &mut pool::NewEncryption {
        match self {
            Made::Volume(volume) => &mut volume.encryption,
            Made::Filesystem(made) => &mut made.filesystem.encryption,
        }
    }

    /// The properties that are set, as `-v` shows them.
    fn shown(&self, own: &Assignments) -> Vec<(String, String)> {
        match self {
            Made::Volume(volume) => volume.shown.clone(),
            Made::Filesystem(_) => {
                own.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
            }
        }
    }
}

fn create_in(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    wanted: &Wanted<'_>,
) -> Result<(), Failure> {
    let Wanted { name, own, volume } = *wanted;
    let (action, pool, dry) = (Action::Create(name), session.pool(), call.options.dry_run);
    let parents = call.options.parents;
    let Some((parent, _)) = name.rsplit_once('/') else {
        return Err(action.failed(reason::MISSING_DATASET_NAME));
    };
    if let Some(failure) = session.refusal(action).filter(|_| !dry) {
        return Err(failure);
    }
    let words_of = |error: pool::Error| words(action, &error);
    let above = match pool.dataset(parent) {
        Ok(info) => Some(info),
        Err(error) if is_missing(&error) && parents => None,
        Err(error) if is_missing(&error) => return Err(action.failed(reason::PARENT_MISSING)),
        Err(error) => return Err(words_of(error)),
    };
    if above.as_ref().is_some_and(|info| info.kind != DatasetKind::Filesystem) {
        return Err(action.failed(reason::NOT_A_FILESYSTEM));
    }
    // With -p, values are inherited from the nearest existing ancestor.
    let nearest = match above {
        Some(info) => info,
        None => nearest_ancestor(pool, parent).map_err(words_of)?,
    };
    // With -p an existing dataset is enough, and the properties that were asked for are ignored.
    if parents && pool.dataset(name).is_ok() {
        return Ok(());
    }
    let enabled = dataset_values::enabled_in(pool);
    let (mut made, key) = judge(pool, console, wanted, &nearest)?;
    match pool.dataset(name) {
        Ok(_) => return Err(action.failed(reason::ALREADY_EXISTS)),
        Err(error) if is_missing(&error) => {}
        Err(error) => return Err(words_of(error)),
    }
    if call.options.verbose || call.options.parsable {
        let shown = made.shown(own);
        announce(call, console, name, &shown)?;
    }
    if dry {
        return Ok(());
    }
    no_effect::warn(console, own.iter());
    if let Some(key) = key {
        let own = own_key(&key, pool, call, console)?;
        made.encryption_mut().own = Some(own);
    }
    let mut topmost = None;
    if parents {
        topmost = create_parents(pool, parent, &enabled, action)?;
    }
    make(pool, name, made)?;
    if let Some(live) = call.live() {
        // The space reserved for the new file system is taken from the others.
        live.limits_changed();
    }
    match (topmost, volume) {
        _ if call.options.unmounted => Ok(()),
        (None, Some(_)) => Ok(()),
        (topmost, _) => mounting::created(call, console, topmost.as_deref().unwrap_or(name)),
    }
}

/// Judges the properties of a dataset below `nearest`. Returns the key that is to be asked for, too.
fn judge(
    pool: &Pool,
    console: &mut Console,
    wanted: &Wanted<'_>,
    nearest: &DatasetInfo,
) -> Result<(Made, Option<NewKey>), Failure> {
    let Wanted { name, own, volume } = *wanted;
    let action = Action::Create(name);
    let enabled = dataset_values::enabled_in(pool);
    let above = pool.encryption(nearest).map_err(|error| words(action, &error))?;
    if let Some(asked) = volume {
        let made = volumes::creation(console, pool, (asked, own), &enabled);
        let mut made = made.map_err(|error| action.failed(error))?;
        let words = std::mem::take(&mut made.key_words);
        let encrypted = dataset_values::encrypt(words, &mut made.local, above.as_ref(), &enabled);
        let (encryption, key) = encrypted.map_err(|error| action.failed(error))?;
        made.encryption = encryption;
        return Ok((Made::Volume(made), key));
    }
    let given: Vec<(&str, &str)> = own.iter().collect();
    let made = dataset_values::creation(&given, Some((pool, nearest)), &enabled);
    let mut made = made.map_err(|error| action.failed(error))?;
    let key = made.encrypt(above.as_ref(), &enabled).map_err(|error| action.failed(error))?;
    Ok((Made::Filesystem(made), key))
}

/// Makes the dataset `name`.
fn make(pool: &pool::Pool, name: &str, made: Made) -> Result<(), Failure> {
    let action = Action::Create(name);
    let words_of = |error: pool::Error| words(action, &error);
    match made {
        Made::Volume(volumes::Creation { size, block, local, encryption, .. }) => {
            let initialiser = zpl::volume_initialiser(size, block);
            pool.create_volume(name, local, encryption, initialiser).map_err(words_of)?;
        }
        Made::Filesystem(made) => {
            pool.create_filesystem(name, made.local, made.filesystem, dataset_values::initialiser())
                .map_err(words_of)?;
            owner_quota::apply(pool, name, &made.quotas).map_err(|error| action.failed(error))?;
        }
    }
    Ok(())
}

/// Asks for the key of a new encryption root.
fn own_key(
    key: &NewKey,
    pool: &Pool,
    call: &Typed<Options>,
    console: &mut Console,
) -> Result<Arc<OwnKey>, Failure> {
    let given = key.ask(Occasion::Creating, pool.host(), call, console);
    let name = call.args.operands.first().map_or("", String::as_str);
    Ok(given.map_err(|why| Action::Create(name).failed(why))?.own)
}

/// `-v`, `-P`: prints the datasets that are, or would be, made.
fn announce(
    call: &Typed<Options>,
    console: &mut Console,
    name: &str,
    shown: &[(String, String)],
) -> Result<(), Failure> {
    let (parsable, would) = (call.options.parsable, if call.options.dry_run { "would " } else { "" });
    if call.options.parents {
        console.line(&match parsable {
            true => format!("create_ancestors\t{name}"),
            false => format!("{would}create ancestors of {name}"),
        })?;
    }
    console.line(&match parsable {
        true => format!("create\t{name}"),
        false => format!("{would}create {name}"),
    })?;
    shown.iter().try_for_each(|(name, value)| {
        console.line(&match parsable {
            true => format!("property\t{name}\t{value}"),
            false => format!("\t{name}={value}"),
        })
    })
}
