//! A device that does not answer for a while: the pool reports it meanwhile, and nothing is lost when it answers again.

mod scripted;

use format::NvList;
use pool::{Layout, Noticed, Options, Pool};
use scripted::{content, imported, read, write};
use storage::host::{CrashPolicy, Disk, Fault, Script};

fn options() -> Options {
    Options { slow_io_ms: 30, deadman_ms: 60, deadman_sync_ms: 90, ..scripted::options() }
}

fn created(script: &Script) -> Pool {
    scripted::created(script, Layout::Single, 2, options())
}

#[test]
fn a_silent_device_is_reported_and_the_pool_continues_after_it_answers() {
    let script = Script::new();
    let pool = created(&script);
    let first = write(&pool, 1).unwrap();
    pool.sync().unwrap();
    let guid = pool.slow_requests()[1].0;
    pool.clear_errors(None);
    let mut watch = pool.watch_devices();
    assert_eq!(pool.ask_devices(), []);
    let disk = script.disks().swap_remove(1);
    let second = write(&pool, 2).unwrap();
    // On a busy machine requests before this one may have been answered late, too.
    watch.look().expect("the pool is open");
    let before = pool.events().events.len();
    let since = |class: &str| -> Vec<NvList> {
        let mut events = pool.events().events.split_off(before);
        events.retain(|event| event.get_str("class") == Some(class));
        events
    };
    let is_of_it = |event: &NvList| event.get_u64("vdev_guid") == Some(guid);
    disk.inject(Fault::Hang { from_op: script.op_count() });
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| pool.sync());
        let mut told = Vec::new();
        let names_it = |news: &Noticed| matches!(news, Noticed::Silent(silent) if silent.guid == guid);
        while !told.iter().any(names_it) || !since("ereport.fs.zfs.deadman").iter().any(is_of_it) {
            let (news, pause) = watch.look().expect("the pool is open");
            told.extend(news);
            std::thread::sleep(pause);
        }
        while pool.slow_sync().is_none() || !told.iter().any(|news| matches!(news, Noticed::SlowSync(_))) {
            let (news, pause) = watch.look().expect("the pool is open");
            told.extend(news);
            std::thread::sleep(pause);
        }
        let slow = since("ereport.fs.zfs.deadman").into_iter().find_map(|event| event.get_u64("txg"));
        assert_eq!(slow, pool.slow_sync().map(|slow| slow.txg.0));
        assert!(!syncing.is_finished(), "nothing is synced that a device did not answer");
        let dead = since("ereport.fs.zfs.deadman").into_iter().find(is_of_it).expect("it was waited for");
        assert!(dead.get_u64("zio_delay").is_some_and(|nanos| nanos >= 60_000_000));
        assert!(!since("ereport.fs.zfs.delay").iter().any(is_of_it), "it has answered nothing since");
        disk.heal();
        syncing.join().unwrap().unwrap();
    });
    assert!(pool.slow_requests()[1].1 >= 1);
    let late = since("ereport.fs.zfs.delay").into_iter().find(is_of_it).expect("it was late");
    assert!(late.get_u64("zio_delta").is_some_and(|nanos| nanos >= 30_000_000));
    assert_eq!((pool.silent_devices(), pool.slow_sync()), (vec![], None));
    pool.clear_errors(None);
    assert_eq!(pool.slow_requests()[1].1, 0);
    // Data that the sync acknowledged survives a power cut.
    let after = script.image_after(script.op_count(), CrashPolicy::LoseAllUnflushed, 1);
    drop(pool);
    let pool = imported(after.disks(), options());
    assert_eq!((read(&pool, first), read(&pool, second)), (content(1), content(2)));
}

#[test]
fn an_idle_device_is_tested_and_the_test_does_not_hang_with_it() {
    let script = Script::new();
    let pool = created(&script);
    pool.sync().unwrap();
    let disk = script.disks().swap_remove(0);
    disk.inject(Fault::Hang { from_op: 0 });
    let silent = pool.ask_devices();
    assert_eq!((silent.len(), silent[0].deed), (1, "read"));
    assert_eq!(silent[0].path, disk.path());
    disk.heal();
    while !pool.ask_devices().is_empty() {
        std::thread::yield_now();
    }
    pool.export().unwrap();
}
