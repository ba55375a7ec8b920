//! The command history, a ring in the MOS.
//!
//! Source: docs/format/06-mos-dsl.md §1.4.

use std::collections::VecDeque;

use dmu::{NewObject, Tx};
use format::history::{self, Ring};
use format::nvlist::NvList;
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectType};

use crate::mos::Mos;
use crate::{Error, Result};

const BLOCK: u32 = 128 << 10;
/// Maximal stored bytes of a command, as in OpenZFS. The smallest ring must hold the first command, which stays forever, and
/// one other.
const COMMAND_MAX: usize = 8192;

/// Creates the ring of a pool with `space` usable bytes.
pub fn create(mos: &Mos, tx: &Tx, space: u64) -> Result<()> {
    let ring = Ring::new(space).encode().to_vec();
    let new = NewObject::plain(ObjectType::SPA_HISTORY)
        .block_size(BLOCK)
        .bonus(ObjectType::SPA_HISTORY_OFFSETS, ring);
    let object = mos.create(tx, new)?;
    mos.set_directory(tx, "history", &Value::from_u64(object.id().0))
}

/// Records a command.
pub fn log(mos: &Mos, tx: &Tx, command: &str) -> Result<()> {
    let fits = (0..=COMMAND_MAX.min(command.len())).rev().find(|at| command.is_char_boundary(*at));
    let mut record = NvList::new();
    record.insert("history time", mos.host.clock.now().0);
    record.insert("history command", &command[..fits.unwrap_or(0)]);
    record.insert("history who", u64::from(rustix::process::getuid().as_raw()));
    record.insert("history zone", "linux");
    record.insert("history hostname", host_name().as_str());
    append(mos, tx, &record, true)
}

/// Records a change that the pool made by itself: `zpool history -i` shows it.
pub fn log_internal(mos: &Mos, tx: &Tx, name: &str, text: &str) -> Result<()> {
    let mut record = NvList::new();
    record.insert("history time", mos.host.clock.now().0);
    record.insert("internal_name", name);
    record.insert("history internal str", text);
    record.insert("history txg", tx.txg().0);
    record.insert("history hostname", host_name().as_str());
    append(mos, tx, &record, false)
}

fn append(mos: &Mos, tx: &Tx, record: &NvList, is_command: bool) -> Result<()> {
    let Some(id) = mos.directory_object("history")? else { return Ok(()) };
    let object = mos.object(id)?;
    let mut ring =
        object.with_bonus(|_, raw| Ring::decode(raw, ByteOrder::Little)).map_err(Error::corrupt(id))?;
    let raw = history::frame(record);
    let len = raw.len() as u64;
    while ring.must_drop(len) {
        let mut length = [0; history::LENGTH_WORD as usize];
        read_at(&object, &ring, ring.begin, &mut length)?;
        ring.drop_oldest(u64::from_le_bytes(length)).map_err(Error::corrupt(id))?;
    }
    if !ring.has_room(len) {
        // The ring is too small for the record. Like OpenZFS, it is left out.
        return Ok(());
    }
    let mut done = 0;
    for (offset, part) in ring.pieces(ring.end, len) {
        object.write(tx, offset, &raw[done..done + part as usize])?;
        done += part as usize;
    }
    ring.appended(len, is_command);
    object.edit_bonus(tx, |bonus| bonus.copy_from_slice(&ring.encode()));
    Ok(())
}

/// The machine's name, as labels and history carry it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn read_at(object: &dmu::Object, ring: &Ring, at: u64, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    for (offset, part) in ring.pieces(at, buf.len() as u64) {
        object.read(offset, &mut buf[done..done + part as usize])?;
        done += part as usize;
    }
    Ok(())
}

/// One event of the history.
#[derive(Clone, Debug)]
pub struct Event {
    /// Seconds since 1970.
    pub time: u64,
    /// The whole record.
    pub record: NvList,
}

impl Event {
    /// The command as typed, if it is one.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        self.record.get_str("history command")
    }
}

/// Reads the bytes of the history block by block. A damaged pool may state a ring that is far larger than its contents. In
/// such a ring, the first unwritten record gives an error.
struct Bytes<'a> {
    object: &'a dmu::Object,
    /// The pieces still to be read: offset and length.
    pieces: VecDeque<(u64, u64)>,
    /// Bytes read so far, and how many of them are consumed.
    read: Vec<u8>,
    taken: usize,
}

impl Bytes<'_> {
    fn left(&self) -> &[u8] {
        &self.read[self.taken..]
    }

    /// Reads until `wanted` unconsumed bytes are there, or to the end.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        while self.left().len() < wanted
            && let Some((offset, len)) = self.pieces.pop_front()
        {
            let now = len.min(BLOCK.into());
            if now < len {
                self.pieces.push_front((offset + now, len - now));
            }
            self.read.drain(..std::mem::take(&mut self.taken));
            let start = self.read.len();
            self.read.resize(start + now as usize, 0);
            self.object.read(offset, &mut self.read[start..])?;
        }
        Ok(())
    }

    /// The next record; `None` at the end.
    fn next(&mut self) -> Result<Option<NvList>> {
        let word = history::LENGTH_WORD as usize;
        self.fill(word)?;
        let len = self.left().first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if len > history::RECORD_MAX {
            return Err(Error::corrupt(self.object.id())(Corrupt::new("history record length", len)));
        }
        self.fill(word + len as usize)?;
        let mut left = self.left();
        let record = history::take(&mut left).map_err(Error::corrupt(self.object.id()))?;
        self.taken = self.read.len() - left.len();
        Ok(record)
    }
}

/// All events, oldest first: the command that created the pool, then what the ring still holds.
pub fn read(mos: &Mos) -> Result<Vec<Event>> {
    let Some(id) = mos.directory_object("history")? else { return Ok(Vec::new()) };
    let object = mos.object(id)?;
    let ring =
        object.with_bonus(|_, raw| Ring::decode(raw, ByteOrder::Little)).map_err(Error::corrupt(id))?;
    let mut pieces = VecDeque::from([(0, ring.create_len)]);
    pieces.extend(ring.pieces(ring.begin, ring.end - ring.begin));
    pieces.retain(|(_, len)| *len > 0);
    let mut bytes = Bytes { object: &object, pieces, read: Vec::new(), taken: 0 };
    let mut events = Vec::new();
    while let Some(record) = bytes.next()? {
        let time = record.get_u64("history time").unwrap_or(0);
        events.push(Event { time, record });
    }
    Ok(events)
}
