//! Replays one transcript in a sandbox.

use super::parse::{Case, Step, Transcript};
use super::pattern::compare;
use super::sandbox::{Done, PATIENCE, Sandbox};
use super::{data, skip};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Sample data is made this many times smaller than it was recorded with.
const SCALE: u64 = 8;

/// The result of a case.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Pass,
    Fail(String),
    Skip(String),
    /// The case failed, and may depend on a step that was left out before: that step, and the failure.
    After(String, String),
}

/// One line of the report.
#[derive(Debug)]
pub struct Report {
    pub line: usize,
    pub command: String,
    pub outcome: Outcome,
}

/// Replays a transcript: every case with its outcome, and set-up that could not be done as failures. `name` is
/// that of the transcript in the skip list.
pub fn replay(sandbox: &Sandbox, name: &str, transcript: &Transcript, skips: &[skip::Entry]) -> Vec<Report> {
    let mut reports = Vec::new();
    let mut missing = None;
    for step in &transcript.steps {
        let (line, command, outcome) = match step {
            Step::Setup { line, command, status } => {
                let mut failed = None;
                match sandbox.run(command) {
                    Ok(done) => {
                        // A command that was left out is recorded as the reason of later failures.
                        missing = missing.or_else(|| unsupported(&done));
                        if !same_status(done.status, *status) {
                            let err = done.err.trim_end();
                            failed = Some(format!("set-up ended with {}: {err}", done.status));
                        }
                    }
                    Err(problem) => failed = Some(problem),
                }
                match failed {
                    None => continue,
                    Some(problem) => (*line, command.clone(), Outcome::Fail(problem)),
                }
            }
            Step::Data { line, path, kind, size } => {
                match data::make(&sandbox.path(path), kind, size / SCALE) {
                    Ok(()) => continue,
                    Err(problem) => (*line, format!("@data {path} {kind}"), Outcome::Fail(problem)),
                }
            }
            Step::Sync => match settle(sandbox) {
                Ok(()) => continue,
                Err(problem) => (0, "@sync".to_owned(), Outcome::Fail(problem)),
            },
            Step::Check { line, first, rest } => {
                (*line, "@check".to_owned(), outcome(ratios(sandbox, first, rest)))
            }
            Step::Case(case) => {
                let outcome = match skip::reason(skips, name, &case.command) {
                    Some(reason) => Outcome::Skip(reason.to_owned()),
                    None => play(sandbox, case),
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

fn play(sandbox: &Sandbox, case: &Case) -> Outcome {
    match sandbox.run(&case.command) {
        Err(problem) => Outcome::Fail(problem),
        Ok(done) => match (judge(case, &done), unsupported(&done)) {
            (Ok(()), _) => Outcome::Pass,
            (Err(_), Some(reason)) => Outcome::Skip(reason),
            (Err(difference), None) => Outcome::Fail(difference),
        },
    }
}

/// The part that a command says it does not support, if it says so.
fn unsupported(done: &Done) -> Option<String> {
    let line = done.err.lines().chain(done.out.lines()).find(|line| line.contains("not supported yet"))?;
    Some(line.trim_start_matches("cenote: ").to_owned())
}

/// Lets zdb check the pools that a transcript leaves; does nothing where zdb is not installed.
///
/// # Errors
/// The findings of zdb, or a pool that cannot be exported.
pub fn judge_pools(sandbox: &Sandbox) -> Result<(), String> {
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zdb-check");
    let pools = sandbox.run("zpool list -H -o name")?.out;
    for pool in pools.lines().filter(|line| !line.contains("no pools available")) {
        // Its own files only: in others may be what is left of pools of the same name.
        let devices = sandbox.run(&format!("zpool list -H -v -P {pool}"))?.out;
        let devices = devices.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        let devices: Vec<_> = devices.map(|path| sandbox.path(path)).collect();
        let exported = sandbox.run(&format!("zpool export {pool}"))?;
        if exported.status != 0 {
            return Err(exported.err);
        }
        let said = Command::new(&oracle).arg(pool).args(devices).output();
        let said = said.map_err(|error| error.to_string())?;
        // 2: zdb is not installed here.
        if !said.status.success() && said.status.code() != Some(2) {
            let text = [said.stdout, said.stderr].concat();
            return Err(format!("zdb on pool {pool}: {}", String::from_utf8_lossy(&text)));
        }
    }
    Ok(())
}

/// Compares the result of a command with the recorded one.
fn judge(case: &Case, done: &Done) -> Result<(), String> {
    // The real system prints these in the order of a hash.
    let any_order = ["zfs holds", "zfs diff", "zfs destroy", "zfs rollback", "zfs program"]
        .iter()
        .any(|command| case.command.contains(command));
    compare(&case.out, &done.out, any_order).map_err(|e| format!("stdout: {e}{}", also(&done.err)))?;
    compare(&case.err, &without_warnings(&done.err), any_order).map_err(|e| format!("stderr: {e}"))?;
    if same_status(done.status, case.status) {
        return Ok(());
    }
    Err(format!("exit status {} where {} is expected", done.status, case.status))
}

/// Standard error without the warnings that a property has no effect here, as OpenZFS acts on these properties, and without
/// suggestions for misspelt words, of which OpenZFS has none.
fn without_warnings(err: &str) -> String {
    let is_warning = |line: &&str| line.starts_with("warning: '") && line.contains("has no effect here");
    let is_suggestion = |line: &&str| line.starts_with("did you mean '");
    err.split_inclusive('\n').filter(|line| !is_warning(line) && !is_suggestion(line)).collect()
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
fn settle(sandbox: &Sandbox) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let done = sandbox.run("zpool sync && zpool get -Hp -o value freeing")?;
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
fn ratios(sandbox: &Sandbox, first: &str, rest: &[(bool, String)]) -> Result<(), String> {
    let ratio = |name: &str| -> Result<f64, String> {
        let done = sandbox.run(&format!("zfs get -Hp -o value compressratio {name}"))?;
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
