//! The allocator beside a model: a map of sectors, and space maps kept as the lists it hands out.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::layout::Raidz;

mod classes;

/// Space maps as the pool would keep them: all changes up to the last synced txg, per metaslab.
#[derive(Clone, Default)]
struct Maps {
    synced: BTreeMap<(VdevId, u32), Vec<MapEntry>>,
    syncing: Vec<MetaslabChange>,
    loads: usize,
}

impl Maps {
    fn note(&mut self, changes: Vec<MetaslabChange>) {
        self.syncing.extend(changes);
    }

    fn sync(&mut self) {
        for change in self.syncing.drain(..) {
            let map = self.synced.entry((change.vdev, change.metaslab)).or_default();
            map.extend(change.allocs.iter().map(|&(offset, len)| MapEntry::Alloc { offset, len }));
            map.extend(change.frees.iter().map(|&(offset, len)| MapEntry::Free { offset, len }));
        }
    }

    fn allocated(&self, vdev: VdevId, metaslab: u32) -> Option<u64> {
        let map = self.synced.get(&(vdev, metaslab))?;
        Some(map.iter().fold(0, |sum, entry| match entry {
            MapEntry::Alloc { len, .. } => sum + len,
            MapEntry::Free { len, .. } => sum - len,
        }))
    }
}

impl SpaceMapSource for Maps {
    type Error = Infallible;

    fn replay(
        &mut self,
        vdev: VdevId,
        metaslab: u32,
        each: &mut dyn FnMut(MapEntry),
    ) -> Result<(), Infallible> {
        self.loads += 1;
        self.synced.get(&(vdev, metaslab)).into_iter().flatten().copied().for_each(each);
        Ok(())
    }
}

fn spec(id: u32, metaslab_shift: u8, count: u64) -> VdevSpec {
    let asize = (count << metaslab_shift) + (1 << (metaslab_shift - 1));
    VdevSpec { id: VdevId(id), asize, ashift: 9, metaslab_shift, class: Class::Normal, sizes: None }
}

fn pool(specs: &[VdevSpec]) -> Allocator {
    let mut pool = Allocator::new(Txg(3));
    for spec in specs {
        pool.add_vdev(*spec, []).unwrap();
    }
    pool
}

/// Takes, notes and syncs everything of `txg`.
fn sync(pool: &mut Allocator, maps: &mut Maps, txg: u64) {
    maps.note(pool.take_changes(Txg(txg)));
    assert!(pool.is_quiet(Txg(txg)));
    pool.txg_synced(Txg(txg));
    maps.sync();
}

fn copies_of(dvas: [Dva; 3]) -> Vec<Dva> {
    dvas.into_iter().filter(|dva| !dva.is_empty()).collect()
}

#[test]
fn consecutive_blocks_are_neighbours_on_disk() {
    let (mut pool, mut maps) = (pool(&[spec(0, 24, 16)]), Maps::default());
    let mut end = 0;
    for size in [512u64, 128 << 10, 5000, 1 << 20, 70_000, 512] {
        let dva = pool.allocate(size, 1, Txg(4), &mut maps).unwrap()[0];
        assert_eq!((dva.offset, dva.asize), (end, size.next_multiple_of(512)));
        end += dva.asize;
    }
    let changes = pool.take_changes(Txg(4));
    assert_eq!(changes.len(), 1, "one metaslab is filled before the next");
    assert_eq!((&changes[0].allocs[..], &changes[0].frees[..]), (&[(0, end)][..], &[][..]));
    assert_eq!(pool.take_changes(Txg(4)), []);
}

#[test]
fn freed_space_is_reusable_only_after_two_more_txgs() {
    let (mut pool, mut maps) = (pool(&[spec(0, 12, 1)]), Maps::default());
    let all = pool.allocate(4096, 1, Txg(4), &mut maps).unwrap()[0];
    sync(&mut pool, &mut maps, 4);
    pool.free(all, Txg(5)).unwrap();
    assert_eq!(pool.space(), Space { size: 4096, allocated: 0, deferred: 4096 });
    for txg in 5..=7 {
        assert!(matches!(
            pool.allocate(512, 1, Txg(txg), &mut maps),
            Err(AllocError::NoSpace { psize: 512 })
        ));
        assert!(!pool.is_settled(Txg(txg)));
        sync(&mut pool, &mut maps, txg);
    }
    assert!(pool.is_settled(Txg(7)));
    assert_eq!(pool.allocate(4096, 1, Txg(8), &mut maps).unwrap()[0], all);
}

