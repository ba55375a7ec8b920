//! Recorded sessions of OpenZFS replayed against the program that was built: live, with its servers and mounts, each in
//! a sandbox of its own, which needs root and FUSE.
//!
//! `CENOTE_TRANSCRIPT=30-zpool cargo test -p cenote --test transcripts recorded -- --nocapture` replays those
//! whose name holds the text and prints every case. The cases left out, with the reasons, are in `transcripts/skip.toml`;
//! the least number of passes is in `transcripts/passes.toml`.

mod transcript;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use transcript::parse::{self, Step, Transcript};
use transcript::run::{self, Outcome, Report};
use transcript::sandbox::{self, Sandbox};
use transcript::{data, pattern, skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_cenote");

/// Every transcript by its name (`seeds/000-nvme`), sorted.
fn fixtures() -> Vec<(String, Transcript)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/transcripts");
    let list = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder of transcripts");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let folders = list(&root).into_iter().filter(|path| path.is_dir());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| list(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "t"));
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).expect("a transcript");
            let name =
                path.strip_prefix(&root).expect("below the root").with_extension("").display().to_string();
            let transcript = parse::parse(&text).unwrap_or_else(|problem| panic!("{name}:{problem}"));
            (name, transcript)
        })
        .collect()
}

/// Those whose pools zdb 2.1 cannot judge: it asserts that `special_small_blocks` is a power of two, and 2.4 takes 300; and
/// it opens no pool with BLAKE3 checksums.
const BEYOND_ZDB: [&str; 2] = ["openzfs-2.1.11/13-zfs-set", "openzfs-2.4.99/51-new24"];
/// Transcripts that are replayed at the same time. Mostly they wait.
const AT_ONCE: usize = 6;

/// Says why nothing is replayed here, where that is so.
fn is_lacking() -> bool {
    let Some(reason) = sandbox::lacking() else { return false };
    let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
    assert!(!required, "transcripts cannot be replayed: {reason}");
    eprintln!("skipped: transcripts need root and FUSE: {reason}");
    true
}

fn replay(name: &str, transcript: &Transcript, skips: &[skip::Entry]) -> Vec<Report> {
    let program = Path::new(PROGRAM);
    let sandbox =
        Sandbox::new(&[("zfs", program), ("zpool", program), ("cenote", program)]).expect("a sandbox");
    let uses_text = transcript.steps.iter().any(|step| match step {
        Step::Setup { command, .. } => command.contains("text.fastq"),
        Step::Case(case) => case.command.contains("text.fastq"),
        _ => false,
    });
    if uses_text {
        std::fs::write(sandbox.path("/run/text.fastq"), data::text_fastq()).expect("written");
    }
    let mut reports = run::replay(&sandbox, name, transcript, skips);
    if !BEYOND_ZDB.contains(&name) {
        let outcome = run::judge_pools(&sandbox).map_or_else(Outcome::Fail, |()| Outcome::Pass);
        reports.push(Report { line: 0, command: "zdb on the pools left".to_owned(), outcome });
    }
    reports
}

/// Replays all that `wanted` names, several at a time; in the order of `all`.
fn replay_all<'a>(
    all: &'a [(String, Transcript)],
    wanted: Option<&str>,
    skips: &[skip::Entry],
) -> Vec<(&'a str, &'a Transcript, Vec<Report>)> {
    let wanted: Vec<_> = all.iter().filter(|(name, _)| wanted.is_none_or(|w| name.contains(w))).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((name, transcript)) = wanted.get(at) else { break };
                    let reports = replay(name, transcript, skips);
                    done.lock().expect("no replay panics").insert(at, (name.as_str(), transcript, reports));
                }
            });
        }
    });
    done.into_inner().expect("no replay panics").into_values().collect()
}

/// How many cases of each transcript pass at least.
fn least() -> toml::Table {
    include_str!("transcripts/passes.toml").parse().expect("a table of numbers")
}

/// For each transcript, the maximal number of cases that fail after a skipped step. Such a case does not fail the test,
/// because it may depend on that step. More such cases than this number do fail the test.
fn most() -> toml::Table {
    include_str!("transcripts/after.toml").parse().expect("a table of numbers")
}

