//! First contents of a new file system or volume.

use std::sync::Arc;

use dmu::Objset;
use format::ObjectId;
use format::objset::ObjsetType;
use format::stream::KeyData;
use format::znode::master::ZPL_VERSION;
use storage::host::Host;

use crate::new_encryption::NewEncryption;

/// Fills a new objset with its first objects. `zpl` supplies this function, because it knows their meaning.
pub type Initialise = Arc<dyn Fn(&Objset, &dmu::Tx, &NewFilesystem) -> dmu::Result<()> + Send + Sync>;

/// Options of a new file system that its format stores.
#[derive(Clone, Debug)]
pub struct NewFilesystem {
    /// Time and randomness.
    pub host: Host,
    /// How names are normalised (`normalization`, as stored).
    pub normalization: u64,
    /// Names must be UTF-8.
    pub utf8only: bool,
    /// `casesensitivity`, as stored.
    pub casesensitivity: u64,
    /// Files carry project ids.
    pub project_quota: bool,
    /// Version of its format, 1 to 5; a pool of a legacy version may lower it.
    pub version: u64,
    /// How it is encrypted.
    pub encryption: NewEncryption,
}

impl NewFilesystem {
    /// The default: names are bytes, not normalised and case-sensitive; files carry project ids.
    #[must_use]
    pub fn plain(host: &Host) -> NewFilesystem {
        NewFilesystem {
            host: host.clone(),
            normalization: 0,
            utf8only: false,
            casesensitivity: 0,
            project_quota: true,
            version: ZPL_VERSION,
            encryption: NewEncryption::default(),
        }
    }
}

/// A new head without contents.
pub struct NewHead {
    /// Target of a raw stream, with the values of the stream for the head.
    pub sealed: Option<KeyData>,
    /// Its directory.
    pub dir: ObjectId,
    /// Its full name.
    pub name: String,
    /// The type of the new objset: file system or volume.
    pub os_type: ObjsetType,
    /// The fixed properties of the new file system, if it is one.
    pub filesystem: NewFilesystem,
    /// Makes its first objects.
    pub initialise: Initialise,
}
