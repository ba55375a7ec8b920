//! Loading and unloading keys: what `zfs load-key`, `zfs unload-key` and `zfs mount -l` share.

use pool::props::DatasetKind;
use pool::{DatasetInfo, Encryption, Error, KeyError, Pool};

use super::Call;
use super::key_material::{self, Location, Occasion};
use super::select::dataset_failure;
use crate::key_bytes::keylocation;
use crate::messages::Failure;
use crate::open::{self, Intent, Session, open_for};
use crate::out::Console;

/// Exit status where a key is not loaded or unloaded: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;
/// Number of tries at a terminal.
const TRIES: usize = 3;

/// The action on keys.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed<'a> {
    /// They are loaded, from the given place or from `keylocation`.
    Load(Option<&'a str>),
    /// Checks whether the keys are right.
    Verify(Option<&'a str>),
    Unload,
}

impl Deed<'_> {
    fn failed(self, why: &str) -> Failure {
        let verb = if matches!(self, Deed::Unload) { "unload" } else { "load" };
        Failure::refused(format!("Key {verb} error: {why}"))
    }

    fn done(self) -> &'static str {
        match self {
            Deed::Load(_) => "loaded",
            Deed::Verify(_) => "verified",
            Deed::Unload => "unloaded",
        }
    }
}

/// Whose keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// `-a`
    pub all: bool,
    /// `-r`
    pub below: bool,
}

/// The pools that the command line names.
pub(super) fn targets(call: &Call, all: bool) -> Result<Vec<String>, Failure> {
    Ok(match all && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.first().cloned().into_iter().collect(),
    })
}

/// Carries out `zfs load-key` or `zfs unload-key`.
///
/// # Errors
/// The arguments are wrong, or a key was not loaded or unloaded. Each such key has a message of its own.
pub(super) fn run(call: &Call, console: &mut Console, scope: Scope, deed: Deed) -> Result<(), Failure> {
    let tops = match (call.args.operands.as_slice(), scope.all) {
        ([], false) => return Err(Failure::usage("Missing dataset argument or -a option")),
        ([_, ..], true) => return Err(Failure::usage("Cannot specify dataset with -a option")),
        ([], true) => open::names(call.around)?,
        ([name], false) => vec![name.clone()],
        _ => return Err(Failure::usage("Too many arguments")),
    };
    if !matches!(deed, Deed::Verify(_)) && call.live().is_none() {
        // Keys are kept by the server of the pool: they would be lost when this process ends.
        return Err(super::mounting::without_server(call));
    }
    let many = scope.all || scope.below;
    let (mut tried, mut failed) = (0, 0);
    for top in &tops {
        let session = open_for(top, call.around, Intent::Read).map_err(|error| error.dataset(top))?;
        let work = Work { call, session: &session, deed };
        for info in work.subjects(top, many)? {
            tried += 1;
            if let Err(failure) = work.one(&info, console) {
                console.complain(failure)?;
                failed += 1;
            }
        }
    }
    if matches!(deed, Deed::Verify(_)) || many && tried > 0 {
        console.line(&format!("{} / {tried} key(s) successfully {}", tried - failed, deed.done()))?;
    }
    if failed > 0 { Err(Failure::Ended(NEGATIVE)) } else { Ok(()) }
}

/// Loads the key of a dataset, or all keys of its descendants, before they are mounted. Returns whether all are loaded;
/// reports the missing ones.
///
/// # Errors
/// The dataset cannot be read.
pub(super) fn before_mounting(
    call: &Call,
    console: &mut Console,
    top: &str,
    below: bool,
) -> Result<bool, Failure> {
    let session = open_for(top, call.around, Intent::Read).map_err(|error| error.dataset(top))?;
    let work = Work { call, session: &session, deed: Deed::Load(None) };
    let pool = session.pool();
    let info = pool.dataset(top).map_err(|error| dataset_failure(top, &error))?;
    let mut needed = if below { work.subjects(top, true)? } else { Vec::new() };
    if let Some(encryption) = work.encryption(&info)?.filter(|encryption| !encryption.is_loaded)
        && needed.iter().all(|info| info.name != encryption.root)
    {
        let root = encryption.root.as_str();
        needed.insert(0, pool.dataset(root).map_err(|error| dataset_failure(root, &error))?);
    }
    let mut all = true;
    for info in needed {
        if let Err(failure) = work.one(&info, console) {
            console.complain(failure)?;
            all = false;
        }
    }
    Ok(all)
}

/// Unloads the key of a dataset that was just unmounted, if it is an encryption root whose key is loaded. If the key
/// stays, an error is printed.
///
/// # Errors
/// The dataset cannot be read.
pub(super) fn after_unmounting(call: &Call, console: &mut Console, name: &str) -> Result<(), Failure> {
    let session = open_for(name, call.around, Intent::Read).map_err(|error| error.dataset(name))?;
    let work = Work { call, session: &session, deed: Deed::Unload };
    let info = session.pool().dataset(name).map_err(|error| dataset_failure(name, &error))?;
    let encryption = work.encryption(&info)?;
    if encryption.is_some_and(|encryption| encryption.root == name && encryption.is_loaded)
        && let Err(failure) = work.one(&info, console)
    {
        console.complain(failure)?;
    }
    Ok(())
}

