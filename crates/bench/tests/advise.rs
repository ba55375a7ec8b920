//! The promises of the advisor: ratios as a real dataset has them, within its own interval.

use std::collections::BTreeMap;

use bench::advise::{Advice, Question, Subject, advise};
use bench::{Event, Place, Plan, Source, Watch};

struct Deaf;

impl Watch for Deaf {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        false
    }
}

const COMPRESSIONS: [&str; 6] = ["off", "lz4", "zstd-1", "gzip-1", "lzjb", "zle"];
const RECORDSIZES: [u64; 3] = [16 << 10, 128 << 10, 1 << 20];

fn question() -> Question {
    let usual = Question::usual();
    let mut target = usual.target;
    (target.disk_write, target.disk_read) = (Some(1e9), Some(1e9));
    Question {
        compressions: COMPRESSIONS.map(str::to_owned).to_vec(),
        recordsizes: RECORDSIZES.to_vec(),
        target,
        // No limit that a slow machine would meet.
        seconds: 3600.0,
        ..Question::usual()
    }
}

/// compressratio of real datasets with the sample in them.
fn measured(source: &mut Source) -> BTreeMap<(String, u64), (f64, u64)> {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        compressions: COMPRESSIONS.map(str::to_owned).to_vec(),
        recordsizes: RECORDSIZES.to_vec(),
        place: Place::Folder(dir.path().to_owned()),
        ..Plan::usual()
    };
    let report = bench::run(&plan, source, &Deaf).unwrap();
    let of = |run: bench::Run| ((run.compression, run.recordsize), (run.compressratio, run.allocated_bytes));
    report.runs.into_iter().map(of).collect()
}

/// How many rows have the measured ratio within their interval, and the largest error of a row.
fn judged(advice: &Advice, measured: &BTreeMap<(String, u64), (f64, u64)>) -> (usize, f64) {
    let mut held = 0;
    let mut worst: f64 = 0.0;
    for row in &advice.rows {
        let (ratio, _) = measured[&(row.compression.clone(), row.recordsize)];
        // The property is cut to two decimals.
        if (row.ratio_low - 0.01..=row.ratio_high).contains(&ratio) {
            held += 1;
        }
        worst = worst.max((row.compressratio / (ratio + 0.005) - 1.0).abs());
    }
    (held, worst)
}

#[test]
fn ratios_of_the_sample_are_predicted_within_two_per_cent_and_within_their_interval() {
    let measured = measured(&mut Source::sample().unwrap());
    let whole = advise(&question(), vec![Subject::Sample], &Deaf).unwrap();
    assert!(whole.sample.complete || whole.sample.sampled_bytes > 20_000_000);
    let (held, worst) = judged(&whole, &measured);
    for row in &whole.rows {
        let (ratio, used) = measured[&(row.compression.clone(), row.recordsize)];
        println!(
            "{} {}: {:.3} ({:.3}..{:.3}) measured {ratio}; used {:.0} measured {used}",
            row.compression, row.recordsize, row.compressratio, row.ratio_low, row.ratio_high, row.used_bytes
        );
        assert!((row.used_bytes / used as f64 - 1.0).abs() < 0.02, "{} {}", row.compression, row.recordsize);
    }
    assert_eq!(held, whole.rows.len(), "each within its interval");
    assert!(worst < 0.02, "{worst}");

    // A part of the data, many samples: 95 % of the intervals hold the truth.
    let (mut all, mut inside) = (0, 0);
    for seed in 0..8 {
        let question = Question { seed, bytes_max: Some(27 << 19), ..question() };
        let part = advise(&question, vec![Subject::Sample], &Deaf).unwrap();
        let (held, worst) = judged(&part, &measured);
        println!("seed {seed}: {held} of {}, worst {worst:.3}", part.rows.len());
        (all, inside) = (all + part.rows.len(), inside + held);
    }
    assert!(inside * 100 >= all * 95, "{inside} of {all}");
}

