//! Names: look-ups and creations, as entries that the kernel caches.

use std::time::Duration;

use fuser::{Errno, Generation};
use zpl::ObjectId;
use zpl::session::{Caller, Creation, Held, Target, link_for};

use crate::attributes::{LONG, SHORT, attr, attr_ttl};
use crate::errno::{self, Answer};
use crate::replies::Entry;
use crate::shared::Shared;

/// An odd number: its multiples differ in their lower 32 bits, which are all that the kernel compares of a generation.
const TURN: u32 = 0x9e37_79b1;

impl Shared {
    /// How long the kernel may cache a name. If several spellings match one entry, the kernel knows only one of them, so it
    /// has to ask each time.
    pub(crate) fn entry_ttl(&self) -> Duration {
        if self.session.exact_names() { LONG } else { Duration::ZERO }
    }

    /// Describes a node that the session holds for the kernel.
    fn entry_of(&self, held: &Held) -> Entry {
        let Held { stat, turn } = held;
        let salt = self.kernel.numbers.salt();
        Entry {
            attr: attr(stat, self.kernel.ino(stat.id)),
            generation: Generation(stat.generation ^ salt ^ u64::from(turn.wrapping_mul(TURN))),
            attr_ttl: attr_ttl(stat),
            entry_ttl: self.entry_ttl(),
        }
    }

    /// Counts `id` as known and describes it.
    pub(crate) fn entry(&self, id: ObjectId) -> Answer<Entry> {
        self.session.hold(id).map(|held| self.entry_of(&held)).map_err(errno::from)
    }

    /// As [`Shared::entry`], for the object of a name in `dir`.
    pub(crate) fn entry_in(&self, dir: ObjectId, name: &[u8], id: ObjectId) -> Answer<Entry> {
        self.session.hold_named(dir, name, id).map(|held| self.entry_of(&held)).map_err(errno::from)
    }

    /// The link that is shown in place of `dir`.
    pub(crate) fn link_entry(&self, dir: ObjectId) -> Answer<Entry> {
        let stat = self.session.link_stat(dir).map_err(errno::from)?;
        let attr = attr(&stat, self.kernel.ino(link_for(dir).ok_or(Errno::ESTALE)?));
        Ok(Entry { attr, generation: Generation(0), attr_ttl: SHORT, entry_ttl: LONG })
    }

    /// The node of `name`; `None` if the kernel may cache that there is none.
    pub(crate) fn find(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Answer<Option<Entry>> {
        // NFS servers and open_by_handle_at(2) look up any node by its number in this way.
        if name == b"." {
            return self.entry(dir).map(Some);
        }
        match self.session.lookup(by, dir, name).map_err(errno::from)? {
            Some(Target::Link(id)) => self.link_entry(id).map(Some),
            Some(Target::Object(id)) => self.entry_in(dir, name, id).map(Some),
            Some(Target::Tree(id)) => match self.trees.entry(id) {
                Some(entry) => entry.map(|entry| Some(Entry { entry_ttl: self.entry_ttl(), ..entry })),
                // It is just about to be shown, or not any more.
                None => self.entry_in(dir, name, id).map(Some),
            },
            None if self.session.exact_names() => Ok(None),
            None => Err(Errno::ENOENT),
        }
    }

    pub(crate) fn make(&self, by: &Caller, wanted: &Creation) -> Answer<Entry> {
        let id = self.session.create(by, wanted).map_err(errno::from)?;
        self.entry(id)
    }

    /// Makes a file without a name (the name in `wanted` is ignored). It exists until the kernel drops it.
    pub(crate) fn make_unnamed(&self, by: &Caller, wanted: &Creation) -> Answer<Entry> {
        self.session.create_unnamed(by, wanted).map(|held| self.entry_of(&held)).map_err(errno::from)
    }

    pub(crate) fn make_symlink(&self, by: &Caller, wanted: &Creation, target: &[u8]) -> Answer<Entry> {
        let id = self.session.symlink(by, wanted, target).map_err(errno::from)?;
        self.entry(id)
    }

    pub(crate) fn make_link(&self, by: &Caller, id: ObjectId, dir: ObjectId, name: &[u8]) -> Answer<Entry> {
        self.session.link(by, id, dir, name).map_err(errno::from)?;
        self.entry(id)
    }
}
