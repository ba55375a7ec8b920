//! Waiting for what other threads and processes do.

use std::time::{Duration, Instant};

/// How long a test waits for what has to come. This bounds a hang only: a machine may be slow, and busy with other work.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until something is so, and fails the test when it never is.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
