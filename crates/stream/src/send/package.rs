//! Packages: streams with properties (`-p`), and whole trees of file systems (`-R`).
//!
//! Source: docs/format/09-send-stream.md §4; the order of everything is that of golden streams.

use std::collections::BTreeSet;
use std::io::Write;

use dmu::zap;
use format::{Guid, NvList, NvValue, ObjectId};

use pool::{DatasetInfo, Error, Result, SendFlags};

use super::{Leaving, Request, Sender, Sent, Source, writer};

/// The contents of a package.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// `-R`: everything below, with all snapshots from the first (or from the source) on.
    pub recursive: bool,
    /// `-I`: all snapshots between the source and the last.
    pub between: bool,
    /// The source's name after the `@`.
    pub from: Option<String>,
    /// The top is a clone, and the source is its origin.
    pub from_origin: bool,
    /// `-X`: these are left out, with all datasets below them.
    pub excluded: Vec<String>,
    /// The properties of file systems in the package.
    pub properties: Told,
    /// `-h`: holds of snapshots are sent.
    pub holds: bool,
    /// `-w`: encrypted datasets are sent as they lie on disk.
    pub raw: bool,
    /// `-U`: encrypted datasets may be sent decrypted.
    pub decrypts: bool,
    /// `-s`: datasets without such a snapshot are left out, with all below them.
    pub skip_missing: bool,
    /// The source is this bookmark; for packages of one stream.
    pub mark: Option<Source>,
    /// `--redact`: the blocks that the one stream of the package leaves out.
    pub leaving: Option<Leaving>,
}

/// The property values in a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Told {
    /// Those in effect, local and received (`-p`, `-R`).
    #[default]
    Effective,
    /// The received values, even if others were set since (`-b`).
    Received,
    /// No properties of file systems; the properties in effect for snapshots.
    OfSnapshots,
}

/// A file system or volume of the package.
struct Member {
    head: DatasetInfo,
    /// Its snapshots up to the last that is sent, oldest first.
    snaps: Vec<DatasetInfo>,
    origin: Option<Guid>,
    parent_from: Guid,
}

fn leaf(info: &DatasetInfo) -> &str {
    info.snapshot_name().unwrap_or_default()
}

