//! `zfs redact`: the list of the blocks of a snapshot that all redaction snapshots changed.
//!
//! From:   the walks over what each redaction snapshot changed since the snapshot, in the order of streams.
//! To:     the list of a redaction bookmark, in parts, each in one txg. An interrupted list is continued.
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §6.

use std::iter::Peekable;
use std::sync::Arc;

use dmu::Objset;
use format::dnode::SLOTS_PER_BLOCK;
use format::redaction::Entry;
use format::{Guid, ObjectId, Txg};

use pool::{Dataset, DatasetInfo, Error, Result, SendFlags};

use super::traverse::{Event, Traversal};
use super::{Leaving, Sender, Source};

/// Entries that are appended in one txg.
const ENTRIES_PER_TXG: usize = 32 << 10;
/// Numbers of objects that are looked up at once, where there are many objects.
const OBJECTS_AT_ONCE: u64 = 1 << 16;

/// A place in a snapshot: an object and a byte offset in it.
type Place = (u64, u64);

/// All between two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: Place,
    end: Place,
}

/// The changes that a walk found, as spans in order. Objects that the walk saw end where their last block ends.
struct Changed<I> {
    events: I,
    /// The object that the walk is at, and where it ends.
    current: Option<Place>,
    held: Option<Span>,
}

impl<I: Iterator<Item = Result<Event>>> Changed<I> {
    const fn new(events: I) -> Changed<I> {
        Changed { events, current: None, held: None }
    }

    /// All behind the end of the object that the walk was at.
    fn rest(&mut self) -> Option<Span> {
        self.current.take().map(|(id, end)| Span { start: (id, end), end: (id + 1, 0) })
    }

    fn span(id: u64, size: u64, start: u64, end: Option<u64>) -> Span {
        let end = end.and_then(|end| end.checked_mul(size)).map_or((id + 1, 0), |end| (id, end));
        Span { start: (id, start.saturating_mul(size)), end }
    }
}

impl<I: Iterator<Item = Result<Event>>> Iterator for Changed<I> {
    type Item = Result<Span>;

    fn next(&mut self) -> Option<Result<Span>> {
        if let Some(span) = self.held.take() {
            return Some(Ok(span));
        }
        loop {
            let event = match self.events.next() {
                None => return self.rest().map(Ok),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(event)) => event,
            };
            match event {
                Event::Object { id, dnode, .. } => {
                    let rest = self.rest();
                    let end = (u128::from(dnode.max_blkid) + 1) * u128::from(dnode.block_size);
                    self.current = Some((id, u64::try_from(end).unwrap_or(u64::MAX)));
                    if rest.is_some() {
                        return rest.map(Ok);
                    }
                }
                Event::Free { first, count } => {
                    let freed = Span { start: (first, 0), end: (first.saturating_add(count), 0) };
                    match self.rest() {
                        None => return Some(Ok(freed)),
                        Some(rest) => {
                            self.held = Some(freed);
                            return Some(Ok(rest));
                        }
                    }
                }
                Event::Hole { id, block_size, start, end } => {
                    let end = Some(end).filter(|end| *end != 0);
                    return Some(Ok(Self::span(id, block_size, start, end)));
                }
                Event::Data { id, block_size, blkid, .. } => {
                    return Some(Ok(Self::span(id, block_size, blkid, blkid.checked_add(1))));
                }
                Event::Range { .. } | Event::Spill { .. } | Event::Redact { .. } => {}
            }
        }
    }
}

/// Spans in order, with no gap between neighbours closed yet.
type Spans<'a> = Box<dyn Iterator<Item = Result<Span>> + 'a>;

/// Joins spans that touch.
fn joined<'a>(spans: impl Iterator<Item = Result<Span>> + 'a) -> Spans<'a> {
    let mut spans = spans.peekable();
    Box::new(std::iter::from_fn(move || {
        let mut span = match spans.next()? {
            Ok(span) => span,
            error => return Some(error),
        };
        while let Some(Ok(next)) = spans.peek() {
            if next.start > span.end {
                break;
            }
            span.end = span.end.max(next.end);
            spans.next();
        }
        Some(Ok(span))
    }))
}

/// The spans that all of the walks have in common.
struct Common<'a> {
    walks: Vec<Peekable<Spans<'a>>>,
    /// Everything before this was returned.
    at: Place,
}

impl Iterator for Common<'_> {
    type Item = Result<Span>;

    fn next(&mut self) -> Option<Result<Span>> {
        'search: loop {
            let mut end = (u64::MAX, u64::MAX);
            for walk in &mut self.walks {
                // The first span of this walk that is not past.
                let span = loop {
                    match walk.peek() {
                        None => return None,
                        Some(Err(_)) => return walk.next(),
                        Some(Ok(span)) if span.end <= self.at => drop(walk.next()),
                        Some(Ok(span)) => break *span,
                    }
                };
                if span.start > self.at {
                    self.at = span.start;
                    continue 'search;
                }
                end = end.min(span.end);
            }
            let span = Span { start: self.at, end };
            self.at = end;
            return Some(Ok(span));
        }
    }
}

