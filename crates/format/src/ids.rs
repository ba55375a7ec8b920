//! Numbers that must not be swapped for one another.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// Number of a transaction group.
    Txg(u64)
);
id!(
    /// Number of an object within its objset (48 bits are used).
    ObjectId(u64)
);
id!(
    /// Index of a top-level vdev (24 bits on disk).
    VdevId(u32)
);
id!(
    /// Guid of a pool, vdev or dataset; nonzero when valid.
    Guid(u64)
);

impl Txg {
    /// The first txg that a new pool writes.
    pub const INITIAL: Txg = Txg(4);

    /// The txg after this one.
    #[must_use]
    pub const fn next(self) -> Txg {
        Txg(self.0 + 1)
    }
}
