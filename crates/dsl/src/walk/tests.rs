use super::*;
use crate::bed;

/// The trees of two objsets: of a MOS and of a file system.
fn roots() -> (Arc<Storage>, [Root; 2]) {
    let (storage, roots) = bed::written();
    let mut owner = 0;
    let roots = roots.map(|ptr| {
        owner += 1;
        Root::new(ObjectId(owner), "it", ptr, Txg(0))
    });
    (storage, roots)
}

fn place(item: Item) -> Place {
    match item {
        Item::Block(place, _) | Item::Embedded(place, _) => place,
        Item::Unreadable(place, why) => panic!("{place}: {why}"),
    }
}

#[test]
fn a_walk_taken_up_behind_any_block_gives_what_is_left() {
    let (storage, roots) = roots();
    for root in roots {
        let shown = |place: &Place| format!("{place} {}", place.is_root());
        let all: Vec<_> = Walk::after(&storage, &root, None).map(place).collect();
        assert!(all.len() > 30, "{}", all.len());
        for (n, mark) in all.iter().enumerate() {
            let rest: Vec<_> =
                Walk::after(&storage, &root, Some(mark.clone())).map(place).map(|p| shown(&p)).collect();
            let expected: Vec<_> = all[n + 1..].iter().map(shown).collect();
            assert_eq!(rest, expected, "behind {mark}");
        }
    }
}

#[test]
fn a_block_is_found_by_its_number_without_reading_the_others() {
    let (storage, roots) = roots();
    for root in roots {
        for wanted in Walk::new(&storage, std::slice::from_ref(&root)).map(place) {
            let way: Vec<_> =
                Walk::towards(&storage, &root, wanted.target()).map(|item| place(item).target()).collect();
            assert_eq!(way.iter().filter(|at| **at == wanted.target()).count(), 1, "{wanted}");
            // The root, the dnodes down to the object's, and the object down to the block.
            assert!(way.len() <= 12, "{wanted}: {way:?}");
        }
    }
}

/// Object, level, number, and whether it is the objset's root.
fn shown(place: &Place) -> (ObjectId, u8, u64, bool) {
    (place.object, place.level, place.blkid, place.is_root())
}

#[test]
fn a_walk_visits_children_first_and_continues_from_any_mark() {
    let (storage, roots) = roots();
    for root in roots {
        let from = |freed| {
            let root = Root { freed, ..root.clone() };
            let mut plain: Vec<_> =
                Walk::new(&storage, std::slice::from_ref(&root)).map(place).map(|p| shown(&p)).collect();
            let left: Vec<_> = Walk::children_first(&storage, &root).map(place).collect();
            let mut same: Vec<_> = left.iter().map(shown).collect();
            plain.sort_unstable();
            same.sort_unstable();
            assert_eq!(plain, same, "both ways meet the same");
            left
        };
        let all = from(None);
        assert!(all.len() > 30 && all.last().unwrap().is_root(), "{}", all.len());
        for (n, at) in all.iter().enumerate() {
            let rest: Vec<_> = all[n..].iter().map(shown).collect();
            if at.level == 0 && !at.is_root() {
                let left: Vec<_> = from(Some(at.freed_up_to())).iter().map(shown).collect();
                assert_eq!(left, rest, "from {at}");
            }
            // No block below it was freed, so the walk continues at the first of them.
            let left: Vec<_> = from(at.freed_so_far()).iter().map(shown).collect();
            assert!(left.ends_with(&rest), "from the start of {at}");
        }
        let after = Mark { object: ObjectId(u64::MAX), blkid: u64::MAX };
        assert!(from(Some(after)).iter().all(Place::is_root));
    }
}

#[test]
fn a_block_of_a_level_that_its_parent_cannot_have_below_it_is_damage() {
    let (storage, [_, root]) = roots();
    let indirect = Walk::new(&storage, std::slice::from_ref(&root)).find_map(|item| match item {
        Item::Block(place, block) if place.object.0 != 0 && block.level > 0 => Some((place, block)),
        _ => None,
    });
    let (place, block) = indirect.expect("a file with an indirect block");
    let mut walk = Walk::new(&storage, &[]);
    for (level, is_sound) in [(place.level, true), (place.level + 1, false), (0, false)] {
        let kind = Kind::Tree { fanout_shift: 7, dnodes: false };
        walk.push(Place { level, ..place.clone() }, BlockPtr::Block(block), kind);
        let met: Vec<_> = walk.by_ref().collect();
        let refused = |item: &Item| matches!(item, Item::Unreadable(_, why) if why.contains("level"));
        assert_eq!(met.len() > 1 && !met.iter().any(refused), is_sound, "level {level}");
    }
}

#[test]
fn a_pointer_with_a_wrong_fill_count_is_reported() {
    let (storage, roots) = roots();
    let (fills, wrong) = std::sync::mpsc::channel();
    assert!(Walk::counting(&storage, &roots, fills.clone()).count() > 100);
    assert_eq!(wrong.try_iter().count(), 0);
    let blocks = Walk::new(&storage, &roots[1..]).filter_map(|item| match item {
        Item::Block(place, block) if place.object.0 != 0 => Some((place, block)),
        _ => None,
    });
    let mut levels = [false; 2];
    for (place, block) in blocks {
        levels[usize::from(block.level.min(1))] = true;
        let counted = block.fill;
        for stored in [0, counted - 1, counted + 1, u64::MAX] {
            let mut walk = Walk::counting(&storage, &[], fills.clone());
            let kind = Kind::Tree { fanout_shift: 7, dnodes: false };
            walk.push(place.clone(), BlockPtr::Block(Block { fill: stored, ..block }), kind);
            assert!(walk.count() > 0);
            let told: Vec<_> = wrong.try_iter().map(|w| (w.stored, w.counted)).collect();
            assert_eq!(told, [(stored, counted)], "{place}");
        }
    }
    assert_eq!(levels, [true; 2], "files and what leads to them");
}

#[test]
fn a_walk_goes_on_where_a_bookmark_of_openzfs_says() {
    let (storage, roots) = roots();
    for root in roots {
        let all: Vec<_> = Walk::after(&storage, &root, None).map(place).collect();
        let mut bookmarks = 0;
        for (n, at) in all.iter().enumerate() {
            let Some((object, blkid)) = at.met_before() else { continue };
            bookmarks += 1;
            let mark = Place::before(Arc::new(root.clone()), object, blkid);
            let rest: Vec<_> = Walk::after(&storage, &root, mark).map(place).map(|p| shown(&p)).collect();
            let left: Vec<_> = all[n + 1..].iter().map(shown).collect();
            assert!(rest.ends_with(&left), "behind {at}");
            // The block itself and what leads to it may come again.
            assert!(rest.len() <= left.len() + 8, "behind {at}: {} of {}", rest.len(), left.len());
        }
        assert!(bookmarks > 30);
    }
}
