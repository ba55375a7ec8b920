//! A command that waits for a suspended pool: the user hears of it, and Ctrl-C ends the wait.
//!
//! From:   commands that change files, in the server of the pool.
//! To:     one line on the client's standard error, and an interrupt of the waits of the command's threads.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use zpl::interrupt::{self, Interrupt, Wish};

use crate::around::{Served, Surroundings};
use crate::out::harmless_line;

/// How often is looked whether the pool is suspended, or the command is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Does `work`. While the pool of this server is suspended, tells the client once, and ends the waits of `work` when the client
/// asks it to stop. Threads of `work` need [`interrupt::current`] for that.
pub(super) fn telling<T>(around: &Surroundings, work: impl FnOnce() -> T) -> T {
    let Some(served) = &around.served else { return work() };
    let request = Arc::new(Interrupt::default());
    let (going_on, over) = channel::<()>();
    std::thread::scope(|scope| {
        // It is dropped when the work is done or panics, and then the thread ends.
        let _going_on = going_on;
        let watched = request.clone();
        scope.spawn(move || {
            let mut told = false;
            while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                if served.live.is_suspended() {
                    if !told {
                        tell(served);
                    }
                    told = true;
                    if served.stops() {
                        watched.set(Wish::Dying);
                    }
                }
            }
        });
        interrupt::serving(&request, work)
    })
}

fn tell(served: &Served) {
    let pool = served.live.name();
    let line = format!(
        "cenote: pool '{pool}' is suspended, and this command waits for it: 'zpool status {pool}' says why; Ctrl-C ends the command"
    );
    // Nobody can be told that standard error is closed.
    let _ = writeln!(&*served.err, "{}", harmless_line(&line));
}
