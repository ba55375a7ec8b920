//! `zpool iostat`.
//!
//! The counters are those of whoever holds the pool, from the moment it took it: the pool's server, or this command.

mod columns;
mod histogram;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use storage::TopVdev;

use self::columns::{Columns, Counted, Look, ruler};
use self::histogram::Histogram;
use super::Call;
use super::pool_values::{PoolValues, Space};
use super::repeat::Repeat;
use super::scripts::{Answers, Scripts};
use super::view::{self, Class, Naming, PoolView, VdevView};
use crate::messages::Failure;
use crate::open;
use crate::out::Console;

/// Rounds after which the headings come again.
const PAGE: u64 = 20;

/// What a command line asks for.
struct Wanted {
    pools: Vec<String>,
    /// Vdevs of the one pool; all of its own if empty.
    vdevs: Vec<String>,
}

/// A line: a pool or vdev, how deep it stands, its space where it has its own.
struct Line {
    name: String,
    /// The pool that it is or belongs to.
    pool: String,
    /// Where a leaf is.
    path: Option<String>,
    depth: usize,
    space: Option<Space>,
    leaves: Vec<u64>,
    /// It is a class of vdevs, of which nothing is counted.
    heading: bool,
}

impl Line {
    fn of(vdev: &VdevView, depth: usize, values: &PoolValues) -> Line {
        Line {
            name: vdev.name.clone(),
            pool: values.view().name.clone(),
            path: vdev.path.clone().filter(|_| vdev.is_leaf()),
            depth,
            space: values.space_of(vdev),
            leaves: leaves(vdev),
            heading: false,
        }
    }

    fn heading(pool: &str, class: Class) -> Line {
        let (name, pool) = (class.heading().to_owned(), pool.to_owned());
        Line { name, pool, path: None, depth: 0, space: None, leaves: Vec::new(), heading: true }
    }
}

/// Counters by leaf guid at a time.
type Counters = BTreeMap<u64, Counted>;

/// Counters of all pools when they were looked at last.
type Last = (Vec<Counters>, Instant);

/// What is printed, and how.
struct Report {
    wanted: Wanted,
    naming: Naming,
    /// `-v`.
    verbose: bool,
    look: Look,
    columns: Columns,
    histogram: Option<Histogram>,
}

/// Runs `zpool iostat`.
///
/// # Errors
/// Usage; pools or vdevs that are not there.
pub fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let has = |option| call.args.has(option);
    let mut operands = call.args.operands.clone();
    let repeat = Repeat::take(&mut operands, call.args.value("T"))?;
    if (has("r") || has("w")) && (has("l") || has("q") || has("c")) {
        return Err(Failure::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    let scripts = Scripts::of(call)?;
    let histogram = match (has("w"), has("r")) {
        (true, true) => return Err(Failure::usage("Only one of [-r|-w] can be passed at a time")),
        (true, false) => Some(Histogram::Latency),
        (false, true) => Some(Histogram::Sizes),
        (false, false) => None,
    };
    let report = Report {
        wanted: wanted(call, operands)?,
        naming: Naming { guids: has("g"), follow: has("L"), full: has("P") },
        verbose: has("v") || scripts.is_some(),
        look: Look { exact: has("p"), tabs: has("H") },
        columns: Columns { latency: has("l"), queues: has("q") },
        histogram,
    };
    let views = view::views(&report.wanted.pools, call.around, console)?;
    if views.is_empty() {
        if report.wanted.pools.is_empty() && !has("H") {
            console.remark("no pools available");
        }
        return Ok(());
    }
    let mut last: Option<Last> = None;
    let mut round = 0;
    repeat.run_skipping(call.around, console, has("y"), |console, quiet| {
        // Scripts take their time; the rates are of that at which it was counted.
        let now: Last = (views.iter().map(counters).collect(), Instant::now());
        if !quiet {
            let answers = scripts.as_ref().map(|scripts| scripts.ask(&views)).unwrap_or_default();
            let again = !has("n") && (report.verbose || round % PAGE == 0);
            let headed = !report.look.tabs && (round == 0 || again);
            report.show(console, &views, (headed, &answers), &now, last.as_ref())?;
            round += 1;
        }
        last = Some(now);
        Ok(())
    })
}

/// Operands: pools, or one pool and vdevs of it.
fn wanted(call: &Call, operands: Vec<String>) -> Result<Wanted, Failure> {
    let known: Vec<String> = open::usable(call.around)?.into_iter().map(|pool| pool.name).collect();
    if operands.iter().all(|word| known.contains(word)) {
        return Ok(Wanted { pools: operands, vdevs: Vec::new() });
    }
    let nonsense = || Failure::refused("Unable to parse pools/vdevs list.").hint("");
    match operands.split_first() {
        Some((pool, vdevs)) if known.contains(pool) => {
            let view = PoolView::new(open::find(pool, call.around)?);
            let tree = view.shown(Naming::default());
            let there = |name: &String| tree.iter().any(|vdev| find(vdev, name).is_some());
            match vdevs.iter().all(there) {
                true => Ok(Wanted { pools: vec![pool.clone()], vdevs: vdevs.to_vec() }),
                false => Err(nonsense()),
            }
        }
        _ => Err(nonsense()),
    }
}

fn find<'a>(vdev: &'a VdevView, name: &str) -> Option<&'a VdevView> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev) } else { vdev.children.iter().find_map(|child| find(child, name)) }
}