#[test]
fn many_small_files_are_predicted_with_their_metadata() {
    let dir = tempfile::tempdir().unwrap();
    for folder in 0..10 {
        let at = dir.path().join(format!("{folder}"));
        std::fs::create_dir(&at).unwrap();
        for number in 0..300usize {
            let line = |at: usize| {
                format!(
                    "{folder} {number} {:x} and so on\n",
                    (at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                )
            };
            let text: String = (0..number * 37 % 400 + 1).map(line).collect();
            std::fs::write(at.join(format!("picture-{number}.txt")), text).unwrap();
        }
    }
    let measured = measured(&mut Source::scan(&[dir.path().to_owned()]).unwrap());
    let advice = advise(&question(), vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap();
    for row in &advice.rows {
        let (ratio, used) = measured[&(row.compression.clone(), row.recordsize)];
        println!(
            "{} {}: {:.3} ({:.3}..{:.3}) measured {ratio}; used {:.0} measured {used}",
            row.compression, row.recordsize, row.compressratio, row.ratio_low, row.ratio_high, row.used_bytes
        );
    }
    let (held, worst) = judged(&advice, &measured);
    assert!(worst < 0.02, "{worst}");
    assert_eq!(held, advice.rows.len());
}

#[test]
fn kept_pieces_of_a_long_stream_predict_the_whole() {
    let total: u64 = 160 << 20;
    let question =
        Question { compressions: vec!["off".to_owned()], recordsizes: vec![1 << 20], ..question() };
    let mut stream = std::io::Read::take(std::io::repeat(7), total);
    let advice = advise(&question, vec![Subject::Stream(&mut stream)], &Deaf).unwrap();
    let row = &advice.rows[0];
    assert_eq!(advice.sample.bytes, total);
    assert!((row.used_bytes / total as f64 - 1.0).abs() < 0.01, "{}", row.used_bytes);
    assert!((advice.kinds[0].bytes as f64 / total as f64 - 1.0).abs() < 1e-6, "{:?}", advice.kinds);
    assert!((row.write.bytes_per_second) < 2e9, "the disk takes 1e9: {:?}", row.write);
    assert!(!advice.sample.complete && !advice.dedup.exact);
}

#[test]
fn a_sparse_file_is_no_more_than_its_data() {
    let dir = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(dir.path().join("disk.img")).unwrap();
    file.set_len(1 << 30).unwrap();
    for part in 0..8 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], part << 27).unwrap();
    }
    let advice = advise(&question(), vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap();
    assert_eq!(advice.kinds[0].bytes, advice.sample.bytes);
}

#[test]
fn record_sizes_share_what_may_be_read() {
    let most = 12 << 20;
    let question = Question { bytes_max: Some(most), ..question() };
    let advice = advise(&question, vec![Subject::Sample], &Deaf).unwrap();
    // The last piece of each of the two lengths may be too much.
    assert!(advice.sample.sampled_bytes <= most + (1 << 20) + (128 << 10), "{}", advice.sample.sampled_bytes);
}

#[test]
fn the_same_seed_gives_the_same_ratios() {
    let once = || {
        let question = Question { seed: 3, bytes_max: Some(4 << 20), ..question() };
        advise(&question, vec![Subject::Sample], &Deaf).unwrap()
    };
    let (one, other) = (once(), once());
    let ratios =
        |advice: &Advice| advice.rows.iter().map(|row| (row.compressratio * 1e6) as u64).collect::<Vec<_>>();
    assert_eq!(ratios(&one), ratios(&other));
}

#[test]
fn copies_are_counted_and_packed_files_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let mut noise = vec![0u8; 4 << 20];
    let mut state = 1u64;
    for byte in &mut noise {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *byte = (state >> 56) as u8;
    }
    for name in ["a.gz", "b.gz", "c.gz"] {
        std::fs::write(dir.path().join(name), &noise).unwrap();
    }
    std::fs::write(dir.path().join("t.txt"), "text that compresses well\n".repeat(1_000)).unwrap();
    let question = Question { dedup: true, ..question() };
    let advice = advise(&question, vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap();
    // The data is three copies of noise. The text is so small that the recommended setting does not matter.
    assert!((advice.dedup.ratio / 3.0 - 1.0).abs() < 0.01, "{}", advice.dedup.ratio);
    let packed = advice.kinds.iter().find(|kind| kind.kind == "gz").unwrap();
    assert!(packed.remark.as_ref().is_some_and(|text| text.contains("hardly compresses")), "{packed:?}");
    assert!(["lz4", "off"].contains(&packed.compression.as_str()));
}

