//! The caller of an operation.

use std::sync::Arc;

/// The identity for permission checks and for the ownership of new files.
#[derive(Clone, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// The primary group, which new files get.
    pub gid: u32,
    groups: Groups,
}

/// The supplementary groups.
#[derive(Clone, Debug)]
enum Groups {
    Listed(Arc<[u32]>),
    /// A function that returns the groups when they are needed. A front end that would have to read them for each request
    /// passes it instead.
    Asked {
        process: u32,
        ask: fn(u32) -> Vec<u32>,
    },
}

impl Caller {
    /// A user with supplementary groups.
    #[must_use]
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: Groups::Listed(groups.into()) }
    }

    /// A user whose supplementary groups `ask` returns for `process`. `ask` is called only when a decision depends on the
    /// groups.
    #[must_use]
    pub fn with_groups_of(uid: u32, gid: u32, process: u32, ask: fn(u32) -> Vec<u32>) -> Caller {
        Caller { uid, gid, groups: Groups::Asked { process, ask } }
    }

    /// Root, who has all capabilities.
    #[must_use]
    pub fn root() -> Caller {
        Caller::new(0, 0, &[])
    }

    /// Whether this is root, who has all capabilities.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether `group` is the first or a supplementary group.
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group
            || match &self.groups {
                Groups::Listed(groups) => groups.contains(&group),
                Groups::Asked { process, ask } => ask(*process).contains(&group),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_the_primary_and_the_supplementary_ones() {
        let listed = Caller::new(5, 6, &[20, 1001]);
        assert!([6, 20, 1001].iter().all(|group| listed.is_in(*group)) && !listed.is_in(7));
        let asked = Caller::with_groups_of(5, 6, 40, |process| vec![process + 1]);
        assert!(asked.is_in(6) && asked.is_in(41) && !asked.is_in(40));
        assert!(Caller::root().is_root() && !listed.is_root());
    }
}
