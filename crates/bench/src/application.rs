//! A user's own programs as the measure: steps that run on the mounted dataset, each timed.
//!
//! From:   command lines with `{dir}` for the folder and `{threads}` for how many threads to use.
//! To:     the time of each step, once with one thread and once with all where it names them.
//!
//! Each run begins with everything durable and cold caches; a step that runs again finds what it found the first time.
//!
//! A step runs in a process group of its own, which is ended with it: nothing of it is left behind, even if this process
//! is killed (guard.rs).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use zpl::Filesystem;

use crate::configuration::cores;
use crate::error::system_reason;
use crate::guard::{Guard, Left};
use crate::stopwatch::{CpuClock, Stopwatch, process_cpu_seconds};
use crate::{Configuration, Error, Event, Result, Watch};

/// Interval at which a running step checks for a stop request.
const GLANCE: Duration = Duration::from_millis(100);
/// Time for a step to stop before it is killed.
const GRACE: Duration = Duration::from_secs(2);
/// The number of bytes of a failed step's last output that are looked at.
const LAST_WORDS: u64 = 4 << 10;

/// Shows a dataset as a folder: handed in, since mounting is the business of an upper crate.
pub trait Mounter: Send + Sync + std::fmt::Debug {
    /// Mounts `fs` on the folder `at`, until the returned value is unmounted.
    ///
    /// # Errors
    /// Why it is not mounted.
    fn mount(&self, fs: Filesystem, at: &Path) -> std::result::Result<Box<dyn Mount>, String>;
}

/// A dataset that is mounted. Dropping it takes it down, too.
pub trait Mount {
    /// Takes it down.
    ///
    /// # Errors
    /// Why it is still mounted.
    fn take_down(self: Box<Self>) -> std::result::Result<(), String>;
}

/// The times of one step.
pub(crate) struct StepSample {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) pool_cpu_seconds: f64,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name in tables.
    pub name: String,
    /// For `sh -c`, with `{dir}` and `{threads}`.
    pub command: String,
}

impl Step {
    /// Parses a command (its first words become its name), or `NAME: COMMAND`.
    #[must_use]
    pub fn parse(text: &str) -> Step {
        let is_name =
            |name: &str| !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || " -_.".contains(c));
        match text.split_once(": ") {
            Some((name, command)) if is_name(name) => {
                Step { name: name.to_owned(), command: command.trim().to_owned() }
            }
            _ => {
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                let name = words.iter().map(|word| word.rsplit('/').next().unwrap_or(word));
                Step { name: name.collect::<Vec<_>>().join(" "), command: text.to_owned() }
            }
        }
    }

    /// The numbers of threads of its runs: one and all, if the command has `{threads}`.
    fn thread_counts(&self) -> Vec<u32> {
        match self.command.contains("{threads}") && cores() > 1 {
            true => vec![1, cores()],
            false => vec![1],
        }
    }

    fn line(&self, dir: &Path, threads: u32) -> String {
        let dir = shell_word(&dir.display().to_string());
        self.command.replace("{dir}", &dir).replace("{threads}", &threads.to_string())
    }
}

/// Text as one word of a shell, as it is where nothing in it means anything to one.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+,:=@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Steps to run on each dataset.
#[derive(Clone, Debug)]
pub struct Application {
    /// In order.
    pub steps: Vec<Step>,
    /// Shows datasets as folders.
    pub mounter: Arc<dyn Mounter>,
}

/// One run of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<'a> {
    step: &'a Step,
    threads: u32,
    /// Of so many runs of the step, this one.
    count: usize,
    index: usize,
}

impl Turn<'_> {
    /// The step runs once.
    pub(crate) fn is_only(&self) -> bool {
        self.count == 1
    }

    pub(crate) fn is_first(&self) -> bool {
        self.index == 0
    }

    pub(crate) fn is_last(&self) -> bool {
        self.index + 1 == self.count
    }
}

impl Application {
    /// Some step runs more than once.
    pub(crate) fn has_repetitions(&self) -> bool {
        self.steps.iter().any(|step| step.thread_counts().len() > 1)
    }

