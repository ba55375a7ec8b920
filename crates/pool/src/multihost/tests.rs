//! Two machines and one pool.

use std::sync::atomic::{AtomicU64, Ordering};

use format::config::PoolState;
use storage::host::{Clock, CrashPolicy, Disk, Op, ScriptedDisk, SystemClock};

use super::*;
use crate::props::{PropertyError, Value};
use crate::{CreateSpec, NewFilesystem, Pool, Result};

/// A machine with this number, whose heartbeats are fast: an import watches for two seconds. Its clock is slow: while a busy
/// machine lets the heartbeat wait, the second within which one has to reach a device does not pass.
fn machine(hostid: u32) -> Options {
    machine_with(hostid, Arc::new(Sleeper::default()), 10)
}

fn machine_with(hostid: u32, clock: Arc<Sleeper>, fail_intervals: u16) -> Options {
    let multihost = Pace { interval_ms: 100, fail_intervals, import_intervals: 10 };
    let mut options = Options { hostid, multihost, workers: 1, io_threads: 0, ..Options::default() };
    options.host.clock = clock;
    options
}

/// Waits until a condition is true. The limit only ends a test that hangs.
#[track_caller]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn opened(disks: &[ScriptedDisk]) -> Vec<Arc<dyn Disk>> {
    disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect()
}

/// A new pool of single devices with `multihost` on.
fn made(disks: &[ScriptedDisk], options: &Options) -> Pool {
    let new = NewFilesystem::plain(&options.host);
    let spec = CreateSpec {
        ashift: Some(12),
        properties: vec![(PROPERTY.to_owned(), Value::Number(1))],
        ..CreateSpec::new("tank", opened(disks), new, Arc::new(|_, _, _| Ok(())))
    };
    Pool::create(spec, options.clone()).expect("a pool")
}

fn import(disks: &[ScriptedDisk], options: &Options) -> Result<Pool> {
    Pool::import_disks(opened(disks), options.clone())
}

fn newest(disk: &ScriptedDisk) -> Uberblock {
    labels::read(disk).best.expect("a state")
}

fn writes(disk: &ScriptedDisk) -> usize {
    disk.script().ops().iter().filter(|op| matches!(op, Op::Write { .. })).count()
}

fn is_elsewhere(outcome: Result<Pool>) -> bool {
    matches!(outcome, Err(Error::ActiveElsewhere { hostid: 7, .. }))
}

#[test]
fn a_pool_is_taken_only_when_its_holder_is_dead_or_has_exported_it() {
    let disks = [ScriptedDisk::new(64 << 20), ScriptedDisk::new(64 << 20)];
    // An import would watch for a minute, but it sees the first heartbeat.
    let patient = machine_with(7, Arc::default(), 300);
    let pool = made(&disks, &patient);
    let mmp = newest(&disks[0]).mmp.expect("said");
    assert_eq!((mmp.interval_ms(), mmp.fail_intervals(), mmp.is_on()), (Some(100), Some(300), true));
    assert!(is_elsewhere(import(&disks, &machine(8))));
    assert!(is_elsewhere(import(&disks, &patient)), "another program of the same machine");
    let reading = Options { read_only: true, watched: true, ..machine(8) };
    assert!(is_elsewhere(import(&disks, &reading)));
    assert!(matches!(import(&disks, &machine(0)), Err(Error::NoHostId)));
    pool.sync().expect("the holder goes on");
    pool.export().expect("exported");
    let began = std::time::Instant::now();
    let pool = import(&disks, &patient).expect("it was exported here");
    assert!(began.elapsed() < Duration::from_secs(60), "nobody is watched for");
    drop(pool);

    let disks = [ScriptedDisk::new(64 << 20), ScriptedDisk::new(64 << 20)];
    drop(made(&disks, &machine(7)));
    let began = std::time::Instant::now();
    let pool = import(&disks, &machine(8)).expect("the holder is dead");
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(pool.info().config.hostid, 8);
    pool.export().expect("exported");
    assert_eq!(labels::read(&disks[0]).pool_configs().next().expect("one").state, PoolState::Exported);
    let pool = import(&disks, &machine(8)).expect("it was exported here");
    pool.set_pool_properties(vec![(PROPERTY.to_owned(), Value::Number(0))]).expect("off");
    assert_eq!(pool.info().config.hostid, 0);
    drop(pool);
    let pool = import(&disks, &machine(0)).expect("anybody may take it");
    let on = pool.set_pool_properties(vec![(PROPERTY.to_owned(), Value::Number(1))]);
    assert!(matches!(on, Err(Error::Property(PropertyError::NeedsHostId))));
}

