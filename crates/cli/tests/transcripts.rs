//! Recorded sessions of OpenZFS replayed against the program that was built.
//!
//! `CENOTE_TRANSCRIPT=30-zpool cargo test -p cenote --test transcripts recorded -- --nocapture` replays those
//! whose name holds the text and prints every case. What is left out and why stands in `transcripts/skip.toml`, how
//! many pass at least in `transcripts/passes.toml`.

mod transcript;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use transcript::parse::{self, Step, Transcript};
use transcript::run::{self, Outcome, Report, Scratch};
use transcript::{data, guard, pattern, skip};

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

/// Transcripts whose pools zdb judges at the end; `CENOTE_SIM_ZDB=all` is for all of them.
const JUDGED: [&str; 3] =
    ["openzfs-2.1.11/10-zfs-create", "openzfs-2.1.11/15-zfs-destroy", "openzfs-2.1.11/33-zpool-prop"];

fn replay(name: &str, transcript: &Transcript, skips: &[skip::Entry]) -> Vec<Report> {
    let program = Path::new(PROGRAM);
    let scratch =
        Scratch::new(&[("zfs", program), ("zpool", program), ("cenote", program)]).expect("a scratch folder");
    let uses_text = transcript.steps.iter().any(|step| match step {
        Step::Setup { command, .. } => command.contains("text.fastq"),
        Step::Case(case) => case.command.contains("text.fastq"),
        _ => false,
    });
    if uses_text {
        std::fs::write(scratch.map("/run/text.fastq"), data::text_fastq()).expect("written");
    }
    let mut reports = run::replay(&scratch, name, transcript, skips);
    let all = std::env::var("CENOTE_SIM_ZDB").is_ok_and(|value| value == "all");
    if all || JUDGED.contains(&name) {
        let outcome = run::judge_pools(&scratch).map_or_else(Outcome::Fail, |()| Outcome::Pass);
        reports.push(Report { line: 0, command: "zdb on the pools left".to_owned(), outcome });
    }
    reports
}

/// How many cases of each transcript pass at least.
fn least() -> toml::Table {
    include_str!("transcripts/passes.toml").parse().expect("a table of numbers")
}

/// How many cases of each transcript fail at most after something was left out. Such a case does not fail the
/// test by itself, as it may depend on that; one more than before would.
fn most() -> toml::Table {
    include_str!("transcripts/after.toml").parse().expect("a table of numbers")
}

#[test]
fn recorded_cases_behave_as_recorded() {
    let wanted = std::env::var("CENOTE_TRANSCRIPT").ok();
    let skips = skip::read(include_str!("transcripts/skip.toml")).expect("the skip list");
    let (least, most, mut totals, mut failures) = (least(), most(), [0; 4], Vec::new());
    for (name, transcript) in fixtures() {
        if wanted.as_ref().is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let mut counts = [0; 4];
        // Nothing of it would run: don't prepare it either.
        let mut cases = transcript.steps.iter().filter_map(|s| match s {
            Step::Case(case) => Some(case),
            _ => None,
        });
        if cases.clone().all(|case| skip::reason(&skips, &name, &case.command).is_some()) {
            totals[1] += cases.by_ref().count();
            continue;
        }
        for report in replay(&name, &transcript, &skips) {
            let line = format!("{name}.t:{}: {}", report.line, report.command);
            counts[match &report.outcome {
                Outcome::Pass => 0,
                Outcome::Skip(_) => 1,
                Outcome::Fail(_) => 2,
                Outcome::After(..) => 3,
            }] += 1;
            if let Outcome::Fail(problem) = &report.outcome {
                failures.push(format!("{line}\n    {problem}"));
            }
            if wanted.is_some() {
                println!("{:?} {line} ({})", report.outcome, transcript.title);
            }
        }
        let wanted_passes = least.get(&name).and_then(toml::Value::as_integer).unwrap_or(0);
        if counts[0] < wanted_passes {
            failures.push(format!("{name}: only {} cases pass, {wanted_passes} did", counts[0]));
        }
        let after_most = most.get(&name).and_then(toml::Value::as_integer).unwrap_or(0);
        if counts[3] > after_most {
            failures.push(format!("{name}: {} cases fail after a skipped step, {after_most} did", counts[3]));
        }
        let count = counts.iter().sum::<i64>();
        println!("\"{name}\" = {}  # of {count}, {} skipped", counts[0], counts[1]);
        println!("\"{name}\" = {}  # failed after a skipped step", counts[3]);
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total += count as usize);
    }
    let [passed, skipped, _, after] = totals;
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

