//! The published figures come out again, and agree with themselves where they do.

use super::*;

const FILE: &str = include_str!("../../../../experiments/published.toml");

fn published(key: &str) -> Published {
    Published::parse(FILE).unwrap().into_iter().find(|each| each.key == key).unwrap()
}

fn rows(published: &Published, title: &str, row: &str) -> Vec<f64> {
    let grid = published.grids.iter().filter(|grid| grid.title == title);
    let found = grid.flat_map(|grid| &grid.rows).find(|(name, _)| name == row);
    found.unwrap_or_else(|| panic!("{title}: {row}")).1.iter().map(|n| n.unwrap()).collect()
}

fn near(a: f64, b: f64, part: f64) -> bool {
    (a / b - 1.0).abs() <= part
}

#[test]
fn the_published_graph_comes_out_again() {
    let normalised = normalised(&published("S0").grids);
    let [graph] = &normalised[..] else { panic!("one graph: {normalised:?}") };
    let samtools = |column: &str| graph.cell(graph.at("samtools sam2bam (16 threads)", column));
    assert_eq!(
        ["off", "lz4", "gzip-1", "lzjb", "zle"].map(samtools),
        ["1.00", "1.08", "1.71", "1.37", "1.01"]
    );
    assert_eq!((graph.rows.len(), graph.columns.len()), (4, 7));
    // And as it is drawn: every bar has the number that the published times give.
    let drawn = crate::chart::svg(&graph.bars(""), "g", crate::chart::Size::Wide, crate::chart::Ink::Page);
    let times =
        published("S0").grids.into_iter().filter(|grid| grid.title == "Sequencing data on CentOS: seconds");
    for (_, row) in times.flat_map(|grid| grid.rows) {
        for seconds in row.iter().flatten() {
            let over = format!(">{:.2}<", seconds / row[0].unwrap());
            assert!(drawn.replace([' ', '\n'], "").contains(&over), "{over}");
        }
    }
}

/// Seconds with two decimals, as published.
#[test]
fn the_published_times_are_shown_as_published() {
    let table = &published("S0").figures().tables;
    let times = table.iter().find(|table| table.title == "Sequencing data on CentOS: seconds").unwrap();
    let golden = "|  | off | lz4 | gzip-1 | gzip-6 | gzip-9 | lzjb | zle |\n\
        | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n\
        | bwa index (1 thread), s | 210.41 | 210.90 | 215.64 | 214.71 | 236.12 | 224.54 | 221.92 |\n\
        | bwa mem (16 threads), s | 495.90 | 499.37 | 517.31 | 554.25 | 589.41 | 503.69 | 496.11 |\n\
        | fastq-dump (1 thread), s | 97.84 | 95.73 | 95.56 | 95.79 | 93.44 | 97.14 | 97.18 |\n\
        | samtools sam2bam (16 threads), s | 59.36 | 64.02 | 101.31 | 102.37 | 102.63 | 81.42 | 60.06 |\n";
    let mut lines: Vec<String> = times.markdown().lines().map(|line| format!("{line}\n")).collect();
    lines[2..].sort();
    assert_eq!(lines.concat(), golden);
}

/// Sizes and ratios say the same, and the order of ratios holds.
#[test]
fn published_sizes_and_ratios_agree() {
    let s0 = published("S0");
    for title in ["Sequencing data on CentOS: nt", "Sequencing data on CentOS: fastq"] {
        let (used, ratio) = (rows(&s0, title, "used"), rows(&s0, title, "compressratio"));
        for (used, ratio) in used.iter().skip(1).zip(&ratio[1..]) {
            let whole = rows(&s0, title, "used")[0];
            assert!(near(whole / used, *ratio, 0.01), "{title}: {whole} / {used} is not {ratio}");
        }
        let [off, lz4, gzip1, gzip6, gzip9, lzjb, zle] = ratio[..] else { panic!("seven") };
        assert!(gzip9 >= gzip6 && gzip6 > gzip1 && gzip1 > lz4 && lz4 > lzjb && lzjb > zle && zle >= off);
    }
}