/// The blocks of a snapshot in a span. Blocks that are in it in part are left out.
fn entries_in(objset: &Arc<Objset>, span: Span, tell: &mut dyn FnMut(Entry) -> Result<()>) -> Result<()> {
    let (root, _) = objset.synced_root();
    let numbers = root.meta_dnode.max_blkid.saturating_add(1).saturating_mul(SLOTS_PER_BLOCK as u64);
    let last = if span.end.1 == 0 { span.end.0 } else { span.end.0.saturating_add(1) };
    let (mut first, mut at_once, end) = (span.start.0, OBJECTS_AT_ONCE, last.min(numbers));
    while first < end {
        let until = end.min(first.saturating_add(at_once));
        let found = objset.numbers_between(first, until)?;
        at_once = if found.is_empty() { at_once.saturating_mul(2) } else { OBJECTS_AT_ONCE };
        for id in found {
            let object = objset.object(id)?;
            if object.object_type().is_metadata() {
                continue;
            }
            let (size, blocks) = (object.block_size(), object.max_blkid().saturating_add(1));
            let start = if id.0 == span.start.0 { span.start.1.div_ceil(size) } else { 0 };
            let end = if id.0 == span.end.0 { span.end.1 / size } else { u64::MAX };
            let end = end.min(blocks);
            if start < end {
                tell(Entry { object: id.0, blkid: start, block_size: size, count: end - start })?;
            }
        }
        first = until;
    }
    Ok(())
}

/// Fills a list in parts.
struct Filling<'a> {
    sender: &'a Sender<'a>,
    /// The bookmark.
    name: &'a str,
    list: ObjectId,
    /// Entries that it has.
    filled: u64,
    /// It has all up to here.
    after: Option<Place>,
    entries: Vec<Entry>,
}

impl Filling<'_> {
    fn add(&mut self, entry: Entry) -> Result<()> {
        if self.after.is_some_and(|after| (entry.object, entry.last()) <= after) {
            return Ok(());
        }
        if let Some(before) = self.entries.last_mut()
            && (before.object, before.block_size) == (entry.object, entry.block_size)
            && before.last() + 1 == entry.blkid
        {
            before.count += entry.count;
            return Ok(());
        }
        if self.entries.len() >= ENTRIES_PER_TXG {
            let progress = self.entries.last().map(|last| (last.object, last.last()));
            self.store(progress)?;
        }
        self.entries.push(entry);
        Ok(())
    }

    fn store(&mut self, progress: Option<Place>) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        let (before, more) = (self.filled, entries.len() as u64);
        self.sender.pool.extend_redaction(self.name, (self.list, before), entries, progress)?;
        self.filled += more;
        Ok(())
    }
}

