//! A pool whose device refuses writes for a while: it waits, and then continues.

mod scripted;

use std::time::Duration;

use format::ObjectId;
use pool::props::Value;
use pool::{Error, Layout, Pool};
use scripted::{SIZE, content, options, read, write};
use storage::host::{CrashPolicy, Fault, Script};

fn created(script: &Script) -> Pool {
    scripted::created(script, Layout::Single, 2, options())
}

fn imported(script: &Script) -> Pool {
    scripted::imported(script.disks(), options())
}

/// The operations of a txg that writes a second object.
fn operations() -> usize {
    let script = Script::new();
    let pool = created(&script);
    write(&pool, 1).unwrap();
    pool.sync().unwrap();
    script.forget();
    write(&pool, 2).unwrap();
    pool.sync().unwrap();
    script.op_count()
}

/// Data that a sync acknowledged survives a power cut.
fn expect_both_durable(script: &Script, objects: [ObjectId; 2], from_op: usize) {
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    let pool = imported(&after);
    let contents = objects.map(|object| read(&pool, object));
    assert_eq!(contents, [content(1), content(2)], "operation {from_op}");
    let mut found = Vec::new();
    scan::check::check(&pool, &mut |finding| found.push(finding)).unwrap();
    assert!(found.is_empty(), "operation {from_op}: {found:?}");
    pool.export().unwrap();
}

/// A device that refuses from each operation of a txg on, then is repaired: the txg becomes the pool's state, whole.
fn goes_on_after(can_be_read: bool, fault: impl Fn(usize) -> Fault) {
    let ops = operations();
    let mut suspensions = 0;
    for from_op in 0..ops {
        let script = Script::new();
        let pool = created(&script);
        let first = write(&pool, 1).unwrap();
        pool.sync().unwrap();
        let mut watch = pool.suspend_on_refusal().unwrap();
        script.forget();
        let second = write(&pool, 2).unwrap();
        let disk = script.disks().swap_remove(from_op % 2);
        disk.inject(fault(from_op));
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| pool.sync());
            // A fault of a disk that the last operations do not concern goes unnoticed, rightly.
            let suspended = loop {
                if pool.is_suspended() {
                    break true;
                }
                if syncing.is_finished() {
                    break false;
                }
                std::thread::yield_now();
            };
            if suspended {
                suspensions += 1;
                watch.wait().expect("it is told");
                let trouble = pool.trouble().expect("it is suspended");
                assert!(trouble.can_resume && trouble.failmode == "wait", "{trouble:?}");
                assert!(
                    !syncing.is_finished(),
                    "operation {from_op}: nothing is synced that a device refused"
                );
                assert!(matches!(pool.log_command(), Err(Error::Suspended)), "a command waits for nobody");
                if can_be_read {
                    assert_eq!(read(&pool, first), content(1), "operation {from_op}: reads go on");
                }
                assert!(matches!(pool.resume(), Err(Error::Suspended)), "the device refuses still");
            }
            disk.heal();
            while !syncing.is_finished() {
                let _ = pool.resume();
            }
            syncing.join().unwrap().unwrap();
        });
        assert_eq!(pool.trouble(), None, "operation {from_op}");
        drop(pool);
        expect_both_durable(&script, [first, second], from_op);
    }
    assert!(suspensions > ops / 3, "{suspensions} of {ops} operations suspended the pool");
}

#[test]
fn a_txg_that_a_device_refused_is_written_whole_once_the_device_takes_it() {
    goes_on_after(true, |from_op| Fault::WriteError { from_op });
}

#[test]
fn writes_that_a_failed_flush_lost_are_written_again() {
    goes_on_after(true, |from_op| Fault::LoseAtFlush { from_op });
}

#[test]
fn a_device_that_vanishes_for_a_while_costs_nothing() {
    goes_on_after(false, |from_op| Fault::Vanish { from_op });
}

#[test]
fn failmode_continue_refuses_new_writes_and_goes_on_after_a_resume() {
    let script = Script::new();
    let pool = created(&script);
    pool.set_pool_properties(vec![("failmode".into(), Value::Number(1))]).unwrap();
    let first = write(&pool, 1).unwrap();
    pool.sync().unwrap();
    let mut watch = pool.suspend_on_refusal().unwrap();
    let second = write(&pool, 2).unwrap();
    let disk = script.disks().swap_remove(0);
    disk.inject(Fault::WriteError { from_op: script.op_count() });
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| pool.sync_unless_suspended());
        watch.wait().expect("it is suspended");
        assert!(matches!(syncing.join().unwrap(), Err(Error::Suspended)));
    });
    assert!(matches!(write(&pool, 3), Err(Error::Suspended)));
    assert!(matches!(pool.sync(), Err(Error::Suspended)));
    assert_eq!(read(&pool, first), content(1));
    let events = pool.events().events;
    let failures: Vec<_> =
        events.iter().filter(|event| event.get_str("class") == Some("ereport.fs.zfs.io_failure")).collect();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].get_str("pool_failmode"), Some("continue"));
    disk.heal();
    pool.resume().unwrap();
    pool.sync().unwrap();
    let third = write(&pool, 3).unwrap();
    pool.export().unwrap();
    let pool = imported(&script);
    assert_eq!([first, second, third].map(|id| read(&pool, id)), [1, 2, 3].map(content));
}

