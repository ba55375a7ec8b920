//! A pool that is split off another one, before it is imported.

use format::config::{PoolConfig, VdevConfig};
use format::uberblock::Uberblock;

/// The state that the import of a split-off pool starts from.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The state that the devices hold.
    pub(crate) uberblock: Uberblock,
    /// The configuration of the new pool.
    pub(crate) config: PoolConfig,
    /// The vdevs of the old pool.
    pub(crate) old: VdevConfig,
}