#[test]
fn heartbeats_lie_in_the_last_slots_and_outrank_the_txg() {
    let disks = [ScriptedDisk::new(64 << 20)];
    let pool = made(&disks, &machine(7));
    let of_txg = newest(&disks[0]);
    wait_until("there is no heartbeat", || newest(&disks[0]).rank() > of_txg.rank());
    let beat = newest(&disks[0]);
    assert_eq!((beat.txg, &beat.root), (of_txg.txg, &of_txg.root));
    // More txgs than slots: none of them takes the place of a heartbeat.
    for _ in 0..40 {
        pool.run(|syncing| {
            syncing.state.config_dirty = true;
            Ok(())
        })
        .expect("synced");
        let newest = newest(&disks[0]);
        assert!(newest.txg >= pool.info().txg);
    }
    pool.export().expect("exported");
    import(&disks, &machine(7)).expect("imported").export().expect("exported");
}

#[test]
fn of_two_machines_that_import_at_once_one_gets_the_pool() {
    let disks = [ScriptedDisk::new(64 << 20), ScriptedDisk::new(64 << 20)];
    drop(made(&disks, &machine(7)));
    let taken = std::thread::scope(|scope| {
        let both = [8, 9].map(|id| {
            let disks = &disks;
            scope.spawn(move || import(disks, &machine(id)))
        });
        both.map(|one| one.join().expect("no panic").ok()).into_iter().flatten().collect::<Vec<_>>()
    });
    assert!(taken.len() <= 1, "both have it");
    drop(taken);
    import(&disks, &machine(8)).expect("it is whole").export().expect("exported");
}

#[test]
fn a_power_cut_at_any_write_leaves_a_pool_that_another_machine_takes() {
    // Without a limit an import watches for some of its own intervals.
    let quick = Pace { interval_ms: 1, fail_intervals: 0, import_intervals: 10 };
    let disks = [ScriptedDisk::new(64 << 20)];
    let pool = made(&disks, &Options { multihost: quick, ..machine(7) });
    let first = disks[0].script().op_count();
    for n in 0..3 {
        let value = Value::Text(n.to_string());
        pool.set_properties("tank", vec![("user:a".to_owned(), Some(value))]).expect("set");
        std::thread::sleep(Duration::from_millis(3));
    }
    pool.export().expect("exported");
    let last = disks[0].script().op_count();
    for cut in (first..=last).step_by(((last - first) / 10).max(1)) {
        for policy in [CrashPolicy::LoseAllUnflushed, CrashPolicy::Torn] {
            let after = [disks[0].image_after(cut, policy, cut as u64)];
            let pool = import(&after, &Options { multihost: quick, ..machine(8) }).expect("imported");
            assert_eq!(pool.info().config.hostid, 8, "after {cut} requests");
            pool.export().expect("exported");
        }
    }
}

/// A clock that runs slowly, and that a test sets forward.
#[derive(Debug, Default)]
struct Sleeper {
    clock: SystemClock,
    slept: AtomicU64,
}

impl Clock for Sleeper {
    fn now(&self) -> (u64, u32) {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() / 100 + Duration::from_secs(self.slept.load(Ordering::Relaxed))
    }
}

#[test]
fn a_machine_that_slept_writes_nothing_any_more() {
    let disks = [ScriptedDisk::new(64 << 20)];
    let clock = Arc::new(Sleeper::default());
    let pool = made(&disks, &machine_with(7, clock.clone(), 10));
    pool.set_properties("tank", vec![("user:a".to_owned(), Some(Value::Text("1".to_owned())))])
        .expect("it is awake");
    clock.slept.store(60, Ordering::Relaxed);
    // A heartbeat may be under way; otherwise there would be one each tenth of a second.
    let before = std::cell::Cell::new(0);
    wait_until("heartbeats go on", || {
        before.set(writes(&disks[0]));
        std::thread::sleep(Duration::from_millis(500));
        before.get() == writes(&disks[0])
    });
    let before = before.get();
    let refused = pool.set_properties("tank", vec![("user:a".to_owned(), Some(Value::Text("2".to_owned())))]);
    assert!(refused.is_err());
    wait_until("it does not stop", || pool.trouble().is_some());
    let trouble = pool.trouble().expect("it stopped");
    assert!(!trouble.can_resume && trouble.why.contains("heartbeat"), "{trouble:?}");
    assert!(pool.resume().is_err());
    assert!(pool.export().is_err());
    assert_eq!(before, writes(&disks[0]), "something was written");
    // Another machine took it meanwhile, or takes it now.
    import(&disks, &machine(8)).expect("nobody holds it").export().expect("exported");
}