#[test]
fn space_freed_after_a_txg_that_is_read_is_kept_until_the_reader_is_gone() {
    let (mut pool, mut maps) = (pool(&[spec(0, 12, 1)]), Maps::default());
    let [early, late] = [0; 2].map(|_| pool.allocate(2048, 1, Txg(4), &mut maps).unwrap()[0]);
    sync(&mut pool, &mut maps, 4);
    pool.free(early, Txg(5)).unwrap();
    sync(&mut pool, &mut maps, 5);
    pool.keep_readable(Some(Txg(5)));
    pool.free(late, Txg(6)).unwrap();
    for txg in 6..=12 {
        sync(&mut pool, &mut maps, txg);
    }
    assert!(pool.is_settled(Txg(12)), "what is kept gives the sync thread nothing to do");
    assert_eq!(pool.allocate(2048, 1, Txg(13), &mut maps).unwrap()[0], early);
    assert!(pool.allocate(512, 1, Txg(13), &mut maps).is_err());
    pool.keep_readable(None);
    assert!(!pool.is_settled(Txg(12)));
    sync(&mut pool, &mut maps, 13);
    assert_eq!(pool.allocate(2048, 1, Txg(14), &mut maps).unwrap()[0], late);
}

#[test]
fn frees_delayed_by_an_old_lease_are_one_set_and_become_free_together() {
    let (mut pool, mut maps) = (pool(&[spec(0, 16, 1)]), Maps::default());
    let blocks: Vec<Dva> = (0..40).map(|_| pool.allocate(512, 1, Txg(4), &mut maps).unwrap()[0]).collect();
    sync(&mut pool, &mut maps, 4);
    pool.keep_readable(Some(Txg(4)));
    for (n, block) in blocks.iter().enumerate() {
        let txg = 5 + n as u64;
        pool.free(*block, Txg(txg)).unwrap();
        sync(&mut pool, &mut maps, txg);
        assert!(pool.settling.len() <= DEFER_TXGS + 1, "{} sets after txg {txg}", pool.settling.len());
        assert!(pool.free(*block, Txg(txg + 1)).is_err(), "it was freed before");
    }
    assert_eq!(pool.space().deferred, 40 * 512);
    // A second reader began meanwhile. Space that was freed before that is free when the first reader ends.
    pool.keep_readable(Some(Txg(30)));
    sync(&mut pool, &mut maps, 45);
    let left = pool.space().deferred;
    assert!((14 * 512..=40 * 512).contains(&left), "{left}");
    pool.keep_readable(None);
    for txg in 46..=48 {
        sync(&mut pool, &mut maps, txg);
    }
    assert_eq!(pool.space(), Space { size: 65536, allocated: 0, deferred: 0 });
}

#[test]
fn a_block_that_lived_only_within_a_txg_is_reported_and_not_reused_at_once() {
    let (mut pool, mut maps) = (pool(&[spec(0, 12, 1)]), Maps::default());
    let block = pool.allocate(2048, 1, Txg(4), &mut maps).unwrap()[0];
    pool.free(block, Txg(4)).unwrap();
    let other = pool.allocate(2048, 1, Txg(4), &mut maps).unwrap()[0];
    assert_ne!(other.offset, block.offset);
    assert!(pool.allocate(512, 1, Txg(4), &mut maps).is_err());
    let changes = pool.take_changes(Txg(4));
    assert_eq!(changes[0].allocs, [(0, 4096)]);
    assert_eq!(changes[0].frees, [(block.offset, 2048)]);
}

