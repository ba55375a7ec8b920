//! Attributes of nodes: conversion between [`Znode`] and the bonus and spill block that store it. For legacy znodes see
//! [`crate::legacy`].
//!
//! From:   registry and layouts of the file system, read once; objects' bonus and spill.
//! To:     the rest of the crate.
//! Source: docs/format/07-zpl-sa.md §2, §3.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use dmu::rank::{Rank, RankedRwLock};
use dmu::{Object, Objset, Tx, zap};
use format::sa::{self, Attribute, Header, Registry};
use format::zap::Value;
use format::znode::{Znode, master};
use format::{Corrupt, ObjectId, ObjectType, dnode};

use crate::{Error, Result, legacy};

/// Bytes of a spill block are a multiple of this.
const SECTOR: usize = 512;

/// Attributes that nodes may get and that an old file system may not have registered.
const OPTIONAL: [Attribute; 7] = [
    Attribute::DaclCount,
    Attribute::DaclAces,
    Attribute::Symlink,
    Attribute::Dxattr,
    Attribute::Projid,
    Attribute::Rdev,
    Attribute::Seq,
];

/// Names, numbers and layouts of attributes in one file system.
pub(crate) struct Tables {
    registry_object: Arc<Object>,
    layouts_object: Arc<Object>,
    state: RankedRwLock<State>,
}

struct State {
    registry: Arc<Registry>,
    sequences: HashMap<u16, Arc<[u16]>>,
    numbers: HashMap<Box<[u16]>, u16>,
}

/// A node's attributes as bytes.
pub(crate) struct Encoded {
    pub(crate) bonus: Vec<u8>,
    pub(crate) spill: Option<Vec<u8>>,
}

impl Tables {
    /// Fills the two new objects (registry and layouts) of a file system that had no system attributes. `salt` supplies
    /// random numbers.
    pub(crate) fn create(
        tx: &Tx,
        registry_object: Arc<Object>,
        layouts_object: Arc<Object>,
        salt: &dyn Fn() -> u64,
    ) -> dmu::Result<Tables> {
        let registry = Registry::standard();
        zap::create(&registry_object, tx, salt(), 0)?;
        for entry in registry.entries() {
            zap::insert(&registry_object, tx, entry.name.as_bytes(), &Value::from_u64(entry.encode()))?;
        }
        zap::create_fat(&layouts_object, tx, salt(), 0)?;
        let state =
            State { registry: Arc::new(registry), sequences: HashMap::new(), numbers: HashMap::new() };
        Ok(Tables { registry_object, layouts_object, state: RankedRwLock::new(Rank::Layouts, state) })
    }

    /// Reads the registry and the layouts, which the SA master node `master` names.
    pub(crate) fn open(objset: &Objset, master: ObjectId) -> Result<Tables> {
        let node = objset.object(master)?;
        let part = |key: &str| {
            let id = zap::lookup_u64(&node, key.as_bytes())?.ok_or_else(|| {
                Error::damaged(master)(Corrupt::new("SA master node without its tables", 0))
            })?;
            Ok::<_, Error>(objset.object(ObjectId(id))?)
        };
        let (registry_object, layouts_object) = (part(master::SA_REGISTRY)?, part(master::SA_LAYOUTS)?);
        let mut registered = Vec::new();
        for entry in zap::entries(&registry_object) {
            let entry = entry?;
            let value = entry.number().ok_or(Corrupt::new("SA registry value", 0));
            let value = value.map_err(Error::damaged(registry_object.id()))?;
            registered.push((String::from_utf8_lossy(&entry.name).into_owned(), value));
        }
        let registry = Registry::decode(registered.iter().map(|(name, value)| (name.as_str(), *value)))
            .map_err(Error::damaged(registry_object.id()))?;
        let (mut sequences, mut numbers) = (HashMap::new(), HashMap::new());
        for entry in zap::entries(&layouts_object) {
            let entry = entry?;
            let number: Option<u16> = std::str::from_utf8(&entry.name).ok().and_then(|n| n.parse().ok());
            let number = number
                .filter(|number| *number <= sa::LAYOUT_MAX && entry.value.width() == 2)
                .ok_or(Corrupt::new("SA layout entry of width", entry.value.width().into()))
                .map_err(Error::damaged(layouts_object.id()))?;
            let sequence: Arc<[u16]> = entry.value.to_u64s().into_iter().map(|n| n as u16).collect();
            // If several layouts are identical, the lowest number is used.
            let lowest = numbers.entry(Box::from(&*sequence)).or_insert(number);
            *lowest = number.min(*lowest);
            sequences.insert(number, sequence);
        }
        let state = State { registry: Arc::new(registry), sequences, numbers };
        Ok(Tables { registry_object, layouts_object, state: RankedRwLock::new(Rank::Layouts, state) })
    }

