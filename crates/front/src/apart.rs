//! Questions to the kernel about paths that may lie in a mount that this process itself serves.
//!
//! The kernel hands such a question to a thread of this process. If the process is killed in between, nobody answers it any
//! more. The kernel gives up a mount when the last descriptor of its connection is closed. But a thread that waits for an
//! answer cannot end, and it keeps the descriptors that it shares with the other threads open. So the mount, the thread and
//! the locks of the pool would stay for ever. Therefore these questions are asked by threads that have a table of
//! descriptors of their own, with nothing in it: when the other threads have ended, the connection is closed, the question
//! fails, and the process is gone.
//!
//! From:   a question, as a closure.
//! To:     its answer; descriptors come through a socket.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use zpl::rank::{Rank, RankedMutex};

/// Most threads that are kept for later questions.
const IDLE_MAX: usize = 4;
/// Number of standard descriptors: input, output and error.
const STANDARD: usize = 3;

type Question = Box<dyn FnOnce(&UnixStream) + Send>;

/// A thread with a table of its own.
struct Asker {
    questions: Sender<Question>,
    /// The descriptors that answers consist of come from here.
    descriptors: UnixStream,
}

/// Those that have nothing to do.
static IDLE: RankedMutex<Vec<Asker>> = RankedMutex::new(Rank::Askers, Vec::new());

/// Asks `question` in a thread with a table of descriptors of its own. Descriptors mean nothing there that come from here, also
/// those of a log, and the other way round. Paths of `/proc/self/fd` lead to the descriptors of this side, and those of
/// `/proc/thread-self/fd` to the thread's own.
///
/// Where such a thread cannot be made (a container may forbid it), the question is asked here.
///
/// # Errors
/// Those of the question.
pub fn ask<T: Send + 'static>(question: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let Some(asker) = take() else { return question() };
    asked(asker, |_| question(), |_, answer| Ok(answer))
}

/// As [`ask`], for an answer that consists of a descriptor and another value.
///
/// # Errors
/// Those of the question, and of handing over the descriptor.
pub fn open<T: Send + 'static>(
    question: impl FnOnce() -> io::Result<(OwnedFd, T)> + Send + 'static,
) -> io::Result<(OwnedFd, T)> {
    let Some(asker) = take() else { return question() };
    let answer = |descriptors: &UnixStream| {
        question().and_then(|(found, more)| send(descriptors, &found).map(|()| more))
    };
    asked(asker, answer, |asker, more| Ok((receive(&asker.descriptors)?, more)))
}

/// Lets `asker` carry out `question`. After a good answer, `take` receives its descriptors; then the thread is kept for later questions.
fn asked<A: Send + 'static, T>(
    asker: Asker,
    question: impl FnOnce(&UnixStream) -> io::Result<A> + Send + 'static,
    take: impl FnOnce(&Asker, A) -> io::Result<T>,
) -> io::Result<T> {
    let (answer, answered) = channel();
    asker.put(Box::new(move |descriptors| {
        // The caller waits for the answer.
        let _ = answer.send(question(descriptors));
    }))?;
    let answer = match answered.recv().map_err(|_| ended())? {
        Ok(answer) => Ok(take(&asker, answer)?),
        Err(error) => Err(error),
    };
    give_back(asker);
    answer
}

/// Opens what is at `path`.
///
/// # Errors
/// Those of `open(2)`.
pub fn open_path(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let path = path.to_owned();
    Ok(open(move || Ok((rustix::fs::open(&path, flags, Mode::empty())?, ())))?.0)
}

/// The descriptor that comes next through a socket.
///
/// # Errors
/// There is none.
pub fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::other("no descriptor was sent"))
}

fn send(socket: &UnixStream, descriptor: &OwnedFd) -> io::Result<()> {
    let all = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&all)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

impl Asker {
    /// Starts one; `None` where this system lets no thread have a table of its own.
    fn start() -> Option<Asker> {
        let (ours, theirs) = UnixStream::pair().ok()?;
        let (questions, todo) = channel();
        let (ready, is_ready) = channel();
        // The thread takes a copy into its table. The original is closed below.
        let theirs = Arc::new(theirs);
        let taken = theirs.clone();
        let thread = std::thread::Builder::new().name("cenote-ask".into());
        thread.spawn(move || answer_all(taken, &ready, &todo)).ok()?;
        is_ready.recv().ok()?;
        drop(theirs);
        Some(Asker { questions, descriptors: ours })
    }