#[test]
fn recorded_cases_behave_as_recorded() {
    if is_lacking() {
        return;
    }
    let wanted = std::env::var("CENOTE_TRANSCRIPT").ok();
    let skips = skip::read(include_str!("transcripts/skip.toml")).expect("the skip list");
    let (least, most, mut totals, mut failures) = (least(), most(), [0; 4], Vec::new());
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let all = fixtures();
    for (name, transcript, reports) in replay_all(&all, wanted.as_deref(), &skips) {
        let mut counts = [0; 4];
        for report in reports {
            let line = format!("{name}.t:{}: {}", report.line, report.command);
            let (kind, reason) = match &report.outcome {
                Outcome::Pass => (0, None),
                Outcome::Skip(reason) => (1, Some(reason.clone())),
                Outcome::Fail(_) => (2, None),
                Outcome::After(reason, _) => (3, Some(format!("(after) {reason}"))),
            };
            counts[kind] += 1;
            if let Some(reason) = reason {
                *reasons.entry(reason).or_default() += 1;
            }
            if let Outcome::Fail(problem) = &report.outcome {
                failures.push(format!("{line}\n    {problem}"));
            }
            if wanted.is_some() {
                println!("{:?} {line} ({})", report.outcome, transcript.title);
            }
        }
        let wanted_passes = least.get(name).and_then(toml::Value::as_integer).unwrap_or(0);
        if counts[0] < wanted_passes {
            failures.push(format!("{name}: only {} cases pass, {wanted_passes} did", counts[0]));
        }
        let after_most = most.get(name).and_then(toml::Value::as_integer).unwrap_or(0);
        if counts[3] > after_most {
            failures.push(format!("{name}: {} cases fail after a skipped step, {after_most} did", counts[3]));
        }
        let count = counts.iter().sum::<i64>();
        println!("\"{name}\" = {}  # of {count}, {} skipped", counts[0], counts[1]);
        println!("\"{name}\" = {}  # failed after a skipped step", counts[3]);
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count as usize);
    }
    let [passed, skipped, _, after] = totals;
    println!("what was left out, by reason:");
    let mut reasons: Vec<(String, usize)> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    reasons.iter().for_each(|(reason, count)| println!("{count:6}  {reason}"));
    println!(
        "{passed} passed, {skipped} skipped, {after} failed after a skipped step, {} failed",
        failures.len()
    );
    assert!(failures.is_empty(), "{} cases differ:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_recording_can_be_read() {
    let all = fixtures();
    let cases = all.iter().flat_map(|(_, t)| &t.steps).filter(|s| matches!(s, Step::Case(_))).count();
    assert!(all.len() > 40 && cases > 1000, "{} transcripts, {cases} cases", all.len());
}

/// A program that plays `zfs` for the tests of the runner itself.
const FAKE: &str = r#"#!/bin/bash
case "$1" in
list) printf 'NAME   USED  MOUNTPOINT\ntank   %s  /tank\n' "${2:-24K}";;
get) case "$6" in a) echo 2.00;; b) echo 1.50;; *) echo 1.50;; esac;;
status) printf '\tNAME    STATE\n\t%s/a  ONLINE\n' "$2";;
destroy) printf 'b\na\n';;
*) printf "unrecognized command '%s'\nUsage: zfs\n\tlist\n" "$1" >&2; exit 2;;
esac
"#;

/// The results of the cases of `body`, with [`FAKE`] for `zfs`.
fn play(body: &str) -> Vec<Outcome> {
    let transcript = parse::parse(&format!("#! cenote-transcript 1\ntitle: t\n---\n{body}")).expect("good");
    let folder = tempfile::tempdir().expect("a folder");
    let fake = folder.path().join("fake");
    std::fs::write(&fake, FAKE).expect("written");
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let sandbox = Sandbox::new(&[("zfs", &fake)]).expect("a sandbox");
    let skips = skip::read("[[skip]]\nfile='t'\ncase='zfs later*'\nreason='later'").expect("good");
    run::replay(&sandbox, "t", &transcript, &skips).into_iter().map(|report| report.outcome).collect()
}

#[track_caller]
fn expect(body: &str, wanted: &[&str]) {
    if is_lacking() {
        return;
    }
    let word = |outcome: Outcome| match outcome {
        Outcome::Pass => "pass",
        Outcome::Fail(_) => "fail",
        Outcome::Skip(_) => "skip",
        Outcome::After(..) => "after",
    };
    assert_eq!(play(body).into_iter().map(word).collect::<Vec<_>>(), wanted);
}

