//! `cenote bench` as users run and stop it: programs on mounts, interruptions, nothing left behind.

mod bed;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bed::live::Live;
use bed::{Bed, Done, PATIENCE, root, wait_until};

/// A folder for everything temporary, and a text in it to measure with.
fn bed_with_text() -> Bed {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("tmp")).expect("made");
    let line = |n: u32| format!("{n} the same line again and again {}\n", n * 7919 % 1000);
    std::fs::write(bed.path("text"), (0..40_000).map(line).collect::<String>()).expect("written");
    bed
}

fn bench(bed: &Bed, words: &[&str]) -> Command {
    let mut command = bed.command(&[&["bench"], words].concat());
    command.env("TMPDIR", bed.path("tmp"));
    command
}

fn is_here(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([signal, &id]).status().expect("kill starts").success());
}

/// Nothing is mounted below the bed, and nothing that was started with its temporary folder still runs.
fn is_clean(bed: &Bed) -> bool {
    let top = bed.path("tmp").display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("there");
    let setting = format!("TMPDIR={top}");
    let is_ours = |pid: String| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable == setting.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").expect("there");
    let mut names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let left = std::fs::read_dir(bed.path("tmp")).expect("there").count();
    !mounts.contains(&top) && left == 0 && !names.any(is_ours)
}

/// A letter that follows from the number.
fn base(n: u64) -> char {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    char::from(b"ACGT"[((mixed ^ (mixed >> 31)) >> 20) as usize % 4])
}

