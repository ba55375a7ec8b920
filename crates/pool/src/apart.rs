//! A pool that is split off another one, before it is imported.

use format::config::{PoolConfig, VdevConfig};
use format::uberblock::Uberblock;

/// What the import of a pool that is split off begins with.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The state that the devices hold.
    pub(crate) uberblock: Uberblock,
    /// The configuration of the new pool.
    pub(crate) config: PoolConfig,
    /// The vdevs of the old pool.
    pub(crate) old: VdevConfig,
}