/// The contents of the files of the sample.
fn sample_files() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/corpus");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut packed: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "zst")).collect();
    packed.sort();
    let unpack = |path| {
        let packed = std::fs::read(path).unwrap();
        let size = zstd_safe::get_frame_content_size(&packed).unwrap().unwrap();
        let mut data = vec![0; size as usize];
        zstd_safe::decompress(&mut data[..], &packed).unwrap();
        data
    };
    packed.iter().map(unpack).collect()
}

/// A pool with the files of a folder in a dataset with `dedup`, as advised, each txg with `txg_bytes` of a file: its ratio in hundredths,
/// and the figures of its tables. `logs`: with the feature `fast_dedup`.
fn deduplicated(
    folder: &std::path::Path,
    advice: &Advice,
    logs: bool,
    txg_bytes: usize,
) -> (u64, pool::Figures) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    // No txg ends by itself, because the fill of the tables depends on the contents of each txg.
    let options = pool::Options { txg_timeout: 3600, dirty_max: 2 << 30, ..pool::Options::default() };
    let property = |name: &str, word: &str| {
        (name.to_owned(), pool::props::dataset::parse(name).unwrap().parse_value(word).unwrap())
    };
    let pick = &advice.picks[0];
    let mut spec = pool::CreateSpec::new(
        "tank",
        vec![std::sync::Arc::new(
            pool::open_disk(&image, storage::host::Access::ReadWrite { exclusive: true }).unwrap(),
        )],
        pool::NewFilesystem::plain(&options.host),
        zpl::initialiser(),
    );
    spec.ashift = Some(advice.ashift);
    if logs {
        spec.features.push(&format::features::FAST_DEDUP);
    }
    spec.root_properties = vec![
        property("dedup", "on"),
        property("compression", &pick.compression),
        property("recordsize", &pick.recordsize.to_string()),
    ];
    let pool = pool::Pool::create(spec, options).unwrap();
    let fs = zpl::Filesystem::open(pool.open("tank").unwrap()).unwrap();
    for (number, entry) in std::fs::read_dir(folder).unwrap().enumerate() {
        let data = std::fs::read(entry.unwrap().path()).unwrap();
        let new = zpl::NewNode::new(zpl::FileKind::Regular, 0o644);
        let id = fs.create(fs.root(), format!("f{number}").as_bytes(), &new).unwrap();
        for (at, part) in data.chunks(txg_bytes).enumerate() {
            fs.write(id, (at * txg_bytes) as u64, part).unwrap();
            if part.len() == txg_bytes {
                pool.sync().unwrap();
            }
        }
    }
    drop(fs);
    // It prunes nothing, and moves what is in logs into the tables.
    pool.prune_dedup(pool::Prune::Older(u64::MAX)).unwrap();
    pool.sync().unwrap();
    (pool.info().dedup.ratio_percent(), pool.dedup().unwrap().figures)
}

/// How files are written.
struct Form {
    recordsize: u64,
    compression: &'static str,
    ashift: u32,
    /// Bytes of a file in a txg.
    txg_bytes: usize,
}

/// Compares the forecast for the files of `folder` with what happens, without and with logs.
fn foretells(folder: &std::path::Path, what: &str, form: &Form) {
    let &Form { recordsize, compression, ashift, txg_bytes } = form;
    let mut question = Question {
        dedup: true,
        compressions: vec![compression.to_owned()],
        recordsizes: vec![recordsize],
        ashift,
        ..question()
    };
    question.target.disk_write = Some(txg_bytes as f64 / 5.0);
    let advice = advise(&question, vec![Subject::Path(folder.to_owned())], &Deaf).unwrap();
    assert!(advice.dedup.exact);
    let told = &advice.dedup;
    let forecast = [(told.memory_bytes, told.disk_bytes), (told.fast_memory_bytes, told.fast_disk_bytes)];
    for (logs, (memory, disk)) in [false, true].into_iter().zip(forecast) {
        let (percent, found) = deduplicated(folder, &advice, logs, txg_bytes);
        let error = |told: f64, found: u64| told / found as f64 - 1.0;
        let (of_memory, of_disk) = (error(memory, found.in_core), error(disk, found.on_disk));
        let told = format!(
            "{what}, {recordsize}, {compression}, logs {logs}: ratio {:.3} of {percent}, {} of {} entries, \
             in core {memory} of {} ({of_memory:+.3}), on disk {disk} of {} ({of_disk:+.3})",
            told.ratio, told.entries, found.entries, found.in_core, found.on_disk
        );
        println!("{told}");
        assert!((advice.dedup.ratio * 100.0 / (percent as f64 + 0.5) - 1.0).abs() < 0.02, "{told}");
        assert!(of_memory.abs() < 0.02, "{told}");
        // The compression of leaves that contain bytes of earlier entries is an estimate.
        assert!(of_disk.abs() < 0.04, "{told}");
    }
}

