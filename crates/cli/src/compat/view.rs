//! Pools as `zpool list` and `zpool status` show them, also those that cannot be opened.
//!
//! From:   open pools and what labels say.
//! To:     tables and JSON of `zpool`.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::PathBuf;

use format::config::{PoolState, VdevConfig, VdevKind};
use format::{Guid, label};
use pool::known::KnownPool;
use pool::{AuxKind, AuxVdev, Found, Pool};
use scan::{ScanStatus, Scans as _};
use server::{Figures, Halted, MemberFigures, Silence};
use storage::allocator;
use storage::host::{Access, Disk, FileDisk};

pub use super::naming::Naming;
use crate::around::Surroundings;
use crate::connect;
use crate::messages::{Action, Failure};
use crate::open::{self, Intent, NotOpen, Session, Usable};
use crate::out::Console;
use crate::state;

/// Health of a pool or vdev.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// All is there.
    Online,
    /// Some is missing, all can be read.
    Degraded,
    /// Cannot be opened.
    Unavail,
    /// Taken out of service by the administrator.
    Offline,
    /// Its data is not usable.
    Faulted,
    /// A device refuses writes, or the pool stopped: nothing is changed any more.
    Suspended,
    /// A spare that may take the place of another device.
    Avail,
    /// One that did.
    InUse,
}

impl State {
    /// The word of the STATE and HEALTH columns.
    pub const fn word(self) -> &'static str {
        match self {
            State::Online => "ONLINE",
            State::Degraded => "DEGRADED",
            State::Unavail => "UNAVAIL",
            State::Offline => "OFFLINE",
            State::Faulted => "FAULTED",
            State::Suspended => "SUSPENDED",
            State::Avail => "AVAIL",
            State::InUse => "INUSE",
        }
    }
}

/// Which kind of blocks a top-level vdev takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    Normal,
    Dedup,
    Special,
    Log,
    Cache,
    Spare,
}

impl Class {
    /// The heading of the class in `list -v` and `iostat -v`.
    pub const fn heading(self) -> &'static str {
        match self {
            Class::Normal => "",
            Class::Dedup => "dedup",
            Class::Special => "special",
            Class::Log => "logs",
            Class::Cache => "cache",
            Class::Spare => "spare",
        }
    }

    /// The heading of the class in `status`.
    pub const fn status_heading(self) -> &'static str {
        match self {
            Class::Cache => "cache",
            Class::Spare => "spares",
            // OpenZFS has a tab behind these.
            Class::Dedup => "dedup\t",
            Class::Special => "special\t",
            Class::Log => "logs\t",
            Class::Normal => "",
        }
    }

    /// The group of the class in the JSON.
    pub const fn group(self) -> &'static str {
        match self {
            Class::Cache => "l2cache",
            Class::Spare => "spares",
            other => other.heading(),
        }
    }

    /// The word of the JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Class::Normal => "normal",
            Class::Dedup => "dedup",
            Class::Special => "special",
            Class::Log => "log",
            Class::Cache => "l2cache",
            Class::Spare => "spare",
        }
    }
}

/// A vdev of the tree that is shown.
#[derive(Clone, Debug)]
pub struct VdevView {
    /// `mirror-0`, or the path of a leaf, or its guid when it is missing.
    pub name: String,
    /// The type as JSON names it.
    pub kind: String,
    pub guid: Guid,
    pub class: Class,
    pub state: State,
    /// Where a leaf is, or was.
    pub path: Option<String>,
    /// Bytes of a leaf's device, if it is there.
    pub device_bytes: Option<u64>,
    /// Index of a top-level vdev.
    pub top: Option<u32>,
    /// An administrator called it faulty.
    pub is_called_faulty: bool,
    /// The other pool that uses a spare.
    pub used_by: Option<String>,
    /// The device is written, and misses data that was written before.
    pub resilvers: bool,
    /// Number of children that may be missing.
    pub spare: usize,
    pub children: Vec<VdevView>,
}

impl VdevView {
    pub fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Width of the names of it and all below it when it is indented so far.
    pub fn width(&self, indent: usize) -> usize {
        let below = self.children.iter().map(|child| child.width(indent + 2));
        below.max().unwrap_or(0).max(indent + self.name.len())
    }

    /// Whether it was removed and leads to others.
    pub fn is_removed(&self) -> bool {
        self.kind == VdevKind::Indirect.as_str()
    }

