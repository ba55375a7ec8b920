//! The part of `zpool status -D` about the dedup tables.

use pool::Dedup;
use pool::props::number::{nice, nice_bytes};

use crate::messages::Failure;
use crate::out::Console;

use format::ddt::Counts;

/// Prints how large the tables are and how many references blocks have.
pub(super) fn print(console: &mut Console, dedup: &Dedup) -> Result<(), Failure> {
    let figures = &dedup.figures;
    if figures.entries == 0 {
        return console.line("\n dedup: no DDT entries");
    }
    console.line(&format!(
        "\n dedup: DDT entries {}, size {} on disk, {} in core",
        figures.entries,
        nice_bytes(figures.on_disk),
        nice_bytes(figures.in_core)
    ))?;
    console.line("")?;
    console.line("bucket              allocated                       referenced          ")?;
    let line = "_".repeat(30);
    console.line(&format!("______   {line}   {line}"))?;
    let sizes = ["blocks", "LSIZE", "PSIZE", "DSIZE"].map(str::to_owned);
    row(console, "refcnt", &sizes, &sizes)?;
    let rules = ["------", "-----", "-----", "-----"].map(str::to_owned);
    row(console, "------", &rules, &rules)?;
    for (bucket, counts) in dedup.histogram.buckets.iter().enumerate() {
        counts_row(console, &nice(1 << bucket), counts)?;
    }
    counts_row(console, "Total", &dedup.histogram.total())?;
    console.line("")
}

fn counts_row(console: &mut Console, name: &str, counts: &Counts) -> Result<(), Failure> {
    if counts.blocks == 0 {
        return Ok(());
    }
    let Counts { blocks, lsize, psize, dsize, ref_blocks, ref_lsize, ref_psize, ref_dsize } = *counts;
    let cells = |blocks, [lsize, psize, dsize]: [u64; 3]| {
        [nice(blocks), nice_bytes(lsize), nice_bytes(psize), nice_bytes(dsize)]
    };
    let all = cells(ref_blocks, [ref_lsize, ref_psize, ref_dsize]);
    row(console, name, &cells(blocks, [lsize, psize, dsize]), &all)
}

fn row(console: &mut Console, name: &str, own: &[String; 4], all: &[String; 4]) -> Result<(), Failure> {
    let cells = |[blocks, a, b, c]: &[String; 4]| format!("{blocks:>6}   {a:>5}   {b:>5}   {c:>5}");
    console.line(&format!("{name:>6}   {}   {}", cells(own), cells(all)))
}
