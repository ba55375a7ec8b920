//! Exported volumes: network block devices for clients.
//!
//! From:   commands (`cenote export`), and a user property of each exported dataset, with which a restarted server restores
//!         the exports.
//! To:     a front end ([`VolumeServer`]), which serves the clients.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::objset::ObjsetType;
use front::{Address, ServedVolume, StartError, VolumeExport, VolumeServer};
use pool::props::{DatasetKind, Source, Value};
use pool::{Pool, private};
use zpl::Volume;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

use crate::Runtime;

/// The user property that keeps an export across restarts.
pub const PROPERTY: &str = "cenote:nbd";

/// Why a volume is not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// It is neither a volume nor a snapshot of one.
    #[error("it is no volume")]
    NoVolume,
    /// It is exported already.
    #[error("it is exported at '{0}' already")]
    Already(Address),
    /// Another export listens there, for example because its dataset had this name before.
    #[error("the export of '{0}' listens there")]
    Taken(String),
    /// It is not exported.
    #[error("it is not exported")]
    NotExported,
    /// Clients use it.
    #[error("NBD clients are connected: {0}")]
    InUse(usize),
    /// The volume cannot be opened, or the user property cannot be written.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] zpl::Error),
    /// The server cannot listen for clients.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The folder for the socket cannot be made.
    #[error("cannot make the folder of '{}': {source}", .path.display())]
    Folder {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Place and options of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Where clients connect; `None`: at a socket in the runtime directory.
    pub address: Option<Address>,
    /// Clients may not write.
    pub read_only: bool,
    /// The folder of the certificates that connections are encrypted with; `None`: they are not.
    pub certificates: Option<PathBuf>,
}

const TLS: &str = ",tls=";
const READ_ONLY: &str = ",ro";

impl Told {
    /// As the property says it.
    #[must_use]
    pub fn text(&self) -> String {
        let place = match &self.address {
            None => "on".to_owned(),
            Some(Address::Unix(path)) => format!("socket={}", path.display()),
            Some(Address::Tcp(address)) => format!("listen={address}"),
        };
        let tls =
            self.certificates.as_ref().map_or(String::new(), |folder| format!("{TLS}{}", folder.display()));
        format!("{place}{tls}{}", if self.read_only { READ_ONLY } else { "" })
    }

    /// Reads the property; `None` for an invalid value. `port` is the port of an address that names none.
    #[must_use]
    pub fn parse(text: &str, port: u16) -> Option<Told> {
        let (place, read_only) = match text.strip_suffix(READ_ONLY) {
            Some(place) => (place, true),
            None => (text, false),
        };
        let (place, certificates) = match place.rsplit_once(TLS) {
            Some((place, folder)) if folder.starts_with('/') => (place, Some(PathBuf::from(folder))),
            Some(_) => return None,
            None => (place, None),
        };
        let address = match place.split_once('=') {
            None if place == "on" => None,
            Some(("socket", path)) if path.starts_with('/') => Some(Address::Unix(PathBuf::from(path))),
            Some(("listen", address)) => Some(Address::tcp(address, port).ok()?),
            _ => return None,
        };
        Some(Told { address, read_only, certificates })
    }
}

/// An export as it is shown.
#[derive(Clone, Debug)]
pub struct Exported {
    /// The dataset.
    pub dataset: String,
    /// The address that clients connect to.
    pub uri: String,
    /// Clients may not write.
    pub read_only: bool,
    /// How many are connected.
    pub clients: usize,
}

/// The exports of a pool.
pub(crate) struct Exports {
    runtime: Runtime,
    volumes: Arc<dyn VolumeServer>,
    served: RankedMutex<BTreeMap<String, Box<dyn ServedVolume>>>,
}

fn shown(dataset: &str, serving: &dyn ServedVolume) -> Exported {
    Exported {
        dataset: dataset.to_owned(),
        uri: serving.uri(),
        read_only: serving.is_read_only(),
        clients: serving.clients(),
    }
}

impl Exports {
    pub(crate) fn new(runtime: Runtime, volumes: Arc<dyn VolumeServer>) -> Exports {
        Exports { runtime, volumes, served: RankedMutex::new(Rank::VolumeExports, BTreeMap::new()) }
    }

