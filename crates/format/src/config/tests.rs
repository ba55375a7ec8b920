use super::*;
use crate::nvlist::tests::any_list;
use proptest::prelude::*;

// Configs of pools of OpenZFS 2.1.11.
const FILE: &[u8] = include_bytes!("../../tests/fixtures/label-file.xdr");
const MIRROR: &[u8] = include_bytes!("../../tests/fixtures/label-mirror.xdr");
const RAIDZ2: &[u8] = include_bytes!("../../tests/fixtures/label-raidz2.xdr");
const CACHE: &[u8] = include_bytes!("../../tests/fixtures/label-cache.xdr");
const MOS: &[u8] = include_bytes!("../../tests/fixtures/mos-config-mirror.xdr");

fn pool(packed: &[u8]) -> PoolConfig {
    PoolConfig::from_nvlist(&NvList::decode(packed).unwrap()).unwrap()
}

#[test]
fn nvlists_of_real_labels_come_out_byte_for_byte() {
    for packed in [FILE, MIRROR, RAIDZ2, CACHE, MOS] {
        assert_eq!(NvList::decode(packed).unwrap().to_xdr(), packed);
    }
}

#[test]
fn configs_of_real_labels_come_out_byte_for_byte() {
    for packed in [FILE, MIRROR, RAIDZ2] {
        let config = pool(packed);
        let leaf = config.label.unwrap().guid;
        assert_eq!(config.to_label_nvlist(leaf).unwrap().to_xdr(), packed);
        assert!(config.extra.is_empty(), "{:?}", config.extra);
        assert!(config.tree.walk().all(|vdev| vdev.extra.is_empty()));
    }
    let aux = AuxConfig::from_nvlist(&NvList::decode(CACHE).unwrap()).unwrap();
    assert_eq!(aux.state, PoolState::L2cache);
    assert_eq!(aux.to_nvlist().to_xdr(), CACHE);
}

#[test]
fn a_real_mos_config_comes_out_byte_for_byte_and_makes_the_labels() {
    let config = pool(MOS);
    assert_eq!(config.to_mos_nvlist().to_xdr(), MOS);
    assert!(config.has_per_vdev_zaps && config.extra.is_empty());
    let label = pool(MIRROR);
    let leaf = label.label.unwrap().guid;
    assert_eq!(config.to_label_nvlist(leaf).unwrap().to_xdr(), MIRROR);
    assert_eq!(config.to_label_nvlist(Guid(1)), None);
}

#[test]
fn a_real_mirror_reads_as_zdb_shows_it() {
    let config = pool(MOS);
    assert_eq!((config.name.as_str(), config.txg, config.state), ("gmirror", Txg(30), PoolState::Exported));
    assert_eq!(config.tree.guid, config.pool_guid);
    assert_eq!(config.tree.guid_sum(), 14_647_385_916_529_563_526);
    let top = &config.tree.children[0];
    assert_eq!(top.kind, VdevKind::Mirror);
    let sizes = top.top.unwrap();
    assert_eq!((sizes.ashift, sizes.asize, sizes.metaslab_shift), (9, 62_390_272, 24));
    assert_eq!(sizes.metaslab_count(), 3);
    assert_eq!(top.leaves().count(), 2);
    let leaf = top.leaves().next().unwrap();
    assert_eq!(leaf.path.as_deref(), Some(b"/golden/gmirror/gmirror.0.img".as_slice()));
    assert!(leaf.zap_leaf.is_some() && top.zap_top.is_some() && leaf.top.is_none());
    assert_eq!(
        config.features_for_read.as_deref(),
        Some(["com.delphix:hole_birth", "com.delphix:embedded_data"].map(String::from).as_slice())
    );
    assert_eq!(pool(RAIDZ2).tree.kind, VdevKind::Raidz { nparity: 2 });
}

#[test]
fn unknown_keys_are_kept() {
    let mut list = NvList::decode(MOS).unwrap();
    list.insert("org.example:new", "kept");
    let mut tree = list.get_list("vdev_tree").unwrap().clone();
    tree.insert("later", 7u64);
    list.insert("vdev_tree", tree);
    let config = PoolConfig::from_nvlist(&list).unwrap();
    assert_eq!(config.to_mos_nvlist(), {
        // In the pool's list it comes last, where it was put.
        list.clone()
    });
    assert_eq!(config.tree.extra.get_u64("later"), Some(7));
}

/// Found by fuzzing.
#[test]
fn leaf_keys_of_labels_are_not_taken_from_the_mos() {
    let mut list = NvList::decode(MOS).unwrap();
    list.insert("is_spare", "oracle");
    let config = PoolConfig::from_nvlist(&list).unwrap();
    let leaf = config.tree.leaves().next().unwrap().guid;
    let label = config.to_label_nvlist(leaf).unwrap();
    assert_eq!(PoolConfig::from_nvlist(&label).unwrap().to_label_nvlist(leaf), Some(label));
}

#[test]
fn a_missing_key_is_named() {
    let mut list = NvList::decode(MOS).unwrap();
    list.remove("pool_guid");
    assert_eq!(PoolConfig::from_nvlist(&list), Err(Corrupt::new("missing config key pool_guid", 0)));
    assert!(PoolConfig::from_nvlist(&NvList::new()).is_err());
}

#[test]
fn a_child_must_sit_at_its_id() {
    let mut config = pool(MOS);
    config.tree.children[0].id = 1;
    let list = config.to_mos_nvlist();
    assert_eq!(PoolConfig::from_nvlist(&list), Err(Corrupt::new("vdev id", 1)));
}

#[test]
fn an_auxiliary_label_is_distinguished_from_a_pool_label() {
    let label = |packed| Label::from_nvlist(&NvList::decode(packed).unwrap()).unwrap();
    assert!(matches!(label(CACHE), Label::Aux(_)));
    assert!(matches!(label(FILE), Label::Pool(_)));
}

proptest! {
    #[test]
    fn damaged_configs_are_read_or_refused_and_survive_a_round_trip(
        at in 0..MOS.len(), byte in any::<u8>(), extra in any_list(),
    ) {
        let mut raw = MOS.to_vec();
        raw[at] = byte;
        if let Ok(mut list) = NvList::decode(&raw) {
            extra.iter().for_each(|(name, value)| {
                if !list.contains(name) {
                    list.insert(name, value.clone());
                }
            });
            if let Ok(config) = PoolConfig::from_nvlist(&list)
                && config.tree.kind == VdevKind::Root
            {
                let once = config.to_mos_nvlist();
                prop_assert_eq!(PoolConfig::from_nvlist(&once).unwrap().to_mos_nvlist(), once);
            }
        }
    }
}