#[test]
fn deduplication_of_real_files_is_predicted_with_ratio_and_memory_within_two_per_cent() {
    let dir = tempfile::tempdir().unwrap();
    // The files of the sample; some are there twice, and one contains a part of another.
    let all: Vec<Vec<u8>> = sample_files();
    for (number, data) in all.iter().enumerate() {
        std::fs::write(dir.path().join(format!("{number}")), data).unwrap();
        if number % 3 == 0 {
            std::fs::write(dir.path().join(format!("{number}-again")), data).unwrap();
        }
        if number % 5 == 0 {
            let part = &data[..data.len() / 2 / 4096 * 4096];
            std::fs::write(dir.path().join(format!("{number}-part")), [part, b"end"].concat()).unwrap();
        }
    }
    for (recordsize, compression, ashift) in [(512, "off", 9), (4096, "lz4", 9), (16384, "zstd", 12)] {
        foretells(dir.path(), "sample", &Form { recordsize, compression, ashift, txg_bytes: 1 << 30 });
    }
}

#[test]
fn deduplication_of_known_shares_of_copies_is_predicted_within_two_per_cent() {
    for (of_ten, recordsize, txg_bytes) in [(0, 4096, 1 << 30), (5, 8192, 4 << 20), (9, 4096, 8 << 20)] {
        let dir = tempfile::tempdir().unwrap();
        // Which record is where: of ten, so many are copies of any record before.
        let mut random = 7u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let (mut data, mut different) = (Vec::new(), 0u64);
        for _ in 0..(48 << 20) / recordsize {
            let number = if different > 0 && next(10) < of_ten { next(different) } else { different };
            different = different.max(number + 1);
            let word = |at: u64| ((number << 16 | at) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            data.extend((0..recordsize / 8).flat_map(word));
        }
        std::fs::write(dir.path().join("data"), &data).unwrap();
        let form = Form { recordsize, compression: "off", ashift: 12, txg_bytes };
        foretells(dir.path(), &format!("{of_ten}0 %"), &form);
    }
}

/// Text of so many bytes that differs from place to place.
fn text(number: usize, bytes: usize) -> Vec<u8> {
    let line =
        |at: usize| format!("{number} {:x} and so on\n", (at + number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut text: Vec<u8> = (0..bytes).map(line).flat_map(String::into_bytes).take(bytes).collect();
    text.truncate(bytes);
    text
}

/// For disks beside which the slowest processor is fast: what is recommended does not depend on this machine.
fn on_slow_disks(compressions: &[&str]) -> Question {
    let target = bench::advise::Target { disk_write: Some(1e5), disk_read: Some(1e5), ..question().target };
    let compressions = compressions.iter().map(|name| (*name).to_owned()).collect();
    Question { compressions, recordsizes: vec![128 << 10], target, ..question() }
}

#[test]
fn compressible_data_is_compressed_for_every_layout_and_sector_size() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..400 {
        std::fs::write(dir.path().join(format!("{number}.txt")), text(number, 4620)).unwrap();
    }
    let big = tempfile::tempdir().unwrap();
    std::fs::write(big.path().join("a.txt"), text(1, 3_000_000)).unwrap();
    for (dir, layout) in [(&dir, "stripe"), (&big, "mirror:3"), (&dir, "raidz1:3")] {
        let question = Question {
            layout: layout.parse().unwrap(),
            ..on_slow_disks(&["off", "lz4", "zstd-1", "gzip-1"])
        };
        let advice = advise(&question, vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap();
        let best = advice.rows.iter().map(|row| row.saving).fold(0.0, f64::max);
        assert!(best > 0.3, "{layout}: {:?}", advice.rows);
        let [pick, ..] = &advice.picks[..] else { panic!("a pick for each purpose") };
        assert!(!pick.why.contains("hardly compresses"), "{layout}: {pick:?}");
        assert_ne!(pick.compression, "off", "{layout}: {pick:?}");
        assert_eq!(advice.kinds[0].compression, pick.compression, "{layout}");
    }
}

#[test]
fn savings_are_relative_to_off_even_if_off_is_not_a_candidate() {
    let dir = tempfile::tempdir().unwrap();
    // With records of 1M the last one is mostly padding.
    std::fs::write(dir.path().join("a.txt"), text(1, 1_100_000)).unwrap();
    let asked = |compressions: &[&str]| {
        let question = Question { recordsizes: vec![128 << 10, 1 << 20], ..on_slow_disks(compressions) };
        advise(&question, vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap()
    };
    let (with, without) = (asked(&["off", "gzip-1"]), asked(&["gzip-1"]));
    let least = with.rows.iter().filter(|row| row.compression == "off").map(|row| row.used_bytes);
    let least = least.fold(f64::INFINITY, f64::min);
    for row in with.rows.iter().chain(&without.rows) {
        assert!((row.saving - (1.0 - row.used_bytes / least)).abs() < 1e-9, "{row:?}");
    }
    assert!(with.rows.iter().any(|row| row.saving < -0.5), "off with records of 1M");
    let lines = with.lines().join("\n");
    assert!(lines.contains("saved: compared with off and records of 128K"), "{lines}");
    let pick = with
        .rows
        .iter()
        .find(|row| row.recordsize == with.picks[0].recordsize && row.compression == "gzip-1");
    let saved = format!("{:.0} % saved", 100.0 * pick.unwrap().saving);
    assert!(with.picks[0].why.contains(&saved), "{saved}: {}", with.picks[0].why);
}

#[test]
fn three_bytes_give_no_recommendation() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("three.txt");
    std::fs::write(&file, "abc").unwrap();
    let advice = advise(&on_slow_disks(&["off", "lz4", "zstd-3"]), vec![Subject::Path(file)], &Deaf).unwrap();
    assert!(
        advice.doubt.as_ref().is_some_and(|doubt| doubt.starts_with("3B of data is too little")),
        "{advice:?}"
    );
    let said = advice.lines().join("\n");
    assert!(said.contains("\nNo recommendation: 3B of data is too little"), "{said}");
    assert!(
        !said.contains("zfs set") && !said.contains("zfs create") && !said.contains("balanced:"),
        "{said}"
    );
    let page = advice.to_html("cenote advise three.txt");
    assert!(page.contains("No recommendation: 3B of data is too little"), "the page says the same");
}

#[test]
fn in_doubt_the_advice_has_no_commands() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text.txt");
    std::fs::write(&file, text(1, 300_000)).unwrap();
    let mut advice = advise(&on_slow_disks(&["off", "lz4"]), vec![Subject::Path(file)], &Deaf).unwrap();
    assert_eq!(advice.doubt, None, "{advice:?}");
    assert!(advice.lines().join("\n").contains("zfs set"));
    advice.doubt = Some("why".to_owned());
    assert!(!advice.lines().join("\n").contains("zfs set"));
}

#[test]
fn short_text_is_too_small_for_its_sectors_and_not_compressed_already() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..300 {
        std::fs::write(dir.path().join(format!("{number}.txt")), text(number, 3000)).unwrap();
    }
    let remark = |compressions: &[&str]| {
        let advice =
            advise(&on_slow_disks(compressions), vec![Subject::Path(dir.path().to_owned())], &Deaf).unwrap();
        advice.kinds[0].remark.clone().unwrap()
    };
    let said = remark(&["off", "lz4", "zstd-1", "gzip-1"]);
    assert!(said.contains("too small: each takes whole sectors of 4K"), "{said}");
    let said = remark(&["off", "zle"]);
    assert!(said.contains("none of these compressions makes it much smaller"), "{said}");
}

#[test]
fn commands_about_a_dataset_can_be_run() {
    let question = Question { dataset: Some("tank/my files".to_owned()), ..on_slow_disks(&["off", "lz4"]) };
    let advice = advise(&question, vec![Subject::Sample], &Deaf).unwrap();
    let lines = advice.lines().join("\n");
    assert!(
        lines.contains(" 'tank/my files'    (new data only)") && !lines.contains("zfs create"),
        "{lines}"
    );
}
