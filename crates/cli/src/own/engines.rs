//! `cenote engines`: the code for compression and checksums on this machine, its speed, and the engines that compressed a
//! pool's gzip blocks.
//!
//! From:   `bench`, which measures over the sample; or an open pool.
//! To:     two tables, or JSON.

use bench::Implementation;
use pool::tune;
use serde_json::json;

use super::Engines;
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::open::{self, Intent};
use crate::out::{Console, counted};

/// Carries out `engines`.
///
/// # Errors
/// A build without the sample, a pool that cannot be opened.
pub fn run(args: &Engines, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    match &args.pool {
        Some(pool) => of_pool(pool, args.json, around, console),
        None => of_machine(args.json, console),
    }
}

fn of_machine(as_json: bool, console: &mut Console) -> Result<(), Failure> {
    let engines = bench::engines().map_err(|error| Failure::refused(error.to_string()))?;
    if as_json {
        let version = env!("CARGO_PKG_VERSION");
        let all = json!({ "schema": 1, "version": version, "engines": engines });
        return console.line(&all.to_string());
    }
    console.line("MB/s on one core, over the sample that comes with cenote, records of 128K\n")?;
    table(console, "COMPRESSION", &engines.compressions)?;
    console.line("")?;
    table(console, "CHECKSUM", &engines.checksums)?;
    console.line("\nlibdeflate reads all gzip data, also that of another engine.")?;
    for name in &engines.absent {
        console.line(&format!("Not in this build: {name}; gzip_engine={name} means libdeflate here."))?;
    }
    Ok(())
}

fn table(console: &mut Console, head: &str, rows: &[Implementation]) -> Result<(), Failure> {
    let wide = rows.iter().map(|row| row.library.chars().count()).max().unwrap_or(0);
    let [encode, decode, ratio] = match head {
        "CHECKSUM" => ["MB/S", "", ""],
        _ => ["WRITE", "READ", "RATIO"],
    };
    let line = |cells: [&str; 7]| {
        let [name, engine, encode, decode, ratio, cpu, library] = cells;
        let line =
            format!("{name:12} {engine:11} {encode:>7} {decode:>7} {ratio:>6}  {library:wide$}  {cpu}");
        line.trim_end().to_owned()
    };
    console.line(&line([head, "ENGINE", encode, decode, ratio, "CPU", "LIBRARY"]))?;
    for row in rows {
        let number =
            |value: Option<f64>, places: usize| value.map_or(String::new(), |v| format!("{v:.places$}"));
        let (encode, decode) = (number(Some(row.encode_mb_s), 0), number(row.decode_mb_s, 0));
        let ratio = number(row.ratio, 2);
        console.line(&line([&row.name, &row.engine, &encode, &decode, &ratio, &row.cpu, &row.library]))?;
    }
    Ok(())
}

fn of_pool(name: &str, as_json: bool, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let session = open::open_for(name, around, Intent::Read)?;
    let pool = session.pool();
    let tunable = tune::find("gzip_engine").expect("the table has it");
    let wish = pool.tunables().find(|(t, _)| t.name == tunable.name).map_or(0, |(_, value)| value);
    let records: Vec<(&str, u64)> =
        pool.deflate().records().map(|(engine, records)| (engine.name(), records)).collect();
    if as_json {
        let records: serde_json::Map<_, _> =
            records.iter().map(|(engine, records)| ((*engine).to_owned(), json!(records))).collect();
        let all =
            json!({ "schema": 1, "pool": name, "gzip_engine": tunable.text(wish), "gzip_records": records });
        console.line(&all.to_string())?;
    } else {
        console.line(&format!("gzip_engine  {}", tunable.text(wish)))?;
        for (engine, records) in records {
            console.line(&format!("{engine:12} {}", counted(records, "record")))?;
        }
    }
    session.finish()
}
