use format::blkptr::Dva;
use format::{Checksum, ObjectType, Txg, VdevId};
use storage::host::{ScriptedDisk, SeededEntropy};

use super::*;
use crate::testing::made;

/// The block number `content` as it is written in so many copies in the txg `birth`, which also says where.
fn block(content: u64, copies: u8, birth: u64) -> Block {
    let dva = |copy: u64| Dva { vdev: VdevId(0), asize: 512, offset: (birth * 8 + copy) << 9, gang: false };
    let dvas = [0, 1, 2].map(|copy| if copy < u64::from(copies) { dva(copy) } else { Dva::default() });
    Block {
        dvas,
        lsize: 512,
        psize: 512,
        checksum_kind: if content.is_multiple_of(3) { ChecksumKind::Edonr } else { ChecksumKind::Sha256 },
        checksum: Checksum([content.wrapping_mul(0x9e37_79b9_7f4a_7c15), content, 3, 4]),
        dedup: true,
        ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(birth))
    }
}

#[test]
fn tables_count_references_as_a_model_does() {
    follow_a_model(false);
}

#[test]
fn tables_with_logs_count_references_as_a_model_does() {
    follow_a_model(true);
}

fn follow_a_model(makes_logs: bool) {
    let disk = ScriptedDisk::new(64 << 20);
    let pool = made(std::slice::from_ref(&disk));
    let counted = pool.run(move |syncing| {
        let (mos, tx, vdevs) = (&syncing.mos().objset, &syncing.tx, syncing.inner.storage.vdevs());
        let means = Means { mos, tx, vdevs, salt: 7, now: 1000 };
        let features = &mut syncing.state.features;
        let chance = SeededEntropy::new(1);
        let mut ddt = Ddt { makes_logs, ..Ddt::default() };
        if makes_logs {
            let known = features.as_mut().ok_or(crate::Error::Internal)?;
            known.enable(&syncing.inner.mos, tx, &features::FAST_DEDUP)?;
        }
        let mut model: BTreeMap<(u64, u8), (Block, u64)> = BTreeMap::new();
        let (mut freed, mut expected) = (Vec::new(), Vec::new());
        for step in 1..6000 {
            let copies = if makes_logs { 1 } else { 1 + chance.below(2) as u8 };
            let content = chance.below(300);
            let new = block(content, copies, step);
            let known = model.get_mut(&(content, copies));
            match (chance.below(9), known) {
                (0..5, None) => {
                    let found = ddt.find(vdevs, &new, copies)?;
                    // A block that waits in a log to be freed.
                    expected.retain(|dvas| found.is_none_or(|found| *dvas != found.dvas));
                    assert!(found.is_none() || makes_logs);
                    let block = found.unwrap_or(new);
                    assert!(ddt.takes(&new, copies) == found.is_none());
                    ddt.refer(vdevs, &block, copies)?;
                    model.insert((content, copies), (block, 1));
                }
                (0..5, Some((old, refs))) => {
                    let found = ddt.find(vdevs, &new, copies)?.expect("it was entered");
                    assert_eq!((found.dvas, found.birth), (old.dvas, old.birth));
                    ddt.refer(vdevs, &found, copies)?;
                    *refs += 1;
                }
                (_, Some((old, refs))) if *refs > 0 => {
                    assert!(ddt.release(vdevs, old)?);
                    *refs -= 1;
                }
                _ => assert!(!ddt.release(vdevs, &new)?, "no entry is about it"),
            }
            if chance.below(60) == 0 {
                freed.extend(ddt.store(&means)?.iter().map(|block| block.dvas));
                let at_once = chance.below(3) == 0;
                let most = chance.below(50);
                let flushed = ddt.flush(&means, if at_once { u64::MAX } else { most }, at_once)?;
                freed.extend(flushed.iter().map(|block| block.dvas));
                ddt.count(&means, features)?;
                let gone = model.extract_if(.., |_, (_, refs)| *refs == 0);
                expected.extend(gone.map(|(_, (block, _))| block.dvas));
                if !ddt.is_freeing() {
                    freed.sort_by_key(|dvas| dvas[0].offset);
                    expected.sort_by_key(|dvas| dvas[0].offset);
                    assert_eq!(freed, expected);
                }
                ddt = Ddt { makes_logs, ..Ddt::load(mos, vdevs)? };
                let (total, refs) = (ddt.total(), model.values().map(|(_, refs)| refs).sum::<u64>());
                assert_eq!((total.blocks, total.ref_blocks), (model.len() as u64, refs));
            }
        }
        Ok(model.len())
    });
    assert!(counted.unwrap() > 100);
}