/// Time times speed is the same size in each column, and so is ratio times space.
#[test]
fn published_times_speeds_and_sizes_agree() {
    let s1 = published("S1");
    for title in
        ["Astronomical images on a NAS: recordsize 1M", "Astronomical images on a NAS: zstd 1 by recordsize"]
    {
        let of = |row: &str| rows(&s1, title, row);
        for (speed, seconds) in of("write").iter().zip(of("seconds")) {
            assert!(near(speed * seconds, 69.4 * 1_073.741_824, 0.005), "{title}: {speed} × {seconds}");
        }
        // Whole records of the last block make it a little more than the files.
        for (ratio, space) in of("compressratio").iter().zip(of("on disk")) {
            assert!((69.0..71.0).contains(&(ratio * space)), "{title}: {ratio} × {space}");
        }
    }
    // In the order of their cost.
    assert!(rows(&s1, "Astronomical images on a NAS: recordsize 1M", "compressratio").is_sorted());
}

/// The less is written, the faster it seems.
#[test]
fn the_published_sweep_falls_with_the_total() {
    let s1 = published("S1");
    assert!(rows(&s1, "Astronomical images on a NAS: zstd 1 512K by total", "write").is_sorted());
    let grid = s1
        .grids
        .iter()
        .find(|grid| grid.title == "Astronomical images on a NAS: zstd 1 512K by total")
        .unwrap();
    assert_eq!((grid.corner.as_str(), grid.columns[0].as_str()), ("GB written", "70"));
}

/// The printed means agree with the runs, except one, where two texts of the author differ.
#[test]
fn published_means_are_those_of_the_runs() {
    let s2 = published("S2");
    for (runs, mean) in [("write seconds", "write mean printed"), ("read seconds", "read mean printed")] {
        let printed = rows(&s2, "Program sources on FreeBSD", mean);
        let wrong = (0..printed.len()).filter(|at| {
            let sum: f64 = (1..=3)
                .map(|run| rows(&s2, "Program sources on FreeBSD", &format!("{runs}, run {run}"))[*at])
                .sum();
            (sum / 3.0 - printed[*at]).abs() > 0.7
        });
        let wrong: Vec<usize> = wrong.collect();
        assert_eq!(wrong, if runs == "write seconds" { vec![3] } else { vec![] }, "{runs}");
    }
}

/// A larger level below a smaller one is an artefact of measuring.
#[test]
fn in_the_published_table_gzip_9_is_below_gzip_6() {
    let ratios = rows(&published("S3"), "Jars and sources, 2014", "compressratio");
    assert!(ratios[2] < ratios[1]);
}

/// Ratios are those of the sizes, and gzip gains 6.8 times from 32 cores.
#[test]
fn published_sizes_give_the_published_ratios() {
    let s4 = published("S4");
    for (size, ratio) in rows(&s4, "Reads with and without QAT", "file").iter().zip(rows(
        &s4,
        "Reads with and without QAT",
        "compressratio",
    )) {
        assert!(near(179.0 / size, ratio, 0.02), "{size} {ratio}");
    }
    let (few, many) = (
        rows(&s4, "Reads with and without QAT", "write seconds 4 cores"),
        rows(&s4, "Reads with and without QAT", "write seconds 32 cores"),
    );
    assert_eq!(format!("{:.1}", few[3] / many[3]), "6.8");
}

#[test]
fn a_file_that_is_wrong_is_refused_in_one_line() {
    for wrong in [
        "",
        "x = 1",
        "[S0]\nsettings = 3",
        "[S0]\nsettings=['a','b']\nseconds=[1]",
        "[S0",
        "[S0]\nsettings=['a']\nseconds=['x']",
    ] {
        let said = Published::parse(wrong).unwrap_err();
        assert!(!said.contains('\n') && !said.is_empty(), "{wrong}: {said}");
    }
}