#[test]
fn copies_lie_on_different_vdevs_or_far_apart() {
    let (mut two, mut maps) = (pool(&[spec(0, 24, 16), spec(1, 24, 16)]), Maps::default());
    for _ in 0..100 {
        let dvas = two.allocate(16 << 10, 3, Txg(4), &mut maps).unwrap();
        assert_ne!(dvas[0].vdev, dvas[1].vdev);
        let twin = dvas[..2].iter().find(|dva| dva.vdev == dvas[2].vdev).unwrap();
        assert!(twin.offset.abs_diff(dvas[2].offset) >= (16 << 24) / 8);
    }
    assert_eq!(two.take_changes(Txg(4)).len(), 4, "copies dirty few space maps");
    let mut one = pool(&[spec(0, 24, 16)]);
    for _ in 0..1000 {
        let dvas = one.allocate(16 << 10, 3, Txg(4), &mut maps).unwrap();
        for (a, b) in [(0, 1), (0, 2), (1, 2)] {
            assert!(dvas[a].offset.abs_diff(dvas[b].offset) >= (16 << 24) / 8);
        }
    }
}

#[test]
fn copies_share_a_metaslab_an_eighth_apart_or_nearby_and_come_all_or_not_at_all() {
    let (mut pool, mut maps) = (pool(&[spec(0, 24, 1)]), Maps::default());
    let dvas = pool.allocate(4096, 3, Txg(4), &mut maps).unwrap();
    assert_eq!(copies_of(dvas).len(), 3);
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        assert!(dvas[a].offset.abs_diff(dvas[b].offset) >= (1 << 24) / 8);
    }
    while pool.space().allocatable() > 5 * 4096 {
        pool.allocate(4096, 1, Txg(4), &mut maps).unwrap();
    }
    assert_eq!(copies_of(pool.allocate(4096, 3, Txg(4), &mut maps).unwrap()).len(), 3, "nearby");
    assert!(matches!(pool.allocate(4096, 3, Txg(4), &mut maps), Err(AllocError::NoSpace { psize: 4096 })));
    assert_eq!(pool.space().allocatable(), 2 * 4096, "what was found for some copies is given back");
    assert_eq!(copies_of(pool.allocate(4096, 2, Txg(4), &mut maps).unwrap()).len(), 2);
    assert!(pool.allocate(512, 1, Txg(4), &mut maps).is_err());
    let allocs: u64 = pool.take_changes(Txg(4))[0].allocs.iter().map(|(_, len)| len).sum();
    assert_eq!(allocs, 1 << 24);
}

#[test]
fn stripes_use_all_vdevs_in_turns_and_fill_them_together() {
    let specs = [spec(0, 24, 16), spec(1, 24, 4), VdevSpec { class: Class::Log, ..spec(2, 24, 4) }];
    let (mut pool, mut maps) = (pool(&specs), Maps::default());
    let mut turns = 0;
    let mut last = None;
    let mut blocks = 0;
    while let Ok(dvas) = pool.allocate(64 << 10, 1, Txg(4), &mut maps) {
        turns += u32::from(last.replace(dvas[0].vdev) != Some(dvas[0].vdev));
        blocks += 1;
        let [big, small] = [0, 1].map(|id| pool.vdev_space(VdevId(id)).unwrap());
        if blocks == 1000 {
            let filled = |space: Space| space.allocated * 100 / space.size;
            assert!(filled(big).abs_diff(filled(small)) < 5, "{big:?} {small:?}");
        }
    }
    assert_eq!(blocks, 20 << 24 >> 16, "the last run is found");
    assert!(turns > 100);
    assert_eq!(pool.vdev_space(VdevId(2)).unwrap().allocated, 0);
}

#[test]
fn a_pool_of_many_tebibytes_costs_memory_for_what_is_loaded() {
    let asize = 1u64 << 50;
    let spec =
        VdevSpec { id: VdevId(0), asize, ashift: 12, metaslab_shift: 34, class: Class::Normal, sizes: None };
    let (mut pool, mut maps) = (Allocator::new(Txg(3)), Maps::default());
    pool.add_vdev(spec, []).unwrap();
    assert_eq!(pool.space().size, asize);
    pool.allocate(1 << 20, 3, Txg(4), &mut maps).unwrap();
    assert_eq!((pool.loaded_count(), maps.loads), (3, 0), "untouched metaslabs are not read");
}

