//! Free space is initialized and trimmed during power cuts: no block in use is changed.

mod zdb;

use pool::{Course, Order, Treatment};
use sim::{Cuts, Machine, Story, seeds};

#[test]
fn power_cut_while_free_space_is_treated_leaves_a_synced_state() {
    for (seed, machine) in
        seeds(1).flat_map(|seed| [Machine::mirrored(2), Machine::raidz(1, 3)].map(|machine| (seed, machine)))
    {
        let mut story = Story::on(machine, seed);
        story.mkdir("/d").write("/d/a", vec![7; 150_000]).write("/b", vec![8; 90_000]).sync();
        story.unlink("/b").write("/c", vec![9; 40_000]).sync();
        story.forget();
        let leaves: Vec<_> = story.pool().info().config.tree.leaves().map(|leaf| leaf.guid).collect();
        for what in [Treatment::Trim, Treatment::Initialize, Treatment::Trim] {
            story.pool().treat(leaves[0], what, Order::Start(None)).expect("it begins");
            story.pool().wait_treated(what, &leaves).expect("it ends");
            story.forget_unasked_syncs();
            story.write("/d/a", vec![3; 100_000]).sync();
            story.unlink("/c").sync();
            story.write("/c", vec![4; 60_000]).sync();
            let treated = story.pool().treated(what).expect("read");
            let courses: Vec<Course> = treated.iter().map(|(_, treated)| treated.course).collect();
            assert_eq!((courses[0], courses[1]), (Course::Complete, Course::None));
        }
        let again = story.pool().treat(leaves[0], Treatment::Trim, Order::Suspend);
        assert!(again.is_err(), "nothing goes on");
        story.expect_model();
        let name = "power_cut_while_free_space_is_treated_leaves_a_synced_state";
        println!("{} cuts", Cuts::of(&story, "unused", name).every(40).run());
        story.reboot().expect_model();
        zdb::expect_pleased(&mut story);
    }
}