    /// Does `run` for each run of each step, in order.
    ///
    /// # Errors
    /// Those of `run`.
    pub(crate) fn each_turn(
        &self,
        mut run: impl FnMut(&Turn<'_>) -> Result<StepSample>,
    ) -> Result<Vec<StepSample>> {
        let mut samples = Vec::new();
        for step in &self.steps {
            let counts = step.thread_counts();
            for (index, &threads) in counts.iter().enumerate() {
                samples.push(run(&Turn { step, threads, count: counts.len(), index })?);
            }
        }
        Ok(samples)
    }

    /// Runs a step on `fs`, mounted for as long.
    ///
    /// # Errors
    /// [`Error::Mount`], [`Error::Step`], [`Error::Interrupted`]; it is no longer mounted then.
    pub(crate) fn run_mounted(
        &self,
        fs: Filesystem,
        turn: &Turn<'_>,
        configuration: &Configuration,
        watch: &dyn Watch,
    ) -> Result<StepSample> {
        let failed = |error: std::io::Error| Error::Mount(system_reason(error).to_string());
        let dir = tempfile::Builder::new().prefix("cenote-bench-").tempdir().map_err(failed)?;
        let mut guard = Guard::over(dir.path(), Left::Mount).map_err(failed)?;
        let mount = self.mounter.mount(fs, dir.path()).map_err(Error::Mount)?;
        let done = run_in(
            Guarded { dir: dir.path(), clock: process_cpu_seconds, guard: &mut guard },
            turn,
            configuration,
            watch,
        );
        let down = mount.take_down().map_err(Error::Mount);
        let done = done?;
        down?;
        dir.close().map_err(failed)?;
        Ok(done)
    }
}

/// A folder that is guarded while programs run in it.
pub(crate) struct Guarded<'a> {
    pub(crate) dir: &'a Path,
    /// The clock of the file system, which may also count its own programs.
    pub(crate) clock: CpuClock,
    pub(crate) guard: &'a mut Guard,
}

/// Runs a step to its end in a folder.
///
/// # Errors
/// [`Error::Step`], [`Error::Interrupted`].
pub(crate) fn run_in(
    folder: Guarded<'_>,
    turn: &Turn<'_>,
    configuration: &Configuration,
    watch: &dyn Watch,
) -> Result<StepSample> {
    let Guarded { dir, clock, guard } = folder;
    let Turn { step, threads, .. } = *turn;
    watch.event(Event::Step(&step.name));
    let failed = |reason: String| Error::Step {
        step: step.name.clone(),
        configuration: configuration.to_string(),
        reason,
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(step.line(dir, threads)).current_dir(dir);
    let before = children_cpu_seconds();
    let stopwatch = Stopwatch::start(clock);
    let done = run_program(&mut command, guard, watch);
    let elapsed = stopwatch.elapsed();
    done.map_err(|error| if watch.stopped() { Error::Interrupted } else { failed(error.to_string()) })?;
    Ok(StepSample {
        name: step.name.clone(),
        threads,
        seconds: elapsed.seconds,
        cpu_seconds: (children_cpu_seconds() - before).max(0.0),
        pool_cpu_seconds: elapsed.cpu_seconds,
    })
}

/// Runs a program, with all programs that it starts, in a process group of its own, and waits for its end.
///
/// # Errors
/// It cannot be run, or was stopped, or failed: then with what it said last.
pub(crate) fn run_program(
    command: &mut Command,
    guard: &mut Guard,
    watch: &dyn Watch,
) -> std::io::Result<()> {
    let mut said = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said.try_clone()?).process_group(0);
    let child = command.spawn()?;
    let told = guard.group(Some(child.id()));
    let status = end_of(child, watch)?;
    told.and_then(|()| guard.group(None))?;
    match status {
        None => Err(std::io::ErrorKind::Interrupted.into()),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(std::io::Error::other(last_words(&mut said).unwrap_or_else(|| how(status)))),
    }
}