struct Work<'a> {
    call: &'a Call<'a>,
    session: &'a Session,
    deed: Deed<'a>,
}

impl Work<'_> {
    fn pool(&self) -> &Pool {
        self.session.pool()
    }

    fn encryption(&self, info: &DatasetInfo) -> Result<Option<Encryption>, Failure> {
        self.pool().encryption(info).map_err(|error| self.deed.failed(&error.to_string()))
    }

    /// The dataset itself, or all encryption roots at and below it that the action applies to.
    fn subjects(&self, top: &str, many: bool) -> Result<Vec<DatasetInfo>, Failure> {
        let failed = |error: Error| dataset_failure(top, &error);
        if !many {
            return Ok(vec![self.pool().dataset(top).map_err(failed)?]);
        }
        let unloads = matches!(self.deed, Deed::Unload);
        let mut subjects = Vec::new();
        for info in self.pool().list(top, None, false).map_err(failed)? {
            if !matches!(info.kind, DatasetKind::Filesystem | DatasetKind::Volume) {
                continue;
            }
            let Some(encryption) = self.encryption(&info)? else { continue };
            if encryption.root == info.name && encryption.is_loaded == unloads {
                subjects.push(info);
            }
        }
        Ok(subjects)
    }

    /// Loads or unloads one key.
    fn one(&self, info: &DatasetInfo, console: &mut Console) -> Result<(), Failure> {
        match self.deed {
            Deed::Load(from) => self.load(info, from, false, console),
            Deed::Verify(from) => self.load(info, from, true, console),
            Deed::Unload => {
                // Files of volumes and of their snapshots may be open in the kernel's cache alone.
                let below = self.pool().list(&info.name, None, true).map_err(|error| self.refused(&error))?;
                let names: Vec<String> = below.into_iter().map(|info| info.name).collect();
                super::mounting::letting_go(self.call, &names);
                // A client of a share has the file system open for a while after its last call.
                let _held = self.call.live().map(|live| live.hold_shares_off(&info.name));
                self.pool().unload_key(info).map_err(|error| self.refused(&error))
            }
        }
    }

    fn load(
        &self,
        info: &DatasetInfo,
        from: Option<&str>,
        dry_run: bool,
        console: &mut Console,
    ) -> Result<(), Failure> {
        let name = info.name.as_str();
        let encryption = self.encryption(info)?;
        let encryption =
            encryption.ok_or_else(|| self.refused(&KeyError::NotEncrypted(name.into()).into()))?;
        if encryption.root != name {
            let error = KeyError::NotRoot { dataset: name.into(), root: encryption.root };
            return Err(self.refused(&error.into()));
        }
        if encryption.is_loaded && !dry_run {
            return Err(self.refused(&KeyError::AlreadyLoaded(name.into()).into()));
        }
        let kept = keylocation(self.pool(), info).map_err(|error| self.deed.failed(&error.to_string()))?;
        let location = Location::parse(from.unwrap_or(&kept)).map_err(|why| self.deed.failed(&why))?;
        if self.call.live().is_some() {
            server::keep_secrets();
        }
        let user = encryption.object.user_key;
        let tries = if key_material::may_ask_again(location, self.call.around) { TRIES } else { 1 };
        let mut tried = 0;
        loop {
            tried += 1;
            let given =
                key_material::get(location, user.format, Occasion::Loading(name), self.call.around, console);
            let given = given.map_err(|why| self.deed.failed(&why))?;
            let key = user.wrapping(&given).map_err(|error| self.deed.failed(&error.to_string()))?;
            drop(given);
            match self.pool().load_key(info, key, dry_run) {
                Ok(()) => return Ok(()),
                Err(Error::Key(KeyError::Wrong(_))) if tried < tries => {}
                Err(error) => return Err(self.refused(&error)),
            }
        }
    }

    /// An error of the pool in the words of OpenZFS.
    fn refused(&self, error: &Error) -> Failure {
        let why = match error {
            Error::Key(KeyError::Wrong(name)) => format!("Incorrect key provided for '{name}'."),
            Error::Key(KeyError::AlreadyLoaded(name)) => format!("Key already loaded for '{name}'."),
            Error::Key(KeyError::NotLoaded(name)) => format!("Key already unloaded for '{name}'."),
            Error::Key(KeyError::NotEncrypted(name)) => format!("'{name}' is not encrypted."),
            Error::Key(KeyError::NotRoot { dataset, root }) => {
                let verb = if matches!(self.deed, Deed::Unload) { "unloaded" } else { "loaded" };
                format!("Keys must be {verb} for encryption root of '{dataset}' ({root}).")
            }
            Error::DatasetBusy(name) => format!("'{name}' is busy."),
            error => error.to_string(),
        };
        self.deed.failed(&why)
    }
}
