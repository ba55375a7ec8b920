//! The vdevs that blocks are placed on, by the kind of their data.

use super::*;

#[test]
fn metadata_goes_to_special_vdevs_and_small_data_up_to_three_quarters_of_them() {
    let special = VdevSpec { class: Class::Special, ..spec(1, 16, 2) };
    let mut pool = pool(&[spec(0, 20, 4), special, VdevSpec { class: Class::Dedup, ..spec(2, 16, 1) }]);
    let mut maps = Maps::default();
    let mut place = |pool: &mut Allocator, holds| {
        let want = Want { psize: 4096, copies: 1, holds };
        pool.allocate_for(want, Txg(4), &mut maps).unwrap()[0].vdev.0
    };
    assert_eq!(place(&mut pool, Holds::Data), 0);
    assert_eq!(place(&mut pool, Holds::DedupTable), 2);
    let places: Vec<u32> = (0..40).map(|_| place(&mut pool, Holds::SmallData)).collect();
    // 128 KiB in all: 24 blocks are three quarters.
    assert_eq!(places, [[1; 24].as_slice(), &[0; 16]].concat());
    let places: Vec<u32> = (0..12).map(|_| place(&mut pool, Holds::Metadata)).collect();
    assert_eq!(places, [[1; 8].as_slice(), &[0; 4]].concat(), "a full class spills to the normal one");
    // 15 more fit on the dedup vdev.
    let places: Vec<u32> = (0..17).map(|_| place(&mut pool, Holds::DedupTable)).collect();
    assert_eq!(places, [[2; 15].as_slice(), &[0; 2]].concat());
    assert_eq!(
        pool.allocatable(),
        pool.vdev_space(VdevId(0)).unwrap().allocatable(),
        "only normal space is promised"
    );
}
