//! The experiments that come with cenote, each on very little data.

use std::path::{Path, PathBuf};

use bench::{Event, Experiment, Figures, Place, Plan, Source, Watch};

struct Deaf;

impl Watch for Deaf {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        false
    }
}

fn all() -> Vec<(String, Experiment)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_experiment = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "toml") && !path.ends_with("published.toml")
    };
    let mut all: Vec<_> = paths.filter(is_experiment).collect();
    all.sort();
    let read = |path: PathBuf| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), Experiment::read(&path).unwrap())
    };
    all.into_iter().map(read).collect()
}

/// The same kinds of data with a megabyte of each, and only the smallest file of the sample.
fn little(data: &[String]) -> Vec<String> {
    let less = |word: &String| match word.split_once(':') {
        Some((kind, _)) => format!("{kind}:1M"),
        None => "sample/hadoop-yarn-head.jar".to_owned(),
    };
    let mut less: Vec<String> = data.iter().map(less).collect();
    less.dedup();
    less
}

/// Those with steps of programs are in the tests of the program, which can mount.
#[test]
fn every_experiment_runs_and_shows_its_tables_beside_the_published_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for (name, experiment) in all().into_iter().filter(|(_, experiment)| experiment.steps.is_empty()) {
        let mut source = Source::named(&little(&experiment.data)).unwrap();
        let mut plan = Plan { place: Place::Folder(dir.path().to_owned()), ..Plan::usual() };
        experiment.apply(&mut plan);
        plan.totals.iter_mut().for_each(|total| *total /= 100);
        let report = bench::run(&plan, &mut source, &Deaf).unwrap();
        assert_eq!(report.runs.len(), plan.configurations().unwrap().len(), "{name}");
        assert!(report.runs.iter().all(|run| run.verified), "{name}");
        let figures = Figures::of(&report);
        let titles: Vec<&str> = figures.tables.iter().map(|table| table.title.as_str()).collect();
        assert!(titles.iter().any(|title| title.ends_with("published and here")), "{name}: {titles:?}");
        assert!(titles.iter().any(|title| title.starts_with("Published: ")), "{name}: {titles:?}");
        for table in &figures.tables {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name}: {table:?}");
        }
        let json = report.to_json_with_figures();
        assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{name}");
        assert!(
            report.to_html().contains("</html>") && report.to_markdown().contains("published and here"),
            "{name}"
        );
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn the_data_of_every_experiment_is_there() {
    for (name, experiment) in all() {
        assert!(!experiment.data.is_empty(), "{name}");
        // A byte of each kind: sizes are the only thing that differs.
        let words = experiment.data.iter().map(|word| match word.split_once(':') {
            Some((kind, _)) => format!("{kind}:1"),
            None => word.clone(),
        });
        let words: Vec<String> = words.collect();
        assert!(Source::named(&words).is_ok(), "{name}: {words:?}");
    }
}