    fn registry(&self) -> Arc<Registry> {
        self.state.read().registry.clone()
    }

    fn sequence(&self, number: u16) -> Result<Arc<[u16]>, Corrupt> {
        let state = self.state.read();
        state.sequences.get(&number).cloned().ok_or(Corrupt::new("SA layout number", number.into()))
    }

    /// The attributes in a bonus and a spill block.
    fn decode(&self, bonus: &[u8], spill: Option<&[u8]>) -> Result<Znode, Corrupt> {
        let registry = self.registry();
        let mut values = Vec::with_capacity(16);
        for raw in [Some(bonus), spill].into_iter().flatten() {
            let header = Header::decode(raw)?;
            let sequence = self.sequence(header.layout)?;
            let decoded = sa::decode(raw, &sequence, &registry)?;
            values.extend(decoded.into_iter().map(|(number, value)| (number, value, header.order)));
        }
        Znode::from_sa(values, &registry)
    }

    /// Encodes `znode` for a dnode with `capacity` bytes of bonus before a spill block is needed. Registers new layouts.
    pub(crate) fn encode(&self, tx: &Tx, znode: &Znode, capacity: usize) -> Result<Encoded> {
        let here = || Error::damaged(self.layouts_object.id());
        let mut registry = self.registry();
        let values = match znode.to_sa(&registry) {
            Ok(values) => values,
            Err(_) => {
                registry = self.register(tx)?;
                znode.to_sa(&registry).map_err(here())?
            }
        };
        let total: usize = values.iter().map(|(_, value)| value.len().next_multiple_of(8)).sum();
        if total > sa::MAX_TOTAL {
            return Err(Error::XattrTooBig);
        }
        let layout = |values: &[(u16, Vec<u8>)]| self.layout(tx, values.iter().map(|(n, _)| *n).collect());
        match sa::spill_point(&values, &registry, capacity).map_err(here())? {
            None => {
                let bonus = sa::encode(layout(&values)?, &values, &registry).map_err(here())?;
                Ok(Encoded { bonus, spill: None })
            }
            Some(at) => {
                let (stay, go) = values.split_at(at);
                let bonus = sa::encode_bonus(layout(stay)?, stay, &registry, capacity).map_err(here())?;
                let mut spill = sa::encode(layout(go)?, go, &registry).map_err(here())?;
                spill.resize(spill.len().next_multiple_of(SECTOR), 0);
                Ok(Encoded { bonus, spill: Some(spill) })
            }
        }
    }

    /// Registers attributes that an old file system lacks.
    fn register(&self, tx: &Tx) -> Result<Arc<Registry>> {
        let mut state = self.state.write();
        let mut registry = Registry::clone(&state.registry);
        let known = registry.entries().len();
        for attribute in OPTIONAL {
            registry.register(attribute);
        }
        for entry in &registry.entries()[known..] {
            let value = Value::from_u64(entry.encode());
            zap::update(&self.registry_object, tx, entry.name.as_bytes(), &value)?;
        }
        state.registry = Arc::new(registry);
        Ok(state.registry.clone())
    }

    /// The number of a sequence of attributes, registered if it is new.
    fn layout(&self, tx: &Tx, sequence: Vec<u16>) -> Result<u16> {
        if let Some(&number) = self.state.read().numbers.get(sequence.as_slice()) {
            return Ok(number);
        }
        let mut state = self.state.write();
        if let Some(&number) = state.numbers.get(sequence.as_slice()) {
            return Ok(number);
        }
        let last = state.sequences.keys().max().map_or(0, |last| last + 1);
        let number = last.max(sa::LAYOUT_FIRST);
        if number > sa::LAYOUT_MAX {
            return Err(Error::Unsupported("more than 1023 attribute layouts"));
        }
        zap::insert(&self.layouts_object, tx, number.to_string().as_bytes(), &Value::from_u16s(&sequence))?;
        state.sequences.insert(number, sequence.as_slice().into());
        state.numbers.insert(sequence.into(), number);
        Ok(number)
    }

