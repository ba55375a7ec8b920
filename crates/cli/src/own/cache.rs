//! `cenote cache`: how useful the cache in memory and the cache devices of a pool are.
//!
//! From:   the counters of the process that holds the pool.
//! To:     a table, or JSON.

use pool::props::number::nice;
use serde_json::json;
use storage::{CacheStats, Lookups, SecondDevice, SecondStats};

use super::Cache;
use crate::Surroundings;
use crate::messages::Failure;
use crate::open::{self, Intent};
use crate::out::{Console, counted};

/// Carries out `cache`.
///
/// # Errors
/// A pool that is not there, or that no server holds: then nothing is cached.
pub fn run(args: &Cache, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    if around.live().is_none() {
        // A pool that is not there is the first thing to say.
        open::find(&args.pool, around)?;
        return Err(Failure::refused(format!(
            "cenote: no server holds '{}', so nothing of it is cached",
            args.pool
        )));
    }
    let session = open::open_for(&args.pool, around, Intent::Read)?;
    let (memory, second) = session.pool().cache_stats();
    let devices = session.pool().cache_devices();
    if args.json {
        console.line(&as_json(&memory, &second, &devices).to_string())?;
    } else {
        for line in as_lines(&memory, &second, &devices) {
            console.line(&line)?;
        }
    }
    session.finish()
}

fn as_json(memory: &CacheStats, second: &SecondStats, devices: &[SecondDevice]) -> serde_json::Value {
    let lookups = |of: Lookups| json!({ "hits": of.hits, "misses": of.misses });
    let device = |of: &SecondDevice| {
        json!({
            "guid": of.guid.0, "size": of.size, "used": of.used, "reads": of.io.reads, "read_bytes": of.io.read_bytes,
            "writes": of.io.writes, "write_bytes": of.io.write_bytes, "failed": of.failed,
        })
    };
    json!({
        "schema": 1,
        "memory": {
            "limit": memory.limit, "bytes": memory.bytes, "records": memory.records, "evictions": memory.evictions,
            "data": lookups(memory.data), "metadata": lookups(memory.metadata),
        },
        "devices": {
            "hits": second.hits, "misses": second.misses, "written": second.written, "feeds": second.feeds,
            "evicted": second.evicted, "restored": second.restored, "bad": second.bad, "errors": second.errors,
            "each": devices.iter().map(device).collect::<Vec<_>>(),
        },
    })
}

fn as_lines(memory: &CacheStats, second: &SecondStats, devices: &[SecondDevice]) -> Vec<String> {
    let found = |what: &str, of: Lookups| {
        format!("  {what:<10} {:>12} hits {:>12} misses  {}", of.hits, of.misses, share(of))
    };
    let mut lines = vec![
        format!(
            "memory: {} of {}, {}",
            nice(memory.bytes),
            nice(memory.limit),
            counted(memory.records, "record")
        ),
        found("data", memory.data),
        found("metadata", memory.metadata),
    ];
    if devices.is_empty() {
        lines.push("devices: none".to_owned());
        return lines;
    }
    let (used, size) = devices.iter().fold((0, 0), |sum, of| (sum.0 + of.used, sum.1 + of.size));
    lines.push(format!("devices: {} of {}", nice(used), nice(size)));
    lines.push(found("blocks", Lookups { hits: second.hits, misses: second.misses }));
    let SecondStats { written, evicted, restored, bad, errors, .. } = second;
    let written = counted(*written, "block");
    lines.push(format!("  {written} written, {evicted} evicted, {restored} found at import"));
    if bad + errors > 0 {
        lines.push(format!(
            "  {} with a wrong checksum, {} refused: read from the pool instead",
            counted(*bad, "block"),
            counted(*errors, "read")
        ));
    }
    let failed = devices.iter().filter_map(|device| device.failed.as_ref());
    lines.extend(failed.map(|why| format!("  a device is not used any more: {why}")));
    lines
}

/// The share of hits.
fn share(of: Lookups) -> String {
    match of.hits + of.misses {
        0 => "-".to_owned(),
        all => format!("{:.1} %", of.hits as f64 * 100.0 / all as f64),
    }
}
