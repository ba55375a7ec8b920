//! `cenote snapshots`: makes snapshots and removes old ones, as a policy says.
//!
//! From:   a policy and a dataset.
//! To:     one new snapshot if one is due, and fewer old ones. A snapshot that this command did not make, one that is held,
//!         and one that has clones always stays.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::existing::{Existing, datasets, snapshots_of};
use super::policy::Policy;
use super::{MADE_BY, name_now};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::Console;
use crate::own::child::Zfs;

/// Creator of a snapshot, from [`MADE_BY`].
const MAKER: &str = "snapshots";

/// Arguments of `snapshots`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Run it often, from a timer: it makes a snapshot when none was made yet in the current hour (the shortest period of the \
policy), and removes those that the policy no longer keeps. For each period it keeps the newest snapshot of each of the \
last parts that have one. It removes only snapshots that it made itself. Held snapshots stay, and so does the last one \
that a backup has sent: 'cenote backup' holds it.

Examples:
  cenote snapshots --keep 24h,30d,12m -r tank/home
  cenote snapshots --keep 7d,4w --dry-run tank/home
  systemctl enable --now cenote-snapshots@tank-home.timer")]
pub struct Snapshots {
    /// How many to keep of which period: h, d, w, m, y for hours, days, weeks, months, years.
    #[arg(long, value_name = "POLICY")]
    pub keep: Policy,
    /// The datasets below it, too. All get the new snapshot in the same transaction group.
    #[arg(short, long)]
    pub recursive: bool,
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
/// The dataset is not there, or the new snapshot cannot be made. Old snapshots that cannot be removed are complained about.
pub fn run(args: &Snapshots, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    if args.dataset.contains(['@', '#']) {
        return Err(Failure::refused(format!("'{}' is not the name of a dataset", args.dataset)));
    }
    let zfs = Zfs::new(around)?;
    let zone = TimeZone::system();
    let now = Timestamp::now().as_second();
    let datasets = datasets(&zfs, &args.dataset, args.recursive)?;
    let made = make(args, &zfs, (now, &zone), console)?;
    let mut removed: Vec<String> = Vec::new();
    for dataset in &datasets {
        let mut ours = snapshots_of(&zfs, dataset)?;
        ours.retain(is_ours);
        let mut times: Vec<i64> = ours.iter().map(|one| one.created).collect();
        // Without a real one, the snapshot that would be made takes its place in the policy.
        times.extend((args.dry_run && made.is_some()).then_some(now));
        let kept = args.keep.kept(&times, &zone);
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
    if args.json {
        let made: Vec<String> = match &made {
            Some(name) => datasets.iter().map(|dataset| format!("{dataset}@{name}")).collect(),
            None => Vec::new(),
        };
        let all = json!({ "schema": 1, "dry_run": args.dry_run, "created": made, "destroyed": removed });
        console.line(&all.to_string())?;
    }
    Ok(())
}

/// Makes the snapshot that is due; gives its name behind the `@`.
fn make(
    args: &Snapshots,
    zfs: &Zfs,
    (now, zone): (i64, &TimeZone),
    console: &mut Console,
) -> Result<Option<String>, Failure> {
    let mut last = snapshots_of(zfs, &args.dataset)?;
    last.retain(is_ours);
    if !args.keep.is_due(last.last().map(|one| one.created), now, zone) {
        return Ok(None);
    }
    let name = name_now("auto");
    let full = format!("{}@{name}", args.dataset);
    if !args.dry_run {
        let mark = format!("{MADE_BY}={MAKER}");
        let mut words = vec!["snapshot", "-o", &mark];
        words.extend(args.recursive.then_some("-r"));
        words.push(&full);
        zfs.read(&words)?;
    }
    told(args, if args.dry_run { "would create" } else { "created" }, &full, console)?;
    Ok(Some(name))
}

fn told(args: &Snapshots, what: &str, full: &str, console: &mut Console) -> Result<(), Failure> {
    match args.json || console.is_quiet() {
        true => Ok(()),
        false => console.line(&format!("{what} {full}")),
    }
}

fn is_ours(one: &Existing) -> bool {
    one.made_by.as_deref() == Some(MAKER)
}

/// Whether nothing needs it.
fn is_free(one: &Existing) -> bool {
    one.holds == 0 && !one.has_clones
}
