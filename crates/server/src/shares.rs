//! File systems that clients use over the network, by the property `sharenfs`.
//!
//! From:   the properties `sharenfs` and `cenote:nfs` of each file system, and commands (`zfs share`, `cenote export --nfs`).
//! To:     a front end ([`FileServer`]), which serves the clients.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use front::{Address, ChangeListener, FileExport, FilePort, FileServer, HeldOff, SharedFiles, StartError};
use pool::props::{DatasetKind, Source, Value, dataset as props};
use pool::{DatasetInfo, Pool};
use zpl::Filesystem;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

use crate::exports::Exported;

/// The user property that says where clients connect: `listen=ADDRESS`. `system`: another NFS server exports the file system.
pub const PROPERTY: &str = "cenote:nfs";
/// A second choice where another program has the port: this and the next ones, by the guid of the pool.
const OTHER_PORTS: u16 = 20490;
const OTHER_PORTS_COUNT: u64 = 1000;

/// Why a file system is not shared.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// The property `sharenfs` is `off`.
    #[error("its property sharenfs is off")]
    Off,
    /// It is shared already.
    #[error("filesystem already shared")]
    Already,
    /// It is not shared.
    #[error("not currently shared")]
    NotShared,
    /// It is no file system.
    #[error("it is no file system")]
    WrongKind,
    /// The NFS server of the system shares it.
    #[error("its property {PROPERTY} leaves it to the NFS server of the system")]
    System,
    /// The property [`PROPERTY`] has no valid address.
    #[error("its property {PROPERTY} says '{0}', which is not understood")]
    Place(String),
    /// A property alone does not make this server listen for other machines.
    #[error("'{0}' is reached by other machines: 'cenote export --nfs --listen' begins that")]
    Beyond(SocketAddr),
    /// `sharenfs` asks for something that is not supported.
    #[error("sharenfs: {0}")]
    Rules(String),
    /// Only root changes what the servers of the system share.
    #[error("only root can have the servers of the system share it")]
    NeedsRoot,
    /// A server of the system does not share it.
    #[error("{0}")]
    Server(String),
    /// The server cannot listen for clients.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The properties cannot be read.
    #[error(transparent)]
    Pool(#[from] pool::Error),
}

/// The options of a command that shares a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareTold {
    /// Where clients connect; `None`: the present address, or loopback.
    pub address: Option<SocketAddr>,
    /// The new value of `sharenfs`; `None`: the present one, or `on` if that is `off`.
    pub rules: Option<String>,
}

/// The properties of a file system to be shared.
struct Wanted {
    rules: String,
    mountpoint: Option<String>,
    /// Where clients connect; `None`: on loopback, at the port of the protocol.
    address: Option<SocketAddr>,
}

struct Shared {
    name: String,
    rules: String,
    address: SocketAddr,
    files: Arc<dyn SharedFiles>,
}

#[derive(Default)]
struct State {
    ports: BTreeMap<SocketAddr, Box<dyn FilePort>>,
    /// By the guids of their datasets.
    shared: BTreeMap<u64, Shared>,
    /// File systems that a command unshared. They stay unshared until a command shares them.
    unshared: HashSet<u64>,
    /// Addresses for other machines that a command named.
    allowed: HashSet<SocketAddr>,
    /// The address of file systems without an address of their own.
    default: Option<SocketAddr>,
    /// File systems that could not be shared, for the command that changed their properties.
    failed: Vec<(String, ShareError)>,
}

/// The file systems of a pool that are shared.
pub(crate) struct Shares {
    files: Arc<dyn FileServer>,
    changed: ChangeListener,
    /// An untrusted user may have made the pool: its properties alone share nothing.
    is_distrusted: bool,
    state: RankedMutex<State>,
}

/// While this value exists, clients of some file systems wait.
pub struct HeldShares {
    _held: Vec<Box<dyn HeldOff>>,
}

impl std::fmt::Debug for HeldShares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldShares({})", self._held.len())
    }
}

fn text_of(pool: &Pool, info: &DatasetInfo, name: &str) -> pool::Result<Option<String>> {
    let property = props::parse(name).expect("the table has it");
    Ok(match pool.property(info, property)? {
        Some((Value::Text(text), _)) => Some(text),
        _ => None,
    })
}

