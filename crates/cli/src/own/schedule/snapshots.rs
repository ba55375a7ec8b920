//! `cenote snapshots`: makes snapshots and removes old ones, as a policy says.
//!
//! From:   a policy and a dataset.
//! To:     one new snapshot if one is due, and fewer old ones. A snapshot that this command did not make, one that was renamed,
//!         one that is held, and one that has clones always stays.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::existing::{Existing, Listed, datasets, snapshots_of};
use super::policy::Policy;
use super::{AUTO, BACKUP, MADE_BY, is_named, name_now};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::{Console, counted};
use crate::own::child::Zfs;

/// Creator of a snapshot, from [`MADE_BY`].
const MAKER: &str = "snapshots";

/// Arguments of `snapshots`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it often, from a timer: it makes a snapshot when none was made yet in the current hour (the shortest period of the \
policy), and removes those that the policy no longer keeps. For each period it keeps the newest snapshot of each of the \
last parts that have one. It removes only snapshots that it made itself and that still have the name it gave them: rename one \
to keep it. Held snapshots stay, and so does the last one that a backup has sent: 'cenote backup' holds it. Snapshots dated \
later than now stay, too, and do not count.

In a copy that 'cenote backup' fills no snapshot may be made, or the next backup would be refused. There, --prune removes those \
that the policy no longer keeps: the ones that this command and 'cenote backup' made in the source, by their names. The newest \
one always stays.

Examples:
  cenote snapshots --keep 24h,30d,12m -r tank/home
  cenote snapshots --keep 7d,4w --dry-run tank/home
  cenote snapshots --prune --keep 30d,12m -r usb/home
  systemctl enable --now cenote-snapshots@tank-home.timer")]
pub struct Snapshots {
    /// How many to keep of which period: h, d, w, m, y for hours, days, weeks, months, years.
    #[arg(long, value_name = "POLICY")]
    pub keep: Policy,
    /// The datasets below it, too. All get the new snapshot in the same transaction group.
    #[arg(short, long)]
    pub recursive: bool,
    /// Make no snapshot, only remove old ones: for the copy that a backup has made.
    #[arg(long)]
    pub prune: bool,
    /// Say what would be made and removed, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// What was made and removed, in JSON.
    #[arg(long)]
    pub json: bool,
    /// The dataset that the snapshots are of.
    #[arg(value_name = "DATASET")]
    pub dataset: String,
}

/// Carries out `snapshots`.
///
/// # Errors
/// The dataset is missing, or the new snapshot cannot be made. For each old snapshot that cannot be removed, an error is
/// printed.
pub fn run(args: &Snapshots, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    if args.dataset.contains(['@', '#']) {
        return Err(Failure::refused(format!("'{}' is not the name of a dataset", args.dataset)));
    }
    let zfs = Zfs::new(around)?;
    let zone = TimeZone::system();
    let now = Timestamp::now().as_second();
    let datasets = datasets(&zfs, &args.dataset, args.recursive)?;
    let there = datasets.into_iter().map(|listed| snapshots_of(&zfs, &listed.name).map(|all| (listed, all)));
    let there = there.collect::<Result<Vec<_>, _>>()?;
    let made = match args.prune {
        true => Vec::new(),
        false => due(args, &there, &Moment { now, zone: zone.clone() }, console)?,
    };
    make(args, &zfs, &made, console)?;
    let mut removed: Vec<String> = Vec::new();
    for (Listed { name: dataset, .. }, mut ours) in there {
        ours.retain(|one| is_ours(one) || args.prune && is_sent(one));
        let mut times: Vec<i64> = ours.iter().map(|one| one.created).collect();
        // The policy also counts the new snapshot, including one that a dry run would make.
        let is_made = made.iter().any(|full| full.split_once('@').is_some_and(|(of, _)| of == dataset));
        times.extend(is_made.then_some(now));
        tell_later(&dataset, times.iter().filter(|created| **created > now).count(), console);
        let kept = args.keep.kept(&times, now, &zone);
        let old = ours.iter().enumerate().filter(|(at, one)| !kept.contains(at) && is_free(one));
        let old: Vec<&Existing> = old.map(|(_, one)| one).collect();
        for one in old {
            if !args.dry_run
                && let Err(failure) = zfs.read(&["destroy", &one.full])
            {
                console.complain(failure)?;
                continue;
            }
            told(args, if args.dry_run { "would destroy" } else { "destroyed" }, &one.full, console)?;
            removed.push(one.full.clone());
        }
    }
    if made.is_empty() && removed.is_empty() && !console.has_failed() && !args.json && !console.is_quiet() {
        let due = if args.prune { "" } else { "no new snapshot is due, and " };
        let line =
            format!("nothing to do for '{}': {due}the policy keeps those that are there", args.dataset);
        console.sentence(&line)?;
    }
    if args.json {
        let all = json!({ "schema": 1, "dry_run": args.dry_run, "created": made, "destroyed": removed });
        console.line(&all.to_string())?;
    }
    Ok(())
}