#[test]
fn the_steps_of_an_experiment_run_on_mounts() {
    if Live::new().is_none() || !is_here("bwa") || !is_here("samtools") {
        eprintln!("skipped: needs /dev/fuse, bwa and samtools");
        return;
    }
    let bed = bed_with_text();
    // Small files under the names that the steps look for.
    let genome: String = (0..20_000).map(base).collect();
    std::fs::write(bed.path("rRNA16S.fasta"), format!(">one\n{genome}\n")).expect("written");
    let read = |n: usize| format!("@r{n}\n{}\n+\n{}\n", &genome[n * 90..n * 90 + 100], "I".repeat(100));
    std::fs::write(bed.path("reads-hiseq-head.fastq"), (0..200).map(read).collect::<String>())
        .expect("written");
    let experiment = root().join("experiments/s0-steps.toml").display().to_string();
    let words =
        ["--experiment", &experiment, "--compression", "off,lz4", "rRNA16S.fasta", "reads-hiseq-head.fastq"];
    let out = Done::from(bench(&bed, &words).output().expect("it starts")).good();
    for part in [
        "Time of each step, s",
        "bwa index (1 thread)",
        "samtools sam2bam (",
        "Sequencing data on CentOS: seconds, published and here",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(is_clean(&bed));
}

/// Starts a measurement and waits until its step runs on the mount of the second configuration.
fn until_the_second_step(bed: &Bed) -> Child {
    let step = format!(
        "wait: echo x >> {0}; sleep $(( $(wc -l < {0}) > 1 ? 300 : 0 ))",
        bed.path("steps").display()
    );
    let words = ["--compression", "off,lz4", "--resume", "runs.jsonl", "--command", &step, "text"];
    let child = bench(bed, &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let steps = bed.path("steps");
    let lines = || std::fs::read_to_string(&steps).map_or(0, |text| text.lines().count());
    wait_until("the second step", || lines() == 2);
    child
}

#[test]
fn an_ended_measurement_leaves_nothing_and_can_be_continued() {
    if Live::new().is_none() {
        return;
    }
    for (how, status) in [("-INT", Some(130)), ("-TERM", Some(143)), ("-KILL", None)] {
        let bed = bed_with_text();
        let mut child = until_the_second_step(&bed);
        signal(&child, how);
        assert_eq!(child.wait().expect("ended").code(), status, "{how}");
        wait_until(&format!("all is gone after {how}"), || is_clean(&bed));
        let journal = std::fs::read_to_string(bed.path("runs.jsonl")).expect("kept");
        assert_eq!(journal.lines().count(), 2, "{how}: {journal}");
        // Only the second is measured; its step does not wait now.
        std::fs::write(bed.path("steps"), "").expect("written");
        let step = format!(
            "wait: echo x >> {0}; sleep $(( $(wc -l < {0}) > 1 ? 300 : 0 ))",
            bed.path("steps").display()
        );
        let words = ["--compression", "off,lz4", "--resume", "runs.jsonl", "--command", &step, "text"];
        let out = Done::from(bench(&bed, &words).output().expect("it starts")).good();
        assert!(out.contains("\noff ") && out.contains("\nlz4 "), "{how}: {out}");
        assert_eq!(std::fs::read_to_string(bed.path("steps")).expect("there"), "x\n", "{how}");
        assert!(is_clean(&bed), "{how}");
    }
}

#[test]
fn a_measurement_elsewhere_that_is_killed_leaves_no_files() {
    let bed = bed_with_text();
    let there = bed.path("tmp").display().to_string();
    let ready = bed.path("ready").display().to_string();
    let step = format!("touch {ready}; sleep 300");
    if Live::new().is_none() {
        return;
    }
    // The first configuration is the pool. Its step fails at once unless it runs in the other file system.
    let only_there = format!("case $PWD in {there}/cenote-bench-*) mountpoint -q . || {{ {step}; }} ;; esac");
    let words = ["--compression", "off", "--against", &there, "--command", &only_there, "text"];
    let mut child =
        bench(&bed, &words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    wait_until("the step", || Path::new(&ready).exists());
    signal(&child, "-KILL");
    child.wait().expect("ended");
    wait_until("all is gone", || is_clean(&bed));
}

#[test]
fn another_source_of_the_same_size_is_no_continuation() {
    let bed = bed_with_text();
    let words = ["--compression", "off", "--resume", "runs.jsonl", "text"];
    Done::from(bench(&bed, &words).output().expect("it starts")).good();
    let text = std::fs::read_to_string(bed.path("text")).expect("there");
    std::fs::write(bed.path("text"), text.replace("same", "very")).expect("written");
    let done = Done::from(bench(&bed, &words).output().expect("it starts"));
    done.refused(
        "cannot go on from 'runs.jsonl': it is of another measurement: other files, place or options",
    );
}

/// With one thread and with all: the second run does not see the changes of the first one.
#[test]
fn a_step_that_runs_again_finds_what_it_found_first() {
    if Live::new().is_none() || std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        return;
    }
    let bed = bed_with_text();
    let there = bed.path("tmp").display().to_string();
    let first = "first: test ! -e made && ! grep changed text && cp text made && echo changed >> text && \
                 mkdir folder && echo {threads} > folder/with && ln -s text link";
    let second = "second: test -e made && test $(cat folder/with) -gt 1 && test $(grep -c changed link) = 1 && \
                  rm text && echo {threads}";
    let words = ["--compression", "lz4", "--against", &there, "--command", first, "--command", second];
    let words = [&words[..], &["--json", "r.json", "text"]].concat();
    Done::from(bench(&bed, &words).output().expect("it starts")).good();
    let report: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(bed.path("r.json")).expect("written")).expect("JSON");
    for run in report["runs"].as_array().expect("runs") {
        let threads: Vec<_> =
            run["steps"].as_array().expect("steps").iter().map(|s| s["threads"].clone()).collect();
        assert!(threads.len() == 4 && threads[0] == 1 && threads[1].as_u64() > Some(1), "{run}");
    }
    assert!(is_clean(&bed));
}

#[test]
fn ctrl_c_is_heard_while_data_are_made() {
    let bed = bed_with_text();
    let mut child = bench(&bed, &["--data", "fastq:4G"]).stderr(Stdio::null()).spawn().expect("it starts");
    // Before it listens to the signal, the signal itself ends it.
    let listens = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
        let caught =
            status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the kernel tells it");
        u64::from_str_radix(caught.trim(), 16).expect("a number") & 1 << 1 != 0
    };
    wait_until("it listens to no signal", listens);
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    signal(&child, "-INT");
    assert_eq!(child.wait().expect("ended").code(), Some(130));
    assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
}
