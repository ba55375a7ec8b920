//! How vdevs are named: by their paths, as they are or where links lead, or by their guids.
//!
//! From:   the options of a command; environment variables of its user.
//! To:     the views of pools.

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

    /// The options that say what `other` does not say.
    pub fn options_beyond(self, other: Naming) -> impl Iterator<Item = &'static str> {
        let all = [
            ("-g", self.guids && !other.guids),
            ("-L", self.follow && !other.follow),
            ("-P", self.full && !other.full),
        ];
        all.into_iter().filter_map(|(option, on)| on.then_some(option))
    }
}
