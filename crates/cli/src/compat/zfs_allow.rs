//! `zfs allow` and `zfs unallow`: permissions that datasets delegate.
//!
//! From:   users and permissions, as typed.
//! To:     the pool, which stores the grants for OpenZFS; the list of grants.

use std::collections::{BTreeMap, BTreeSet};

use pool::Grant;
use pool::props::dataset::{self as props, Owner};
use pool::props::{Access, DatasetKind, names};
use serde_json::{Map, Value, json};

use super::Call;
use super::changing::session;
use super::owner_quota::{self, id_of, name_of};
use super::select::dataset_failure;
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};
use crate::json;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, open_for};
use crate::out::Console;
use crate::suggest;

/// `zfs allow`.
pub static COMMAND: Command = Command {
    name: "allow",
    about: "shows and grants permissions",
    syntax: &[
        "allow [-j] FILESYSTEM|VOLUME",
        "allow [-dglu] WHO[,WHO]… PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
        "allow [-dl] -e PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
        "allow -c PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
        "allow -s @SET PERMISSION|@SET[,…] FILESYSTEM|VOLUME",
    ],
    examples: &["zfs allow alice create,mount,snapshot tank/home/alice", "zfs allow tank/home"],
    options: &[
        flag("d", "below only"),
        flag("g", "the names are groups"),
        flag("l", "here only"),
        flag("u", "the names are users"),
        flag("e", "for everyone"),
        flag("c", "grants to the user who creates a child dataset"),
        property("s", "of a set"),
        flag("j|json", "prints JSON"),
    ],
    targets: Targets::Of(targets),
    run: Run::Here(run),
    ..Command::ZFS
};

/// Takes granted permissions back.
#[derive(Clone, Copy)]
pub(super) struct Back {
    /// Also from everything below.
    pub recursive: bool,
}

/// The options of `zfs allow` and `zfs unallow`.
pub(super) struct Options {
    pub(super) below: bool,
    pub(super) groups: bool,
    pub(super) here: bool,
    pub(super) users: bool,
    pub(super) everyone: bool,
    pub(super) create: bool,
    pub(super) set: Option<String>,
    /// The list of grants in JSON.
    pub(super) json: bool,
    /// Grants are removed, here or everywhere below.
    pub(super) back: Option<Back>,
}

fn read(args: &Parsed) -> Options {
    Options {
        below: args.has("d"),
        groups: args.has("g"),
        here: args.has("l"),
        users: args.has("u"),
        everyone: args.has("e"),
        create: args.has("c"),
        set: args.text("s"),
        json: args.has("j"),
        back: None,
    }
}

/// The dataset, unless it is only looked at.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(match call.args.operands.as_slice() {
        [_] => Vec::new(),
        operands => operands.last().into_iter().cloned().collect(),
    })
}

/// The permissions that may be granted beside the setting of properties.
const PERMISSIONS: [&str; 35] = [
    "allow",
    "bookmark",
    "change-key",
    "clone",
    "create",
    "destroy",
    "diff",
    "groupobjquota",
    "groupobjused",
    "groupquota",
    "groupused",
    "hold",
    "load-key",
    "mount",
    "projectobjquota",
    "projectobjused",
    "projectquota",
    "projectused",
    "promote",
    "receive",
    "receive:append",
    "release",
    "rename",
    "rollback",
    "send",
    "send:raw",
    "share",
    "snapshot",
    "userobjquota",
    "userobjused",
    "userprop",
    "userquota",
    "userused",
    "zone",
    "unzone",
];
/// Names of sets of permissions are shorter than this, `@` included, in bytes.
const SET_MAX: usize = 64;
/// The dashes behind the name of a dataset end here.
const WIDTH: usize = 70;

/// The grants of a command line.
struct Order<'a> {
    /// Who-keys in lower case, such as `ul$1000`.
    keys: Vec<String>,
    /// Permissions and sets; none when all are taken back.
    names: Vec<String>,
    dataset: &'a str,
}

/// Runs `zfs allow`.
///
/// # Errors
/// The arguments are wrong, or a dataset, user or permission does not exist.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let options = read(&call.args);
    let is_plain = call.args.options.iter().all(|(_, value)| options.json && value.is_none());
    if let ([name], true) = (call.args.operands.as_slice(), is_plain) {
        return show(call, console, name, options.json);
    }
    if options.json {
        return Err(Failure::usage("-j can only be used with a dataset alone"));
    }
    carry_out(call, console, &options)
}