    fn served(&self) -> MutexHeld<'_, BTreeMap<String, Box<dyn ServedVolume>>> {
        self.served.lock_after_panics()
    }

    /// Default socket of an exported dataset.
    fn socket(&self, dataset: &str) -> PathBuf {
        self.runtime.folder().join("nbd").join(format!("{dataset}.sock"))
    }

    /// Makes the folders of a socket in the runtime directory, for this user alone.
    fn make_folders(&self, socket: &Path) -> io::Result<()> {
        let within = socket.parent().and_then(|folder| folder.strip_prefix(self.runtime.folder()).ok());
        let mut folder = self.runtime.folder().to_path_buf();
        for part in within.into_iter().flat_map(Path::components) {
            folder.push(part);
            private::folder(&folder)?;
        }
        Ok(())
    }

    /// Exports a volume, or a snapshot of one.
    pub(crate) fn start(
        &self,
        pool: &Arc<Pool>,
        dataset: &str,
        told: &Told,
    ) -> Result<Exported, ExportError> {
        self.check_new(dataset)?;
        // This reads from the disks, and may replay an intent log: other commands look at the exports meanwhile.
        check_volume(pool, dataset)?;
        self.end_gone(pool);
        let address = match &told.address {
            Some(address) => address.clone(),
            None => {
                let path = self.socket(dataset);
                self.make_folders(&path)
                    .map_err(|source| ExportError::Folder { path: path.clone(), source })?;
                Address::Unix(path)
            }
        };
        let mut served = self.served();
        if let Some(serving) = served.get(dataset) {
            return Err(ExportError::Already(serving.address().clone()));
        }
        if let Some((other, _)) = served.iter().find(|(_, serving)| *serving.address() == address) {
            return Err(ExportError::Taken(other.clone()));
        }
        // Clients do not prevent an export of the pool; the server ends their connections first.
        let weak = Arc::downgrade(pool);
        let open = move |name: &str| {
            let pool = weak.upgrade().ok_or("the pool is being let go of")?;
            let volume = pool.open(name).map_err(zpl::Error::from).and_then(Volume::open);
            volume.map_err(|error| error.to_string())
        };
        let export = VolumeExport {
            name: dataset.to_owned(),
            read_only: told.read_only,
            open: Arc::new(open),
            certificates: told.certificates.clone(),
        };
        let serving = self.volumes.serve(export, &address)?;
        let exported = shown(dataset, &*serving);
        served.insert(dataset.to_owned(), serving);
        Ok(exported)
    }

    fn check_new(&self, dataset: &str) -> Result<(), ExportError> {
        match self.served().get(dataset) {
            Some(serving) => Err(ExportError::Already(serving.address().clone())),
            None => Ok(()),
        }
    }

    /// Ends the exports whose datasets are gone. A later dataset of the same name is another one.
    pub(crate) fn end_gone(&self, pool: &Pool) {
        let names: Vec<String> = self.served().keys().cloned().collect();
        let is_gone = |name: &String| matches!(pool.dataset(name), Err(pool::Error::NoDataset(_)));
        for name in names.into_iter().filter(is_gone) {
            let serving = self.served().remove(&name);
            drop(serving);
        }
    }

    /// Ends an export. Without `force`, not while clients are connected.
    pub(crate) fn stop(&self, dataset: &str, force: bool) -> Result<(), ExportError> {
        let serving = {
            let mut served = self.served();
            let clients = served.get(dataset).ok_or(ExportError::NotExported)?.clients();
            if clients > 0 && !force {
                return Err(ExportError::InUse(clients));
            }
            served.remove(dataset)
        };
        drop(serving);
        Ok(())
    }

    /// All exports.
    pub(crate) fn list(&self) -> Vec<Exported> {
        self.served().iter().map(|(dataset, serving)| shown(dataset, &**serving)).collect()
    }

    /// Ends all exports, because the pool is being exported.
    pub(crate) fn stop_all(&self) {
        let served = std::mem::take(&mut *self.served());
        drop(served);
    }

    /// Renames datasets in the table. Clients stay connected. `renamed` need not map names of snapshots.
    pub(crate) fn rename(&self, renamed: impl Fn(&str) -> String) {
        let renamed = |name: &str| match name.split_once('@') {
            Some((head, leaf)) if renamed(name) == name => format!("{}@{leaf}", renamed(head)),
            _ => renamed(name),
        };
        let mut served = self.served();
        let all = std::mem::take(&mut *served);
        for (dataset, serving) in all {
            let name = renamed(&dataset);
            serving.rename(&name);
            served.insert(name, serving);
        }
    }

    /// Exports volumes as the properties say. Logs each failure with its reason.
    pub(crate) fn restore(&self, pool: &Arc<Pool>) {
        let mut report = |dataset: String, error: pool::Error| tracing::debug!(dataset, %error, "left out");
        let Ok(list) = pool.survey(&pool.name(), None, true, &mut report) else { return };
        for info in list {
            if info.kind == DatasetKind::Filesystem {
                continue;
            }
            // An inherited or received value belongs to another dataset.
            let Ok(Some((text, Source::Local))) = pool.user_property(&info, PROPERTY) else { continue };
            let name = &info.name;
            let Some(told) = Told::parse(&text, self.volumes.port()) else {
                tracing::warn!(
                    dataset = name,
                    text,
                    "the property {PROPERTY} says nothing that is understood"
                );
                continue;
            };
            if told.address.as_ref().is_some_and(|address| !address.is_local()) {
                tracing::warn!(
                    dataset = name,
                    text,
                    "a property cannot start an export to other machines: use `cenote export`"
                );
                continue;
            }
            match self.start(pool, name, &told) {
                Ok(exported) => tracing::info!(dataset = name, uri = exported.uri, "exported"),
                Err(ExportError::Already(_)) => {}
                Err(error) => tracing::error!(dataset = name, %error, "not exported"),
            }
        }
    }
}

/// Opens a dataset as a volume once, so that the exporting user sees errors that clients would get.
fn check_volume(pool: &Pool, dataset: &str) -> Result<(), ExportError> {
    let opened = pool.open(dataset)?;
    if opened.objset().os_type() != ObjsetType::Zvol {
        return Err(ExportError::NoVolume);
    }
    Volume::open(opened)?;
    Ok(())
}

/// Stores in the pool how a dataset is exported; `None`: not any more.
pub(crate) fn keep(pool: &Pool, dataset: &str, told: Option<&Told>) -> pool::Result<()> {
    let value = told.map(|told| Value::Text(told.text()));
    pool.set_properties(dataset, vec![(PROPERTY.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_kept_as_text() {
        for text in [
            "on",
            "on,ro",
            "socket=/run/a b,c",
            "socket=/x,ro",
            "listen=127.0.0.1:1",
            "listen=[::]:5,ro",
            "on,tls=/a,b",
            "listen=[::]:5,tls=/a,ro",
        ] {
            assert_eq!(Told::parse(text, 10809).unwrap().text(), text);
        }
        for bad in ["", "off", "socket=x", "listen=host:1", ",ro", "on=1", "on,tls=a", ",tls=/a"] {
            assert_eq!(Told::parse(bad, 10809), None, "{bad}");
        }
    }
}
