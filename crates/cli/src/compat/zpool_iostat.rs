//! `zpool iostat`.
//!
//! The counters are those of whoever holds the pool, from the moment it took it: the pool's server, or this command.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use pool::props::number::nice;
use storage::{IoStats, TopVdev};

use super::Call;
use super::pool_values::{PoolValues, Space};
use super::repeat::Repeat;
use super::view::{self, Naming, PoolView, VdevView};
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
    depth: usize,
    space: Option<Space>,
    leaves: Vec<u64>,
}

/// Counters by leaf guid at a time.
type Counters = BTreeMap<u64, IoStats>;

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
    if let Some(option) = ["c", "l", "q", "r", "w"].into_iter().find(|option| has(option)) {
        return Err(Failure::refused(format!("cenote: not supported yet: zpool iostat -{option}")));
    }
    let wanted = wanted(call, operands)?;
    let naming = Naming { guids: has("g"), follow: has("L"), full: has("P") };
    let views = view::views(&wanted.pools, call.around, console)?;
    if views.is_empty() {
        if wanted.pools.is_empty() && !has("H") {
            console.remark("no pools available");
        }
        return Ok(());
    }
    let mut last: Option<(Vec<Counters>, Instant)> = None;
    let mut round = 0;
    let (skip, look) = (has("y"), Look { exact: has("p"), tabs: has("H") });
    repeat.run_skipping(console, skip, |console, quiet| {
        let now: Vec<Counters> = views.iter().map(counters).collect();
        if !quiet {
            let headed = !look.tabs && (round == 0 || !has("n") && (has("v") || round % PAGE == 0));
            show(console, &views, &wanted, naming, has("v"), look, headed, &now, last.as_ref())?;
            round += 1;
        }
        last = Some((now, Instant::now()));
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
            let tree = view.tree(Naming::default());
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
    leaves.map(|leaf| (leaf.guid, leaf.meter.stats())).collect()
}

fn leaves(vdev: &VdevView) -> Vec<u64> {
    if vdev.is_leaf() { vec![vdev.guid.0] } else { vdev.children.iter().flat_map(leaves).collect() }
}

/// How numbers are shown.
#[derive(Clone, Copy)]
struct Look {
    exact: bool,
    tabs: bool,
}

impl Look {
    fn width(self) -> usize {
        if self.exact { 15 } else { 5 }
    }

    fn number(self, n: u64) -> String {
        if self.exact { n.to_string() } else { nice(n) }
    }
}

#[expect(clippy::too_many_arguments, reason = "one table in one place")]
fn show(
    console: &mut Console,
    views: &[PoolView],
    wanted: &Wanted,
    naming: Naming,
    verbose: bool,
    look: Look,
    headed: bool,
    now: &[Counters],
    last: Option<&(Vec<Counters>, Instant)>,
) -> Result<(), Failure> {
    let mut tables = Vec::new();
    for view in views {
        tables.push(lines(view, wanted, naming, verbose)?);
    }
    let width =
        tables.iter().flatten().map(|line| line.name.len() + 2 * line.depth).max().unwrap_or(0).max(10);
    let dashes = vec!["-".repeat(look.width()); 6];
    let ruler = format!("{}  {}", "-".repeat(width), dashes.join("  "));
    if headed {
        headings(console, if wanted.vdevs.is_empty() { "pool" } else { "vdev" }, width, look)?;
        console.line(&ruler)?;
    }
    for (i, (view, table)) in views.iter().zip(&tables).enumerate() {
        let since = match last {
            Some((_, at)) => at.elapsed(),
            None => view.session().map_or(Duration::ZERO, |session| session.pool().uptime()),
        };
        for line in table {
            let sum = |all: &Counters| {
                line.leaves
                    .iter()
                    .filter_map(|guid| all.get(guid))
                    .fold(IoStats::default(), |a, b| a.plus(*b))
            };
            let before = last.map(|(all, _)| sum(&all[i])).unwrap_or_default();
            console.line(&row(line, sum(&now[i]).since(before), since, width, look))?;
        }
        if !look.tabs && verbose {
            console.line(&ruler)?;
        }
    }
    if !look.tabs && !verbose && (views.len() > 1 || !wanted.vdevs.is_empty()) {
        console.line(&ruler)?;
    }
    Ok(())
}

fn headings(console: &mut Console, name: &str, width: usize, look: Look) -> Result<(), Failure> {
    let pair = 2 * look.width() + 2;
    let groups = ["capacity", "operations", "bandwidth"].map(|group| {
        let blanks = pair - group.len();
        format!("{}{group}{}", " ".repeat(blanks.div_ceil(2)), " ".repeat(blanks / 2))
    });
    console.line(&format!("{}  {}", " ".repeat(width), groups.join("  ")))?;
    let names =
        ["alloc", "free", "read", "write", "read", "write"].map(|n| format!("{n:>w$}", w = look.width()));
    console.line(&format!("{name:width$}  {}", names.join("  ")))
}

/// The pool, and its vdevs if asked for.
fn lines(view: &PoolView, wanted: &Wanted, naming: Naming, verbose: bool) -> Result<Vec<Line>, Failure> {
    let values = PoolValues::new(view)?;
    let tree = view.tree(naming);
    let space = |vdev: &VdevView| vdev.top.and_then(|id| values.vdevs.get(&id)).map(|(_, space)| *space);
    let mut all = Vec::new();
    if wanted.vdevs.is_empty() {
        let whole = values.vdevs.values().fold(Space::default(), |sum, (_, space)| Space {
            size: sum.size + space.size,
            allocated: sum.allocated + space.allocated,
            fragmentation: None,
        });
        let leaves = tree.iter().flat_map(leaves).collect();
        all.push(Line { name: view.name.clone(), depth: 0, space: Some(whole), leaves });
        if verbose {
            tree.iter().for_each(|vdev| add(vdev, 1, &space, &mut all));
        }
    } else {
        for name in &wanted.vdevs {
            let plain = view.tree(Naming::default());
            let guid = plain.iter().find_map(|vdev| find(vdev, name)).map(|vdev| vdev.guid.0.to_string());
            let Some(vdev) = guid.and_then(|guid| tree.iter().find_map(|vdev| find(vdev, &guid))) else {
                continue;
            };
            all.push(Line { name: vdev.name.clone(), depth: 0, space: space(vdev), leaves: leaves(vdev) });
        }
    }
    Ok(all)
}

fn add(vdev: &VdevView, depth: usize, space: &dyn Fn(&VdevView) -> Option<Space>, all: &mut Vec<Line>) {
    all.push(Line { name: vdev.name.clone(), depth, space: space(vdev), leaves: leaves(vdev) });
    vdev.children.iter().for_each(|child| add(child, depth + 1, space, all));
}

fn row(line: &Line, stats: IoStats, since: Duration, width: usize, look: Look) -> String {
    // A rate of less than a second's time would say more than it knows.
    let seconds = since.as_secs_f64().max(1.0);
    let rate = |n: u64| look.number((n as f64 / seconds) as u64);
    let size =
        |pick: fn(Space) -> u64| line.space.map_or_else(|| "-".to_owned(), |space| look.number(pick(space)));
    let cells = [
        size(|space| space.allocated),
        size(Space::free),
        rate(stats.reads),
        rate(stats.writes),
        rate(stats.read_bytes),
        rate(stats.write_bytes),
    ];
    if look.tabs {
        return format!("{}\t{}", line.name, cells.join("\t"));
    }
    let name = format!("{}{}", "  ".repeat(line.depth), line.name);
    let cells = cells.map(|cell| format!("{cell:>w$}", w = look.width()));
    format!("{name:width$}  {}", cells.join("  "))
}