/// Whether a value came with a stream, for this dataset or the one that it inherits from. Such a value was meant for another
/// machine.
fn is_received(
    pool: &Pool,
    source: Source,
    of: impl Fn(&DatasetInfo) -> pool::Result<Option<Source>>,
) -> pool::Result<bool> {
    match source {
        Source::Received => Ok(true),
        Source::Inherited(above) => Ok(of(&pool.dataset(&above)?)? == Some(Source::Received)),
        _ => Ok(false),
    }
}

/// The property [`PROPERTY`], unless it came with a stream.
fn place_of(pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<String>> {
    let Some((text, source)) = pool.user_property(info, PROPERTY)? else { return Ok(None) };
    let of = |info: &DatasetInfo| Ok(pool.user_property(info, PROPERTY)?.map(|(_, source)| source));
    Ok((!is_received(pool, source, of)?).then_some(text))
}

/// The options that the system's NFS server is to use for a file system (its property `sharenfs`), and whether Samba is to
/// share it. Values that came with a stream do not count: they would open the file system to other machines.
pub(crate) fn wanted_of_system(pool: &Pool, info: &DatasetInfo) -> (Option<String>, bool) {
    let told = |name: &str| {
        let property = props::parse(name).expect("the table has it");
        let (value, source) = pool.property(info, property).ok()??;
        let of = |info: &DatasetInfo| Ok(pool.property(info, property)?.map(|(_, source)| source));
        match value {
            Value::Text(text) if text != "off" && !is_received(pool, source, of).ok()? => Some(text),
            _ => None,
        }
    };
    let is_systems = || place_of(pool, info).is_ok_and(|place| place.is_some_and(|text| text == "system"));
    (told("sharenfs").filter(|_| is_systems()), told("sharesmb").is_some())
}

/// The value of `sharenfs` that is set at the dataset itself.
fn local_rules(pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<String>> {
    let property = props::parse("sharenfs").expect("the table has it");
    Ok(match pool.property(info, property)? {
        Some((Value::Text(text), Source::Local)) => Some(text),
        _ => None,
    })
}

/// The address that is set at the dataset itself.
fn local_address(pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<String>> {
    let found = pool.user_property(info, PROPERTY)?;
    Ok(found.and_then(|(text, source)| (source == Source::Local).then_some(text)))
}

/// Reads the properties of a file system.
///
/// # Errors
/// It must not be shared here.
fn wanted(pool: &Pool, info: &DatasetInfo, port: u16) -> Result<Wanted, ShareError> {
    if info.kind != DatasetKind::Filesystem {
        return Err(ShareError::WrongKind);
    }
    let rules = text_of(pool, info, "sharenfs")?.filter(|rules| rules != "off").ok_or(ShareError::Off)?;
    let mountpoint = text_of(pool, info, "mountpoint")?.filter(|point| point.starts_with('/'));
    let address = match place_of(pool, info)? {
        None => None,
        Some(text) if text == "system" => return Err(ShareError::System),
        Some(text) => {
            let place = text.strip_prefix("listen=").and_then(|place| Address::tcp(place, port).ok());
            match place {
                // Port 0 would be another one each time.
                Some(Address::Tcp(address)) if address.port() != 0 => Some(address),
                _ => return Err(ShareError::Place(text)),
            }
        }
    };
    Ok(Wanted { rules, mountpoint, address })
}

impl Shares {
    pub(crate) fn new(files: Arc<dyn FileServer>, changed: ChangeListener, is_distrusted: bool) -> Shares {
        Shares { files, changed, is_distrusted, state: RankedMutex::new(Rank::Shares, State::default()) }
    }

    fn state(&self) -> MutexHeld<'_, State> {
        self.state.lock_after_panics()
    }

    pub(crate) fn take_failed(&self) -> Vec<(String, ShareError)> {
        std::mem::take(&mut self.state().failed)
    }

    /// Whether anything is shared.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().shared.is_empty()
    }

    /// As [`Shares::look`], and keeps what could not be shared for [`Shares::take_failed`].
    pub(crate) fn look_and_note(&self, pool: &Arc<Pool>, top: &str) {
        let failed = self.look(pool, top);
        self.state().failed = failed;
    }

    /// Keeps these, too, for [`Shares::take_failed`].
    pub(crate) fn note_failed(&self, failed: Vec<(String, ShareError)>) {
        self.state().failed.extend(failed);
    }

    /// Whether the properties of the pool alone may share anything.
    pub(crate) fn is_distrusted(&self) -> bool {
        self.is_distrusted
    }

    /// Shares exactly the file systems at and below `top` whose properties say so. Returns the ones that could not be
    /// shared.
    pub(crate) fn look(&self, pool: &Arc<Pool>, top: &str) -> Vec<(String, ShareError)> {
        let mut report = |dataset: String, error: pool::Error| tracing::debug!(dataset, %error, "left out");
        let list = match pool.survey(top, None, false, &mut report) {
            Ok(list) => list,
            Err(error) => return vec![(top.to_owned(), error.into())],
        };
        let (mut kept, mut failed) = (HashSet::new(), Vec::new());
        for info in list.iter().filter(|info| info.kind == DatasetKind::Filesystem) {
            let guid = info.phys.guid.0;
            if !self.follows_properties(guid) {
                continue;
            }
            match wanted(pool, info, self.files.port()).and_then(|wanted| self.share(pool, info, wanted)) {
                Ok(()) => drop(kept.insert(guid)),
                Err(ShareError::Off | ShareError::System) => {}
                Err(error) => failed.push((info.name.clone(), error)),
            }
        }
        let state = self.state();
        let is_gone = |(guid, shared): &(&u64, &Shared)| !kept.contains(*guid) && is_below(&shared.name, top);
        let gone: Vec<u64> = state.shared.iter().filter(is_gone).map(|(guid, _)| *guid).collect();
        drop(state);
        gone.into_iter().for_each(|guid| self.unshare(guid));
        self.close_unused();
        failed
    }

    /// Whether the properties of this file system decide. A file system that a command unshared stays unshared. On a pool
    /// whose maker is not trusted, a command must have shared it by name.
    fn follows_properties(&self, guid: u64) -> bool {
        let state = self.state();
        !state.unshared.contains(&guid) && (!self.is_distrusted || state.shared.contains_key(&guid))
    }

    /// As [`Shares::look`], when the server starts; the log says what is not shared, and why.
    pub(crate) fn restore(&self, pool: &Arc<Pool>) {
        self.take_failed();
        for (dataset, error) in self.look(pool, &pool.name()) {
            tracing::warn!(dataset, %error, "not shared");
        }
    }

    /// Shares one file system, or updates its share.
    fn share(&self, pool: &Arc<Pool>, info: &DatasetInfo, wanted: Wanted) -> Result<(), ShareError> {
        let guid = info.phys.guid.0;
        let mut state = self.state();
        let address = self.port_for(&mut state, pool, wanted.address)?;
        if state.shared.get(&guid).is_some_and(|shared| shared.address != address) {
            drop(state);
            self.unshare(guid);
            state = self.state();
            self.port_for(&mut state, pool, Some(address))?;
        }
        if !state.shared.contains_key(&guid) {
            // Clients do not prevent an export of the pool.
            let weak = Arc::downgrade(pool);
            let open = move |name: &str| {
                let pool = weak.upgrade().ok_or("the pool is being exported")?;
                let fs = pool.open(name).map_err(zpl::Error::from).and_then(Filesystem::open);
                fs.map_err(|error| error.to_string())
            };
            let export = FileExport {
                guid,
                name: info.name.clone(),
                rules: wanted.rules.clone(),
                open: Arc::new(open),
                changed: self.changed.clone(),
            };
            let port = state.ports.get(&address).expect("it is listened on");
            let files = port.share(export).map_err(ShareError::Rules)?;
            let shared = Shared { name: info.name.clone(), rules: String::new(), address, files };
            tracing::info!(dataset = info.name, %address, "shared");
            state.shared.insert(guid, shared);
        }
        let shared = state.shared.get_mut(&guid).expect("it was put there");
        shared.files.tell(&info.name, wanted.mountpoint, &wanted.rules).map_err(ShareError::Rules)?;
        (shared.name, shared.rules) = (info.name.clone(), wanted.rules);
        Ok(())
    }

    /// Listens at the address for clients, if the server does not listen there yet. Returns the address.
    fn port_for(
        &self,
        state: &mut State,
        pool: &Pool,
        wanted: Option<SocketAddr>,
    ) -> Result<SocketAddr, ShareError> {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let listened = |state: &State, address| state.ports.contains_key(&address);
        if let Some(address) = wanted.or(state.default) {
            if !address.ip().is_loopback() && !state.allowed.contains(&address) {
                return Err(ShareError::Beyond(address));
            }
            if listened(state, address) {
                return Ok(address);
            }
            let port = self.files.listen(address)?;
            // Port 0 is a free one.
            let address = port.address();
            state.ports.insert(address, port);
            return Ok(address);
        }
        let other = OTHER_PORTS + (pool.guid().0 % OTHER_PORTS_COUNT) as u16;
        let port = match self.files.listen(loopback(self.files.port())) {
            // The server of another pool, or of the system, uses the port.
            Err(StartError::InUse(_)) => self.files.listen(loopback(other))?,
            port => port?,
        };
        let address = port.address();
        state.ports.insert(address, port);
        state.default = Some(address);
        Ok(address)
    }

    fn unshare(&self, guid: u64) {
        let mut state = self.state();
        let Some(shared) = state.shared.remove(&guid) else { return };
        if let Some(port) = state.ports.get(&shared.address) {
            port.unshare(guid);
        }
        drop(state);
        self.close_unused();
    }

    /// Closes the ports without a share.
    fn close_unused(&self) {
        let mut state = self.state();
        let used: HashSet<SocketAddr> = state.shared.values().map(|shared| shared.address).collect();
        let ports = std::mem::take(&mut state.ports).into_iter();
        let (kept, unused): (BTreeMap<_, _>, BTreeMap<_, _>) =
            ports.partition(|(address, _)| used.contains(address));
        state.ports = kept;
        state.default = state.default.filter(|address| used.contains(address));
        drop(state);
        // The drop waits for clients, without the lock.
        drop(unused);
    }

    /// Shares one file system for a command. `allowed`: an address that other machines may reach.
    pub(crate) fn start(
        &self,
        pool: &Arc<Pool>,
        dataset: &str,
        allowed: Option<SocketAddr>,
    ) -> Result<(), ShareError> {
        let info = pool.dataset(dataset)?;
        let wanted = wanted(pool, &info, self.files.port())?;
        let mut state = self.state();
        state.unshared.remove(&info.phys.guid.0);
        state.allowed.extend(allowed);
        drop(state);
        let shared = self.share(pool, &info, wanted);
        self.close_unused();
        shared
    }

    /// Stores the options of a command in the properties, and shares the file system.
    pub(crate) fn start_as(
        &self,
        pool: &Arc<Pool>,
        dataset: &str,
        told: &ShareTold,
    ) -> Result<Exported, ShareError> {
        let info = pool.dataset(dataset)?;
        if info.kind != DatasetKind::Filesystem {
            return Err(ShareError::WrongKind);
        }
        let before = text_of(pool, &info, "sharenfs")?;
        let mut set = Vec::new();
        match &told.rules {
            Some(rules) => set.push(("sharenfs".to_owned(), Some(Value::Text(rules.clone())))),
            None if before.is_none_or(|before| before == "off") => {
                set.push(("sharenfs".to_owned(), Some(Value::Text("on".to_owned()))));
            }
            None => {}
        }
        if let Some(address) = told.address {
            set.push((PROPERTY.to_owned(), Some(Value::Text(format!("listen={address}")))));
        }
        let before = [("sharenfs", local_rules(pool, &info)?), (PROPERTY, local_address(pool, &info)?)];
        if !set.is_empty() {
            pool.set_properties(dataset, set)?;
        }
        if let Err(error) = self.start(pool, dataset, told.address) {
            let before = before.map(|(name, value)| (name.to_owned(), value.map(Value::Text)));
            pool.set_properties(dataset, before.into())?;
            return Err(error);
        }
        // File systems below inherit it.
        self.look(pool, dataset);
        let found = self.list().into_iter().find(|exported| exported.dataset == dataset);
        found.ok_or(ShareError::NotShared)
    }

    /// Sets `sharenfs` to off, and ends the share.
    pub(crate) fn stop_for_good(&self, pool: &Arc<Pool>, dataset: &str) -> Result<bool, ShareError> {
        let info = pool.dataset(dataset)?;
        let is_kept =
            || text_of(pool, &info, "sharenfs").is_ok_and(|text| text.is_some_and(|text| text != "off"));
        if info.kind != DatasetKind::Filesystem || !(self.is_shared(dataset) || is_kept()) {
            return Ok(false);
        }
        let off = ("sharenfs".to_owned(), Some(Value::Text("off".to_owned())));
        pool.set_properties(dataset, vec![off, (PROPERTY.to_owned(), None)])?;
        self.end(dataset);
        self.look(pool, dataset);
        Ok(true)
    }

    /// Ends the share of a dataset, if there is one.
    pub(crate) fn end(&self, dataset: &str) {
        let state = self.state();
        let found = state.shared.iter().find(|(_, shared)| shared.name == dataset).map(|(guid, _)| *guid);
        drop(state);
        if let Some(guid) = found {
            self.unshare(guid);
        }
    }

    /// Whether a file system is shared.
    pub(crate) fn is_shared(&self, dataset: &str) -> bool {
        self.state().shared.values().any(|shared| shared.name == dataset)
    }

    /// Ends the share of one file system, until a command or another start shares it.
    pub(crate) fn stop(&self, dataset: &str) -> Result<(), ShareError> {
        let mut state = self.state();
        let found = state.shared.iter().find(|(_, shared)| shared.name == dataset).map(|(guid, _)| *guid);
        let guid = found.ok_or(ShareError::NotShared)?;
        state.unshared.insert(guid);
        drop(state);
        self.unshare(guid);
        Ok(())
    }

    /// Makes the properties decide again about file systems that commands unshared.
    pub(crate) fn forget_unshared(&self) {
        self.state().unshared.clear();
    }

    /// All shares.
    pub(crate) fn list(&self) -> Vec<Exported> {
        let state = self.state();
        let mut list: Vec<Exported> = state.shared.values().map(|shared| shown(&state, shared)).collect();
        list.sort_by(|a, b| a.dataset.cmp(&b.dataset));
        list
    }

    /// Ends all shares, because the pool is being exported.
    pub(crate) fn stop_all(&self) {
        let mut state = self.state();
        let ports = std::mem::take(&mut state.ports);
        (state.shared, state.default) = (BTreeMap::new(), None);
        drop(state);
        drop(ports);
    }

    /// Renames datasets. Clients stay connected.
    pub(crate) fn rename(&self, renamed: impl Fn(&str) -> String) {
        for shared in self.state().shared.values_mut() {
            shared.name = renamed(&shared.name);
            shared.files.rename(&shared.name);
        }
    }

    /// Closes the shared file systems that `concerned` chooses, and makes their clients wait until the value is dropped.
    pub(crate) fn hold_off(&self, concerned: impl Fn(&str) -> bool) -> HeldShares {
        let state = self.state();
        let found = state.shared.values().filter(|shared| concerned(&shared.name));
        let files: Vec<_> = found.map(|shared| shared.files.clone()).collect();
        drop(state);
        HeldShares { _held: files.into_iter().map(SharedFiles::hold_off).collect() }
    }
}

/// Whether the property of a dataset says that it is not shared.
pub(crate) fn is_off(pool: &Pool, dataset: &str) -> bool {
    let text = pool.dataset(dataset).and_then(|info| text_of(pool, &info, "sharenfs"));
    text.is_ok_and(|text| text.is_none_or(|text| text == "off"))
}

/// Whether a dataset is `top` or below it.
pub(crate) fn is_below(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn shown(state: &State, shared: &Shared) -> Exported {
    let port = shared.address.port();
    let path = shared.files.path();
    let host = match shared.address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let words: Vec<&str> = shared.rules.split(',').collect();
    Exported {
        dataset: shared.name.clone(),
        uri: format!("nfs://{host}{path}?nfsport={port}&mountport={port}"),
        read_only: words.contains(&"ro") && !words.iter().any(|word| word.starts_with("rw")),
        clients: state.ports.get(&shared.address).map_or(0, |port| port.clients()),
    }
}
