//! Which blocks a stream leaves out, and which older blocks it brings because its source lacks them.
//!
//! From:   the walk over the blocks of a snapshot, and redaction lists, all in the order of the stream.
//! To:     the events of a redacted stream, of one that completes a redacted source, or of both.
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §7.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::Arc;

use dmu::{Object, Objset, Trail};
use format::redaction::Entry;
use format::{BlockPtr, ObjectId};

use pool::{Error, RedactionEntries, Result};

use super::traverse::Event;

/// The redaction in the head of a stream, and the lists that its blocks follow.
#[derive(Default)]
pub(super) struct Redaction {
    /// Guids of the snapshots by which the stream is redacted.
    pub(super) by: Option<Vec<u64>>,
    /// Guids of the snapshots by which its source is redacted.
    pub(super) from: Option<Vec<u64>>,
    /// Blocks to leave out.
    pub(super) left_out: Option<RedactionEntries>,
    /// Blocks that the source lacks.
    pub(super) lacking: Option<RedactionEntries>,
}

impl Redaction {
    /// Whether it changes which blocks are sent.
    pub(super) const fn changes_blocks(&self) -> bool {
        self.left_out.is_some() || self.lacking.is_some()
    }

    /// The events of a walk over `objset` that starts at `start`, as the lists change them.
    pub(super) fn applied<'a, I: Iterator<Item = Result<Event>> + 'a>(
        self,
        events: I,
        objset: &'a Arc<Objset>,
        start: Option<(u64, u64)>,
    ) -> Box<dyn Iterator<Item = Result<Event>> + 'a> {
        match self.changes_blocks() {
            true => Box::new(Redacting::new(events, objset, self, start)),
            false => Box::new(events),
        }
    }
}

/// A list that is read piece by piece along with the stream.
struct List {
    entries: Peekable<RedactionEntries>,
}

impl List {
    fn of(entries: Option<RedactionEntries>) -> List {
        let entries = entries.unwrap_or_else(|| Box::new(std::iter::empty()));
        List { entries: entries.peekable() }
    }

