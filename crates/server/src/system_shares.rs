//! File systems that servers of the system share: the kernel's NFS server, and Samba.
//!
//! From:   the properties `sharenfs` (where `cenote:nfs` is `system`) and `sharesmb` of mounted file systems.
//! To:     `/etc/exports.d/zfs.exports` and `exportfs`, and the usershares of Samba by `net`. Only root changes them, and nothing
//!         else is written.

mod exports_file;
mod usershares;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use exports_file::{Line, Owner, escaped, lines, put};
use usershares::Usershares;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

use crate::shares::{ShareError, is_below};

const EXPORTS: &str = "/etc/exports.d";
/// The file with the exports that exportfs(8) has read.
const ETAB: &str = "/var/lib/nfs/etab";
const EXPORTFS: [&str; 2] = ["/usr/sbin/exportfs", "/sbin/exportfs"];

/// The share that the properties of a mounted file system ask for.
pub(crate) struct WantedShare {
    pub(crate) dataset: String,
    pub(crate) guid: u64,
    pub(crate) point: PathBuf,
    /// `sharenfs`, where the server of the system exports it.
    pub(crate) nfs: Option<String>,
    /// `sharesmb` is on.
    pub(crate) smb: bool,
}

impl WantedShare {
    fn protocols(&self) -> impl Iterator<Item = Protocol> {
        let nfs = self.nfs.as_ref().map(|_| Protocol::Nfs);
        nfs.into_iter().chain(self.smb.then_some(Protocol::Smb))
    }
}

/// The protocol of the clients of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// NFS, by the server of the pool or by that of the system.
    Nfs,
    /// SMB, by Samba.
    Smb,
}

#[derive(Default)]
struct State {
    /// The shares that the properties ask for, by the guids of the datasets.
    wanted: BTreeMap<u64, WantedShare>,
    /// File systems that a command unshared. They stay unshared until a command shares them.
    unshared: HashSet<(u64, Protocol)>,
    exports: Exports,
    usershares: Usershares,
}

/// Those of one pool.
pub(crate) struct SystemShares {
    pool: u64,
    state: RankedMutex<State>,
}

/// File systems that are not shared, and why.
pub(crate) type Failed = Vec<(String, ShareError)>;