/// Runs `zfs allow` and `zfs unallow`.
///
/// # Errors
/// The arguments are wrong, or a dataset, user or permission does not exist.
pub(super) fn carry_out(call: &Call, console: &mut Console, options: &Options) -> Result<(), Failure> {
    match order(call, console, options)? {
        Some(order) => change(call, &order, options.back),
        None => Ok(()),
    }
}

/// Reads a command line; `None` when a user or group is not known, and the usage was shown for it, as OpenZFS does.
fn order<'a>(
    call: &'a Call,
    console: &mut Console,
    options: &'a Options,
) -> Result<Option<Order<'a>>, Failure> {
    let back = options.back.is_some();
    let words: Vec<&str> = call.args.operands.iter().map(String::as_str).collect();
    let alone = options.create || options.everyone || options.set.as_deref().is_some();
    let (who, names, dataset) = match (alone, words.as_slice()) {
        (true, [names, dataset]) => ("", Some(*names), *dataset),
        (true, [dataset]) if back => ("", None, *dataset),
        (false, [who, names, dataset]) => (*who, Some(*names), *dataset),
        (false, [who, dataset]) if back => (*who, None, *dataset),
        _ => return Err(Failure::usage("wrong number of parameters")),
    };
    names::check_kind(dataset, DatasetKind::Filesystem)
        .map_err(|error| Action::Open(dataset).failed(error))?;
    // Without a word about it, it is granted here and below.
    let scopes = match (options.here, options.below) {
        (true, false) => "l",
        (false, true) => "d",
        _ => "ld",
    };
    let mut keys = Vec::new();
    if let Some(set) = options.set.as_deref() {
        if !set.starts_with('@') || set.len() < 2 {
            return Err(Failure::usage("invalid set name: missing '@' prefix"));
        }
        keys.push(format!("s-${set}"));
    } else if options.create {
        keys.push("c-$".to_owned());
    } else if options.everyone {
        keys.extend(scopes.chars().map(|scope| format!("e{scope}$")));
    } else {
        for word in who.split(',') {
            let Some((kind, id)) = whom(word, options.users, options.groups) else {
                console.line(&call.command.usage().replacen("usage:", "Usage:", 1))?;
                let owners: &[Owner] = match (options.users, options.groups) {
                    (true, false) => &[Owner::User],
                    (false, true) => &[Owner::Group],
                    _ => &[Owner::User, Owner::Group],
                };
                if let Some(more) = owner_quota::meant(owners, word) {
                    console.flush()?;
                    console.remark(&more);
                }
                return Ok(None);
            };
            keys.extend(scopes.chars().map(|scope| format!("{kind}{scope}${id}")));
        }
    }
    let names: Vec<String> =
        names.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default();
    let sets = names.iter().map(String::as_str).chain(options.set.as_deref());
    if sets.filter(|name| name.starts_with('@')).any(|name| name.len() >= SET_MAX) {
        let why = "invalid permission set name";
        return Err(Failure::refused(format!("cannot set permissions on '{dataset}': {why}")));
    }
    if let Some(word) = names.iter().find(|name| !is_permission(name)) {
        let line = format!("cannot set permissions on '{dataset}': {}", reason::WRONG_KIND);
        let settable = props::VISIBLE.iter().map(|property| property.name).filter(|name| is_permission(name));
        let near = suggest::meant(word, PERMISSIONS.into_iter().chain(settable));
        return Err(Failure::Refused(std::iter::once(line).chain(near).collect()));
    }
    Ok(Some(Order { keys, names, dataset }))
}

/// Kind and id of the user or group `word`.
fn whom(word: &str, user: bool, group: bool) -> Option<(char, String)> {
    if word == "everyone" && !user && !group {
        return Some(('e', String::new()));
    }
    let id = |owner| id_of(owner, word).map(|id| id.to_string());
    match (user, group) {
        (true, false) => id(Owner::User).map(|id| ('u', id)),
        (false, true) => id(Owner::Group).map(|id| ('g', id)),
        _ => id(Owner::User).map(|id| ('u', id)).or_else(|| id(Owner::Group).map(|id| ('g', id))),
    }
}

fn is_permission(name: &str) -> bool {
    let settable = |property: &pool::props::Property| property.access != Access::ReadOnly;
    PERMISSIONS.contains(&name)
        || name.len() > 1 && name.starts_with('@')
        || props::parse(name).is_some_and(settable)
}