    fn put(&self, question: Question) -> io::Result<()> {
        self.questions.send(question).map_err(|_| ended())
    }
}

/// The work of the thread. It ends without being ready where it gets no table of its own.
fn answer_all(taken: Arc<UnixStream>, ready: &Sender<()>, todo: &Receiver<Question>) {
    let Ok(descriptors) = own_table(&taken) else { return };
    drop(taken);
    if ready.send(()).is_err() {
        return;
    }
    for question in todo {
        question(&descriptors);
    }
}

/// Gives this thread a descriptor table of its own. It has a copy of `kept`, and `/dev/null` as standard input, output
/// and error, because those of the process may be a pipe whose reader waits until it is closed.
fn own_table(kept: &UnixStream) -> io::Result<UnixStream> {
    unshare(CloneFlags::CLONE_FILES)?;
    let kept = kept.try_clone()?;
    let numbers: Vec<RawFd> = std::fs::read_dir("/proc/thread-self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number != kept.as_raw_fd()) {
        // The descriptor of the folder itself, which is in the list, is closed already.
        let _ = nix::unistd::close(number);
    }
    for _ in 0..STANDARD {
        // It takes the lowest number that is free, and stays open as long as the thread.
        let _ = File::options().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(kept)
}

fn take() -> Option<Asker> {
    let kept = IDLE.lock().pop();
    kept.or_else(Asker::start)
}

/// Keeps a thread for later questions. One too many ends, because no question can come to it any more.
fn give_back(asker: Asker) {
    let mut idle = IDLE.lock();
    if idle.len() < IDLE_MAX {
        idle.push(asker);
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that asks about paths ended")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::time::Duration;

    fn sleep(time: Duration) -> io::Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    #[test]
    fn a_question_sees_no_descriptor_of_the_process() {
        let file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        let there = |folder: &str| fs::symlink_metadata(format!("{folder}/{number}")).is_ok();
        assert!(there("/proc/thread-self/fd"));
        let names = ask(|| {
            let names = fs::read_dir("/proc/thread-self/fd")?;
            names
                .map(|entry| Ok(fs::read_link(entry?.path()).unwrap_or_default()))
                .collect::<io::Result<Vec<_>>>()
        });
        let names: Vec<_> = names.unwrap().into_iter().map(|name| name.display().to_string()).collect();
        assert!(!names.iter().any(|name| name.contains("deleted")), "{names:?}");
        // A reader may wait until the standard output of the process is closed.
        assert_eq!(names.iter().filter(|name| *name == "/dev/null").count(), STANDARD, "{names:?}");
        // The standard descriptors, the socket, and the folder that was read.
        assert!(names.len() <= 5, "{names:?}");
        assert!(there("/proc/thread-self/fd"), "it is still open here");
    }

    #[test]
    fn an_answer_may_be_a_descriptor() {
        let bed = tempfile::tempdir().unwrap();
        let path = bed.path().join("file");
        fs::write(&path, "before").unwrap();
        let mut file = File::from(open_path(&path, OFlags::RDWR | OFlags::CLOEXEC).unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before");
        file.write_all(b", after").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "before, after");
        let missing = open_path(&bed.path().join("missing"), OFlags::RDONLY).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_path_that_leads_through_a_descriptor_of_the_process_is_understood() {
        let bed = tempfile::tempdir().unwrap();
        fs::write(bed.path().join("file"), "x").unwrap();
        let folder = File::open(bed.path()).unwrap();
        let path = crate::link_to(folder.as_fd()).join("file");
        assert_eq!(ask(move || Ok(fs::metadata(path)?.len())).unwrap(), 1);
    }

    #[test]
    fn many_questions_leave_no_descriptors_behind() {
        let open_now = || fs::read_dir("/proc/self/fd").unwrap().count();
        let burst = || {
            std::thread::scope(|scope| {
                for _ in 0..20 {
                    scope.spawn(|| ask(|| sleep(Duration::from_millis(20))).unwrap());
                }
            });
        };
        burst();
        let before = open_now();
        (0..5).for_each(|_| burst());
        // Other tests of this program run beside this one.
        assert!(open_now() < before + 20, "{before} became {}", open_now());
    }

    #[test]
    fn a_question_that_panics_is_an_error_and_the_next_one_is_answered() {
        let failed = ask(|| -> io::Result<()> { panic!("as this test wants it") });
        assert_eq!(failed.unwrap_err().to_string(), "the thread that asks about paths ended");
        assert_eq!(ask(|| Ok(7)).unwrap(), 7);
    }
}