    /// Gives leaves their states in the process that holds the pool, and the vdevs above them the states that follow.
    fn judge(&mut self, members: &BTreeMap<u64, MemberFigures>, naming: Naming) {
        if let Some(member) = members.get(&self.guid.0) {
            let was_absent = self.state == State::Unavail;
            self.is_called_faulty = member.is_faulted;
            self.resilvers = member.is_behind && member.is_open && !member.failed;
            self.state = match member {
                MemberFigures { is_offline: true, .. } => State::Offline,
                MemberFigures { failed: true, .. } => State::Faulted,
                MemberFigures { is_open: true, .. } => State::Online,
                _ => State::Unavail,
            };
            // A device that came back after the import is named by its path again.
            if let Some(path) = self.path.as_deref().filter(|_| was_absent && self.state != State::Unavail) {
                self.name = super::naming::leaf_name(&self.kind, self.guid, path, naming);
            }
            return;
        }
        if self.children.is_empty() {
            return;
        }
        self.children.iter_mut().for_each(|child| child.judge(members, naming));
        let up = self.children.iter().filter(|child| child.state <= State::Degraded).count();
        self.state = match self.children.iter().all(|child| child.state == State::Online) {
            true => State::Online,
            false if up + self.spare >= self.children.len() => State::Degraded,
            false => State::Unavail,
        };
    }

    /// Gives a top-level vdev and all below it the class that the open pool knows.
    fn classify(&mut self, pool: &Pool) {
        let class = match self.top.and_then(|id| pool.class_of(id)) {
            Some(allocator::Class::Special) => Class::Special,
            Some(allocator::Class::Dedup) => Class::Dedup,
            _ => return,
        };
        self.set_class(class);
    }

    fn set_class(&mut self, class: Class) {
        self.class = class;
        self.children.iter_mut().for_each(|child| child.set_class(class));
    }

    /// This vdev and all below it.
    pub fn walk(&self, each: &mut dyn FnMut(&VdevView)) {
        each(self);
        self.children.iter().for_each(|child| child.walk(each));
    }

    /// Gives leaves the sizes of their devices. Devices that are not in `sizes` are opened for it.
    fn measure(&mut self, sizes: &BTreeMap<u64, u64>) {
        if self.is_leaf() && self.state == State::Online {
            let open = |path: &String| FileDisk::open(path.as_ref(), Access::Peek).ok();
            self.device_bytes = match sizes.get(&self.guid.0) {
                Some(size) => Some(*size),
                None => self.path.as_ref().and_then(open).map(|disk| disk.size()),
            };
        }
        self.children.iter_mut().for_each(|child| child.measure(sizes));
    }
}

/// A pool that is open, or the reason why not.
#[derive(Debug)]
pub enum Body {
    Open(Session),
    Closed { found: Option<Box<Found>>, why: NotOpen },
}

/// A pool as it is shown.
#[derive(Debug)]
pub struct PoolView {
    pub name: String,
    pub known: Option<KnownPool>,
    pub body: Body,
    /// Facts that only the server of a leased pool knows.
    pub figures: Option<Figures>,
    /// The labels call the pool active: it was not exported.
    was_active: bool,
    aux: OnceCell<Result<Vec<AuxVdev>, pool::Error>>,
}

impl PoolView {
    /// Opens a pool for display. A failure to open it is displayed, too.
    pub fn new(usable: Usable) -> PoolView {
        let was_active = usable.found.as_ref().is_some_and(|found| found.config.state == PoolState::Active);
        let (name, known, found) = (usable.name.clone(), usable.known.clone(), usable.found.clone());
        let body = match open::open(usable, Intent::Read) {
            Ok(session) => Body::Open(session),
            Err(why) => Body::Closed { found: found.map(Box::new), why },
        };
        let figures = match &body {
            Body::Open(session) => session.figures(),
            Body::Closed { .. } => open::figures_of(&name, known.as_ref()),
        };
        PoolView { name, known, body, figures, was_active, aux: OnceCell::new() }
    }

    pub fn session(&self) -> Option<&Session> {
        match &self.body {
            Body::Open(session) => Some(session),
            Body::Closed { .. } => None,
        }
    }

    /// Why the pool takes no changes, as the server says that holds it; `None` if it does.
    pub fn halted(&self) -> Option<Halted> {
        match (&self.figures, self.session()) {
            (Some(figures), _) => figures.halted.clone(),
            (None, Some(session)) => session.pool().trouble().map(Halted::from),
            (None, None) => None,
        }
    }

