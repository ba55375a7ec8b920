//! `zpool iostat`.
//!
//! The counters are those of the process that holds the pool since it opened the pool: the pool's server, or this command.

mod as_json;
mod columns;
mod histogram;
mod operands;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use storage::{IoStats, IoTimes};

use self::columns::{Columns, Counted, Look, ruler};
use self::histogram::{Frame, Histogram};
use self::operands::{Wanted, find, wanted};
use super::Call;
use super::pool_values::{PoolValues, Space};
use super::repeat::Repeat;
use super::scripts;
use super::scripts::{Answers, Scripts};
use super::view::{Class, Naming, PoolView, VdevView};
use crate::args::{Parsed, flag, value};
use crate::command::{Beside, Command, Run, Subjects, Targets, Typed, Visitors};
use crate::messages::Failure;
use crate::open;
use crate::out::Console;

/// `zpool iostat`.
pub static COMMAND: Command = Command {
    name: "iostat",
    about: "shows what devices were asked for",
    syntax: &[
        "iostat [[-c SCRIPT[,…]]|[-lq]]|[-rw] [-T d|u] [-ghHLnpPvy] [--wide] [-j [--json-int]] [[POOL…]|[POOL VDEV…]|[VDEV…]] \
         [INTERVAL [COUNT]]",
    ],
    examples: &["zpool iostat tank", "zpool iostat -v tank 5 3"],
    options: &[
        flag("g", "vdevs by their guids"),
        flag("h", "numbers for people").idle(),
        flag("H", "no headings, tabs between fields"),
        flag("L", "where symbolic links lead"),
        flag("n", "headings once"),
        flag("p", "exact numbers"),
        flag("P", "whole paths"),
        flag("v", "with vdevs"),
        flag("y", "without the figures since the import"),
        flag("l", "with mean waiting times"),
        flag("q", "with requests in queues and at disks"),
        flag("r", "sizes of requests as histograms"),
        flag("w", "waiting times as histograms"),
        value("c", "runs scripts for each vdev"),
        value("T", "a time stamp before each report: u seconds, d date"),
        flag("wide", "all columns, however wide the terminal is"),
        flag("j|json", "prints JSON, an object for each report"),
        flag("json-int", "numbers without quotes in JSON"),
    ],
    targets: Targets::Of(pools),
    beside: Beside::Watches,
    gathers: true,
    completed: Some(completed),
    scripts: Some(scripts::list),
    visitors: Some(Visitors {
        operands: Subjects::Pools,
        options: &["g", "H", "n", "p", "P", "v", "l", "q", "r", "w", "y", "T", "wide", "j", "json-int"],
    }),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool iostat`.
struct Options {
    naming: Naming,
    scripted: bool,
    one_heading: bool,
    exact: bool,
    vdevs: bool,
    skip_first: bool,
    latency: bool,
    queues: bool,
    sizes: bool,
    waits: bool,
    scripts: Vec<String>,
    stamp: Option<String>,
    wide: bool,
    json: bool,
    json_int: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        naming: Naming { guids: args.has("g"), follow: args.has("L"), full: args.has("P") },
        scripted: args.has("H"),
        one_heading: args.has("n"),
        exact: args.has("p"),
        vdevs: args.has("v"),
        skip_first: args.has("y"),
        latency: args.has("l"),
        queues: args.has("q"),
        sizes: args.has("r"),
        waits: args.has("w"),
        scripts: args.texts("c"),
        stamp: args.text("T"),
        wide: args.has("wide"),
        json: args.has("j"),
        json_int: args.has("json-int"),
    }
}

/// Rounds after which the headings come again.
const PAGE: u64 = 20;

/// A line: a pool or vdev, its depth in the tree, and its space if it has its own.
struct Line {
    name: String,
    /// The pool, or the pool of the vdev.
    pool: String,
    /// Where a leaf is.
    path: Option<String>,
    depth: usize,
    space: Option<Space>,
    leaves: Vec<u64>,
    /// The class of a vdev.
    class: Option<Class>,
    /// The line is the heading of a class of vdevs, for which nothing is counted.
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
            class: Some(vdev.class),
            heading: false,
        }
    }

    fn heading(pool: &str, class: Class) -> Line {
        let (name, pool) = (class.heading().to_owned(), pool.to_owned());
        Line { name, pool, path: None, depth: 0, space: None, leaves: Vec::new(), class: None, heading: true }
    }
}

/// Counters of a pool at a time: of each leaf by guid, since it was imported.
#[derive(Default)]
struct Counters {
    leaves: BTreeMap<u64, Counted>,
    uptime: Duration,
}

/// Counters of all pools by name, and when they were looked at.
type Last = (BTreeMap<String, Counters>, Instant);

/// The time that a round reports.
struct Span<'a> {
    now: &'a Last,
    /// The round before; none for the figures since the import.
    last: Option<&'a Last>,
}

/// The content and the form of the report.
struct Report {
    wanted: Wanted,
    naming: Naming,
    /// `-v`.
    verbose: bool,
    look: Look,
    columns: Columns,
    histogram: Option<Histogram>,
    /// `-j`, and `--json-int`.
    json: bool,
    as_int: bool,
    /// All columns, also on a narrow terminal.
    wide: bool,
    /// The user was told which columns are left out.
    has_told: Cell<bool>,
}

/// Runs `zpool iostat`.
///
/// # Errors
/// The arguments are wrong, or pools or vdevs are missing.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let mut operands = call.args.operands.clone();
    let repeat = Repeat::take(&mut operands, call.options.stamp.as_deref())?;
    if (call.options.sizes || call.options.waits)
        && (call.options.latency || call.options.queues || !call.options.scripts.is_empty())
    {
        return Err(Failure::usage("[-r|-w] isn't allowed with [-c|-l|-q]"));
    }
    let scripts = Scripts::of(call, &call.options.scripts)?;
    if scripts.is_some() && call.options.json {
        return Err(Failure::usage("invalid option combination: -c and -j are mutually exclusive"));
    }
    let histogram = match (call.options.waits, call.options.sizes) {
        (true, true) => return Err(Failure::usage("Only one of [-r|-w] can be passed at a time")),
        (true, false) => Some(Histogram::Latency),
        (false, true) => Some(Histogram::Sizes),
        (false, false) => None,
    };
    let report = Report {
        wanted: wanted(call, operands)?,
        naming: call.options.naming.or_variables(call),
        verbose: call.options.vdevs || scripts.is_some(),
        look: Look { exact: call.options.exact || call.options.json_int, tabs: call.options.scripted },
        columns: Columns { latency: call.options.latency, queues: call.options.queues, left_out: Vec::new() },
        histogram,
        json: call.options.json,
        as_int: call.options.json_int,
        wide: call.options.wide,
        has_told: Cell::new(false),
    };
    let mut watched: Vec<Watched> = report.wanted.pools.iter().map(|name| (name.clone(), None)).collect();
    if watched.is_empty() {
        if call.options.json {
            console.line(&report.as_json(&[]).to_string())?;
        }
        if !call.options.scripted {
            console.note("no pools available");
            open::remark_foreign(console);
        }
        return Ok(());
    }
    let mut last: Option<Last> = None;
    let mut round = 0;
    repeat.run_skipping(call.around, console, call.options.skip_first, |console, quiet| {
        let views = look(&mut watched, call, console)?;
        // Scripts take their time; the rates are of that at which it was counted.
        let counted = views.iter().map(|view| (view.name.clone(), counters(view)));
        let now: Last = (counted.collect(), Instant::now());
        if !quiet {
            let answers = scripts.as_ref().map(|scripts| scripts.ask(&views)).unwrap_or_default();
            let again = !call.options.one_heading && (report.verbose || round % PAGE == 0);
            let headed = !report.look.tabs && (round == 0 || again);
            report.show(console, &views, headed, &answers, Span { now: &now, last: last.as_ref() })?;
            round += 1;
        }
        last = Some(now);
        for view in views {
            let kept = watched.iter_mut().find(|(name, _)| *name == view.name);
            kept.expect("only what is watched is looked at").1 = Some(view).filter(|view| !is_leased(view));
        }
        Ok(())
    })
}

/// A pool by its name, and the pool itself from round to round where its counters are this process's own.
type Watched = (String, Option<PoolView>);

/// Whether the view is a lease of a server. A lease keeps freed space from being used again, so it is taken again for each
/// report.
fn is_leased(view: &PoolView) -> bool {
    view.session().is_some_and(open::Session::is_leased)
}

/// The pools as they are now. A pool that was exported meanwhile is reported once and then left out.
fn look(
    watched: &mut Vec<Watched>,
    call: &Typed<Options>,
    console: &mut Console,
) -> Result<Vec<PoolView>, Failure> {
    let mut views = Vec::new();
    let mut gone = Vec::new();
    for (name, kept) in watched.iter_mut() {
        match kept.take().map_or_else(|| open::find(name, call.around).map(PoolView::new), Ok) {
            Ok(view) => views.push(view),
            Err(error) => {
                gone.push(name.clone());
                console.complain(error.into())?;
            }
        }
    }
    watched.retain(|(name, _)| !gone.contains(name));
    if views.is_empty() {
        return Err(Failure::Ended(1));
    }
    Ok(views)
}

/// The pools that a command line is about.
///
/// # Errors
/// The arguments are wrong, or pools or vdevs are missing.
pub fn pools(call: &Call) -> Result<Vec<String>, Failure> {
    let call = &call.typed(read);
    let mut operands = call.args.operands.clone();
    Repeat::take(&mut operands, call.options.stamp.as_deref())?;
    Ok(wanted(call, operands)?.pools)
}

fn counters(view: &PoolView) -> Counters {
    let Some(session) = view.session() else { return Counters::default() };
    if session.is_leased() {
        // The counters of a server that just ended are lost.
        let Some(told) = session.counters() else { return Counters::default() };
        let read = |(guid, counted): (u64, server::LeafCounters)| {
            let times = IoTimes::from_words(&counted.times)?;
            Some((guid, Counted { stats: IoStats::from_words(counted.stats), times }))
        };
        return Counters { leaves: told.leaves.into_iter().filter_map(read).collect(), uptime: told.uptime };
    }
    let uptime = session.pool().uptime();
    let leaves = session.pool().leaves();
    let counted = |meter: &storage::Meter| Counted { stats: meter.stats(), times: meter.times() };
    let caches = session.pool().cache_devices();
    let cached =
        caches.into_iter().map(|cache| (cache.guid.0, Counted { stats: cache.io, times: cache.times }));
    Counters { leaves: leaves.map(|leaf| (leaf.guid, counted(&leaf.meter))).chain(cached).collect(), uptime }
}

fn leaves(vdev: &VdevView) -> Vec<u64> {
    if vdev.is_leaf() { vec![vdev.guid.0] } else { vdev.children.iter().flat_map(leaves).collect() }
}

/// The lines of a pool with what was counted for each, and in how much time.
struct Table {
    pool: String,
    since: Duration,
    lines: Vec<(Line, Counted)>,
}

impl Report {
    /// One round.
    fn show(
        &self,
        console: &mut Console,
        views: &[PoolView],
        headed: bool,
        answers: &Answers,
        span: Span<'_>,
    ) -> Result<(), Failure> {
        let Span { now: (now, taken), last } = span;
        let mut tables = Vec::new();
        for view in views {
            let now = &now[&view.name];
            let before = last.and_then(|(all, when)| Some((all.get(&view.name)?, when)));
            let since = before.map_or(now.uptime, |(_, when)| taken.duration_since(*when));
            let counted = |line: Line| {
                let sum = |all: &Counters| {
                    let leaves = line.leaves.iter().filter_map(|guid| all.leaves.get(guid));
                    leaves.fold(Counted::default(), Counted::plus)
                };
                let counted = match before {
                    Some((before, _)) => sum(now).since(&sum(before)),
                    None => sum(now),
                };
                (line, counted)
            };
            let lines = lines(view, &self.wanted, self.naming, self.verbose)?;
            let lines = lines.into_iter().map(counted).collect();
            tables.push(Table { pool: view.name.clone(), since, lines });
        }
        if self.json {
            return console.line(&self.as_json(&tables).to_string());
        }
        let width = views.iter().map(|view| self.name_width(view)).max().unwrap_or(0).max(10);
        match self.histogram {
            Some(histogram) => {
                let room = console.columns().filter(|_| !self.wide);
                let all = tables.iter().flat_map(|table| &table.lines).filter(|(line, _)| !line.heading);
                for (line, counted) in all {
                    let frame = Frame { name: &line.name, name_width: width, room };
                    let left_out = histogram.print(console, frame, &counted.times, self.look)?;
                    self.tell_left_out(console, &left_out);
                }
                Ok(())
            }
            None => self.table(console, (&tables, width), headed, answers),
        }
    }

    /// Width of the names of the pool and of its vdevs, of those too that have no row.
    fn name_width(&self, view: &PoolView) -> usize {
        let shows_vdevs = self.verbose || !self.wanted.vdevs.is_empty();
        let vdevs = if shows_vdevs { view.listed(self.naming) } else { Vec::new() };
        vdevs.iter().map(|vdev| vdev.width(2)).max().unwrap_or(0).max(view.name.len())
    }

    fn table(
        &self,
        console: &mut Console,
        (tables, width): (&[Table], usize),
        headed: bool,
        answers: &Answers,
    ) -> Result<(), Failure> {
        let beside = width + answers.dashes().len();
        let columns = match console.columns().filter(|_| !self.wide && !self.look.tabs) {
            Some(all) => self.columns.clone().within(all.saturating_sub(beside), self.look.width()),
            None => self.columns.clone(),
        };
        self.tell_left_out(console, &columns.left_out);
        let ruler = ruler(width, self.look.width(), columns.count()) + &answers.dashes();
        let of_vdevs = !self.wanted.vdevs.is_empty();
        if headed {
            let name = if of_vdevs { "vdev" } else { "pool" };
            let [titles, names] = columns.headings(name, width, self.look.width());
            console.line(&titles)?;
            console.line(&(names + &answers.headings()))?;
            console.line(&ruler)?;
        }
        for Table { since, lines, .. } in tables {
            for (line, counted) in lines {
                let cells = match line.heading {
                    true => vec!["-".to_owned(); columns.count()],
                    false => columns.cells(line.space, counted, *since, self.look),
                };
                // OpenZFS leaves a line empty where scripts read.
                let text = match line.heading && self.look.tabs {
                    true => String::new(),
                    false => self.row(line, &cells, width) + &answers.cells(&line.pool, line.path.as_deref()),
                };
                console.line(&text)?;
            }
            if !self.look.tabs && self.verbose && !of_vdevs {
                console.line(&ruler)?;
            }
        }
        if !self.look.tabs && (of_vdevs || !self.verbose && tables.len() > 1) {
            console.line(&ruler)?;
        }
        Ok(())
    }

    /// Prints once which columns are left out because the terminal is too narrow.
    fn tell_left_out(&self, console: &mut Console, left_out: &[&str]) {
        if !left_out.is_empty() && !self.has_told.replace(true) {
            console.explain(&format!("too narrow for {}: --wide shows all columns", left_out.join(", ")));
        }
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
    let mut tree = if all_shown { view.listed(naming) } else { view.tree(naming) };
    tree.retain(|vdev| vdev.class != Class::Spare);
    let mut all = Vec::new();
    if wanted.vdevs.is_empty() {
        let whole = values.whole();
        // The work of cache devices does not count for the pool's own devices.
        let leaves = tree.iter().filter(|vdev| vdev.class != Class::Cache).flat_map(leaves).collect();
        let (name, pool) = (view.name.clone(), view.name.clone());
        all.push(Line {
            name,
            pool,
            path: None,
            depth: 0,
            space: Some(whole),
            leaves,
            class: None,
            heading: false,
        });
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

/// The words of `iostat` with its scripts as they were found here and the names that variables ask for, for a server that
/// looks for neither; `None` if there is nothing to add.
///
/// # Errors
/// They may not be run, or not be told to a server.
fn completed(call: &Call) -> Result<Option<Vec<String>>, Failure> {
    let call = &call.typed(read);
    let scripts = Scripts::of(call, &call.options.scripts)?;
    let asked = call.options.naming;
    let mut naming = asked.or_variables(call).options_beyond(asked).peekable();
    if scripts.is_none() && naming.peek().is_none() {
        return Ok(None);
    }
    let mut words = vec![call.command.name.to_owned()];
    words.extend(naming.map(str::to_owned));
    for (name, value) in &call.args.options {
        words.push(if name.len() == 1 { format!("-{name}") } else { format!("--{name}") });
        let found = scripts.as_ref().filter(|_| *name == "c").map(scripts::Scripts::to_argument);
        words.extend(found.transpose()?.or_else(|| value.clone()));
    }
    words.push("--".to_owned());
    words.extend(call.args.operands.iter().cloned());
    Ok(Some(words))
}