fn play(body: &str) -> Vec<Report> {
    let transcript = parse::parse(&format!("#! cenote-transcript 1\ntitle: t\n---\n{body}")).expect("good");
    let folder = tempfile::tempdir().expect("a folder");
    let fake = folder.path().join("fake");
    std::fs::write(&fake, FAKE).expect("written");
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let scratch = Scratch::new(&[("zfs", &fake)]).expect("a scratch folder");
    let skips = skip::read("[[skip]]\nfile='t'\ncase='zfs later*'\nreason='later'").expect("good");
    run::replay(&scratch, "t", &transcript, &skips)
}

fn outcomes(body: &str) -> Vec<&'static str> {
    let word = |report: Report| match report.outcome {
        Outcome::Pass => "pass",
        Outcome::Fail(_) => "fail",
        Outcome::Skip(_) => "skip",
        Outcome::After(..) => "after",
    };
    play(body).into_iter().map(word).collect()
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
    assert_eq!(outcomes(body), ["pass", "pass", "fail", "pass", "fail"]);
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
    assert_eq!(outcomes(body), ["pass", "fail", "pass", "fail", "fail"]);
}

#[test]
fn scratch_paths_are_mapped_there_and_back() {
    let body = "\
% truncate -s 1M /v/a
% test -f /v/a

$ zfs status /v; ls /v
1> \tNAME    STATE
1> \t/v/a  ONLINE
1> a
";
    assert_eq!(outcomes(body), ["pass"]);
}

#[test]
fn what_leaves_the_scratch_folder_is_not_run() {
    for (command, reason) in [
        ("cp /tank/x /run/x", "needs a mount (issue 3)"),
        ("cp /run/x /etc/x", "touches /etc/x"),
        ("zfs list; touch /tank/b/x", "needs a mount (issue 3)"),
        ("zfs send tank@a > /tank/x", "needs a mount (issue 3)"),
        ("zfs send tank@a >/etc/x", "touches /etc/x"),
        ("cat /sys/module/zfs/parameters/x", "touches /sys/module/zfs/parameters/x"),
        ("mount -t zfs tank /mnt", "runs 'mount'"),
        ("echo $(rm -rf /etc)", "touches /etc"),
        ("echo `id`", "runs 'backquotes'"),
        ("rm -rf ../x", "touches ../x"),
        ("dd if=/dev/zero of=/dev/sda", "touches /dev/sda"),
        ("cd /tank; ls", "needs a mount (issue 3)"),
    ] {
        assert_eq!(guard::refusal(command).as_deref(), Some(reason), "{command}");
    }
    for command in [
        "zfs set mountpoint=/mnt/a tank/a",
        "zpool create tank /v/a 2>/dev/null; true",
        "for d in a b; do zfs create tank/$d; done",
        "zfs list | grep -v '^/tank' 2>&1",
        "zfs create tank/$(printf 'n%.0s' $(seq 1 300))",
        "dd if=/dev/zero of=/v/a bs=1M count=1 conv=notrunc 2>/dev/null",
        "zpool import -d /nosuch",
        "cp /run/x /tank/x",
    ] {
        assert_eq!(guard::refusal(command), None, "{command}");
    }
    let (parts, left_out) = guard::allowed_parts("zfs create tank/z; rm /tank/z/t; zpool sync");
    assert_eq!(parts, ["zfs create tank/z", "zpool sync"]);
    assert!(left_out.is_some());
}

#[test]
fn ratios_are_compared_in_order() {
    assert_eq!(outcomes("@check a > b >= c\n@check ratio b > c\n"), ["pass", "fail"]);
}

#[test]
fn lists_in_hash_order_are_compared_as_sets() {
    assert_eq!(outcomes("$ zfs destroy x\n1> a\n1> b\n\n$ zfs list; zfs destroy\n1> a\n"), ["pass", "fail"]);
}

#[test]
fn skipped_cases_have_a_reason() {
    let reports = play("$ zfs later on\n\n$ zfs list\n1> {{more}}\n");
    assert_eq!(reports[0].outcome, Outcome::Skip("later".to_owned()));
    assert_eq!(reports[1].outcome, Outcome::Pass);
}

#[test]
fn a_failure_after_a_skipped_step_is_counted_by_itself() {
    let body = "$ zfs list 25K\n1> {{more}}\n\n$ zfs list\n\n$ zfs later on\n\n$ zfs list\n\n$ zfs list\n1> {{more}}\n";
    assert_eq!(outcomes(body), ["pass", "fail", "skip", "after", "pass"]);
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
