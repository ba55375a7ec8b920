//! The socket for other users of the machine, who may read the state of the pool.
//!
//! From:   a connection of any user, with one question (`crate::visitors`).
//! To:     a reader: this program once more, as a process that reads a leased state of the pool and prints the answer. It has
//!         limits of time, memory and output, so that no question stops or fills the server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use zpl::rank::RankedMutex;

use super::{Server, sockets};
use crate::visitors::{self, Answer, OUTPUT_MAX, PROTOCOL, Question, READER, Timed};

/// Most questions that are answered at a time.
const ANSWERED_MAX: usize = 8;
/// Most of them that one user may ask.
const OF_ONE_USER_MAX: usize = 4;
/// Time limit for receiving the question.
const ASKING: Duration = Duration::from_secs(5);
/// How long a reader may take.
const READING: Duration = Duration::from_secs(20);
/// Time limit for sending the answer.
const ANSWERING: Duration = Duration::from_secs(10);
/// Time limit for sending the refusal of too many visitors. The line fits into the buffer of a new socket.
const TURNING_AWAY: Duration = Duration::from_millis(10);

/// How many questions of each user are being answered.
#[derive(Clone, Default)]
struct Asking(Arc<RankedMutex<BTreeMap<u32, usize>>>);

/// Permission to ask one question; given back when it is dropped.
struct Permit {
    asking: Asking,
    user: u32,
}

impl Asking {
    /// `None` when this user, or all together, ask too much.
    fn permit(&self, user: u32) -> Option<Permit> {
        let mut by_user = self.0.lock();
        let own = by_user.get(&user).copied().unwrap_or(0);
        if own >= OF_ONE_USER_MAX || by_user.values().sum::<usize>() >= ANSWERED_MAX {
            return None;
        }
        by_user.insert(user, own + 1);
        Some(Permit { asking: self.clone(), user })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut by_user = self.asking.0.lock();
        match by_user.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(by_user.remove(&self.user)),
        }
    }
}

/// The file of the socket for visitors. It is removed when this is dropped.
pub(super) struct Reachable(PathBuf);

impl Drop for Reachable {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The output of a reader, and how it ended.
struct Read {
    out: File,
    err: File,
    status: ExitStatus,
}

impl Server {
    /// Starts the socket for other users, until the server ends. A failure is logged.
    pub(super) fn listen_to_visitors(self: &Arc<Self>, folder: Option<PathBuf>) -> Option<Reachable> {
        let folder = folder?;
        let begun = self.begin_visits(&folder);
        begun.map_err(|error| tracing::warn!(%error, folder = %folder.display(), "other users cannot look at the pool")).ok()
    }

    fn begin_visits(self: &Arc<Self>, folder: &Path) -> io::Result<Reachable> {
        visitors::make_folder(folder)?;
        let path = visitors::socket(folder, self.live.name())?;
        let listener = sockets::listen(&path, sockets::VISITORS_MODE)?;
        let reachable = Reachable(path);
        let server = self.clone();
        let accepting = move || server.accept_visitors(&listener);
        std::thread::Builder::new().name("cenote-visitors".into()).spawn(accepting)?;
        Ok(reachable)
    }