fn change(call: &Call, order: &Order, back: Option<Back>) -> Result<(), Failure> {
    let name = order.dataset;
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let failed =
        |why: &dyn std::fmt::Display| Failure::refused(format!("cannot set permissions on '{name}': {why}"));
    pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    if pool.read_only().is_some() {
        return Err(failed(&reason::POOL_READ_ONLY));
    }
    let mut grants = Vec::new();
    for key in &order.keys {
        let (sets, plain): (Vec<String>, Vec<String>) =
            order.names.iter().cloned().partition(|name| name.starts_with('@'));
        let upper = key[..1].to_uppercase() + &key[1..];
        for (key, names) in [(key.clone(), plain), (upper, sets)] {
            // Without names all of it is taken back, sets and permissions.
            if !names.is_empty() || order.names.is_empty() {
                grants.push(Grant { key, names });
            }
        }
    }
    let done = if let Some(Back { recursive }) = back {
        let depth = if recursive { None } else { Some(0) };
        let below = pool.list(name, depth, false).map_err(|error| failed(&error))?;
        pool.unallow(below.into_iter().map(|info| info.name).collect(), grants)
    } else {
        pool.allow(name, grants)
    };
    let done = done.map_err(|error| failed(&error));
    session.finish().and(done)
}

/// Shows what is granted on a dataset and on those above it.
fn show(call: &Call, console: &mut Console, name: &str, json: bool) -> Result<(), Failure> {
    names::check(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = open_for(name, call.around, Intent::Read).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    let mut objects = Map::new();
    let mut at = Some(info.name.split('@').next().unwrap_or(name));
    while let Some(name) = at {
        let grants = pool
            .grants(name)
            .map_err(|error| Failure::refused(format!("cannot get permissions on '{name}': {error}")))?;
        if json {
            let object = as_json(name, &grants);
            objects.extend(object.map(|object| (name.to_owned(), object)));
            at = name.rsplit_once('/').map(|(parent, _)| parent);
            continue;
        }
        let lines = lines(&grants);
        if !lines.is_empty() {
            console.line(&format!("{:-<WIDTH$}", format!("---- Permissions on {name} ")))?;
            lines.iter().try_for_each(|line| console.line(line))?;
        }
        at = name.rsplit_once('/').map(|(parent, _)| parent);
    }
    if json {
        console.line(&json::envelope("zfs allow", "datasets", objects).to_string())?;
    }
    session.finish()
}

/// Users, groups or everyone, each with the permissions of one kind.
type Holders<'a> = Vec<(&'a str, Vec<&'a str>)>;

/// The grants of one dataset by their kind.
#[derive(Default)]
struct Granted<'a> {
    sets: BTreeMap<String, BTreeSet<&'a str>>,
    create: BTreeSet<&'a str>,
    /// For each user, group or everyone: the permissions on this dataset, and those on the datasets below.
    whose: BTreeMap<(u8, String), [BTreeSet<&'a str>; 2]>,
}

impl Granted<'_> {
    /// The permissions that are granted on this dataset only, below it only, or in both places.
    fn of(&self, [here, below]: [bool; 2]) -> Holders<'_> {
        let mut holders = Vec::new();
        for ((_, who), [own, lower]) in &self.whose {
            let all: BTreeSet<&str> = own.union(lower).copied().collect();
            let fits = |name: &&str| [own.contains(name), lower.contains(name)] == [here, below];
            let names: Vec<&str> = all.into_iter().filter(fits).collect();
            if !names.is_empty() {
                holders.push((who.as_str(), names));
            }
        }
        holders
    }
}

/// The scopes of a grant: heading of the section, key in the JSON, and whether it is valid on the dataset and below.
const SCOPES: [(&str, &str, [bool; 2]); 3] = [
    ("Local", "local", [true, false]),
    ("Descendent", "descendent", [false, true]),
    ("Local+Descendent", "local_descendent", [true, true]),
];

fn granted(grants: &[Grant]) -> Granted<'_> {
    let mut granted = Granted::default();
    let Granted { sets, create, whose } = &mut granted;
    for Grant { key, names } in grants {
        let Some((head, whom)) = key.split_once('$') else { continue };
        let names = names.iter().map(String::as_str);
        match head.to_lowercase().as_str() {
            "s-" => sets.entry(whom.to_owned()).or_default().extend(names),
            "c-" => create.extend(names),
            head => {
                let Some(who) = called(&head[..1], whom) else { continue };
                whose.entry(who).or_default()[usize::from(head.ends_with('d'))].extend(names);
            }
        }
    }
    granted
}