/// Runs a program of the system and returns what it prints; the error is the last line of its messages.
fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let out = Command::new(program).args(words).stdin(Stdio::null()).output();
    let out = out.map_err(|error| format!("'{program}': {error}"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(format!("'{program}': {}", last.map_or_else(|| out.status.to_string(), str::to_owned)))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl SystemShares {
    /// Those of the pool with this guid.
    pub(crate) fn new(pool: u64) -> SystemShares {
        SystemShares { pool, state: RankedMutex::new(Rank::SystemShares, State::default()) }
    }

    fn state(&self) -> MutexHeld<'_, State> {
        self.state.lock_after_panics()
    }

    /// Whether the properties ask for nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().wanted.is_empty()
    }

    /// Whether one of the servers is to share the file system, and no command unshared it.
    pub(crate) fn is_shared(&self, dataset: &str) -> bool {
        let State { wanted, unshared, .. } = &*self.state();
        let mut named = wanted.values().filter(|share| share.dataset == dataset);
        named.any(|share| share.protocols().any(|protocol| !unshared.contains(&(share.guid, protocol))))
    }

    /// Sets whether a command unshared `dataset`, or all if `None`, for clients of `protocol`, or of both. Returns whether the
    /// properties ask for any.
    pub(crate) fn set_unshared(&self, dataset: Option<&str>, only: Option<Protocol>, unshared: bool) -> bool {
        let State { wanted, unshared: set, .. } = &mut *self.state();
        let named = wanted.values().filter(|share| dataset.is_none_or(|name| name == share.dataset));
        let chosen = |protocol: &Protocol| only.is_none_or(|only| only == *protocol);
        let mut found = false;
        for (guid, share) in named.map(|share| (share.guid, share)) {
            for protocol in share.protocols().filter(chosen) {
                found = true;
                if unshared {
                    set.insert((guid, protocol))
                } else {
                    set.remove(&(guid, protocol))
                };
            }
        }
        found
    }

    /// Renames datasets whose mounts stay.
    pub(crate) fn rename(&self, renamed: impl Fn(&str) -> String) {
        let mut state = self.state();
        let mut has_changed = false;
        for share in state.wanted.values_mut() {
            let name = renamed(&share.dataset);
            has_changed |= name != share.dataset;
            share.dataset = name;
        }
        if has_changed {
            // The next look reports what fails.
            self.apply(&mut state);
        }
    }

    /// Makes the properties decide again about file systems that commands unshared for clients of `protocol`, or of both.
    pub(crate) fn forget_unshared(&self, only: Option<Protocol>) {
        self.state().unshared.retain(|(_, protocol)| only.is_some_and(|only| only != *protocol));
    }

    /// Shares exactly `wanted` of the file systems at and below `top`. Returns those of them that could not be shared.
    pub(crate) fn look(&self, top: &str, wanted: Vec<WantedShare>) -> Failed {
        let mut state = self.state();
        state.wanted.retain(|_, share| !is_below(&share.dataset, top));
        state.wanted.extend(wanted.into_iter().map(|share| (share.guid, share)));
        let mut failed = self.apply(&mut state);
        failed.retain(|(dataset, _)| is_below(dataset, top));
        failed
    }

    /// Ends the shares that `concerned` chooses, because their mounts are about to go.
    pub(crate) fn withdraw(&self, concerned: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let before = state.wanted.len();
        state.wanted.retain(|_, share| !concerned(&share.dataset));
        if state.wanted.len() != before {
            // The remaining shares were tried before, and their failure is reported then.
            self.apply(&mut state);
        }
    }

    /// Removes what a server of this pool left when it was killed, except what is `wanted`.
    pub(crate) fn begin(&self, top: &str, wanted: Vec<WantedShare>) -> Failed {
        let mut state = self.state();
        state.exports.has_lines = is_root() && Path::new(EXPORTS).exists();
        state.usershares.begin(is_root());
        drop(state);
        self.look(top, wanted)
    }

    fn apply(&self, state: &mut State) -> Failed {
        let State { wanted, unshared, exports, usershares } = state;
        let (wanted, unshared) = (&*wanted, &*unshared);
        if !is_root() {
            let needs_root = |share: &WantedShare| (share.dataset.clone(), ShareError::NeedsRoot);
            return wanted.values().map(needs_root).collect();
        }
        let of = |wanted_for: Protocol| {
            let is_wanted = move |share: &&WantedShare| {
                share.protocols().any(|protocol| protocol == wanted_for)
                    && !unshared.contains(&(share.guid, wanted_for))
            };
            wanted.values().filter(is_wanted).collect::<Vec<&WantedShare>>()
        };
        let (mut failed, mut exported, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for share in of(Protocol::Nfs) {
            let Some(rules) = &share.nfs else { continue };
            match lines(&Line { point: &share.point, guid: share.guid, rules }, self.pool) {
                Ok(lines) => {
                    new.extend(lines);
                    exported.push(share);
                }
                Err(why) => failed.push((share.dataset.clone(), ShareError::Rules(why))),
            }
        }
        let points = exported.iter().map(|share| share.point.as_path()).collect();
        if let Err(why) = exports.set(&Owner { pool: self.pool, points }, &new) {
            let server = || ShareError::Server(why.clone());
            failed.extend(exported.iter().map(|share| (share.dataset.clone(), server())));
        }
        failed.extend(usershares.set(self.pool, &of(Protocol::Smb)));
        failed
    }
}

/// Whether the list of exportfs(8) has a folder.
fn is_exported(point: &Path) -> bool {
    let list = std::fs::read_to_string(ETAB).unwrap_or_default();
    let path = escaped(point);
    list.lines().any(|line| line.split('\t').next() == Some(&path))
}

/// The exports of one pool by the kernel's NFS server.
#[derive(Default)]
struct Exports {
    /// The file may have lines of this pool.
    has_lines: bool,
    /// `exportfs` has read the file since it changed.
    is_read: bool,
}

impl Exports {
    /// Makes the server export these lines, and no others of this pool.
    fn set(&mut self, owner: &Owner<'_>, new: &[String]) -> Result<(), String> {
        if new.is_empty() && !self.has_lines {
            return Ok(());
        }
        let exportfs = EXPORTFS.into_iter().find(|program| Path::new(program).exists());
        if !new.is_empty() && exportfs.is_none() {
            return Err("exportfs is missing: install nfs-kernel-server".into());
        }
        if put(Path::new(EXPORTS), owner, new).map_err(|error| format!("'{EXPORTS}': {error}"))? {
            self.is_read = false;
        }
        self.has_lines = !new.is_empty();
        if let (false, Some(exportfs)) = (self.is_read, exportfs) {
            let done = run(exportfs, &["-ra"]);
            self.is_read = done.is_ok();
            match done {
                // It also fails for lines of others, which it leaves out.
                Err(why) if owner.points.iter().all(|point| is_exported(point)) => {
                    tracing::warn!(why, "exportfs")
                }
                done => drop(done?),
            }
        }
        Ok(())
    }
}