/// Waits for a program and ends all its children; `None` if it was stopped.
fn end_of(mut child: Child, watch: &dyn Watch) -> std::io::Result<Option<ExitStatus>> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = |signal| {
        if let Some(group) = group {
            // It may be gone already.
            let _ = kill_process_group(group, signal);
        }
    };
    let (ended, wait) = channel();
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        // If this fails, the receiver is gone.
        let _ = ended.send(());
        status
    });
    let mut stopped = false;
    loop {
        match wait.recv_timeout(if stopped { GRACE } else { GLANCE }) {
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if stopped => {
                signal(Signal::KILL);
            }
            Err(RecvTimeoutError::Timeout) if watch.stopped() => {
                stopped = true;
                signal(Signal::TERM);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    // Processes that it left in the background would keep the dataset busy.
    signal(Signal::KILL);
    let status = waiter.join().unwrap_or_else(|_| Err(std::io::Error::other("its end was not seen")))?;
    Ok((!stopped && !watch.stopped()).then_some(status))
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The last line that is not empty.
fn last_words(said: &mut File) -> Option<String> {
    let len = said.metadata().ok()?.len();
    said.seek(SeekFrom::Start(len.saturating_sub(LAST_WORDS))).ok()?;
    let mut bytes = Vec::new();
    said.take(LAST_WORDS).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(300).collect())
}

/// CPU time of all programs that this process started and that ended.
fn children_cpu_seconds() -> f64 {
    let stat = procfs::process::Process::myself().and_then(|me| me.stat());
    let ticks = stat.map_or(0, |stat| stat.cutime.max(0) + stat.cstime.max(0));
    ticks as f64 / procfs::ticks_per_second().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Debug)]
    struct Nowhere;

    impl Mounter for Nowhere {
        fn mount(&self, _: Filesystem, _: &Path) -> std::result::Result<Box<dyn Mount>, String> {
            Err("there is nothing to mount with".to_owned())
        }
    }

    #[derive(Default)]
    struct Patient {
        glances: AtomicU32,
        stop_after: Option<u32>,
    }

    impl Watch for Patient {
        fn event(&self, _: Event<'_>) {}
        fn stopped(&self) -> bool {
            let glances = self.glances.fetch_add(1, Ordering::Relaxed);
            self.stop_after.is_some_and(|after| glances >= after)
        }
    }

    fn steps(commands: &[&str], watch: &Patient) -> (tempfile::TempDir, Result<Vec<StepSample>>) {
        let dir = tempfile::tempdir().unwrap();
        let steps = commands.iter().map(|text| Step::parse(text)).collect();
        let application = Application { steps, mounter: Arc::new(Nowhere) };
        let configuration = crate::Plan::usual().configurations().unwrap().remove(0);
        let mut guard = Guard::over(&dir.path().join("guarded"), Left::Files).unwrap();
        let done = application.each_turn(|turn| {
            run_in(
                Guarded { dir: dir.path(), clock: process_cpu_seconds, guard: &mut guard },
                turn,
                &configuration,
                watch,
            )
        });
        (dir, done)
    }

    #[test]
    fn steps_run_in_order_and_those_with_threads_twice() {
        let commands = ["copy: echo 1 > {dir}/a", "cat {dir}/a >> {dir}/b; echo {threads} >> {dir}/b"];
        let (dir, done) = steps(&commands, &Patient::default());
        let done = done.unwrap();
        let names: Vec<_> = done.iter().map(|step| (step.name.as_str(), step.threads)).collect();
        assert_eq!(names[0], ("copy", 1));
        assert!(names[1].0.starts_with("cat ") && done.len() == if cores() > 1 { 3 } else { 2 });
        assert!(std::fs::read_to_string(dir.path().join("b")).unwrap().starts_with("1\n1\n"));
    }

    #[test]
    fn a_step_that_fails_says_why_in_one_line() {
        let said = |command| steps(&[command], &Patient::default()).1.err().unwrap().to_string();
        assert!(said("bad: echo x; echo no such reference >&2; exit 3").ends_with(": no such reference"));
        assert!(said("bad: exit 3").ends_with("it ended with status 3"));
        assert!(said("no-such-program-here").contains("not found"));
    }

    #[test]
    fn a_stopped_step_and_all_it_started_are_gone() {
        // It is stopped after a number of looks: on a busy machine the shell may not have begun by then.
        let stopped_after = |looks| {
            let watch = Patient { stop_after: Some(looks), ..Patient::default() };
            let (dir, done) = steps(&["sleep 300 & echo $! > {dir}/pid; sleep 300"], &watch);
            assert!(matches!(done, Err(Error::Interrupted)));
            std::fs::read_to_string(dir.path().join("pid")).ok().filter(|pid| pid.ends_with('\n'))
        };
        let pid = [2, 20, 200, 2000].into_iter().find_map(stopped_after).expect("it began");
        // Gone, or only waiting for its new parent to take notice. A busy machine may take a while to end it.
        let is_gone = || {
            let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            state.is_err() || state.unwrap().contains(") Z ")
        };
        let until = std::time::Instant::now() + Duration::from_secs(120);
        while !is_gone() {
            assert!(std::time::Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_name_stands_before_a_colon_or_is_made_of_the_command() {
        assert_eq!(Step::parse("bwa index: bwa index {dir}/r").name, "bwa index");
        assert_eq!(Step::parse("/usr/bin/samtools sort -@ {threads} x").name, "samtools sort");
        assert_eq!(["/tmp/a b", "", "a=b"].map(shell_word), ["'/tmp/a b'", "''", "a=b"]);
    }
}