    /// Stores the attributes of `object` in its bonus and spill block.
    fn store(&self, object: &Arc<Object>, tx: &Tx, znode: &Znode) -> Result<()> {
        let head = object.head();
        let capacity = dnode::bonus_capacity(head.slots.into(), head.nblkptr.into(), false);
        let Encoded { bonus, spill } = self.encode(tx, znode, capacity)?;
        match spill {
            None => {
                if object.spill()?.is_some() {
                    object.set_spill(tx, None);
                }
                object.set_bonus(tx, bonus);
            }
            Some(spill) => {
                let unchanged = object.spill()?.is_some_and(|old| *old == spill);
                object.set_bonus(tx, bonus);
                if !unchanged {
                    object.set_spill(tx, Some(spill));
                }
            }
        }
        Ok(())
    }
}

/// How a file system stores the attributes of its nodes. An object keeps the form in which it was made, even after an
/// upgrade of the file system.
pub(crate) struct Attributes {
    /// Version of the file system.
    version: AtomicU64,
    /// The tables of a file system of version 5 or later.
    tables: OnceLock<Tables>,
}

impl Attributes {
    /// For a file system of this version; `tables` exist from version 5 on.
    pub(crate) fn new(version: u64, tables: Option<Tables>) -> Attributes {
        Attributes {
            version: AtomicU64::new(version),
            tables: tables.map_or_else(OnceLock::new, OnceLock::from),
        }
    }

    /// Version of the file system.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether new nodes get system attributes.
    pub(crate) fn has_tables(&self) -> bool {
        self.tables.get().is_some()
    }

    /// Records an upgrade of the file system to `version`, with its new `tables` if it had none.
    pub(crate) fn upgraded(&self, version: u64, tables: Option<Tables>) {
        if let Some(tables) = tables {
            // A second upgrade keeps the tables of the first one.
            let _ = self.tables.set(tables);
        }
        self.version.store(version, Ordering::Release);
    }

    /// The bonus of a new node in a dnode of `slots` slots.
    pub(crate) fn encode_new(&self, tx: &Tx, znode: &Znode, slots: u8) -> Result<(ObjectType, Encoded)> {
        match self.tables.get() {
            Some(tables) => {
                let capacity = dnode::bonus_capacity(slots.into(), 1, false);
                Ok((ObjectType::SA, tables.encode(tx, znode, capacity)?))
            }
            None => {
                let bonus = legacy::encode_new(self.version(), znode)?;
                Ok((ObjectType::ZNODE, Encoded { bonus, spill: None }))
            }
        }
    }

    /// The attributes of `object`.
    pub(crate) fn load(&self, object: &Object) -> Result<Znode> {
        let (bonus_type, bonus) = object.with_bonus(|kind, raw| (kind, raw.to_vec()));
        let bad = || Error::damaged(object.id());
        match (bonus_type, self.tables.get()) {
            (ObjectType::SA, Some(tables)) => {
                let spill = object.spill()?;
                tables.decode(&bonus, spill.as_deref().map(Vec::as_slice)).map_err(bad())
            }
            (ObjectType::ZNODE, _) => legacy::load(object, &bonus),
            (other, _) => Err(bad()(Corrupt::new("bonus type of a file system object", other.0.into()))),
        }
    }

    /// Stores the attributes of `object`.
    pub(crate) fn store(&self, object: &Arc<Object>, tx: &Tx, znode: &Znode) -> Result<()> {
        match (is_legacy(object), self.tables.get()) {
            (true, _) => legacy::store(self.version(), object, tx, znode),
            (false, Some(tables)) => tables.store(object, tx, znode),
            (false, None) => Err(Error::damaged(object.id())(Corrupt::new(
                "system attributes in a file system of version",
                self.version(),
            ))),
        }
    }
}

/// Whether the attributes of `object` are a legacy znode.
pub(crate) fn is_legacy(object: &Object) -> bool {
    object.with_bonus(|kind, _| kind) == ObjectType::ZNODE
}
