//! Replays one transcript in a scratch folder.

use super::guard;
use super::parse::{Case, Step, Transcript};
use super::pattern::compare;
use super::{data, skip};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest any command may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most output that is kept of one stream, in bytes.
const OUTPUT_MAX: u64 = 16 << 20;
/// Sample data is made this many times smaller than it was recorded with.
const SCALE: u64 = 8;

/// What became of a case.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Pass,
    Fail(String),
    Skip(String),
    /// It failed after something was left out on which it may depend: what, and how it failed.
    After(String, String),
}

/// One line of the report.
#[derive(Debug)]
pub struct Report {
    pub line: usize,
    pub command: String,
    pub outcome: Outcome,
}

/// Stands in for `cp` while nothing is mounted: a destination below a dataset's mountpoint is written with
/// `cenote cp`. Anything else that lies outside the scratch folder is refused.
const COPY: &str = r#"#!/bin/bash
to="${@: -1}"
case "$to" in
"$SCRATCH"/* | [!/]*) exec /bin/cp "$@" ;;
esac
best=
while IFS=$'\t' read -r name mountpoint; do
    case "$to/" in "$mountpoint"/*) [ ${#mountpoint} -gt ${#best} ] && best=$mountpoint dataset=$name ;; esac
done < <(zfs list -H -o name,mountpoint)
[ -n "$best" ] || { echo "cp: $to lies in no dataset" >&2; exit 1; }
rest="${to#"$best"}"
exec cenote cp -q -r "${@:1:$#-1}" "$dataset:/${rest#/}"
"#;

/// A scratch folder with `zfs` and `zpool` in front of the path.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
}

/// What a command did.
#[derive(Debug)]
pub struct Done {
    pub out: String,
    pub err: String,
    pub status: i32,
}

impl Scratch {
    /// Makes the folder; `programs` are put on the path under these names.
    pub fn new(programs: &[(&str, &Path)]) -> std::io::Result<Scratch> {
        // A short path keeps columns narrow.
        let folder = tempfile::Builder::new().prefix("t").tempdir()?;
        for name in ["bin", "v", "run", "cwd", "state", "runtime"] {
            std::fs::create_dir(folder.path().join(name))?;
        }
        for (name, program) in programs {
            std::os::unix::fs::symlink(program, folder.path().join("bin").join(name))?;
        }
        let copy = folder.path().join("bin/cp");
        std::fs::write(&copy, COPY)?;
        std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(Scratch { folder })
    }

    /// A path of a transcript as a path here.
    pub fn map(&self, path: &str) -> String {
        format!("{}{path}", self.folder.path().display())
    }

    /// Puts the scratch folder before `/v` and `/run` wherever they begin a path.
    fn map_command(&self, command: &str) -> String {
        let mut mapped = String::new();
        let mut before = ' ';
        for (i, c) in command.char_indices() {
            let rest = &command[i..];
            let root = ["/v", "/run"].iter().any(|root| {
                rest.strip_prefix(root)
                    .is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric()))
            });
            if root && !(before.is_ascii_alphanumeric() || "/.}_-".contains(before)) {
                mapped += &self.folder.path().display().to_string();
            }
            mapped.push(c);
            before = c;
        }
        mapped
    }

    /// Runs a shell command here.
    ///
    /// # Errors
    /// When it cannot be started or does not end.
    pub fn run(&self, command: &str) -> Result<Done, String> {
        let folder = self.folder.path();
        let child = Command::new("bash")
            .args(["-c", &self.map_command(command)])
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", folder.join("bin").display()))
            .env("SCRATCH", folder)
            .env("HOME", folder.join("cwd"))
            .env("CENOTE_STATE_DIR", folder.join("state"))
            .env("XDG_RUNTIME_DIR", folder.join("runtime"))
            .env("CENOTE_SERVER", "off")
            .env("TMPDIR", folder.join("cwd"))
            .envs([("LC_ALL", "C"), ("TZ", "UTC")])
            .current_dir(folder.join("cwd"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|e| format!("cannot start bash: {e}"))?;
        let (out, err, status) = wait(child)?;
        let back = |text: String| text.replace(&folder.display().to_string(), "");
        Ok(Done { out: back(out), err: back(err), status })
    }
}

/// Waits for a command and all it prints, but not forever.
fn wait(mut child: Child) -> Result<(String, String, i32), String> {
    fn reader(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(stream) = stream {
                // A stream that breaks is shown as far as it was read.
                let _ = stream.take(OUTPUT_MAX).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                // The command leads a process group of its own: end all of it, by its number.
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
                let _ = child.wait();
                return Err(format!("did not end within {} s", PATIENCE.as_secs()));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = |handle: thread::JoinHandle<String>| handle.join().map_err(|_| "reader failed".to_owned());
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Ok((text(out)?, text(err)?, code))
}

/// Replays a transcript: every case with its outcome, and set-up that could not be done as failures. `name` is
/// that of the transcript in the skip list.
pub fn replay(scratch: &Scratch, name: &str, transcript: &Transcript, skips: &[skip::Entry]) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut missing = None;
    for step in &transcript.steps {
        let (line, command, outcome) = match step {
            Step::Setup { line, command, status } => {
                let (parts, left_out) = guard::allowed_parts(command);
                // What stays undone is remembered: a case that fails after it fails for that reason.
                missing = missing.or(left_out);
                let mut failed = None;
                for part in &parts {
                    match scratch.run(part) {
                        Ok(done) => {
                            missing = missing.or_else(|| unsupported(&done.err));
                            if !same_status(done.status, *status) {
                                let err = done.err.trim_end();
                                failed = failed.or(Some(format!("set-up ended with {}: {err}", done.status)));
                            }
                        }
                        Err(problem) => failed = failed.or(Some(problem)),
                    }
                }
                match failed {
                    None => continue,
                    Some(problem) => (*line, command.clone(), Outcome::Fail(problem)),
                }
            }
            Step::Data { line, path, kind, size } => {
                match data::make(Path::new(&scratch.map(path)), kind, size / SCALE) {
                    Ok(()) => continue,
                    Err(problem) => (*line, format!("@data {path} {kind}"), Outcome::Fail(problem)),
                }
            }
            Step::Sync => match settle(scratch) {
                Ok(()) => continue,
                Err(problem) => (0, "@sync".to_owned(), Outcome::Fail(problem)),
            },
            Step::Check { line, first, rest } => {
                (*line, "@check".to_owned(), outcome(ratios(scratch, first, rest)))
            }
            Step::Case(case) => {
                let outcome = match skip::reason(skips, name, &case.command) {
                    Some(reason) => Outcome::Skip(reason.to_owned()),
                    None => play(scratch, case),
                };
                let outcome = match (outcome, &missing) {
                    // Something before it could not be done.
                    (Outcome::Fail(problem), Some(reason)) => Outcome::After(reason.clone(), problem),
                    (outcome, _) => outcome,
                };
                // A skipped command changes what later ones see, like set-up that is left out.
                if let Outcome::Skip(reason) = &outcome {
                    missing.get_or_insert_with(|| reason.clone());
                }
                (case.line, case.command.clone(), outcome)
            }
        };
        let listed = match step {
            Step::Case(_) => None,
            _ => skip::reason(skips, name, &command),
        };
        let outcome = match (outcome, listed, &missing) {
            (Outcome::Fail(_), Some(reason), _) => Outcome::Skip(reason.to_owned()),
            (Outcome::Fail(problem), None, Some(reason)) => Outcome::After(reason.clone(), problem),
            (outcome, ..) => outcome,
        };
        reports.push(Report { line, command, outcome });
    }
    reports
}

fn outcome(result: Result<(), String>) -> Outcome {
    result.map_or_else(Outcome::Fail, |()| Outcome::Pass)
}

fn play(scratch: &Scratch, case: &Case) -> Outcome {
    if let Some(reason) = guard::refusal(&case.command) {
        return Outcome::Skip(reason);
    }
    let mapped = scratch.map_command(&case.command) != case.command;
    match scratch.run(&case.command) {
        Err(problem) => Outcome::Fail(problem),
        Ok(done) => match (judge(case, &done, mapped), unsupported(&done.err)) {
            (Ok(()), _) => Outcome::Pass,
            (Err(_), Some(reason)) => Outcome::Skip(reason),
            (Err(difference), None) => Outcome::Fail(difference),
        },
    }
}

/// What a command says it cannot do yet, if it says so.
fn unsupported(err: &str) -> Option<String> {
    let line = err.lines().find(|line| line.contains("not supported yet"))?;
    Some(line.trim_start_matches("cenote: ").to_owned())
}

/// What zdb says of the pools that a transcript leaves; nothing where zdb is not installed.
///
/// # Errors
/// What zdb finds, or a pool that cannot be exported.
pub fn judge_pools(scratch: &Scratch) -> Result<(), String> {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zdb-check");
    let pools = scratch.run("zpool list -H -o name")?.out;
    for pool in pools.lines().filter(|line| !line.contains("no pools available")) {
        let exported = scratch.run(&format!("zpool export {pool}"))?;
        if exported.status != 0 {
            return Err(exported.err);
        }
        let said = Command::new(&oracle).arg("--dir").arg(scratch.map("/v")).arg(pool).output();
        let said = said.map_err(|error| error.to_string())?;
        // 2: zdb is not installed here.
        if !said.status.success() && said.status.code() != Some(2) {
            let text = [said.stdout, said.stderr].concat();
            return Err(format!("zdb on pool {pool}: {}", String::from_utf8_lossy(&text)));
        }
    }
    Ok(())
}

/// Compares what a command did with what was recorded; `loose` when it saw paths of the scratch folder.
fn judge(case: &Case, done: &Done, loose: bool) -> Result<(), String> {
    // The real system prints these in the order of a hash.
    let any_order = ["zfs holds", "zfs diff", "zfs destroy", "zfs rollback", "zfs program"]
        .iter()
        .any(|command| case.command.contains(command));
    // Any other command may show such paths as well.
    let loose = loose || done.out.contains("/v/");
    compare(&case.out, &done.out, loose, any_order).map_err(|e| format!("stdout: {e}{}", also(&done.err)))?;
    compare(&case.err, &done.err, loose, any_order).map_err(|e| format!("stderr: {e}"))?;
    if same_status(done.status, case.status) {
        return Ok(());
    }
    Err(format!("exit status {} where {} is expected", done.status, case.status))
}

fn also(err: &str) -> String {
    if err.is_empty() { String::new() } else { format!("\n           stderr   {:?}", err.trim_end()) }
}

/// 1, 22 and 255 all say that an operation failed.
fn same_status(a: i32, b: i32) -> bool {
    let failed = |status| matches!(status, 1 | 22 | 255);
    a == b || (failed(a) && failed(b))
}

/// Forces a txg and waits until nothing is being freed.
fn settle(scratch: &Scratch) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let done = scratch.run("zpool sync && zpool get -Hp -o value freeing")?;
        if done.status != 0 {
            return Err(done.err);
        }
        if done.out.lines().all(|line| line == "0") {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err("still freeing".to_owned());
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whether the compressratios of datasets are ordered as demanded.
fn ratios(scratch: &Scratch, first: &str, rest: &[(bool, String)]) -> Result<(), String> {
    let ratio = |name: &str| -> Result<f64, String> {
        let done = scratch.run(&format!("zfs get -Hp -o value compressratio {name}"))?;
        done.out.trim().parse().map_err(|_| format!("no ratio of {name}: {}{}", done.out, done.err))
    };
    let (mut before, mut before_name) = (ratio(first)?, first);
    for (may_equal, name) in rest {
        let next = ratio(name)?;
        if before < next || (before == next && !may_equal) {
            return Err(format!("{before_name} has {before}, {name} has {next}"));
        }
        (before, before_name) = (next, name);
    }
    Ok(())
}