/// The sections that have entries, with these entries.
fn lines(grants: &[Grant]) -> Vec<String> {
    let granted = granted(grants);
    let mut lines = Vec::new();
    let joined = |names: &BTreeSet<&str>| names.iter().copied().collect::<Vec<_>>().join(",");
    if !granted.sets.is_empty() {
        lines.push("Permission sets:".to_owned());
        lines.extend(granted.sets.iter().map(|(set, names)| format!("\t{set} {}", joined(names))));
    }
    if !granted.create.is_empty() {
        lines.extend(["Create time permissions:".to_owned(), format!("\t{}", joined(&granted.create))]);
    }
    for (title, _, scope) in SCOPES {
        let holders = granted.of(scope);
        if !holders.is_empty() {
            lines.push(format!("{title} permissions:"));
            lines.extend(holders.iter().map(|(who, names)| format!("\t{who} {}", names.join(","))));
        }
    }
    lines
}

/// The grants on the dataset `name`, as JSON; `None` if there are none.
fn as_json(name: &str, grants: &[Grant]) -> Option<Value> {
    let granted = granted(grants);
    let holder = |(who, names): &(&str, Vec<&str>)| match who.split_once(' ') {
        Some((kind, name)) => json!({ "type": kind, "name": name, "permissions": names }),
        None => json!({ "type": who, "permissions": names }),
    };
    let mut object = json!({ "name": name, "sets": granted.sets, "create_time": granted.create });
    let mut is_any = !granted.sets.is_empty() || !granted.create.is_empty();
    for (_, key, scope) in SCOPES {
        let holders: Vec<Value> = granted.of(scope).iter().map(holder).collect();
        is_any |= !holders.is_empty();
        object[key] = holders.into();
    }
    is_any.then_some(object)
}

/// Name of the user or group of a who-key, with its position in the list; `None` for a kind of a later release.
fn called(kind: &str, id: &str) -> Option<(u8, String)> {
    let named = |owner| id.parse().ok().and_then(|id| name_of(owner, id)).unwrap_or_else(|| id.to_owned());
    match kind {
        "u" => Some((0, format!("user {}", named(Owner::User)))),
        "g" => Some((1, format!("group {}", named(Owner::Group)))),
        "e" => Some((2, "everyone".to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(key: &str, names: &[&str]) -> Grant {
        Grant { key: key.to_owned(), names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    #[test]
    fn permissions_for_here_and_below_are_listed_once() {
        let lines = lines(&[
            grant("el$", &["send", "hold"]),
            grant("ed$", &["hold", "diff"]),
            grant("s-$@admin", &["rename", "create"]),
            grant("c-$", &["destroy"]),
            grant("C-$", &["@admin"]),
        ]);
        assert_eq!(
            lines,
            [
                "Permission sets:",
                "\t@admin create,rename",
                "Create time permissions:",
                "\t@admin,destroy",
                "Local permissions:",
                "\teveryone send",
                "Descendent permissions:",
                "\teveryone diff",
                "Local+Descendent permissions:",
                "\teveryone hold",
            ]
        );
    }

    #[test]
    fn permissions_are_listed_by_their_kind_in_json() {
        let said = as_json(
            "tank",
            &[
                grant("el$", &["send"]),
                grant("ul$4000000000", &["mount"]),
                grant("s-$@admin", &["rename", "create"]),
            ],
        );
        let local = r#"[{"type":"user","name":"4000000000","permissions":["mount"]},{"type":"everyone","permissions":["send"]}]"#;
        assert_eq!(
            said.expect("there are some").to_string(),
            format!(
                r#"{{"name":"tank","sets":{{"@admin":["create","rename"]}},"create_time":[],"local":{local},"descendent":[],"local_descendent":[]}}"#
            )
        );
        assert_eq!(as_json("tank", &[]), None);
    }

    #[test]
    fn properties_that_can_be_set_are_permissions() {
        assert!(["create", "compression", "@admin", "userprop"].iter().all(|name| is_permission(name)));
        assert!(["used", "bogusperm", "@", ""].iter().all(|name| !is_permission(name)));
    }
}
