use super::*;
use crate::Options;

#[test]
fn a_change_is_not_refused_while_only_changes_in_flight_hold_its_space() {
    let limits = Limits::of(&Options::default());
    let groups = Arc::new(Groups::new(Txg(4), false, limits, Arc::default(), Arc::default()));
    groups.synced(Txg(4), 1000, 0, false);
    let need = Need { data: 90, reserve: 850, ..Need::default() };
    let mut other = groups.try_begin(&need).expect("the pool works");
    assert!(other.is_some(), "there is space for one");
    let mut patience = Patience::default();
    for _ in 0..4 * SPACE_WAITS {
        assert!(groups.try_begin(&need).expect("the pool works").is_none(), "there is no space for two");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| groups.wait_for(&Wait::to_begin(need), &mut patience));
            // The caller has chosen the txg whose sync it waits for: the present open one.
            while !groups.lock().wanted && !waits.is_finished() {
                std::thread::yield_now();
            }
            drop(other.take());
            let (closed, ()) = groups.close(|_| ());
            // Another change takes the space first.
            other = groups.try_begin(&need).expect("the pool works");
            groups.synced(closed, 1000, 0, false);
            waits.join().expect("no panic").expect("its turn comes");
        });
    }
    drop(other);
    assert!(groups.try_begin(&need).expect("the pool works").is_some());
}

#[test]
fn a_transaction_that_waits_for_space_gets_it_before_the_intent_log() {
    let limits = Limits::of(&Options::default());
    let groups = Arc::new(Groups::new(Txg(4), false, limits, Arc::default(), Arc::default()));
    groups.synced(Txg(4), 1000, 0, false);
    assert_eq!(groups.set_aside(900, 0), 900);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| groups.begin(&Need { data: 500, ..Need::default() }));
        while groups.lock().short == 0 {
            std::thread::yield_now();
        }
        // The log returns its unused space and requests as much in the next txg.
        let (closed, ()) = groups.close(|_| ());
        assert_eq!(groups.set_aside(900, 0), 0, "room was taken from the one who waits");
        groups.synced(closed, 1000, 0, false);
        let tx = waits.join().expect("no panic").expect("there is space for both");
        assert_eq!(groups.lock().short, 0);
        assert_eq!(groups.set_aside(900, 0), 500, "half of it is promised to the transaction");
        drop(tx);
    });
    assert_eq!(groups.set_aside(900, 0), 500, "the transaction changed nothing, so its half is free again");
}
/// A pool with 1000 free bytes, of which a transaction was promised 90.
fn promised() -> (Arc<Groups>, Tx) {
    let limits = Limits::of(&Options::default());
    let groups = Arc::new(Groups::new(Txg(4), false, limits, Arc::default(), Arc::default()));
    groups.synced(Txg(4), 1000, 0, false);
    let need = Need { data: 90, ..Need::default() };
    let tx = groups.try_begin(&need).expect("the pool works").expect("there is space");
    assert_eq!(groups.lock().promised, 90);
    (groups, tx)
}

#[test]
#[should_panic(expected = "a transaction gives back the space that it was promised, once")]
fn space_that_was_promised_is_not_given_back_twice() {
    let (groups, tx) = promised();
    // The sum forgets the transaction, as if it had ended before.
    groups.lock().promised = 0;
    drop(tx);
}

#[test]
#[should_panic(expected = "no space is promised to transactions of a txg that nobody holds open")]
fn a_txg_does_not_close_while_space_is_promised_in_it() {
    let (groups, tx) = promised();
    // The sum counts more than was promised, as if a transaction had ended and kept its space.
    groups.lock().promised += 10;
    drop(tx);
    groups.close(|_| ());
}
