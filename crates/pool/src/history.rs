//! The command history, a ring in the MOS.
//!
//! Source: docs/format/06-mos-dsl.md §1.4.

use dmu::{NewObject, Tx};
use format::history::{self, Ring};
use format::nvlist::{NvList, NvValue};
use format::zap::Value;
use format::{ByteOrder, ObjectType};

use crate::mos::Mos;
use crate::{Error, Result};

const BLOCK: u32 = 128 << 10;
/// Bytes of a command that are kept: as many as OpenZFS keeps. The smallest ring must hold the first command for ever
/// and any other beside it.
const COMMAND_MAX: usize = 8192;

/// Creates the ring of a pool with `space` usable bytes.
pub(crate) fn create(mos: &Mos, tx: &Tx, space: u64) -> Result<()> {
    let ring = Ring::new(space).encode().to_vec();
    let new = NewObject::plain(ObjectType::SPA_HISTORY)
        .block_size(BLOCK)
        .bonus(ObjectType::SPA_HISTORY_OFFSETS, ring);
    let object = mos.create(tx, new)?;
    mos.set_directory(tx, "history", &Value::from_u64(object.id().0))
}

/// Records a command.
pub(crate) fn log(mos: &Mos, tx: &Tx, command: &str) -> Result<()> {
    let Some(id) = mos.directory_object("history")? else { return Ok(()) };
    let fits = (0..=COMMAND_MAX.min(command.len())).rev().find(|at| command.is_char_boundary(*at));
    let command = &command[..fits.unwrap_or(0)];
    let object = mos.object(id)?;
    let mut ring =
        object.with_bonus(|_, raw| Ring::decode(raw, ByteOrder::Little)).map_err(Error::corrupt(id))?;
    let mut record = NvList::new();
    record.insert("history time", mos.host.clock.now().0);
    record.insert("history command", command);
    record.insert("history who", u64::from(rustix::process::getuid().as_raw()));
    record.insert("history zone", "linux");
    record.insert("history hostname", host_name().as_str());
    let raw = history::frame(&record);
    let len = raw.len() as u64;
    while ring.must_drop(len) {
        let mut length = [0; history::LENGTH_WORD as usize];
        read_at(&object, &ring, ring.begin, &mut length)?;
        ring.drop_oldest(u64::from_le_bytes(length)).map_err(Error::corrupt(id))?;
    }
    let mut done = 0;
    for (offset, part) in ring.pieces(ring.end, len) {
        object.write(tx, offset, &raw[done..done + part as usize])?;
        done += part as usize;
    }
    ring.appended(len, true);
    object.edit_bonus(tx, |bonus| bonus.copy_from_slice(&ring.encode()));
    Ok(())
}

/// The machine's name, as labels and history carry it.
pub(crate) fn host_name() -> String {
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

/// All events, oldest first: the command that created the pool, then what the ring still holds.
pub(crate) fn read(mos: &Mos) -> Result<Vec<Event>> {
    let Some(id) = mos.directory_object("history")? else { return Ok(Vec::new()) };
    let object = mos.object(id)?;
    let ring =
        object.with_bonus(|_, raw| Ring::decode(raw, ByteOrder::Little)).map_err(Error::corrupt(id))?;
    let mut raw = vec![0; ring.create_len.min(history::RING_MAX) as usize];
    object.read(0, &mut raw)?;
    let logical = ring.end.saturating_sub(ring.begin).min(history::RING_MAX);
    let mut rest = vec![0; logical as usize];
    read_at(&object, &ring, ring.begin, &mut rest)?;
    raw.extend_from_slice(&rest);
    let mut events = Vec::new();
    let mut left = raw.as_slice();
    while let Some(record) = history::take(&mut left).map_err(Error::corrupt(id))? {
        let time = match record.get("history time") {
            Some(NvValue::Uint64(time)) => *time,
            _ => 0,
        };
        events.push(Event { time, record });
    }
    Ok(events)
}