#[test]
fn a_reopened_pool_reads_only_the_maps_it_needs_and_sees_their_contents() {
    let (mut pool, mut maps) = (pool(&[spec(0, 20, 40)]), Maps::default());
    for _ in 0..100 {
        pool.allocate(128 << 10, 1, Txg(4), &mut maps).unwrap();
    }
    sync(&mut pool, &mut maps, 4);
    let mut again = Allocator::new(Txg(4));
    let sums: Vec<_> = (0..40).map(|metaslab| maps.allocated(VdevId(0), metaslab)).collect();
    again.add_vdev(spec(0, 20, 40), sums).unwrap();
    assert_eq!(again.space(), pool.space());
    let dva = again.allocate(128 << 10, 1, Txg(5), &mut maps).unwrap()[0];
    assert_eq!((dva.offset, maps.loads), (100 * (128 << 10), 1));
    // A free needs no map.
    again.free(Dva { offset: 0, asize: 4096, ..dva }, Txg(5)).unwrap();
    assert_eq!(maps.loads, 1);
}

#[test]
fn places_that_hold_no_allocation_are_not_freed() {
    let (mut pool, mut maps) = (pool(&[spec(0, 20, 4)]), Maps::default());
    let dva = pool.allocate(4096, 1, Txg(4), &mut maps).unwrap()[0];
    let before = pool.space();
    for wrong in [
        Dva { vdev: VdevId(1), ..dva },
        Dva { offset: 100, ..dva },
        Dva { asize: 0, ..dva },
        Dva { asize: 1000, ..dva },
        Dva { offset: (1 << 20) - 512, ..dva },
        Dva { offset: 4 << 20, ..dva },
        Dva { offset: u64::MAX - 511, ..dva },
        Dva { asize: 1 << 40, ..dva },
    ] {
        assert_eq!(pool.free(wrong, Txg(4)), Err(FreeError::NoSuchPlace(wrong)));
    }
    let neighbour = Dva { offset: dva.offset + 4096, ..dva };
    assert_eq!(pool.free(neighbour, Txg(4)), Err(FreeError::NotAllocated(neighbour)));
    pool.free(dva, Txg(4)).unwrap();
    assert_eq!(pool.free(dva, Txg(4)), Err(FreeError::NotAllocated(dva)));
    let _ = pool.take_changes(Txg(4));
    assert_eq!(pool.free(dva, Txg(4)), Err(FreeError::NotAllocated(dva)));
    assert_eq!(pool.space(), Space { allocated: 0, deferred: 4096, ..before });
}

#[test]
fn damaged_space_maps_are_refused_and_nothing_is_allocated() {
    use MapEntry::{Alloc, Free};
    let damaged = [
        vec![Alloc { offset: 0, len: 4096 }, Alloc { offset: 2048, len: 4096 }],
        vec![Free { offset: 0, len: 4096 }],
        vec![Alloc { offset: 0, len: 100 }],
        vec![Alloc { offset: 0, len: 0 }],
        vec![Alloc { offset: (1 << 20) - 512, len: 1024 }],
        vec![Alloc { offset: u64::MAX - 511, len: 1024 }],
        vec![Alloc { offset: 0, len: 2048 }],
    ];
    for entries in damaged {
        let mut pool = Allocator::new(Txg(3));
        pool.add_vdev(spec(0, 20, 2), [None, Some(4096)]).unwrap();
        let mut maps = Maps::default();
        maps.synced.insert((VdevId(0), 1), entries);
        let error = pool.allocate(4096, 2, Txg(4), &mut maps).unwrap_err();
        assert!(matches!(error, AllocError::Damaged { metaslab: 1, .. }), "{error}");
        assert_eq!(pool.space().allocated, 4096, "the first copy is taken back");
        assert_eq!(pool.take_changes(Txg(4)), []);
    }
    for (bad, maps) in [
        (VdevSpec { ashift: 8, ..spec(0, 20, 1) }, None),
        (VdevSpec { ashift: 17, ..spec(0, 20, 1) }, None),
        (VdevSpec { metaslab_shift: 8, ..spec(0, 20, 1) }, None),
        (VdevSpec { metaslab_shift: 64, ..spec(0, 20, 1) }, None),
        (VdevSpec { asize: u64::MAX, ..spec(0, 20, 1) }, None),
        (spec(0, 20, 1), Some((1 << 20) + 512)),
        (spec(0, 20, 1), Some(100)),
    ] {
        assert!(Allocator::new(Txg(3)).add_vdev(bad, [maps]).is_err());
    }
}

