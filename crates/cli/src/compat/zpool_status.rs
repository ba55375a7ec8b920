//! `zpool status`.

use ::scan::ScanStatus;
use format::scan::ScanFunc;
use pool::props::number;
use pool::{Error, RemovalStage};
use serde_json::{Map, Value};

use super::Call;
use super::damaged::{self, Trouble};
use super::json_look::Look;
use super::pool_values::PoolValues;
use super::repeat::Repeat;
use super::scan;
use super::scripts;
use super::scripts::{Answers, Scripts};
use super::treated::TreatedLeaves;
use super::view::{self, Body, Class, Naming, PoolView, State, VdevView};
use super::zpool_list::{head, key};
use super::zpool_status_advice::advice;
use super::zpool_status_moves;
use super::zpool_status_rebuild;
use super::zpool_status_stats;
use crate::args::{Parsed, flag, value};
use crate::command::{Beside, Command, Run, Subjects, Typed, Visitors};
use crate::dates::{self, Form};
use crate::json;
use crate::messages::{Action, Failure};
use crate::open::{self, NotOpen};
use crate::out::{Colour, Console};
use crate::start;

/// `zpool status`.
pub static COMMAND: Command = Command {
    name: "status",
    about: "shows how pools are",
    syntax: &[
        "status [-dDegiLpPstvx] [-c SCRIPT[,…]] [-j [--json-int] [--json-flat-vdevs] [--json-pool-key-guid]] \
             [--power] [-T d|u] [POOL]… [INTERVAL [COUNT]]",
    ],
    examples: &["zpool status", "zpool status -v tank", "zpool status -x"],
    options: &[
        flag("d", "with Direct I/O errors").idle(),
        flag("D", "with the deduplication table"),
        flag("e", "only vdevs that are not in order"),
        flag("g", "vdevs by their guids"),
        flag("i", "with initialization"),
        flag("L", "where symbolic links lead"),
        flag("p", "exact numbers"),
        flag("P", "whole paths"),
        flag("s", "with slow requests"),
        flag("t", "with trimming"),
        flag("v", "names damaged files"),
        flag("x", "only pools that are not in order"),
        flag("power", "with the power of slots"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        flag("json-flat-vdevs", "vdevs without nesting in JSON"),
        flag("json-pool-key-guid", "pools by guid in JSON"),
        value("c", "runs scripts for each vdev"),
        value("T", "a time stamp before each report: u seconds, d date"),
    ],
    beside: Beside::Reads { but: &["c"] },
    scripts: Some(scripts::list),
    visitors: Some(Visitors {
        operands: Subjects::Pools,
        options: &[
            "d",
            "D",
            "e",
            "g",
            "i",
            "p",
            "P",
            "s",
            "t",
            "v",
            "x",
            "j",
            "json-int",
            "json-flat-vdevs",
            "json-pool-key-guid",
            "T",
        ],
    }),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool status`.
struct Options {
    dedup: bool,
    unhealthy: bool,
    naming: Naming,
    initialize: bool,
    exact: bool,
    slow: bool,
    trim: bool,
    verbose: bool,
    troubled: bool,
    power: bool,
    json: bool,
    json_int: bool,
    flat: bool,
    by_guid: bool,
    scripts: Vec<String>,
    stamp: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        dedup: args.has("D"),
        unhealthy: args.has("e"),
        naming: Naming { guids: args.has("g"), follow: args.has("L"), full: args.has("P") },
        initialize: args.has("i"),
        exact: args.has("p"),
        slow: args.has("s"),
        trim: args.has("t"),
        verbose: args.has("v"),
        troubled: args.has("x"),
        power: args.has("power"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        flat: args.has("json-flat-vdevs"),
        by_guid: args.has("json-pool-key-guid"),
        scripts: args.texts("c"),
        stamp: args.text("T"),
    }
}

/// Runs `zpool status`.
///
/// # Errors
/// The arguments are wrong, or pools are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let mut names = call.args.operands.clone();
    let repeat = Repeat::take(&mut names, call.options.stamp.as_deref())?;
    let scripts = Scripts::of(call, &call.options.scripts)?;
    if scripts.is_some() && call.options.json {
        return Err(Failure::usage("invalid option combination: -c and -j are mutually exclusive"));
    }
    if call.options.power {
        return Err(Failure::refused("cenote: not supported yet: zpool status --power"));
    }
    if names.is_empty() && open::usable(call.around)?.is_empty() && !call.options.json {
        console.note("no pools available");
        open::remark_foreign(console);
        return Ok(());
    }
    repeat.run(call.around, console, |console, round| {
        let views = view::views(&names, call.around, console)?;
        let (mut shown, mut healthy) = (Vec::new(), Vec::new());
        for view in &views {
            let passed_over = call.options.troubled && is_healthy(view)?;
            if passed_over { &mut healthy } else { &mut shown }.push(view);
        }
        if call.options.json {
            return as_json(call, console, &shown);
        }
        let answers = scripts.as_ref().map(|scripts| scripts.ask(shown.iter().copied())).unwrap_or_default();
        for (i, view) in shown.iter().enumerate() {
            if i > 0 || round > 0 {
                console.line("")?;
            }
            print(call, console, view, &answers)?;
        }
        if !names.is_empty() {
            return healthy
                .iter()
                .try_for_each(|view| console.line(&format!("pool '{}' is healthy", view.name)));
        }
        match shown.is_empty() && call.options.troubled {
            true => console.line("all pools are healthy"),
            false => Ok(()),
        }
    })
}

/// Whether `-x` passes the pool over.
fn is_healthy(view: &PoolView) -> Result<bool, Failure> {
    Ok(view.state() == State::Online
        && view.session().is_some()
        && !view.lost_server()
        && view.deleted().is_empty()
        && view.moved().is_empty()
        && view.figures.as_ref().is_none_or(|figures| figures.slow_sync.is_none())
        && view.silent().is_empty()
        && !Trouble::of(view)?.any()
        && !view.lacks_cache()
        && !view.is_resilvering())
}

/// Why it is not known which blocks have no good copy.
fn errors_unknown(view: &PoolView, trouble: &Trouble) -> Option<&'static str> {
    if view.halted().is_some_and(|halted| halted.can_resume) && trouble.data.is_empty() {
        return Some("pool I/O is currently suspended");
    }
    let is_unread = view.figures.as_ref().is_some_and(|figures| figures.is_unread);
    is_unread.then_some("a device does not answer")
}

fn print(
    call: &Typed<Options>,
    console: &mut Console,
    view: &PoolView,
    answers: &Answers,
) -> Result<(), Failure> {
    print_head(console, view)?;
    let trouble = Trouble::of(view)?;
    let treated = TreatedLeaves::of(view);
    print_scan(console, view)?;
    zpool_status_moves::print_removal(console, view)?;
    zpool_status_moves::print_expansion(console, view)?;
    print_checkpoint(console, view)?;
    let naming = call.options.naming.or_variables(call);
    console.line("config:\n")?;
    let tree = view.shown(naming);
    // Removed vdevs have no row, and their names count for the width all the same.
    let named = view.listed(naming);
    let width = named.iter().map(|vdev| vdev.width(2)).max().unwrap_or(0).max(view.name.len()).max(10);
    let slow = call.options.slow;
    let heading = if slow { "  SLOW" } else { "" };
    console.line(&format!(
        "\t{:width$}  {:<8} {:>5} {:>5} {:>5}{heading}{}",
        "NAME",
        "STATE",
        "READ",
        "WRITE",
        "CKSUM",
        answers.headings()
    ))?;
    let dash = if slow { "     -" } else { "" };
    console.line(&format!(
        "\t{:width$}  {:<8} {:>5} {:>5} {:>5}{dash}",
        view.name,
        view.root_state().word(),
        0,
        0,
        0
    ))?;
    let running = view.session().and_then(|session| session.pool().removal().ok().flatten());
    let running = running.filter(|removal| removal.stage == RemovalStage::Running);
    let removed = running.map(|removal| removal.vdev as u32);
    let said = |vdev: &VdevView| {
        let asked = [call.options.initialize, call.options.trim];
        let leaves = vdev.top.is_some() && vdev.top == removed;
        let note = if leaves { "  (removing)" } else { "" }.to_owned();
        match vdev.is_leaf() {
            true => note + &answers.cells(&view.name, vdev.path.as_deref()) + &treated.of_leaf(vdev, asked),
            false => note,
        }
    };
    let devices = Devices { options: &call.options, full: width, trouble: &trouble, said: &said };
    let mut last = Class::Normal;
    for vdev in &tree {
        if vdev.class != last {
            console.line(&format!("\t{}", vdev.class.status_heading()))?;
            last = vdev.class;
        }
        devices.print(console, vdev, 2)?;
    }
    if let Err(error) = view.aux() {
        console.line(&format!("\tcaches and spares are not known: {error}"))?;
    }
    console.line("")?;
    print_errors(call, console, view, &trouble)
}

/// Columns for a state.
const STATE: usize = 8;

/// The first lines: the pool, its state, and what to do about it.
fn print_head(console: &mut Console, view: &PoolView) -> Result<(), Failure> {
    console.line(&format!("  pool: {}", view.name))?;
    console.marked(colour(view.state()), [" state: ", view.state().word(), ""])?;
    if let Some(advice) = advice(view) {
        console.line(&format!("status: {}", advice.status))?;
        if let Body::Closed { why: NotOpen::Failed { source: Error::Unreadable { what, .. }, .. }, .. } =
            &view.body
        {
            console.line(&format!("\t{what}"))?;
        }
        console.line(&format!("action: {}", advice.action))?;
        if let Some(message) = advice.message {
            console
                .line(&format!("   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-{message}"))?;
        }
    }
    if let Some(why) = view.figures.as_ref().and_then(|figures| figures.log.as_ref()) {
        let log = start::log_of(&view.name);
        console.note(&format!("cenote: lines are missing in the log '{}': {why}", log.display()));
    }
    Ok(())
}

/// The scrub or resilver that is under way, or the last one.
fn print_scan(console: &mut Console, view: &PoolView) -> Result<(), Failure> {
    let Some(session) = view.session() else { return Ok(()) };
    let (status, now) = (view.scan()?, session.pool().host().clock.now().0);
    // A resilver before the last rebuild is old news.
    let rebuilds = view.rebuilds()?;
    let is_old = |status: &&ScanStatus| {
        status.scan.func == ScanFunc::Resilver && zpool_status_rebuild::is_shown(&rebuilds, Some(status))
    };
    let shown = status.as_ref().filter(|status| !is_old(status)).and_then(|status| scan::lines(status, now));
    for (n, line) in shown.unwrap_or_default().iter().enumerate() {
        console.line(&if n == 0 { format!("  scan: {line}") } else { line.clone() })?;
    }
    zpool_status_rebuild::print(console, view, status.as_ref(), now)
}

/// The checkpoint, and how much only it keeps.
fn print_checkpoint(console: &mut Console, view: &PoolView) -> Result<(), Failure> {
    let Some(kept) = view.session().and_then(|session| session.pool().checkpointed()) else { return Ok(()) };
    let bytes = number::nice(kept.bytes);
    match kept.created {
        Some(created) => {
            let when = dates::show(created, Form::Scan);
            console.line(&format!("checkpoint: created {when}, consumes {bytes}"))
        }
        None => console.line(&format!("checkpoint: discarding, {bytes} remaining.")),
    }
}

/// The last lines: the data that can no longer be read.
fn print_errors(
    call: &Typed<Options>,
    console: &mut Console,
    view: &PoolView,
    trouble: &Trouble,
) -> Result<(), Failure> {
    if let Some(why) = errors_unknown(view, trouble) {
        console.line(&format!("errors: List of errors unavailable: {why}"))?;
    } else if let Some(session) = view.session() {
        match (trouble.data.len(), call.options.verbose) {
            (0, _) => console.line("errors: No known data errors")?,
            (count, false) => console.line(&format!("errors: {count} data errors, use '-v' for a list"))?,
            // Names of files are for those who may read the folders: OpenZFS shows them to root alone.
            (_, true) if call.around.visited => {
                console.remark("errors: List of errors unavailable: permission denied");
            }
            (_, true) => {
                console.line("errors: Permanent errors have been detected in the following files:\n")?;
                for place in damaged::places(session, &trouble.data) {
                    console.line(&format!("        {place}"))?;
                }
            }
        }
        if call.options.dedup {
            let dedup = session.pool().dedup();
            let failed = |error| Action::Open(&view.name).failed(error);
            super::zpool_status_dedup::print(console, &dedup.map_err(failed)?)?;
        }
    }
    Ok(())
}

/// The colour of a state that needs attention, as in OpenZFS.
const fn colour(state: State) -> Option<Colour> {
    match state {
        State::Unavail | State::Faulted | State::Suspended => Some(Colour::Red),
        State::Degraded | State::Offline => Some(Colour::Yellow),
        State::Online | State::Avail | State::InUse => None,
    }
}

/// The table of the devices of one pool.
struct Devices<'a> {
    options: &'a Options,
    /// Width of the column of names.
    full: usize,
    trouble: &'a Trouble,
    /// The other columns of a vdev.
    said: &'a dyn Fn(&VdevView) -> String,
}

impl Devices<'_> {
    /// Prints a vdev and all below it.
    fn print(&self, console: &mut Console, vdev: &VdevView, indent: usize) -> Result<(), Failure> {
        let Devices { options, full, trouble, said } = *self;
        if options.unhealthy && vdev.state == State::Online {
            return Ok(());
        }
        let name = format!("{}{}", " ".repeat(indent), vdev.name);
        match vdev.state {
            State::Avail => return console.line(&format!("\t{name:full$}  {:<8}", vdev.state.word())),
            State::InUse => {
                let user = match &vdev.used_by {
                    Some(pool) => format!("in use by pool '{pool}'"),
                    None => "currently in use".to_owned(),
                };
                return console.line(&format!("\t{name:full$}  {:<8}  {user}", vdev.state.word()));
            }
            _ => {}
        }
        let counts =
            trouble.counts(vdev).map(|n| if options.exact { n.to_string() } else { number::nice(n) });
        let [read, write, cksum] = counts;
        let word = vdev.state.word();
        let mut line =
            format!("{:pad$} {read:>5} {write:>5} {cksum:>5}", "", pad = STATE.saturating_sub(word.len()));
        if options.slow {
            let slow = trouble.slow(vdev);
            line += &match (vdev.is_leaf(), options.exact) {
                (false, _) => "     -".to_owned(),
                (true, true) => format!(" {slow:>5}"),
                (true, false) => format!(" {:>5}", number::nice(slow)),
            };
        }
        if vdev.state == State::Unavail && vdev.is_leaf() {
            match &vdev.path {
                Some(path) if vdev.name != *path => line += &format!("  was {path}"),
                _ => line += "  cannot open",
            }
        }
        if vdev.state == State::Faulted && vdev.is_leaf() {
            line += if vdev.is_called_faulty { "  external device fault" } else { "  too many errors" };
        }
        if vdev.resilvers {
            line += "  (resilvering)";
        }
        line += &said(vdev);
        console.marked(colour(vdev.state), [&format!("\t{name:full$}  "), word, &line])?;
        vdev.children.iter().try_for_each(|child| self.print(console, child, indent + 2))
    }
}

fn as_json(call: &Typed<Options>, console: &mut Console, views: &[&PoolView]) -> Result<(), Failure> {
    let as_int = call.options.json_int;
    let look = Look { raw: call.options.exact || as_int, as_int };
    let naming = call.options.naming.or_variables(call);
    let mut objects = Map::new();
    for view in views {
        let values = PoolValues::new(view)?;
        let mut object = head(view, false, as_int);
        if let Some(advice) = advice(view) {
            object.insert("status".to_owned(), advice.status.replace("\n\t", " ").into());
            object.insert("action".to_owned(), advice.action.replace("\n\t", " ").into());
            if let Some(message) = advice.message {
                object.insert("msgid".to_owned(), format!("ZFS-8000-{message}").into());
                let link = format!("https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-{message}");
                object.insert("moreinfo".to_owned(), link.into());
            }
        }
        let tree = view.shown(naming);
        object.extend(zpool_status_stats::of(view, &tree, look)?);
        let trouble = Trouble::of(view)?;
        let shown = Shown { values: &values, trouble: &trouble, look };
        let flat = call.options.flat;
        let group = |class: Class, parent: &str| -> Map<String, Value> {
            let of = tree.iter().filter(|vdev| vdev.class == class);
            of.map(|vdev| (vdev.name.clone(), vdev_json(&shown, vdev, flat.then_some(parent)))).collect()
        };
        let mut root = Map::new();
        let mut add = |key: &str, value: Value| root.insert(key.to_owned(), value);
        add("name", view.name.clone().into());
        add("vdev_type", "root".into());
        add("guid", json::scalar(&view.guid().0.to_string(), as_int));
        add("class", "normal".into());
        add("state", view.state().word().into());
        let space = values.whole();
        if view.session().is_some() {
            add("alloc_space", look.size(space.allocated));
            add("total_space", look.size(space.size));
            add("def_space", look.size(space.size));
        }
        for key in ["read_errors", "write_errors", "checksum_errors"] {
            add(key, json::scalar("0", as_int));
        }
        add("vdevs", Value::Object(group(Class::Normal, &view.name)));
        let mut vdevs = Map::new();
        if flat {
            for vdev in tree.iter().filter(|vdev| !matches!(vdev.class, Class::Cache | Class::Spare)) {
                flatten(&shown, vdev, &view.name, &mut vdevs);
            }
        }
        vdevs.insert(view.name.clone(), Value::Object(root));
        object.insert("vdevs".to_owned(), Value::Object(vdevs));
        for class in [Class::Special, Class::Dedup, Class::Log, Class::Cache, Class::Spare] {
            let group = group(class, &view.name);
            if !group.is_empty() {
                object.insert(class.group().to_owned(), Value::Object(group));
            }
        }
        object.insert("error_count".to_owned(), json::scalar(&trouble.data.len().to_string(), as_int));
        objects.insert(key(view, call.options.by_guid), Value::Object(object));
    }
    console.line(&json::envelope("zpool status", "pools", objects).to_string())
}

/// The facts from which the JSON of a vdev is made.
struct Shown<'a> {
    values: &'a PoolValues<'a>,
    trouble: &'a Trouble,
    look: Look,
}

fn flatten(shown: &Shown, vdev: &VdevView, parent: &str, into: &mut Map<String, Value>) {
    for child in &vdev.children {
        flatten(shown, child, &vdev.name, into);
    }
    into.insert(vdev.name.clone(), vdev_json(shown, vdev, Some(parent)));
}

fn vdev_json(shown: &Shown, vdev: &VdevView, parent: Option<&str>) -> Value {
    let &Shown { values, trouble, look } = shown;
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("name", vdev.name.clone().into());
    add("vdev_type", vdev.kind.clone().into());
    add("guid", json::scalar(&vdev.guid.0.to_string(), look.as_int));
    if let Some(path) = &vdev.path {
        add("path", path.clone().into());
    }
    add("class", vdev.class.word().into());
    add("state", vdev.state.word().into());
    if let Some(parent) = parent {
        add("parent", parent.into());
    }
    if let Some(space) = values.space_of(vdev) {
        if space.allocated > 0 {
            add("alloc_space", look.size(space.allocated));
        }
        add("total_space", look.size(space.size));
        if vdev.top.is_some() {
            add("def_space", look.size(space.size));
        }
        if vdev.device_bytes.is_none() {
            add("rep_dev_size", look.size(space.size));
        }
    }
    if let Some(bytes) = vdev.device_bytes {
        add("rep_dev_size", look.size(bytes));
        add("phys_space", look.size(bytes));
    }
    for (key, count) in
        ["read_errors", "write_errors", "checksum_errors"].into_iter().zip(trouble.counts(vdev))
    {
        add(key, look.size(count));
    }
    if vdev.is_leaf() {
        add("slow_ios", look.size(trouble.slow(vdev)));
    } else {
        let children = vdev.children.iter();
        let below: Map<String, Value> = children
            .map(|child| (child.name.clone(), vdev_json(shown, child, parent.map(|_| vdev.name.as_str()))))
            .collect();
        add("vdevs", Value::Object(below));
    }
    Value::Object(object)
}