#[test]
fn lines_match_exactly_unless_they_hold_a_pattern() {
    let body = "\
$ zfs list
1> NAME   USED  MOUNTPOINT
1> tank   24K  /tank

$ zfs list 1.11M
1> NAME   USED  MOUNTPOINT
1> tank      {{size:24K}}   /tank

$ zfs list
1> NAME  USED  MOUNTPOINT
1> {{more}}

$ zfs list
1>~ NAME USED MOUNTPOINT
1>~ tank 24K /tank

$ zfs list 2x
1> {{any:NAME}}
1> tank   {{size:24K}}  /tank
";
    expect(body, &["pass", "pass", "fail", "pass", "fail"]);
}

#[test]
fn a_column_is_as_wide_as_the_guid_that_it_hides() {
    let body = "\
$ zfs status 12345 | sed 's|12345/a|GUID|'
1> \tNAME    STATE
1> \tGUID    ONLINE

$ zfs status 12345
1> \tNAME    STATE
1> \t12345/a    ONLINE
";
    expect(body, &["pass", "fail"]);
}

#[test]
fn exit_status_and_silence_count() {
    let body = "\
$ zfs frob
2> unrecognized command 'frob'
2> {{usage}}
= 2

$ zfs frob
2> {{more}}

$ zfs list >/dev/null; exit 255
= 1

$ zfs list

$ zfs list >/dev/null; exit 2
= 1
";
    expect(body, &["pass", "fail", "pass", "fail", "fail"]);
}

#[test]
fn a_sandbox_has_files_processes_and_mounts_of_its_own() {
    let body = "\
% truncate -s 1M /v/a; mount -t tmpfs -o size=1m x /mnt
% test -f /v/a

$ ls /v; grep -c ' /mnt ' /proc/self/mounts; cat /mnt/nosuch 2>/dev/null
1> a
1> 1
= 1

$ (sleep 1000 >/dev/null 2>&1 &) ; chown alice:staff /v/a; stat -c '%U %u' /v/a; echo x 2>/dev/null > /usr/x
1> alice 1000
= 1
";
    expect(body, &["pass", "pass"]);
    assert!(!Path::new("/v/a").exists() && !Path::new("/usr/x").exists());
}

#[test]
fn ratios_are_compared_in_order() {
    expect("@check a > b >= c\n@check ratio b > c\n", &["pass", "fail"]);
}

#[test]
fn lists_in_hash_order_are_compared_as_sets() {
    expect("$ zfs destroy x\n1> a\n1> b\n\n$ zfs list; zfs destroy\n1> a\n", &["pass", "fail"]);
}

#[test]
fn skipped_cases_have_a_reason() {
    if !is_lacking() {
        let outcomes = play("$ zfs later on\n\n$ zfs list\n1> {{more}}\n");
        assert_eq!(outcomes, [Outcome::Skip("later".to_owned()), Outcome::Pass]);
    }
}

#[test]
fn a_failure_after_a_skipped_step_is_counted_by_itself() {
    let body = "$ zfs list 25K\n1> {{more}}\n\n$ zfs list\n\n$ zfs later on\n\n$ zfs list\n\n$ zfs list\n1> {{more}}\n";
    expect(body, &["pass", "fail", "skip", "after", "pass"]);
}

#[test]
fn the_recorded_fastq_has_its_size() {
    let text = data::text_fastq();
    assert_eq!(text.len(), 2_191_560);
    assert!(text.starts_with(b"@DRR081404.0 0 length=90\n"));
}

#[test]
fn sample_data_is_the_same_every_time() {
    let folder = tempfile::tempdir().expect("a folder");
    for kind in ["nt", "fastq", "zeros", "random"] {
        let read = |name: &str| {
            let path = folder.path().join(name);
            data::make(&path, kind, 100_000).expect("made");
            std::fs::read(path).expect("read")
        };
        assert_eq!(read("one"), read("two"), "{kind}");
    }
    for kind in ["fits", "src", "mixed"] {
        let path = folder.path().join(kind);
        data::make(&path, kind, 100_000).expect("made");
        assert!(std::fs::read_dir(path).expect("a tree").count() > 0, "{kind}");
    }
    assert!(data::make(&folder.path().join("x"), "nosuch", 1).is_err());
}

#[test]
fn an_unknown_pattern_is_an_error() {
    assert!(pattern::Expected::new("{{nosuch:x}}", false).is_err());
    assert!(parse::parse("#! cenote-transcript 1\n---\n1> x\n").is_err());
    assert!(parse::parse("#! cenote-transcript 1\ncases: 2\n---\n$ x\n").is_err());
}