#[test]
fn unloading_bounds_memory_and_forgets_nothing() {
    let (mut pool, mut maps) = (pool(&[spec(0, 20, 64)]), Maps::default());
    for txg in 4..12 {
        for _ in 0..40 {
            pool.allocate(128 << 10, 1, Txg(txg), &mut maps).unwrap();
        }
        let loaded = pool.loaded_count();
        assert!(pool.unload_idle(1) >= 5.min(loaded), "who allocates in this txg stays");
        sync(&mut pool, &mut maps, txg);
        assert_eq!(pool.unload_idle(1), 1);
    }
    let mut rest = 0;
    while pool.allocate(128 << 10, 1, Txg(12), &mut maps).is_ok() {
        rest += 1;
    }
    assert_eq!(rest, 64 * 8 - 8 * 40);
    assert_eq!(maps.loads, 0, "full metaslabs are not read again");
}

/// One step of a random story.
#[derive(Clone, Debug)]
enum Step {
    Allocate { psize: u64, copies: u8 },
    Free { which: prop::sample::Index },
    Take,
    Sync,
    Unload { keep: usize },
    Reopen,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1u64..20_000, 1u8..=3).prop_map(|(psize, copies)| Step::Allocate { psize, copies }),
        2 => (100_000u64..400_000, 1u8..=2).prop_map(|(psize, copies)| Step::Allocate { psize, copies }),
        7 => any::<prop::sample::Index>().prop_map(|which| Step::Free { which }),
        1 => Just(Step::Take),
        2 => Just(Step::Sync),
        1 => (0usize..4).prop_map(|keep| Step::Unload { keep }),
        1 => Just(Step::Reopen),
    ]
}