    /// The next entry for which `is_past` is false.
    fn front(&mut self, is_past: impl Fn(&Entry) -> bool) -> Result<Option<Entry>> {
        loop {
            match self.entries.peek() {
                None => return Ok(None),
                Some(Ok(entry)) if !is_past(entry) => return Ok(Some(*entry)),
                _ => {
                    if let Some(Err(error)) = self.entries.next() {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Whether block `blkid` of an object with blocks of this size is listed, and the first block after it for which the
    /// answer may be another. An entry with other blocks counts for all blocks that it touches.
    fn status(&mut self, object: u64, size: u64, blkid: u64) -> Result<(bool, u64)> {
        let blocks = |entry: &Entry| match entry.block_size == size {
            true => (entry.blkid, entry.last() + 1),
            false => {
                let end = (entry.last() + 1).saturating_mul(entry.block_size);
                (entry.blkid.saturating_mul(entry.block_size) / size, end.div_ceil(size))
            }
        };
        let is_past =
            |entry: &Entry| entry.object < object || entry.object == object && blocks(entry).1 <= blkid;
        let Some(entry) = self.front(is_past)?.filter(|entry| entry.object == object) else {
            return Ok((false, u64::MAX));
        };
        let (start, end) = blocks(&entry);
        Ok(if start <= blkid { (true, end) } else { (false, start) })
    }
}

/// A part of the lists that is still to be turned into events.
enum Piece {
    /// Told as it is.
    Told(Event),
    /// Blocks that the walk found nothing new of.
    Gap { id: u64, size: u64, start: u64, end: u64 },
    /// Blocks of an event of the walk.
    Found { event: Event, start: u64, end: u64 },
    /// Old blocks that the source lacks.
    Old { object: Arc<Object>, start: u64, end: u64 },
    /// Objects before this number, of which the walk found nothing new.
    Objects { end: u64 },
    /// An object that is done.
    Gone { object: u64 },
}

/// The events of a walk, changed by lists.
struct Redacting<'a, I> {
    events: I,
    objset: &'a Arc<Objset>,
    left_out: List,
    lacking: List,
    /// Where the stream starts (object, byte offset).
    start: (u64, u64),
    /// The object that the walk is at, its block size, and its next block.
    current: Option<(u64, u64, u64)>,
    pieces: VecDeque<Piece>,
    is_over: bool,
}

impl<'a, I: Iterator<Item = Result<Event>>> Redacting<'a, I> {
    fn new(
        events: I,
        objset: &'a Arc<Objset>,
        redaction: Redaction,
        start: Option<(u64, u64)>,
    ) -> Redacting<'a, I> {
        Redacting {
            events,
            objset,
            left_out: List::of(redaction.left_out),
            lacking: List::of(redaction.lacking),
            start: start.unwrap_or((0, 0)),
            current: None,
            pieces: VecDeque::new(),
            is_over: false,
        }
    }

    /// The first block of an object that belongs to the stream.
    const fn first_block(&self, id: u64, size: u64) -> u64 {
        if id == self.start.0 { self.start.1 / size } else { 0 }
    }

    /// Handles everything before object `id`.
    fn finish(&mut self, end: u64) {
        if let Some((id, size, next)) = self.current.take() {
            self.pieces.push_back(Piece::Gap { id, size, start: next, end: u64::MAX });
        }
        self.pieces.push_back(Piece::Objects { end });
    }

    /// Takes in one event of the walk.
    fn take(&mut self, event: Event) {
        let (start, end) = match &event {
            Event::Object { id, dnode, .. } => {
                let (id, size) = (*id, u64::from(dnode.block_size));
                self.finish(id);
                self.current = Some((id, size, self.first_block(id, size)));
                return self.pieces.push_back(Piece::Told(event));
            }
            Event::Free { first, .. } | Event::Range { first, .. } => {
                let first = *first;
                self.finish(first);
                return self.pieces.push_back(Piece::Told(event));
            }
            Event::Spill { .. } | Event::Redact { .. } => {
                if let Some((id, size, next)) = &mut self.current {
                    self.pieces.push_back(Piece::Gap { id: *id, size: *size, start: *next, end: u64::MAX });
                    *next = u64::MAX;
                }
                return self.pieces.push_back(Piece::Told(event));
            }
            Event::Hole { start, end: 0, .. } => (*start, u64::MAX),
            Event::Hole { start, end, .. } => (*start, *end),
            Event::Data { blkid, .. } => (*blkid, *blkid + 1),
        };
        if let Some((id, size, next)) = &mut self.current {
            self.pieces.push_back(Piece::Gap { id: *id, size: *size, start: *next, end: start });
            *next = end.max(*next);
        }
        self.pieces.push_back(Piece::Found { event, start, end });
    }

    /// Whether a block is left out, whether the source lacks it, and up to which block that holds.
    fn status(&mut self, id: u64, size: u64, blkid: u64, end: u64) -> Result<(bool, bool, u64)> {
        let (left_out, a) = self.left_out.status(id, size, blkid)?;
        let (lacking, b) = self.lacking.status(id, size, blkid)?;
        Ok((left_out, lacking, a.min(b).min(end)))
    }

    /// One step of a piece.
    fn step(&mut self, piece: Piece) -> Result<Option<Event>> {
        match piece {
            Piece::Told(event) => Ok(Some(event)),
            Piece::Gap { start, end, .. } if start >= end => Ok(None),
            Piece::Gap { id, size, start, end } => {
                let (left_out, lacking, until) = self.status(id, size, start, end)?;
                self.pieces.push_front(Piece::Gap { id, size, start: until, end });
                match (left_out, lacking) {
                    (true, false) => {
                        return Ok(Some(Event::Redact { id, block_size: size, start, end: until }));
                    }
                    (false, true) => {
                        if let Some(object) = self.object(id)? {
                            self.pieces.push_front(Piece::Old { object, start, end: until });
                        }
                    }
                    _ => {}
                }
                Ok(None)
            }
            Piece::Found { start, end, .. } if start >= end => Ok(None),
            Piece::Found { event, start, end } => self.found(event, start, end),
            Piece::Old { object, start, end } => self.old(object, start, end),
            Piece::Objects { end } => self.objects(end).map(|()| None),
            Piece::Gone { object } => self.forget(object).map(|()| None),
        }
    }

    fn found(&mut self, event: Event, start: u64, end: u64) -> Result<Option<Event>> {
        let (Event::Hole { id, block_size, .. } | Event::Data { id, block_size, .. }) = event else {
            unreachable!("only holes and data are found at blocks")
        };
        let (left_out, lacking, until) = self.status(id, block_size, start, end)?;
        let told = match (left_out, lacking) {
            (true, false) => Some(Event::Redact { id, block_size, start, end: until }),
            // Both sides lack it.
            (true, true) => None,
            (false, _) => match event {
                Event::Hole { end: 0, .. } if until == u64::MAX => {
                    return Ok(Some(Event::Hole { id, block_size, start, end: 0 }));
                }
                Event::Hole { .. } => Some(Event::Hole { id, block_size, start, end: until }),
                data => return Ok(Some(data)),
            },
        };
        if until < end {
            self.pieces.push_front(Piece::Found { event, start: until, end });
        }
        Ok(told)
    }

    /// Blocks as the snapshot has them, although they are older than the source.
    fn old(&mut self, object: Arc<Object>, start: u64, end: u64) -> Result<Option<Event>> {
        let end = end.min(object.max_blkid().saturating_add(1));
        if start >= end {
            return Ok(None);
        }
        let (id, block_size) = (object.id().0, object.block_size());
        let next = object.next_block_on(start, &mut Trail::default())?.unwrap_or(end).min(end);
        if next > start {
            self.pieces.push_front(Piece::Old { object, start: next, end });
            return Ok(Some(Event::Hole { id, block_size, start, end: next }));
        }
        let (object_type, ptr) = (object.object_type(), object.synced_ptr(start)?);
        if let BlockPtr::Embedded(embedded) = &ptr
            && embedded.kind != 0
        {
            return Err(Error::Unsupported("sending redacted blocks".into()));
        }
        self.pieces.push_front(Piece::Old { object, start: start + 1, end });
        Ok(Some(Event::Data { id, object_type, block_size, blkid: start, ptr }))
    }

    /// The object, if it is there and holds data.
    fn object(&self, id: u64) -> Result<Option<Arc<Object>>> {
        match self.objset.object(ObjectId(id)) {
            Ok(object) => Ok(Some(object).filter(|object| !object.object_type().is_metadata())),
            Err(dmu::Error::NoObject(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The next object before `end` that a list names.
    fn objects(&mut self, end: u64) -> Result<()> {
        let begin = self.start.0;
        let mut first = u64::MAX;
        for list in [&mut self.left_out, &mut self.lacking] {
            let front = list.front(|entry| entry.object < begin)?;
            first = front.map_or(first, |entry| first.min(entry.object));
        }
        if first >= end {
            return Ok(());
        }
        self.pieces.push_front(Piece::Objects { end });
        match self.object(first)? {
            Some(object) => {
                let size = object.block_size();
                let start = self.first_block(first, size);
                self.pieces.push_front(Piece::Gone { object: first });
                self.pieces.push_front(Piece::Gap { id: first, size, start, end: u64::MAX });
            }
            None => self.forget(first)?,
        }
        Ok(())
    }

    /// Drops the entries of an object from the lists.
    fn forget(&mut self, object: u64) -> Result<()> {
        self.left_out.front(|entry| entry.object <= object)?;
        self.lacking.front(|entry| entry.object <= object)?;
        Ok(())
    }
}

impl<I: Iterator<Item = Result<Event>>> Iterator for Redacting<'_, I> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                match self.step(piece) {
                    Ok(None) => continue,
                    Ok(Some(event)) => return Some(Ok(event)),
                    Err(error) => {
                        self.is_over = true;
                        self.pieces.clear();
                        return Some(Err(error));
                    }
                }
            }
            if self.is_over {
                return None;
            }
            match self.events.next() {
                Some(Ok(event)) => self.take(event),
                Some(Err(error)) => return Some(Err(error)),
                None => {
                    self.finish(u64::MAX);
                    self.is_over = true;
                }
            }
        }
    }
}
