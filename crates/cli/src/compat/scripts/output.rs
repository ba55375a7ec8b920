//! Output of a program, which may never end. Reading stops when the command stops.
//!
//! From:   a program to start, and the stop signal of the command.
//! To:     its output, if it succeeded.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::OUTPUT_MAX;
use crate::around::Served;

/// Interval of the checks whether to continue.
const GLANCE: Duration = Duration::from_millis(20);
/// How long child processes of a finished program may keep its output open.
const PATIENCE: Duration = Duration::from_secs(1);

/// A program that runs.
struct Running<'a> {
    child: Child,
    /// In a server it leads a group of its own. Elsewhere it belongs to the terminal's, which Ctrl-C ends.
    served: Option<&'a Served>,
}

impl Running<'_> {
    fn stops(&self) -> bool {
        self.served.is_some_and(Served::stops)
    }

    /// Whether it has ended. It is not reaped, so its number, which is its group's, is not given to others.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // A child that cannot be waited for does not exist.
        rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.child)), options)
            .map_or_else(|error| error != rustix::io::Errno::INTR, |status| status.is_some())
    }

    /// Ends it, with what it started.
    fn end_group(&mut self) {
        if self.served.is_some() {
            // It is gone if it fails.
            let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }

    /// All its output. `None` if the command must stop.
    fn read(&mut self) -> Option<Vec<u8>> {
        let mut stdout = self.child.stdout.take()?;
        let (mut output, mut part, mut ended) = (Vec::new(), [0; 4096], None::<Instant>);
        while output.len() < OUTPUT_MAX && !self.stops() {
            let glance = Timespec::try_from(GLANCE).expect("a short time is one");
            let mut ready = [PollFd::new(&stdout, PollFlags::IN)];
            if poll(&mut ready, Some(&glance)).unwrap_or(0) > 0 {
                match stdout.read(&mut part).ok()? {
                    0 => return Some(output),
                    some => output.extend_from_slice(&part[..some.min(OUTPUT_MAX - output.len())]),
                }
            }
            if self.has_ended() && ended.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                self.end_group();
                return Some(output);
            }
        }
        // Further output finds the pipe closed.
        (!self.stops()).then_some(output)
    }

    /// Whether it succeeded. `None` if the command must stop.
    fn wait(&mut self) -> Option<bool> {
        let mut pause = Duration::from_millis(1);
        while !self.has_ended() {
            if self.stops() {
                return None;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(GLANCE);
        }
        Some(self.child.wait().ok()?.success())
    }
}

/// Output of `command`, if it succeeds before `served` stops.
pub(super) fn of(mut command: Command, served: Option<&Served>) -> Option<String> {
    if served.is_some_and(Served::stops) {
        return None;
    }
    if served.is_some() {
        command.process_group(0);
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut running = Running { child, served };
    let output = running.read();
    let is_good = output.as_ref().and_then(|_| running.wait());
    if is_good.is_none() {
        running.end_group();
        let _ = running.child.kill();
        let _ = running.child.wait();
    }
    is_good?.then(|| String::from_utf8_lossy(&output.unwrap_or_default()).into_owned())
}
