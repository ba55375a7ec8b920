//! `cenote engines`, and the engine of gzip as users choose it.

mod bed;

use std::process::Command;

use bed::{Bed, Done};
use serde_json::Value;

fn json(done: Done) -> Value {
    serde_json::from_str(&done.good()).expect("JSON")
}

#[test]
fn engines_are_listed_with_their_libraries_and_rates() {
    let bed = Bed::new();
    let all = json(bed.run(&["engines", "--json"]));
    assert_eq!(all["schema"], 1);
    let engines = &all["engines"];
    let names = |list: &Value| -> Vec<String> {
        let name = |row: &Value| row["name"].as_str().expect("a name").to_owned();
        list.as_array().expect("a list").iter().map(name).collect()
    };
    let compressions = names(&engines["compressions"]);
    for name in ["lz4", "gzip-6", "zstd-3"] {
        assert!(compressions.iter().any(|row| row == name), "{compressions:?}");
    }
    assert_eq!(names(&engines["checksums"]).len(), 7);
    let rows = engines["compressions"].as_array().expect("a list");
    assert!(rows.iter().all(|row| row["encode_mb_s"].as_f64() > Some(0.0) && row["library"] != ""));
    let is_here = rows.iter().any(|row| row["engine"] == "isal");
    assert_eq!(engines["absent"].as_array().expect("a list").is_empty(), is_here);
    let table = bed.run(&["engines"]).good();
    assert!(table.contains("\ngzip-6       libdeflate "), "{table}");
    bed.run(&["engines", "nosuch"]).refused("cannot open 'nosuch': no such pool");
}

#[test]
fn the_engine_is_chosen_by_dataset_and_by_run() {
    let bed = Bed::with_tank(128, &["compression=gzip-6"]);
    let set = ["zfs", "set", "org.cenote:gzip_engine=zlib", "tank"];
    bed.run(&set).refused(
        "cannot set property for 'tank': 'org.cenote:gzip_engine' must be one of 'auto | libdeflate | isal'",
    );
    bed.run(&["zfs", "set", "org.cenote:gzip_engine=isal", "tank"]).good();
    let got = bed.run(&["zfs", "get", "-Hpo", "value,source", "org.cenote:gzip_engine", "tank/fs"]).good();
    assert_eq!(got, "isal\tinherited from tank\n");
    let text: String = (0..60_000u64).map(|i| format!("{i} {}\n", i * i % 9973)).collect();
    std::fs::write(bed.path("text"), &text).expect("written");
    let used = |name: &str, engine: &str| -> u64 {
        let place = format!("tank/fs:/{name}");
        let text = bed.path("text").display().to_string();
        let mut command: Command = bed.command(&["cp", "-q", &text, &place]);
        let done: Done = command.env("CENOTE_GZIP_ENGINE", engine).output().expect("it starts").into();
        done.good();
        let before = bed.list(&place);
        before[0]["blocks"].as_u64().expect("a number")
    };
    let (property, libdeflate) = (used("property", "property"), used("libdeflate", "libdeflate"));
    let here = json(bed.run(&["engines", "--json"]))["engines"]["absent"] == Value::Array(Vec::new());
    assert_eq!(property > libdeflate, here, "igzip packs less tightly: {property}, {libdeflate} sectors");
    assert_eq!(bed.run(&["cat", "tank/fs:/property"]).good(), text);
    let mut bad = bed.command(&["ls", "tank/fs:/"]);
    let bad: Done = bad.env("CENOTE_GZIP_ENGINE", "qat").output().expect("it starts").into();
    assert!(
        bad.status == 1 && bad.err.contains("gzip_engine is one of property, auto, libdeflate, isal"),
        "{bad:?}"
    );
    bed.expect_sound("tank");
}

#[test]
fn the_engine_of_a_run_can_be_kept_in_the_users_file() {
    let bed = Bed::new();
    let tune = |words: &[&str]| -> Done {
        let mut command = bed.command(words);
        command.env("XDG_CONFIG_HOME", bed.path("config")).output().expect("it starts").into()
    };
    tune(&["tune", "gzip_engine=zlib"]).refused("gzip_engine is one of property, auto, libdeflate, isal");
    tune(&["tune", "gzip_engine=auto"]).good();
    let kept = std::fs::read_to_string(bed.path("config/cenote/config.toml")).expect("written");
    assert_eq!(kept, "gzip_engine = \"auto\"\n");
    assert_eq!(json(tune(&["tune", "--json", "gzip_engine"]))["tunables"][0]["value"], "auto");
    assert!(tune(&["tune", "gzip_engine"]).good().contains("    auto  "));
}