    /// Devices that do not answer the server.
    pub fn silent(&self) -> Vec<Silence> {
        match (&self.figures, &self.body) {
            (Some(figures), _) if !figures.silent.is_empty() => figures.silent.clone(),
            (_, Body::Closed { why: NotOpen::Silent { silence, .. }, .. }) => vec![silence.clone()],
            (None, Body::Open(session)) => {
                session.pool().silent_devices().into_iter().map(Silence::from).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Devices whose files were deleted, and where the server's system still shows their contents.
    pub fn deleted(&self) -> &[(PathBuf, PathBuf)] {
        self.figures.as_ref().map_or(&[], |figures| &figures.deleted)
    }

    /// Devices that their paths do not lead to any more, and where they are now.
    pub fn moved(&self) -> &[(PathBuf, PathBuf)] {
        self.figures.as_ref().map_or(&[], |figures| &figures.moved)
    }

    /// State of each leaf by its guid, from the process that holds the pool.
    fn members(&self) -> BTreeMap<u64, MemberFigures> {
        let members = match (&self.figures, self.session()) {
            (Some(figures), _) => figures.members.clone(),
            (None, Some(session)) => session.pool().members().into_iter().map(MemberFigures::from).collect(),
            (None, None) => Vec::new(),
        };
        members.into_iter().map(|member| (member.guid, member)).collect()
    }

    /// The last scrub or resilver, with its present progress.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub fn scan(&self) -> Result<Option<ScanStatus>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Action::Open(&self.name).failed(error);
        match (&self.figures, self.session()) {
            (Some(figures), _) => figures.scan().map_err(|error| failed(&error)),
            (None, Some(session)) => session.pool().scan().map_err(|error| failed(&error)),
            (None, None) => Ok(None),
        }
    }

    pub fn guid(&self) -> Guid {
        match &self.body {
            Body::Open(session) => session.pool().guid(),
            Body::Closed { found: Some(found), .. } => found.config.pool_guid,
            Body::Closed { found: None, .. } => self.known.as_ref().map_or(Guid(0), |known| known.guid),
        }
    }

    /// The pool's health.
    pub fn state(&self) -> State {
        if self.halted().is_some() { State::Suspended } else { self.root_state() }
    }

    /// The state of the root of the vdev tree.
    pub fn root_state(&self) -> State {
        match &self.body {
            Body::Open(_) => {
                self.tree(Naming::default()).iter().map(|v| v.state).max().map_or(State::Online, |worst| {
                    if worst == State::Online { State::Online } else { State::Degraded }
                })
            }
            Body::Closed { why: NotOpen::Failed { source: pool::Error::Damaged { .. }, .. }, .. } => {
                State::Faulted
            }
            // The server has it open, and waits.
            Body::Closed { why: NotOpen::Silent { .. }, .. } => State::Online,
            Body::Closed { .. } => State::Unavail,
        }
    }

    /// A device of a pool that cannot be opened, if it ends before its data may.
    pub fn cut_short(&self) -> Option<PathBuf> {
        let Body::Closed { found: Some(found), .. } = &self.body else { return None };
        let is_short = |vdev: &VdevConfig, path: &PathBuf| {
            let asize = vdev.top.as_ref().map_or(0, |top| top.asize);
            FileDisk::open(path, Access::Peek).is_ok_and(|disk| label::asize_of(disk.size()) < asize)
        };
        let single = found.tops.values().filter(|vdev| vdev.kind.is_leaf());
        let mut devices = single.filter_map(|vdev| Some((vdev, found.devices.get(&vdev.guid.0)?)));
        devices.find(|(vdev, path)| is_short(vdev, path)).map(|(_, path)| path.clone())
    }

    /// Whether the pool should have a server, and that ended without exporting the pool.
    pub fn lost_server(&self) -> bool {
        let Body::Open(session) = &self.body else { return false };
        let is_served = session.is_leased() || session.is_live() || !connect::is_used();
        !is_served && self.known.is_some() && self.was_active
    }

    /// Caches and spares, looked for once; or why they are not known.
    pub fn aux(&self) -> Result<&[AuxVdev], &pool::Error> {
        let look = || self.session().map_or_else(|| Ok(Vec::new()), |session| session.pool().aux_vdevs());
        self.aux.get_or_init(look).as_deref()
    }

    /// Whether a vdev of the tree is of some kind.
    pub fn any(&self, is_meant: &dyn Fn(&VdevView) -> bool) -> bool {
        let mut found = false;
        self.tree(Naming::default()).iter().for_each(|top| top.walk(&mut |vdev| found |= is_meant(vdev)));
        found
    }

    /// Whether a resilver or a rebuild is under way.
    pub fn is_resilvering(&self) -> bool {
        self.scan().is_ok_and(|scan| scan.is_some_and(|status| status.scan.is_resilvering()))
            || self.rebuilds().is_ok_and(|all| all.iter().any(|(_, rebuild)| rebuild.is_active()))
    }

    /// A cache is not where it should be.
    pub fn lacks_cache(&self) -> bool {
        let lost = |aux: &AuxVdev| aux.kind == AuxKind::Cache && aux.device.is_none();
        self.aux().is_ok_and(|all| all.iter().any(lost))
    }

    /// All vdevs that are shown, by class: top-level vdevs with those below them, then the devices beside the tree (caches,
    /// spares).
    pub fn shown(&self, naming: Naming) -> Vec<VdevView> {
        self.with_aux(self.tree(naming), naming)
    }

    /// As [`PoolView::shown`], with removed vdevs, which hold nothing and lead to where their data is now.
    pub fn listed(&self, naming: Naming) -> Vec<VdevView> {
        let mut all = self.tree(naming);
        if let Some(session) = self.session() {
            let config = session.pool().info().config;
            let moved = config.tree.children.iter().filter(|vdev| vdev.kind == VdevKind::Indirect);
            all.extend(tops(moved, &BTreeMap::new(), naming));
            all.sort_by_key(|vdev| vdev.top);
        }
        self.with_aux(all, naming)
    }

    fn with_aux(&self, mut all: Vec<VdevView>, naming: Naming) -> Vec<VdevView> {
        all.sort_by_key(|vdev| vdev.class);
        all.extend(self.aux().unwrap_or_default().iter().map(|aux| aux_view(aux, naming)));
        all
    }

    /// Top-level vdevs with all below them.
    pub fn tree(&self, naming: Naming) -> Vec<VdevView> {
        match &self.body {
            Body::Open(session) => {
                let config = session.pool().info().config;
                let there = config.tree.children.iter().filter(|vdev| vdev.kind != VdevKind::Indirect);
                let mut tree = tops(there, &session.devices, naming);
                tree.iter_mut().for_each(|vdev| vdev.classify(session.pool()));
                let leaves = session.pool().leaves();
                let sizes: BTreeMap<u64, u64> = leaves.map(|leaf| (leaf.guid, leaf.disk.size())).collect();
                let members = self.members();
                tree.iter_mut().for_each(|vdev| vdev.judge(&members, naming));
                tree.iter_mut().for_each(|vdev| vdev.measure(&sizes));
                tree
            }
            Body::Closed { found: Some(found), .. } => {
                let mut tree = found_tree(found, naming);
                // A vdev that no label describes may have been removed.
                tree.retain(|vdev| vdev.guid.0 != 0 || !found.config.has_removed());
                // Missing devices are named by their last known paths.
                let here: Vec<PathBuf> = found.devices.values().map(|path| state::absolute(path)).collect();
                let known = self.known.iter().flat_map(|known| &known.devices);
                let mut gone =
                    known.filter(|path| !here.contains(path)).map(|path| path.display().to_string());
                for vdev in tree.iter_mut().filter(|vdev| vdev.guid.0 == 0 && vdev.path.is_none()) {
                    if let Some(path) = gone.next() {
                        vdev.name.clone_from(&path);
                        vdev.path = Some(path);
                    }
                }
                tree
            }
            Body::Closed { found: None, .. } => {
                let known = self.known.iter().flat_map(|known| &known.devices).enumerate();
                known
                    .map(|(id, path)| {
                        let mut vdev = VdevConfig::new(VdevKind::File, id as u64, Guid(0));
                        vdev.path = Some(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec());
                        view(&vdev, &BTreeMap::new(), Class::Normal, naming)
                    })
                    .collect()
            }
        }
    }
}

/// The vdevs of a pool as far as they are known; slots of which nothing is known are missing.
pub fn found_tree(found: &Found, naming: Naming) -> Vec<VdevView> {
    let count = found.config.vdev_children.max(found.tops.len() as u64).min(1 << 12);
    let missing: Vec<VdevConfig> =
        (0..count).map(|id| VdevConfig::new(VdevKind::Missing, id, Guid(0))).collect();
    let shown = (0..count)
        .filter(|id| !found.config.hole_array.contains(id))
        .map(|id| found.tops.get(&id).unwrap_or(&missing[id as usize]));
    let mut tree = tops(shown, &found.devices, naming);
    tree.iter_mut().for_each(|vdev| vdev.measure(&BTreeMap::new()));
    tree
}

fn tops<'a>(
    vdevs: impl Iterator<Item = &'a VdevConfig>,
    devices: &BTreeMap<u64, PathBuf>,
    naming: Naming,
) -> Vec<VdevView> {
    vdevs
        .filter(|vdev| vdev.kind != VdevKind::Hole)
        .map(|vdev| {
            // Labels have no other class of a vdev.
            let class = match vdev.top.as_ref().is_some_and(|top| top.is_log) {
                true => Class::Log,
                false => Class::Normal,
            };
            let mut view = view(vdev, devices, class, naming);
            view.top = Some(vdev.id as u32);
            view
        })
        .collect()
}

fn aux_view(aux: &AuxVdev, naming: Naming) -> VdevView {
    let class = match aux.kind {
        AuxKind::Cache => Class::Cache,
        AuxKind::Spare => Class::Spare,
    };
    let devices = aux.device.iter().map(|path| (aux.config.guid.0, path.clone())).collect();
    let mut view = view(&aux.config, &devices, class, naming);
    if aux.is_distributed {
        // It is there as long as the devices of its vdev are.
        view.state = State::Online;
        view.name = view.path.clone().filter(|_| !naming.guids).unwrap_or(view.name);
    }
    view.measure(&BTreeMap::new());
    match view.state {
        State::Online if aux.in_use => view.state = State::InUse,
        State::Online if aux.used_by.is_some() => {
            view.state = State::InUse;
            view.used_by.clone_from(&aux.used_by);
        }
        State::Online if class == Class::Spare => view.state = State::Avail,
        // A missing one, too, is named by its last known path.
        State::Unavail if !naming.guids => view.name = view.path.clone().unwrap_or(view.name),
        _ => {}
    }
    view
}

fn view(vdev: &VdevConfig, devices: &BTreeMap<u64, PathBuf>, class: Class, naming: Naming) -> VdevView {
    let children: Vec<VdevView> = vdev.children.iter().map(|c| view(c, devices, class, naming)).collect();
    let offline = vdev.extra.get_u64("offline").is_some_and(|flag| flag != 0);
    let is_distributed = vdev.kind == VdevKind::DistributedSpare;
    let here = devices.get(&vdev.guid.0).filter(|_| !is_distributed);
    let up = children.iter().filter(|child| child.state <= State::Degraded).count();
    let all = children.iter().all(|child| child.state == State::Online);
    let needed = match vdev.kind {
        VdevKind::Raidz { nparity, .. } => children.len().saturating_sub(nparity as usize),
        VdevKind::Draid { nparity, .. } => children.len().saturating_sub(nparity as usize),
        _ => 1,
    };
    let state = match vdev.kind {
        VdevKind::Indirect => State::Online,
        _ if children.is_empty() && offline => State::Offline,
        // It is there with the devices that it lies on.
        _ if children.is_empty() && (here.is_some() || is_distributed) => State::Online,
        _ if children.is_empty() => State::Unavail,
        _ if all => State::Online,
        _ if up >= needed => State::Degraded,
        _ => State::Unavail,
    };
    let path = match here {
        Some(path) if !open::is_gone(path) => Some(state::absolute(path)),
        _ => vdev.path.as_ref().map(|raw| PathBuf::from(String::from_utf8_lossy(raw).into_owned())),
    };
    let path = path.map(|path| match naming.follow {
        true => path.canonicalize().unwrap_or(path),
        false => path,
    });
    let path = path.map(|path| path.display().to_string());
    VdevView {
        name: naming.name_of(vdev, path.as_deref(), state == State::Unavail),
        kind: match vdev.kind {
            VdevKind::Raidz { nparity, .. } => format!("raidz{nparity}"),
            _ => vdev.kind.as_str().to_owned(),
        },
        guid: vdev.guid,
        class,
        state,
        path: path.filter(|_| children.is_empty()),
        device_bytes: None,
        top: None,
        is_called_faulty: false,
        used_by: None,
        resilvers: false,
        spare: children.len().saturating_sub(needed),
        children,
    }
}

/// The pools called `names`, or all, by name. An error is printed for each missing pool.
///
/// # Errors
/// The file of known pools cannot be read.
pub fn views(
    names: &[String],
    around: &Surroundings,
    console: &mut Console,
) -> Result<Vec<PoolView>, Failure> {
    let all = open::usable(around)?;
    for name in names {
        if !all.iter().any(|pool| pool.name == *name) {
            console.complain(open::no_such_pool(name))?;
        }
    }
    let wanted = all.into_iter().filter(|pool| names.is_empty() || names.contains(&pool.name));
    Ok(wanted.map(PoolView::new).collect())
}