/// State of a 512-byte sector: `None` is allocatable, or used / freed by a txg.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sector {
    Free,
    Used,
    Freed(u64),
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn random_stories_agree_with_a_bitmap(
        steps in prop::collection::vec(any_step(), 1..400),
        ashifts in prop::collection::vec(9u8..=12, 1..=3),
    ) {
        let specs: Vec<_> = (0u32..)
            .zip(ashifts)
            .map(|(id, ashift)| VdevSpec { ashift, ..spec(id * 2, 18 + id as u8, 5) })
            .collect();
        let (mut pool, mut maps) = (pool(&specs), Maps::default());
        let mut twin = (pool.clone(), maps.clone());
        let mut sectors: BTreeMap<u32, Vec<Sector>> =
            specs.iter().map(|spec| (spec.id.0, vec![Sector::Free; 5 << spec.metaslab_shift >> 9])).collect();
        let mut live: Vec<Dva> = Vec::new();
        let mut txg = 4;
        for step in steps {
            let range = |dva: &Dva| (dva.offset >> 9) as usize..((dva.offset + dva.asize) >> 9) as usize;
            match step {
                Step::Allocate { psize, copies } => {
                    let result = pool.allocate(psize, copies, Txg(txg), &mut maps).ok();
                    let same = twin.0.allocate(psize, copies, Txg(txg), &mut twin.1).ok();
                    prop_assert_eq!(result, same, "the same calls give the same results");
                    let Some(dvas) = result else {
                        let mut room = 0;
                        for spec in &specs {
                            let need = psize.next_multiple_of(1 << spec.ashift) as usize >> 9;
                            for metaslab in sectors[&spec.id.0].chunks(1 << (spec.metaslab_shift - 9)) {
                                let runs = metaslab.split(|sector| *sector != Sector::Free);
                                room += runs.map(|run| run.len() / need).sum::<usize>();
                            }
                        }
                        // A copy in the middle of a run may take the space of two.
                        prop_assert!(room < 2 * usize::from(copies) - 1, "there was room");
                        continue;
                    };
                    prop_assert_eq!(copies_of(dvas).len(), usize::from(copies));
                    for dva in copies_of(dvas) {
                        let spec = specs.iter().find(|spec| spec.id == dva.vdev).unwrap();
                        let unit = 1 << spec.ashift;
                        prop_assert_eq!(dva.asize, psize.next_multiple_of(unit));
                        prop_assert_eq!(dva.offset % unit, 0);
                        let [first, last] = [dva.offset, dva.offset + dva.asize - 1];
                        prop_assert_eq!(first >> spec.metaslab_shift, last >> spec.metaslab_shift);
                        for sector in &mut sectors.get_mut(&dva.vdev.0).unwrap()[range(&dva)] {
                            prop_assert_eq!(*sector, Sector::Free);
                            *sector = Sector::Used;
                        }
                        live.push(dva);
                    }
                }
                Step::Free { which } if !live.is_empty() => {
                    let dva = live.swap_remove(which.index(live.len()));
                    prop_assert_eq!(pool.free(dva, Txg(txg)), Ok(()));
                    prop_assert_eq!(pool.free(dva, Txg(txg)), Err(FreeError::NotAllocated(dva)));
                    twin.0.free(dva, Txg(txg)).unwrap();
                    sectors.get_mut(&dva.vdev.0).unwrap()[range(&dva)].fill(Sector::Freed(txg));
                }
                Step::Free { .. } => {}
                Step::Take => {
                    maps.note(pool.take_changes(Txg(txg)));
                    twin.1.note(twin.0.take_changes(Txg(txg)));
                }
                Step::Sync => {
                    sync(&mut pool, &mut maps, txg);
                    sync(&mut twin.0, &mut twin.1, txg);
                    for sector in sectors.values_mut().flatten() {
                        if matches!(sector, Sector::Freed(by) if *by + 2 <= txg) {
                            *sector = Sector::Free;
                        }
                    }
                    txg += 1;
                }
                Step::Unload { keep } => {
                    prop_assert_eq!(pool.unload_idle(keep), twin.0.unload_idle(keep));
                }
                Step::Reopen => {
                    sync(&mut pool, &mut maps, txg);
                    txg += 1;
                    let mut again = Allocator::new(Txg(txg - 1));
                    for spec in &specs {
                        let sums = (0..5).map(|metaslab| maps.allocated(spec.id, metaslab));
                        again.add_vdev(*spec, sums).unwrap();
                    }
                    prop_assert_eq!(again.space().allocated, pool.space().allocated);
                    pool = again;
                    twin = (pool.clone(), maps.clone());
                    for sector in sectors.values_mut().flatten() {
                        if matches!(sector, Sector::Freed(_)) {
                            *sector = Sector::Free;
                        }
                    }
                }
            }
            let count = |what: fn(&Sector) -> bool| {
                sectors.values().flatten().filter(|sector| what(sector)).count() as u64 * 512
            };
            prop_assert_eq!(pool.space().allocated, count(|sector| *sector == Sector::Used));
            prop_assert_eq!(pool.space().allocatable(), count(|sector| *sector == Sector::Free));
            for spec in &specs {
                let metaslabs = pool.metaslabs(spec.id).unwrap();
                let sum = |part: fn(&Metaslab) -> u64| metaslabs.iter().map(part).sum::<u64>();
                let whole = pool.vdev_space(spec.id).unwrap();
                prop_assert_eq!(sum(Metaslab::allocated), whole.allocated);
                prop_assert_eq!(sum(Metaslab::deferred), whole.deferred);
                prop_assert_eq!(sum(Metaslab::allocatable), whole.allocatable());
            }
        }
        // The space handed out, replayed on fresh maps, is the allocated space; so is the condensed form.
        maps.note(pool.take_changes(Txg(txg)));
        let condensed: Vec<_> = specs
            .iter()
            .flat_map(|spec| pool.metaslabs(spec.id).unwrap().iter().map(|m| m.allocated_runs()))
            .collect();
        let histograms: Vec<_> = specs
            .iter()
            .flat_map(|spec| (0..5).map(|metaslab| pool.histogram(spec.id, metaslab)))
            .collect();
        pool.txg_synced(Txg(txg));
        maps.sync();
        let mut condensed = condensed.into_iter();
        let mut histograms = histograms.into_iter();
        for spec in &specs {
            for (index, metaslab) in (0u32..).zip(pool.metaslabs(spec.id).unwrap()) {
                let mut replayed = Segments::indexed();
                for entry in maps.synced.get(&(spec.id, index)).into_iter().flatten() {
                    match *entry {
                        MapEntry::Alloc { offset, len } => replayed.add(offset, offset + len).unwrap(),
                        MapEntry::Free { offset, len } => replayed.remove(offset, offset + len).unwrap(),
                    }
                }
                prop_assert_eq!(replayed.total(), metaslab.allocated());
                let runs: Vec<_> = replayed.iter().map(|(start, end)| (start, end - start)).collect();
                for (offset, len) in &runs {
                    let used = &sectors[&spec.id.0][(*offset >> 9) as usize..((offset + len) >> 9) as usize];
                    prop_assert!(used.iter().all(|sector| *sector == Sector::Used));
                }
                if let Some(condensed) = condensed.next().unwrap() {
                    prop_assert_eq!(condensed, runs);
                }
                if let Some(histogram) = histograms.next().unwrap() {
                    let free = metaslab.size() - metaslab.allocated();
                    let at_least: u64 = (0..).zip(histogram).map(|(i, n)| n << (i + spec.ashift)).sum();
                    prop_assert!(at_least <= free);
                    prop_assert!(free == 0 || free < 2 * at_least);
                }
            }
        }
    }
}