#[test]
fn writers_wait_for_a_suspended_pool_and_are_refused_once_it_is_given_up() {
    let script = Script::new();
    let pool = created(&script);
    let first = write(&pool, 1).unwrap();
    pool.sync().unwrap();
    let mut watch = pool.suspend_on_refusal().unwrap();
    write(&pool, 2).unwrap();
    script.disks()[1].inject(Fault::WriteError { from_op: script.op_count() });
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| pool.sync());
        watch.wait().expect("it is suspended");
        let writing = scope.spawn(|| write(&pool, 3));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!writing.is_finished() && !syncing.is_finished());
        pool.give_up_writes();
        let synced = syncing.join().unwrap();
        // Refused either way: before or after the sync thread has ended.
        assert!(matches!(synced, Err(Error::Stopped(_) | Error::Suspended)), "{synced:?}");
        assert!(matches!(writing.join().unwrap(), Err(Error::Stopped(_) | Error::Suspended)));
    });
    let trouble = pool.trouble().expect("it stopped");
    assert!(!trouble.can_resume, "{trouble:?}");
    assert!(matches!(pool.resume(), Err(Error::Stopped(_) | Error::Suspended)));
    drop(pool);
    script.disks().iter().for_each(storage::host::ScriptedDisk::heal);
    let pool = imported(&script);
    assert_eq!(read(&pool, first), content(1), "the last synced state is safe");
}

#[test]
fn errors_of_a_device_are_counted_and_reported_and_no_acknowledged_data_is_lost() {
    for failmode in [0, 1] {
        let script = Script::new();
        let pool = created(&script);
        pool.set_pool_properties(vec![("failmode".into(), Value::Number(failmode))]).unwrap();
        let first = write(&pool, 1).unwrap();
        pool.sync().unwrap();
        drop(pool);
        let pool = imported(&script);
        let mut watch = pool.suspend_on_refusal().unwrap();
        let of_class = |class: &str| {
            let events = pool.events().events;
            events.into_iter().filter(|event| event.get_str("class") == Some(class)).count()
        };
        let sums = || {
            let all = pool.device_errors();
            all.iter().fold([0; 2], |sum, (_, errors)| [sum[0] + errors[0], sum[1] + errors[1]])
        };
        let dataset = pool.open("tank").unwrap();
        let object = dataset.objset().object(first).unwrap();
        assert_eq!((sums(), of_class("ereport.fs.zfs.io")), ([0, 0], 0));

        let disks = script.disks();
        disks.iter().for_each(|disk| disk.inject(Fault::ReadError(0..SIZE)));
        assert!(object.read(0, &mut vec![0; 200_000]).is_err(), "the error reaches the reader");
        assert!(sums()[0] > 0 && of_class("ereport.fs.zfs.io") > 0, "{:?}", pool.device_errors());
        assert!(!pool.is_suspended(), "a reader's error suspends nothing");
        disks.iter().for_each(storage::host::ScriptedDisk::heal);
        assert_eq!(read(&pool, first), content(1), "the device answers again");

        pool.clear_errors(None);
        let second = write(&pool, 2).unwrap();
        disks.iter().for_each(|disk| disk.inject(Fault::WriteError { from_op: 0 }));
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| pool.sync());
            watch.wait().expect("it is told");
            assert!(sums()[1] > 0 && of_class("ereport.fs.zfs.io_failure") == 1);
            let trouble = pool.trouble().expect("it is suspended");
            assert!(trouble.can_resume && trouble.why.contains("rror"), "{trouble:?}");
            if failmode == 1 {
                assert!(syncing.join().unwrap().is_err(), "failmode=continue: nobody waits");
                assert!(write(&pool, 3).is_err(), "and nothing new is taken");
            } else {
                assert!(!syncing.is_finished(), "failmode=wait: whoever syncs waits");
            }
            assert_eq!(read(&pool, first), content(1), "reads go on");
            disks.iter().for_each(storage::host::ScriptedDisk::heal);
            pool.resume().unwrap();
        });
        pool.sync().unwrap();
        drop((dataset, object));
        let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
        drop(pool);
        let pool = imported(&after);
        assert_eq!((read(&pool, first), read(&pool, second)), (content(1), content(2)));
        let mut found = Vec::new();
        scan::check::check(&pool, &mut |finding| found.push(finding)).unwrap();
        assert!(found.is_empty(), "{found:?}");
        pool.export().unwrap();
    }
}