impl Sender<'_> {
    /// Makes the redaction bookmark `mark` (the name after the `#`) of a snapshot, with the list of all blocks that were
    /// changed in each of the redaction snapshots `by`.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::NotDescendant`]; [`Error::RedactedAgain`]; [`Error::Exists`];
    /// [`Error::OtherRedaction`]; [`Error::TooManyRedactions`]; a block cannot be read.
    pub fn redact(&self, snapshot: &str, mark: &str, by: &[String]) -> Result<()> {
        let open = self.open(snapshot, SendFlags::default())?;
        let to = self.pool.dataset(snapshot)?;
        let (fs, _) = snapshot.split_once('@').filter(|_| !by.is_empty()).ok_or(Error::NotDescendant)?;
        let name = format!("{fs}#{mark}");
        if self.pool.is_redacted(&to)? {
            return Err(Error::RedactedAgain);
        }
        let since = Source::of(&to);
        let mut opened: Vec<Arc<Dataset>> = Vec::new();
        let mut guids: Vec<u64> = Vec::new();
        for redaction in by {
            let info = self.pool.dataset(redaction)?;
            self.check_descends(&info, &since)?;
            if !guids.contains(&info.phys.guid.0) {
                guids.push(info.phys.guid.0);
                opened.push(self.open(redaction, SendFlags::default())?);
            }
            if self.pool.is_redacted(&info)? {
                return Err(Error::RedactedAgain);
            }
        }
        let (list, filled, after) = self.list_for(&to, &name, guids)?;
        let common = Common { walks: self.changes(&opened, since.txg), at: (1, 0) };
        let mut filling = Filling { sender: self, name: &name, list, filled, after, entries: Vec::new() };
        for span in common {
            entries_in(open.objset(), span?, &mut |entry| filling.add(entry))?;
        }
        filling.store(None)
    }

    fn check_descends(&self, info: &DatasetInfo, since: &Source) -> Result<()> {
        if !info.is_snapshot() {
            return Err(Error::NotDescendant);
        }
        self.check_earlier(info, since).map_err(|error| match error {
            Error::NotEarlier(_) => Error::NotDescendant,
            other => other,
        })
    }

    /// The changes of each of the datasets after `since`.
    fn changes<'b>(&'b self, opened: &'b [Arc<Dataset>], since: Txg) -> Vec<Peekable<Spans<'b>>> {
        let walk = |open: &'b Arc<Dataset>| {
            let (root, _) = open.objset().synced_root();
            Traversal::new(self.reader(open, false), &root.meta_dnode, since)
        };
        opened.iter().map(|open| joined(Changed::new(walk(open))).peekable()).collect()
    }

    /// The list of the redaction bookmark `name`, made if need be: its object, its number of entries, and how far it is.
    fn list_for(
        &self,
        to: &DatasetInfo,
        name: &str,
        guids: Vec<u64>,
    ) -> Result<(ObjectId, u64, Option<Place>)> {
        let exists = || Error::Exists(name.to_owned());
        let found = match self.pool.dataset(name) {
            Ok(mark) => Some(mark),
            Err(Error::NoDataset(_)) => None,
            Err(other) => return Err(other),
        };
        if let Some(mark) = found {
            let (list, header) = self.pool.redaction_list(&mark)?.ok_or_else(exists)?;
            let are_same =
                header.snaps.len() == guids.len() && guids.iter().all(|guid| header.snaps.contains(guid));
            if mark.phys.guid != to.phys.guid || !are_same {
                return Err(Error::OtherRedaction);
            }
            let after = header.progress.ok_or_else(exists)?;
            return Ok((list, header.entries, Some(after).filter(|_| header.entries > 0)));
        }
        self.pool.redaction_bookmark(&to.name, name, guids)?;
        let mark = self.pool.dataset(name)?;
        let (list, _) = self.pool.redaction_list(&mark)?.ok_or_else(|| Error::NoDataset(name.to_owned()))?;
        Ok((list, 0, None))
    }

    /// The blocks that a stream of `snapshot` leaves out by the redaction bookmark `mark` (`pool/fs#mark`).
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::NotRedaction`]; [`Error::RedactionUnfinished`]; [`Error::NotEarlier`] for a bookmark of
    /// another snapshot.
    pub fn leaving(&self, snapshot: &str, mark: &str) -> Result<Leaving> {
        let (to, mark) = (self.pool.dataset(snapshot)?, self.pool.dataset(mark)?);
        let (list, header) = self.pool.redaction_list(&mark)?.ok_or(Error::NotRedaction)?;
        let is_of = |guid: Guid| guid == to.phys.guid && mark.phys.creation_txg == to.phys.creation_txg;
        if !is_of(mark.phys.guid) {
            return Err(Error::OtherSnapshotRedacted);
        }
        match header.progress {
            None => Ok(Leaving { name: mark.name, list, guids: header.snaps }),
            Some(_) => Err(Error::RedactionUnfinished),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(walks: &[&[(Place, Place)]]) -> Vec<(Place, Place)> {
        let walk = |spans: &&[(Place, Place)]| {
            let spans: Vec<_> = spans.iter().map(|&(start, end)| Ok(Span { start, end })).collect();
            joined(spans.into_iter()).peekable()
        };
        let found = Common { walks: walks.iter().map(walk).collect(), at: (1, 0) };
        found.map(|span| span.unwrap()).map(|span| (span.start, span.end)).collect()
    }

    #[test]
    fn the_common_ranges_of_several_walks_are_found() {
        let one: &[(Place, Place)] =
            &[((1, 0), (1, 10)), ((1, 10), (1, 20)), ((3, 5), (4, 0)), ((7, 0), (9, 0))];
        assert_eq!(common(&[one]), [((1, 0), (1, 20)), ((3, 5), (4, 0)), ((7, 0), (9, 0))]);
        let other: &[(Place, Place)] = &[((1, 15), (1, 30)), ((3, 0), (3, 7)), ((3, 9), (8, 4))];
        let both = [((1, 15), (1, 20)), ((3, 5), (3, 7)), ((3, 9), (4, 0)), ((7, 0), (8, 4))];
        assert_eq!(common(&[one, other]), both);
        assert_eq!(common(&[other, one, other]), both);
        assert_eq!(common(&[one, &[]]), []);
        assert_eq!(common(&[one, &[((2, 0), (3, 5))]]), []);
    }
}