#[test]
fn space_for_a_log_that_was_not_used_leaves_no_trace() {
    let (mut pool, mut maps) = (pool(&[spec(0, 24, 2)]), Maps::default());
    let before = pool.space();
    let chunk = pool.allocate_log(128 << 10, Txg(5), &mut maps).unwrap();
    assert!(pool.is_settled(Txg(4)), "txg 5 is still open");
    let (used, rest) =
        (Dva { asize: 8192, ..chunk }, Dva { offset: chunk.offset + 8192, asize: 122_880, ..chunk });
    pool.give_back(rest, Txg(5));
    assert!(!pool.is_settled(Txg(5)));
    assert_eq!(pool.space().allocated, before.allocated + 8192);
    pool.give_back(used, Txg(5));
    assert!(pool.is_settled(Txg(5)));
    assert_eq!((pool.space(), pool.take_changes(Txg(5))), (before, vec![]));
}

#[test]
fn logs_go_to_log_devices_first() {
    let specs = [spec(0, 24, 2), VdevSpec { class: Class::Log, ..spec(1, 16, 1) }];
    let (mut pool, mut maps) = (pool(&specs), Maps::default());
    let vdevs = [(); 3].map(|()| pool.allocate_log(32 << 10, Txg(4), &mut maps).unwrap().vdev.0);
    assert_eq!(vdevs, [1, 1, 0]);
}

#[test]
fn log_blocks_left_by_a_crash_are_claimed_in_place() {
    let (mut pool, mut maps) = (pool(&[spec(0, 24, 2)]), Maps::default());
    let mine = pool.allocate(4096, 1, Txg(4), &mut maps).unwrap()[0];
    let left = Dva { offset: 1 << 20, asize: 8192, ..mine };
    assert!(pool.claim(left, Txg(4), &mut maps).unwrap());
    assert!(!pool.claim(left, Txg(4), &mut maps).unwrap(), "it is in use");
    assert!(!pool.claim(mine, Txg(4), &mut maps).unwrap(), "this too");
    assert!(!pool.claim(Dva { offset: 1 << 40, ..left }, Txg(4), &mut maps).unwrap(), "no such place");
    let changes = pool.take_changes(Txg(4));
    assert_eq!(changes[0].allocs, [(mine.offset, 4096), (1 << 20, 8192)]);
}

#[test]
fn blocks_on_raidz_take_their_parity_and_whole_multiples_until_the_vdev_is_full() {
    let layout = Raidz::new(9, 4, 2).unwrap();
    let mut pool = pool(&[VdevSpec { sizes: Some(Sizes::Raidz(layout)), ..spec(0, 20, 2) }]);
    let mut maps = Maps::default();
    let mut all = Vec::new();
    for psize in (512..=16_384).step_by(512).cycle() {
        let Ok(dvas) = pool.allocate(psize, 1, Txg(4), &mut maps) else { break };
        assert_eq!(dvas[0].asize, layout.asize(psize));
        assert!(dvas[0].asize.is_multiple_of(3 * 512), "no piece is left that is too small for a block");
        all.push(dvas[0]);
    }
    assert!(pool.space().allocated > pool.space().size * 9 / 10, "{:?}", pool.space());
    sync(&mut pool, &mut maps, 4);
    all.iter().for_each(|dva| pool.free(*dva, Txg(5)).unwrap());
    sync(&mut pool, &mut maps, 5);
    assert_eq!(pool.space().allocated, 0);
    assert!(pool.claim(all[0], Txg(8), &mut maps).is_ok());
}