impl Sender<'_> {
    /// Writes a package whose top is `snapshot`; returns its bytes.
    ///
    /// # Errors
    /// As [`Sender::send`]; [`Error::NoSnapshotBelow`] if a dataset that is older than its parent's snapshot does
    /// not have it; [`Error::NotRaw`].
    pub fn send_package(
        &self,
        snapshot: &str,
        package: &Package,
        flags: SendFlags,
        out: &mut dyn Write,
        progress: &mut dyn FnMut(Sent<'_>),
    ) -> Result<u64> {
        let (members, _) = self.members(snapshot, package)?;
        let (_, to) = snapshot.split_once('@').ok_or_else(|| Error::NoDataset(snapshot.to_owned()))?;
        let mut list = NvList::new();
        if let Some(from) = &package.from {
            list.insert("fromsnap", from.as_str());
        }
        list.insert("tosnap", to);
        if !package.recursive {
            list.insert("not_recursive", NvValue::Boolean);
        }
        if package.raw {
            list.insert("raw", NvValue::Boolean);
        }
        let mut all = NvList::new();
        for member in &members {
            all.insert(format!("0x{:x}", member.head.phys.guid.0), self.describe(member, to, package)?);
        }
        list.insert("fss", all);
        let mut sent = writer::package_head(snapshot, &list.to_xdr(), out)?;
        for member in in_order(&members) {
            for (from, to) in self.steps_of(member, package)? {
                let leaving = package.leaving.as_ref();
                let request = Request { leaving, ..Request::new(&to, from.as_ref(), flags) };
                sent += self.send_request(&request, out, progress)?;
            }
        }
        sent += writer::package_end(out)?;
        Ok(sent)
    }

    /// The streams of [`Sender::send_package`], in order: from, to.
    ///
    /// # Errors
    /// As [`Sender::send_package`].
    pub fn package_steps(&self, snapshot: &str, package: &Package) -> Result<Vec<(Option<Source>, String)>> {
        let (members, _) = self.members(snapshot, package)?;
        let mut steps = Vec::new();
        for member in in_order(&members) {
            steps.extend(self.steps_of(member, package)?);
        }
        Ok(steps)
    }

    /// The topmost datasets that [`Package::skip_missing`] leaves out.
    ///
    /// # Errors
    /// As [`Sender::send_package`].
    pub fn package_gaps(&self, snapshot: &str, package: &Package) -> Result<Vec<String>> {
        Ok(self.members(snapshot, package)?.1)
    }

    /// The datasets of a package, and those that lack the snapshot.
    fn members(&self, snapshot: &str, package: &Package) -> Result<(Vec<Member>, Vec<String>)> {
        let (fs, to) = snapshot.split_once('@').ok_or_else(|| Error::NoDataset(snapshot.to_owned()))?;
        let (mut members, mut missing) = (Vec::new(), Vec::new());
        let mut queue = vec![(fs.to_owned(), Guid(0), None)];
        while let Some((name, parent_from, parent_txg)) = queue.pop() {
            let head = self.pool.dataset(&name)?;
            if !package.raw && !package.decrypts && self.pool.is_encrypted(&head)? {
                return Err(Error::NotRaw { top: snapshot.to_owned(), dataset: name });
            }
            let mut snaps = self.pool.list(&name, Some(1), true)?;
            snaps.retain(|info| info.is_snapshot() && info.dir_id == head.dir_id);
            let last = snaps.iter().position(|snap| leaf(snap) == to);
            let Some(last) = last else {
                match parent_txg {
                    None => return Err(Error::NoDataset(format!("{name}@{to}"))),
                    // It did not exist when its parent's snapshot was taken.
                    Some(txg) if head.phys.creation_txg > txg => {}
                    Some(_) if package.skip_missing => missing.push(name),
                    Some(_) => {
                        let missing = format!("{name}@{to}");
                        return Err(Error::NoSnapshotBelow { top: snapshot.to_owned(), missing });
                    }
                }
                continue;
            };
            snaps.truncate(last + 1);
            let txg = Some(snaps[last].phys.creation_txg);
            // The base of a child is given by the snapshot of its parent that the receiver has or gets.
            let known = package.from.as_deref().unwrap_or(to);
            let below_from = snaps.iter().find(|snap| leaf(snap) == known).unwrap_or(&snaps[last]).phys.guid;
            let origin = self.pool.reading().origin_of(&head)?;
            if package.recursive {
                let names = self.child_names(&head)?;
                let children = names.into_iter().rev().map(|child| format!("{name}/{child}"));
                let children = children.filter(|child| !package.excluded.contains(child));
                queue.extend(children.map(|child| (child, below_from, txg)));
            }
            members.push(Member { head, snaps, origin, parent_from });
        }
        Ok((members, missing))
    }

    /// Names of the children in the order of their map.
    fn child_names(&self, head: &DatasetInfo) -> Result<Vec<String>> {
        let reading = self.pool.reading();
        let map = reading.zap(head.dir.child_dir_zap)?;
        let mut names = Vec::new();
        for entry in zap::entries(&map) {
            let name = String::from_utf8_lossy(&entry?.name).into_owned();
            if !name.starts_with(['$', '%']) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// From, to of each stream of a member.
    fn steps_of(&self, member: &Member, package: &Package) -> Result<Vec<(Option<Source>, String)>> {
        let from = package.from.as_deref();
        let start = from.and_then(|from| member.snaps.iter().position(|snap| leaf(snap) == from));
        let mut before = match (start, member.origin) {
            _ if package.mark.is_some() => package.mark.clone(),
            (Some(at), _) => Some(Source::of(&member.snaps[at])),
            (None, Some(_)) if package.recursive || package.from_origin => {
                Some(self.source_at(member.head.dir.origin)?)
            }
            (None, _) => None,
        };
        let first = start.map_or(0, |at| at + 1);
        let all =
            package.between || package.recursive && from.is_none() || package.recursive && start.is_none();
        let wanted = if all { &member.snaps[first..] } else { &member.snaps[member.snaps.len() - 1..] };
        let step = |snap: &DatasetInfo| (before.replace(Source::of(snap)), snap.name.clone());
        Ok(wanted.iter().map(step).collect())
    }

    /// The entry of a member in the list.
    fn describe(&self, member: &Member, to: &str, package: &Package) -> Result<NvList> {
        let Member { head, snaps, origin, parent_from } = member;
        let mut about = NvList::new();
        about.insert("name", head.name.as_str());
        about.insert("parentfromsnap", parent_from.0);
        if let Some(origin) = origin {
            about.insert("origin", origin.0);
        }
        let told = package.properties;
        if told != Told::OfSnapshots {
            about.insert("props", self.props_of(head.dir.props_zap, told)?);
        }
        if self.pool.encryption(head)?.is_some_and(|encryption| encryption.object.root == head.dir_id) {
            about.insert("is_encroot", NvValue::Boolean);
        }
        let (mut guids, mut props, mut holds) = (NvList::new(), NvList::new(), NvList::new());
        for snap in snaps.iter().filter(|snap| package.recursive || package.between || leaf(snap) == to) {
            guids.insert(leaf(snap), snap.phys.guid.0);
            props.insert(leaf(snap), self.props_of(snap.phys.props, told)?);
            if package.holds {
                let mut own = NvList::new();
                self.pool.holds(snap)?.iter().for_each(|(tag, since)| own.insert(tag, *since));
                holds.insert(leaf(snap), own);
            }
        }
        about.insert("snaps", guids);
        about.insert("snapprops", props);
        if package.holds {
            about.insert("snapholds", holds);
        }
        Ok(about)
    }

    /// Properties in the order of their map.
    fn props_of(&self, map: ObjectId, told: Told) -> Result<NvList> {
        let mut list = NvList::new();
        if map.0 == 0 {
            return Ok(list);
        }
        let reading = self.pool.reading();
        let object = reading.zap(map)?;
        for entry in zap::entries(&object) {
            let entry = entry?;
            let stored = String::from_utf8_lossy(&entry.name).into_owned();
            let name = stored.strip_suffix("$recvd").unwrap_or(&stored);
            let hidden = |suffix: &str| zap::lookup(&object, format!("{name}{suffix}").as_bytes());
            let is_received = name != stored;
            let is_told = match told {
                Told::Received => is_received,
                _ => !is_received || hidden("")?.is_none() && hidden("$inherit")?.is_none(),
            };
            if name.contains('$') || !is_told {
                continue;
            }
            match (entry.value.as_u64(), entry.value.as_text()) {
                (Some(number), _) => list.insert(name, number),
                (None, Some(text)) => list.insert(name, text),
                (None, None) => {}
            }
        }
        Ok(list)
    }
}

/// Origins before their clones; else as listed.
fn in_order(members: &[Member]) -> Vec<&Member> {
    let mut ordered = Vec::new();
    let mut sent: BTreeSet<Guid> = BTreeSet::new();
    let here: BTreeSet<Guid> =
        members.iter().flat_map(|m| m.snaps.iter().map(|snap| snap.phys.guid)).collect();
    let mut waiting: Vec<&Member> = members.iter().collect();
    while !waiting.is_empty() {
        let ready = |member: &&Member| {
            member.origin.is_none_or(|origin| !here.contains(&origin) || sent.contains(&origin))
        };
        // A circle is impossible in a valid pool; in a damaged one the loop must still end.
        let at = waiting.iter().position(ready).unwrap_or(0);
        let member = waiting.remove(at);
        sent.extend(member.snaps.iter().map(|snap| snap.phys.guid));
        ordered.push(member);
    }
    ordered
}
