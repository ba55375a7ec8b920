//! Named sets of features, as the pool property `compatibility` takes them.
//!
//! OpenZFS installs a file for each of these names; they are here so that the names mean the same on a machine without
//! OpenZFS.

use super::{ALL, EDONR, Feature, Release};

/// A named set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: &'static str,
    members: Members,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Members {
    /// All that this release has on Linux.
    Linux(Release),
    /// All that this release has on FreeBSD.
    FreeBsd(Release),
    /// These names.
    Listed(&'static [&'static [&'static str]]),
}

impl Set {
    /// Whether the feature belongs to the set.
    #[must_use]
    pub fn contains(&self, feature: &Feature) -> bool {
        match self.members {
            Members::Linux(release) => feature.since <= release,
            // Edon-R came to FreeBSD with 2.2.
            Members::FreeBsd(release) => {
                feature.since <= release && (release >= Release::V2_2 || feature.name != EDONR.name)
            }
            Members::Listed(lists) => lists.iter().any(|list| list.contains(&feature.name)),
        }
    }

    /// Its features, in table order.
    pub fn features(self) -> impl Iterator<Item = &'static Feature> {
        ALL.iter().filter(move |feature| self.contains(feature))
    }
}

/// ZFS on Linux 0.6.1.
const FIRST: &[&str] = &["async_destroy", "empty_bpobj", "lz4_compress"];
/// Features that 0.6.4 added.
const ZOL_0_6_4: &[&str] =
    &["bookmarks", "embedded_data", "enabled_txg", "extensible_dataset", "hole_birth", "spacemap_histogram"];
/// The features that 0.6.5 added. With them, the set is the one that boot loaders such as GRUB 2.06 read.
const ZOL_0_6_5: &[&str] = &["filesystem_limits", "large_blocks"];
const CRASH_DUMP: &[&str] = &["multi_vdev_crash_dump"];
const SUMS: &[&str] = &["sha512", "skein"];
const EDONR_SUMS: &[&str] = &["edonr"];
/// Features that 0.7 added to those.
const ZOL_0_7: &[&str] = &["large_dnode", "userobj_accounting"];
const REMOVAL: &[&str] = &["device_removal", "obsolete_counts", "zpool_checkpoint"];
const SPACEMAP_V2: &[&str] = &["spacemap_v2"];
const ENCRYPTION: &[&str] = &["encryption"];

const GRUB: Members = Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5]);
const FREENAS_9: Members = Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP]);
const FREEBSD_11_0: Members = Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP, SUMS]);
const FREEBSD_11_2: Members = Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP, SUMS, REMOVAL]);
const FREEBSD_11_3: Members =
    Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP, SUMS, REMOVAL, SPACEMAP_V2]);
const MACOS_1_7: Members = Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP, SUMS, EDONR_SUMS]);
const MACOS_1_8: Members = Members::Listed(&[
    FIRST,
    ZOL_0_6_4,
    ZOL_0_6_5,
    CRASH_DUMP,
    SUMS,
    EDONR_SUMS,
    REMOVAL,
    SPACEMAP_V2,
    ENCRYPTION,
]);
const LINUX_0_7: Members =
    Members::Listed(&[FIRST, ZOL_0_6_4, ZOL_0_6_5, CRASH_DUMP, SUMS, EDONR_SUMS, ZOL_0_7]);
const LINUX_0_8: Members = Members::Linux(Release::V0_8);

const fn named(name: &'static str, members: Members) -> Set {
    Set { name, members }
}

/// The sets known by name.
pub static SETS: &[Set] = &[
    named("openzfs-2.0-linux", Members::Linux(Release::V2_0)),
    named("openzfs-2.0-freebsd", Members::FreeBsd(Release::V2_0)),
    named("openzfs-2.1-linux", Members::Linux(Release::V2_1)),
    named("openzfs-2.1-freebsd", Members::FreeBsd(Release::V2_1)),
    named("openzfs-2.2", Members::Linux(Release::V2_2)),
    named("openzfs-2.2-linux", Members::Linux(Release::V2_2)),
    named("openzfs-2.2-freebsd", Members::FreeBsd(Release::V2_2)),
    named("openzfs-2.3", Members::Linux(Release::V2_3)),
    named("openzfs-2.3-linux", Members::Linux(Release::V2_3)),
    named("openzfs-2.3-freebsd", Members::FreeBsd(Release::V2_3)),
    named("openzfs-2.4", Members::Linux(Release::V2_4)),
    named("openzfs-2.4-linux", Members::Linux(Release::V2_4)),
    named("openzfs-2.4-freebsd", Members::FreeBsd(Release::V2_4)),
    named("grub2", GRUB),
    named("2018", GRUB),
    named("compat-2018", GRUB),
    named("2019", FREEBSD_11_0),
    named("compat-2019", FREEBSD_11_0),
    named("2020", FREEBSD_11_0),
    named("compat-2020", FREEBSD_11_0),
    named("2021", FREEBSD_11_3),
    named("compat-2021", FREEBSD_11_3),
    named("freebsd-11.0", FREEBSD_11_0),
    named("freebsd-11.1", FREEBSD_11_0),
    named("freebsd-11.2", FREEBSD_11_2),
    named("freebsd-11.3", FREEBSD_11_3),
    named("freebsd-11.4", FREEBSD_11_3),
    named("freebsd-12.0", FREEBSD_11_3),
    named("freebsd-12.1", FREEBSD_11_3),
    named("freebsd-12.2", FREEBSD_11_3),
    named("freenas-9.10.2", FREENAS_9),
    named("freenas-11.0", FREEBSD_11_0),
    named("freenas-11.1", FREEBSD_11_0),
    named("freenas-11.2", FREEBSD_11_2),
    named("freenas-11.3", FREEBSD_11_3),
    named("truenas-12.0", Members::FreeBsd(Release::V2_0)),
    named("openzfsonosx-1.7.0", MACOS_1_7),
    named("openzfsonosx-1.8.1", MACOS_1_8),
    named("openzfsonosx-1.9.3", LINUX_0_8),
    named("openzfsonosx-1.9.4", LINUX_0_8),
    named("ubuntu-18.04", LINUX_0_7),
    named("ubuntu-20.04", LINUX_0_8),
    named("zol-0.6.1", Members::Listed(&[FIRST])),
    named("zol-0.6.4", Members::Listed(&[FIRST, ZOL_0_6_4])),
    named("zol-0.6.5", GRUB),
    named("zol-0.7", LINUX_0_7),
    named("zol-0.8", LINUX_0_8),
];