fn counters(view: &PoolView) -> Counters {
    let Some(session) = view.session() else { return Counters::new() };
    let leaves = session.pool().storage().vdevs().tops().iter().flat_map(TopVdev::leaves);
    let counted = |meter: &storage::Meter| Counted { stats: meter.stats(), times: meter.times() };
    leaves.map(|leaf| (leaf.guid, counted(&leaf.meter))).collect()
}

fn leaves(vdev: &VdevView) -> Vec<u64> {
    if vdev.is_leaf() { vec![vdev.guid.0] } else { vdev.children.iter().flat_map(leaves).collect() }
}

impl Report {
    /// One round.
    fn show(
        &self,
        console: &mut Console,
        views: &[PoolView],
        (headed, answers): (bool, &Answers),
        (now, taken): &Last,
        last: Option<&Last>,
    ) -> Result<(), Failure> {
        let mut tables = Vec::new();
        for (i, view) in views.iter().enumerate() {
            let since = match last {
                Some((_, before)) => taken.duration_since(*before),
                None => view.session().map_or(Duration::ZERO, |session| {
                    session.pool().uptime().saturating_sub(taken.elapsed())
                }),
            };
            let before = last.map(|(all, _)| &all[i]);
            let counted = |line: Line| {
                let sum = |all: &Counters| {
                    let leaves = line.leaves.iter().filter_map(|guid| all.get(guid));
                    leaves.fold(Counted::default(), Counted::plus)
                };
                let counted = match before {
                    Some(before) => sum(&now[i]).since(&sum(before)),
                    None => sum(&now[i]),
                };
                (line, counted)
            };
            let lines = lines(view, &self.wanted, self.naming, self.verbose)?;
            tables.push((since, lines.into_iter().map(counted).collect::<Vec<_>>()));
        }
        match self.histogram {
            Some(histogram) => {
                let mut all = tables.iter().flat_map(|(_, table)| table).filter(|(line, _)| !line.heading);
                all.try_for_each(|(line, counted)| {
                    histogram.print(console, &line.name, &counted.times, self.look)
                })
            }
            None => self.table(console, &tables, headed, answers),
        }
    }

