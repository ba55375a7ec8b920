//! `zpool iostat -j`: an object for each round, in the envelope that OpenZFS gives its JSON. `zpool iostat` of OpenZFS
//! prints no JSON.

use std::iter::Peekable;
use std::slice;

use serde_json::{Map, Value, json};

use super::columns::Counted;
use super::{Line, Report, Table};
use crate::json;

impl Report {
    /// The figures of one round: of the pools, and of their vdevs if the user asked for them.
    pub(super) fn as_json(&self, tables: &[Table]) -> Value {
        let mut pools = Map::new();
        for Table { pool, since, lines } in tables {
            let mut rest = lines.iter().peekable();
            let mut object = json!({ "name": pool, "seconds": since.as_secs_f64() });
            let whole = rest
                .next_if(|(line, _)| line.depth == 0 && line.name == *pool && self.wanted.vdevs.is_empty());
            if let (Some((line, counted)), Value::Object(object)) = (whole, &mut object) {
                object.append(&mut self.figures(line, counted, *since));
            }
            let depth = if whole.is_some() { 1 } else { 0 };
            let vdevs = self.nested(&mut rest, depth, *since);
            if !vdevs.is_empty() {
                object["vdevs"] = vdevs.into();
            }
            pools.insert(pool.clone(), object);
        }
        json::envelope("zpool iostat", "pools", pools)
    }

    /// The vdevs at this depth, each with the vdevs below it.
    fn nested(
        &self,
        rest: &mut Peekable<slice::Iter<'_, (Line, Counted)>>,
        depth: usize,
        since: std::time::Duration,
    ) -> Map<String, Value> {
        let mut vdevs = Map::new();
        while let Some((line, counted)) = rest.next_if(|(line, _)| line.heading || line.depth >= depth) {
            if line.heading {
                continue;
            }
            let mut object = Map::new();
            object.insert("name".to_owned(), line.name.as_str().into());
            object.extend(line.class.map(|class| ("class".to_owned(), class.word().into())));
            object.append(&mut self.figures(line, counted, since));
            let below = self.nested(rest, depth + 1, since);
            if !below.is_empty() {
                object.insert("vdevs".to_owned(), below.into());
            }
            vdevs.insert(line.name.clone(), object.into());
        }
        vdevs
    }

    fn figures(&self, line: &Line, counted: &Counted, since: std::time::Duration) -> Map<String, Value> {
        match self.histogram {
            Some(histogram) => histogram.object(&counted.times, self.look, self.as_int),
            None => {
                let cells = self.columns.cells(line.space, counted, since, self.look);
                self.columns.object(&cells, self.as_int)
            }
        }
    }
}