/// The set with this name.
#[must_use]
pub fn set(name: &str) -> Option<&'static Set> {
    SETS.iter().find(|set| set.name == name)
}

/// The features of new pools by default, and those that `zpool upgrade` enables: all of OpenZFS 2.1, and later ones that
/// this build supports and that become active only on a user's request. Until then, OpenZFS 2.1 can write the pool (decision
/// 0015).
pub fn of_new_pools() -> impl Iterator<Item = &'static Feature> {
    ALL.iter().filter(|feature| feature.since <= Release::V2_1 || LATER.contains(&feature.name))
}

/// The later features of [`of_new_pools`].
const LATER: [&str; 1] = ["blake3"];

#[cfg(test)]
mod tests {
    use super::super::{by_name, of_release};
    use super::*;
    use alloc::vec::Vec;

    fn names(set_name: &str) -> Vec<&'static str> {
        set(set_name).unwrap().features().map(|feature| feature.name).collect()
    }

    #[test]
    fn the_set_of_openzfs_2_1_is_what_it_enables_in_this_order() {
        // `zpool get all` of a pool made with compatibility=openzfs-2.1-linux.
        let expected = "async_destroy empty_bpobj lz4_compress multi_vdev_crash_dump spacemap_histogram \
            enabled_txg hole_birth extensible_dataset embedded_data bookmarks filesystem_limits large_blocks \
            large_dnode sha512 skein edonr userobj_accounting encryption project_quota device_removal \
            obsolete_counts zpool_checkpoint spacemap_v2 allocation_classes resilver_defer bookmark_v2 \
            redaction_bookmarks redacted_datasets bookmark_written log_spacemap livelist device_rebuild \
            zstd_compress draid";
        let expected: Vec<_> = expected.split_whitespace().collect();
        assert_eq!(names("openzfs-2.1-linux"), expected);
        assert_eq!(expected.len(), 34);
        assert_eq!(of_release(Release::V2_1).count(), 34);
    }

    #[test]
    fn new_pools_get_what_openzfs_2_1_has_and_what_only_its_users_activate() {
        let new: Vec<_> = of_new_pools().collect();
        assert!(of_release(Release::V2_1).all(|feature| new.contains(&feature)));
        for later in new.iter().filter(|feature| feature.since > Release::V2_1) {
            // It becomes active for a dataset whose user asks for it, and not before.
            assert!(later.per_dataset && !later.activate_on_enable, "{}", later.name);
            assert!(later.depends_on.iter().all(|name| new.contains(&by_name(name).unwrap())));
        }
        assert_eq!(new.len(), 35);
    }

    #[test]
    fn the_other_sets_have_the_sizes_of_openzfs() {
        assert_eq!(names("openzfs-2.0-linux").len(), 33);
        assert_eq!(names("openzfs-2.0-freebsd").len(), 32);
        assert!(!names("openzfs-2.1-freebsd").contains(&"edonr"));
        assert!(names("openzfs-2.2-freebsd").contains(&"edonr"));
        assert_eq!(names("openzfs-2.2").len(), 39);
        assert_eq!(names("openzfs-2.3").len(), 44);
        assert_eq!(names("openzfs-2.4").len(), 47);
        // How many names the files of OpenZFS 2.1.11 list.
        for (name, size) in [
            ("grub2", 11),
            ("2018", 11),
            ("2019", 14),
            ("compat-2020", 14),
            ("2021", 18),
            ("freebsd-11.1", 14),
            ("freebsd-11.2", 17),
            ("freebsd-12.2", 18),
            ("freenas-9.10.2", 12),
            ("freenas-11.1", 14),
            ("truenas-12.0", 32),
            ("openzfsonosx-1.7.0", 15),
            ("openzfsonosx-1.8.1", 20),
            ("openzfsonosx-1.9.4", 26),
            ("ubuntu-18.04", 17),
            ("ubuntu-20.04", 26),
            ("zol-0.6.1", 3),
            ("zol-0.6.4", 9),
            ("zol-0.6.5", 11),
        ] {
            assert_eq!(names(name).len(), size, "{name}");
        }
    }

    #[test]
    fn a_set_is_closed_under_dependencies_and_its_name_unique() {
        for (i, set) in SETS.iter().enumerate() {
            // There, encryption came before the bookmarks that it needs today; enabling it brings them along.
            let early = |feature: &&Feature| {
                set.name == "openzfsonosx-1.8.1" && feature.name == super::super::ENCRYPTION.name
            };
            for feature in set.features().filter(|feature| !early(feature)) {
                assert!(feature.depends_on.iter().all(|name| set.contains(by_name(name).unwrap())));
            }
            assert!(SETS[..i].iter().all(|other| other.name != set.name), "{}", set.name);
        }
        let listed = SETS.iter().filter_map(|set| match set.members {
            Members::Listed(lists) => Some(lists.concat()),
            _ => None,
        });
        assert!(listed.flatten().all(|name| by_name(name).is_some()));
    }
}