/// The full names of the snapshots that are due. A new dataset gets its first one even when the others have theirs. A copy below
/// the dataset gets none.
///
/// # Errors
/// The dataset itself is a copy that backups fill.
fn due(
    args: &Snapshots,
    all: &[(Listed, Vec<Existing>)],
    moment: &Moment,
    console: &mut Console,
) -> Result<Vec<String>, Failure> {
    let name = name_now(AUTO);
    let mut due = Vec::new();
    for (listed, there) in all {
        let dataset = &listed.name;
        let is_filled = listed.is_receiving || listed.is_read_only && there.iter().any(is_copied);
        if is_filled && *dataset == args.dataset {
            let line = format!("'{dataset}' is a copy that 'cenote backup' fills");
            return Err(Failure::refused(line)
                .hint("a snapshot of its own would stop the next backup; --prune removes old ones there"));
        }
        if is_filled {
            console.note(&format!(
                "'{dataset}' is a copy that 'cenote backup' fills: no snapshot is made there"
            ));
            continue;
        }
        let last = there.iter().rfind(|one| is_ours(one));
        if args.keep.is_due(last.map(|one| one.created), moment.now, &moment.zone) {
            due.push(format!("{dataset}@{name}"));
        }
    }
    Ok(due)
}

/// When the command runs.
struct Moment {
    /// Seconds since 1970.
    now: i64,
    /// The time zone in which days begin.
    zone: TimeZone,
}

/// Makes the snapshots that are due, all in one transaction group.
fn make(args: &Snapshots, zfs: &Zfs, due: &[String], console: &mut Console) -> Result<(), Failure> {
    if !args.dry_run && !due.is_empty() {
        let mark = format!("{MADE_BY}={MAKER}");
        let mut words = vec!["snapshot", "-o", &mark];
        words.extend(due.iter().map(String::as_str));
        zfs.read(&words)?;
    }
    let what = if args.dry_run { "would create" } else { "created" };
    due.iter().try_for_each(|full| told(args, what, full, console))
}

/// Says how many snapshots are dated later than now.
fn tell_later(dataset: &str, count: usize, console: &mut Console) {
    if count == 0 || console.is_quiet() {
        return;
    }
    let (are, they, them) = if count == 1 { ("is", "it stays", "it") } else { ("are", "they stay", "them") };
    let all = counted(count as u64, "snapshot");
    console.remark(&format!(
        "'{dataset}': {all} {are} dated later than now (was the clock wrong?): {they}, and the policy does not count {them}"
    ));
}

fn told(args: &Snapshots, what: &str, full: &str, console: &mut Console) -> Result<(), Failure> {
    match args.json || console.is_quiet() {
        true => Ok(()),
        false => console.line(&format!("{what} {full}")),
    }
}

/// Whether this command made it, and nobody gave it another name to keep it.
fn is_ours(one: &Existing) -> bool {
    one.made_by.as_deref() == Some(MAKER) && is_named(one.name(), AUTO)
}

/// Whether it came with a backup: its name is one that a backup gives, and none made it here. A copy is read-only as well, until
/// it is restored to be used.
fn is_copied(one: &Existing) -> bool {
    one.made_by.is_none() && is_named(one.name(), BACKUP)
}

/// Whether this command or a backup made it in the source of a copy.
fn is_sent(one: &Existing) -> bool {
    one.made_by.is_none() && [AUTO, BACKUP].iter().any(|prefix| is_named(one.name(), prefix))
}

/// Whether nothing needs it.
fn is_free(one: &Existing) -> bool {
    one.holds == 0 && !one.has_clones
}
