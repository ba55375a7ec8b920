//! How vdevs are named: by their paths, as they are or where links lead, or by their guids.
//!
//! From:   the options of a command; environment variables of its user.
//! To:     the views of pools.

use format::Guid;
use format::config::{VdevConfig, VdevKind};

use super::Call;
use crate::config;

/// How vdevs are named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Naming {
    /// `-g`: guids.
    pub guids: bool,
    /// `-L`: where symbolic links lead.
    pub follow: bool,
    /// `-P`: whole paths also of devices.
    pub full: bool,
}

impl Naming {
    /// As the options of a command say, or environment variables of its user.
    pub fn or_variables(self, call: &Call) -> Naming {
        let variable = |name| call.around.served.is_none() && config::is_set(name);
        Naming {
            guids: self.guids || variable("ZPOOL_VDEV_NAME_GUID"),
            follow: self.follow || variable("ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            full: self.full || variable("ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// The options of this one that `other` does not have.
    pub fn options_beyond(self, other: Naming) -> impl Iterator<Item = &'static str> {
        let all = [
            ("-g", self.guids && !other.guids),
            ("-L", self.follow && !other.follow),
            ("-P", self.full && !other.full),
        ];
        all.into_iter().filter_map(|(option, on)| on.then_some(option))
    }

    /// The name of a vdev that is, or was, at `path`.
    pub fn name_of(self, vdev: &VdevConfig, path: Option<&str>, is_lost: bool) -> String {
        if self.guids {
            return vdev.guid.0.to_string();
        }
        let id = vdev.id;
        match (&vdev.kind, path) {
            (VdevKind::Raidz { nparity, .. }, _) => format!("raidz{nparity}-{id}"),
            (VdevKind::Draid { nparity, ndata, nspares, .. }, _) => {
                format!("draid{nparity}:{ndata}d:{}c:{nspares}s-{id}", vdev.children.len())
            }
            (kind, _) if !kind.is_leaf() => format!("{}-{id}", kind.as_str()),
            (_, Some(_)) if is_lost && vdev.guid.0 != 0 => vdev.guid.0.to_string(),
            (kind, Some(path)) => leaf_name(kind.as_str(), vdev.guid, path, self),
            (kind, None) => format!("{}-{id}", kind.as_str()),
        }
    }
}

/// The name of a leaf that is at `path`.
pub fn leaf_name(kind: &str, guid: Guid, path: &str, naming: Naming) -> String {
    match path.rsplit('/').next() {
        _ if naming.guids => guid.0.to_string(),
        Some(last) if kind == VdevKind::Disk.as_str() && !naming.full && path.starts_with("/dev/") => {
            last.to_owned()
        }
        _ => path.to_owned(),
    }
}