    fn table(
        &self,
        console: &mut Console,
        tables: &[(Duration, Vec<(Line, Counted)>)],
        headed: bool,
        answers: &Answers,
    ) -> Result<(), Failure> {
        let all = tables.iter().flat_map(|(_, table)| table);
        let width = all.map(|(line, _)| line.name.len() + 2 * line.depth).max().unwrap_or(0).max(10);
        let ruler = ruler(width, self.look.width(), self.columns.count()) + &answers.dashes();
        let of_vdevs = !self.wanted.vdevs.is_empty();
        if headed {
            let name = if of_vdevs { "vdev" } else { "pool" };
            let [titles, names] = self.columns.headings(name, width, self.look.width());
            console.line(&titles)?;
            console.line(&(names + &answers.headings()))?;
            console.line(&ruler)?;
        }
        for (since, table) in tables {
            for (line, counted) in table {
                let cells = match line.heading {
                    true => vec!["-".to_owned(); self.columns.count()],
                    false => self.columns.cells(line.space, counted, *since, self.look),
                };
                // OpenZFS leaves a line empty where scripts read.
                let text = match line.heading && self.look.tabs {
                    true => String::new(),
                    false => self.row(line, &cells, width) + &answers.cells(&line.pool, line.path.as_deref()),
                };
                console.line(&text)?;
            }
            if !self.look.tabs && self.verbose {
                console.line(&ruler)?;
            }
        }
        if !self.look.tabs && !self.verbose && (tables.len() > 1 || of_vdevs) {
            console.line(&ruler)?;
        }
        Ok(())
    }

    fn row(&self, line: &Line, cells: &[String], width: usize) -> String {
        if self.look.tabs {
            return format!("{}\t{}", line.name, cells.join("\t"));
        }
        let name = format!("{}{}", "  ".repeat(line.depth), line.name);
        let cells: String = cells.iter().map(|cell| format!("  {cell:>w$}", w = self.look.width())).collect();
        format!("{name:width$}{cells}")
    }
}

/// The pool, and its vdevs if asked for.
fn lines(view: &PoolView, wanted: &Wanted, naming: Naming, verbose: bool) -> Result<Vec<Line>, Failure> {
    let values = PoolValues::new(view)?;
    // Caches are looked for only where they are shown; a spare does nothing until it is no spare any more.
    let all_shown = verbose || !wanted.vdevs.is_empty();
    let mut tree = if all_shown { view.shown(naming) } else { view.tree(naming) };
    tree.retain(|vdev| vdev.class != Class::Spare);
    let mut all = Vec::new();
    if wanted.vdevs.is_empty() {
        let whole = values.vdevs.values().fold(Space::default(), |sum, (_, space)| Space {
            size: sum.size + space.size,
            allocated: sum.allocated + space.allocated,
            fragmentation: None,
        });
        let leaves = tree.iter().flat_map(leaves).collect();
        let (name, pool) = (view.name.clone(), view.name.clone());
        all.push(Line { name, pool, path: None, depth: 0, space: Some(whole), leaves, heading: false });
        if verbose {
            let mut last = Class::Normal;
            for vdev in &tree {
                if std::mem::replace(&mut last, vdev.class) != vdev.class {
                    all.push(Line::heading(&view.name, vdev.class));
                }
                add(vdev, 1, &values, &mut all);
            }
        }
    } else {
        let plain = view.shown(Naming::default());
        for name in &wanted.vdevs {
            let guid = plain.iter().find_map(|vdev| find(vdev, name)).map(|vdev| vdev.guid.0.to_string());
            let Some(vdev) = guid.and_then(|guid| tree.iter().find_map(|vdev| find(vdev, &guid))) else {
                continue;
            };
            all.push(Line::of(vdev, 0, &values));
        }
    }
    Ok(all)
}

fn add(vdev: &VdevView, depth: usize, values: &PoolValues, all: &mut Vec<Line>) {
    all.push(Line::of(vdev, depth, values));
    vdev.children.iter().for_each(|child| add(child, depth + 1, values, all));
}
