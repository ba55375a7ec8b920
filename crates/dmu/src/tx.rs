//! The licence to change objects.

use format::Txg;

/// Proof that a txg is held open: everything dirtied under it reaches disk in that txg. Made by `pool`, which
/// has reserved the space.
#[derive(Debug)]
pub struct Tx {
    txg: Txg,
}

impl Tx {
    /// For `pool` only: `txg` must stay open as long as the value lives.
    #[must_use]
    pub const fn new(txg: Txg) -> Tx {
        Tx { txg }
    }

    /// The txg whose state the changes become part of.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.txg
    }
}