    /// Takes connections until the server is to end.
    fn accept_visitors(self: &Arc<Self>, listener: &UnixListener) {
        let asking = Asking::default();
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return tracing::error!(%error, "cannot wait for visitors"),
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            let taken = listener.accept().and_then(|(stream, _)| self.clone().take_visitor(stream, &asking));
            if let Err(error) = taken {
                tracing::debug!(%error, "a visitor was not taken");
                // For example out of descriptors or threads, so it pauses before the next try.
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    fn take_visitor(self: Arc<Self>, stream: UnixStream, asking: &Asking) -> io::Result<()> {
        let user = rustix::net::sockopt::socket_peercred(&stream)?.uid.as_raw();
        let Some(permit) = asking.permit(user) else {
            // A visitor that has closed the connection needs no answer.
            let _ = Timed::new(&stream, TURNING_AWAY).send(&Answer::Busy);
            return Ok(());
        };
        let thread = std::thread::Builder::new().name("cenote-visitor".into());
        let answering = move || {
            let answered = self.answer_visitor(&stream);
            if let Err(error) = answered {
                tracing::debug!(%error, user, "a visitor has no answer");
            }
            drop(permit);
        };
        thread.spawn(answering).map(drop)
    }

    fn answer_visitor(&self, stream: &UnixStream) -> io::Result<()> {
        let question = Timed::new(stream, ASKING).receive_question()?;
        let refused = |line: String| Timed::new(stream, ANSWERING).send(&Answer::Refused(line));
        if question.protocol != PROTOCOL {
            let build = env!("CARGO_PKG_VERSION");
            return refused(format!(
                "the server of the pool is cenote {build}, which speaks another protocol"
            ));
        }
        if let Err(line) = self.commands.judge(&question) {
            return refused(line);
        }
        match self.read_for(stream, &question)? {
            Ok(read) => read.send(stream),
            Err(line) => refused(line),
        }
    }

    /// Runs the command line in a reader process. Returns a refusal if the reader exceeded a limit.
    fn read_for(&self, stream: &UnixStream, question: &Question) -> io::Result<Result<Read, String>> {
        let (out, err) = (memory("cenote-visit-out")?, memory("cenote-visit-err")?);
        let mut command = Command::new("/proc/self/exe");
        command.arg0(READER).arg(if question.posix { "posix" } else { "gnu" }).arg(&question.program);
        command.args(&question.words).current_dir("/").stdin(Stdio::null());
        // The allocator reserves this many KiB at a time. Its default of 1 GiB exceeds a reader's limit.
        command.env("MIMALLOC_ARENA_RESERVE", "16384");
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        let mut child = command.spawn()?;
        let ended = self.wait_for_reader(&mut child, stream);
        if !matches!(ended, Ok(true)) {
            let _ = child.kill();
        }
        let status = child.wait()?;
        if !ended? {
            return Ok(Err(format!("the answer takes longer than {} seconds", READING.as_secs())));
        }
        let lengths = [out.metadata()?.len(), err.metadata()?.len()];
        Ok(if lengths.iter().any(|length| *length >= OUTPUT_MAX) {
            Err(format!("the answer is longer than {} MiB: ask for less of it", OUTPUT_MAX >> 20))
        } else if status.code().is_none() {
            Err("the answer takes more memory or time than other users are given".to_owned())
        } else {
            Ok(Read { out, err, status })
        })
    }

    /// Waits until the reader ended; `false` when its time is over.
    fn wait_for_reader(&self, child: &mut Child, stream: &UnixStream) -> io::Result<bool> {
        let reader: OwnedFd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let until = Instant::now() + READING;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout =
                Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
            let mut fds = [
                PollFd::new(&reader, PollFlags::IN),
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::RDHUP),
            ];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !fds[0].revents().is_empty() {
                return Ok(true);
            }
            // The server ends, or the visitor is gone.
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
    }
}

impl Read {
    fn send(mut self, stream: &UnixStream) -> io::Result<()> {
        let (out, err) = (self.out.metadata()?.len(), self.err.metadata()?.len());
        let status = self.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        let mut stream = Timed::new(stream, ANSWERING);
        stream.send(&Answer::Done { status, out, err })?;
        for (file, length) in [(&mut self.out, out), (&mut self.err, err)] {
            file.rewind()?;
            io::copy(&mut io::Read::take(file, length), &mut stream)?;
        }
        Ok(())
    }
}

/// A file in memory, which the reader's limit of file sizes bounds.
fn memory(name: &str) -> io::Result<File> {
    Ok(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_leaves_room_for_others_and_all_together_are_bounded() {
        let asking = Asking::default();
        let mut permits: Vec<Permit> = std::iter::from_fn(|| asking.permit(1)).collect();
        assert_eq!(permits.len(), OF_ONE_USER_MAX);
        for user in 2..100 {
            permits.extend(std::iter::from_fn(|| asking.permit(user)));
        }
        assert_eq!(permits.len(), ANSWERED_MAX);
        permits.remove(0);
        assert!(asking.permit(50).is_some(), "a permit that is given back can be used again");
        drop(permits);
        assert!(asking.0.lock().is_empty());
    }
}
