//! Send streams in files of a bed, and helpers that compare received datasets.

use std::process::Stdio;

use super::{Bed, Done};

/// `zfs send …` into a file of the bed.
pub fn send(bed: &Bed, words: &[&str], file: &str) -> Done {
    let out = std::fs::File::create(bed.path(file)).expect("made");
    let mut line = vec!["zfs", "send"];
    line.extend(words);
    bed.command(&line).stdout(Stdio::from(out)).output().expect("it starts").into()
}

/// `zfs receive …` of such a file.
pub fn receive(bed: &Bed, file: &str, words: &[&str]) -> Done {
    let stream = std::fs::File::open(bed.path(file)).expect("there");
    let mut line = vec!["zfs", "receive"];
    line.extend(words);
    bed.command(&line).stdin(stream).output().expect("it starts").into()
}

pub fn zfs(bed: &Bed, line: &str) -> String {
    let words: Vec<&str> = std::iter::once("zfs").chain(line.split(' ')).collect();
    bed.run(&words).good()
}

pub fn shown(bed: &Bed, property: &str, name: &str) -> String {
    bed.run(&["zfs", "get", "-H", "-o", "value,source", property, name]).good().trim_end().to_owned()
}

/// Names below `top`, snapshots included, without it.
pub fn names(bed: &Bed, top: &str) -> Vec<String> {
    let all = zfs(bed, &format!("list -H -o name -t all -r {top}"));
    all.lines().map(|name| name[top.len()..].to_owned()).collect()
}

pub fn put(bed: &Bed, fs: &str, name: &str) {
    std::fs::write(bed.path("file"), format!("{fs} {name}").repeat(5000)).expect("written");
    bed.run(&["cp", &bed.path("file").display().to_string(), &format!("{fs}:/{name}")]).good();
}
