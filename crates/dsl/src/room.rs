//! Usable space of the pool, and the reserve that keeps a full pool usable.
//!
//! Source: docs/format/06-mos-dsl.md §8.5; 01-labels-uberblock.md ("slop").

/// Smallest and largest reserve, in bytes.
const SLOP_MIN: u64 = 128 << 20;
const SLOP_MAX: u64 = 128 << 30;

/// Which limits hold for a transaction, and how much of the reserve it may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All limits hold.
    #[default]
    Limits,
    /// It stores data whose write was acknowledged before: no quota refuses it, and it may use the first quarter of the
    /// reserve that keeps a full pool usable.
    Acknowledged,
    /// It frees more than it writes: no quota refuses it, and it may use half of that reserve.
    Frees,
}

impl Reach {
    /// Whether the change must respect quotas.
    pub(crate) fn minds_quotas(self) -> bool {
        self == Reach::Limits
    }
}

/// The part of the reserve that a change leaves alone (06 §8.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// All of it: for a change that adds data to the pool.
    Whole,
    /// Half of it: for a change of existing data.
    Half,
    /// A quarter of it: a change that frees space.
    Quarter,
}

/// The space of a pool as its datasets see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes with parity taken out, of the vdevs that take new blocks.
    pub dspace: u64,
    /// Bytes that datasets are charged with and that take no space, since blocks are shared.
    pub shared: u64,
    /// Bytes of these that only a checkpoint keeps.
    pub kept: u64,
}

impl Room {
    /// The reserve that keeps a full pool usable.
    #[must_use]
    pub fn slop(self) -> u64 {
        (self.dspace / 32).min(SLOP_MAX).max((self.dspace / 2).min(SLOP_MIN))
    }

    /// Bytes that datasets can be charged with.
    fn charged(self) -> u64 {
        self.dspace.saturating_add(self.shared).saturating_sub(self.kept)
    }

    /// Bytes that datasets may use in all (06 §8.5), for transactions of this reach.
    #[must_use]
    pub fn usable(self, reach: Reach) -> u64 {
        self.charged().saturating_sub(self.reserve(reach))
    }

    /// Bytes that the pool may hold for a change that leaves `kept` of the reserve alone.
    #[must_use]
    pub(crate) fn usable_beside(self, kept: Reserve) -> u64 {
        let kept = match kept {
            Reserve::Whole => self.slop(),
            Reserve::Half => self.slop() / 2,
            Reserve::Quarter => self.slop() / 4,
        };
        self.charged().saturating_sub(kept)
    }

    /// The part of the reserve that a transaction must not use. Acknowledged data leaves enough for removals.
    #[must_use]
    pub fn reserve(self, reach: Reach) -> u64 {
        let slop = self.slop();
        match reach {
            Reach::Limits => slop,
            Reach::Acknowledged => slop - slop / 4,
            Reach::Frees => slop / 2,
        }
    }
}
