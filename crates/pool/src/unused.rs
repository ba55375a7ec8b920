//! Free space that is overwritten (`zpool initialize`) or given back to devices (`zpool trim`), in the background.
//!
//! From:   the administrator; the state that is kept with each leaf, so that cenote or OpenZFS can continue it.
//! To:     the devices. It is done step by step in the sync thread, which alone allocates: what is free stays free meanwhile.
//! Source: docs/format/12-auxiliary-vdevs.md §7.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use dmu::zap;
use format::config::VdevConfig;
use format::zap::Value;
use format::{Guid, ObjectId, VdevId, label};
use storage::allocator::Which;
use storage::interrupt;
use storage::layout::Spread;
use storage::{Leaf, TopVdev};

use crate::mos::Mos;
use crate::pool::{Inner, Pool};
use crate::state::Syncing;
use crate::treater::{self, AUTOTRIM};
use crate::{Error, Result, props};

/// Bytes of a device that one step overwrites.
const WRITTEN_AT_ONCE: u64 = 64 << 20;
/// Bytes of a device that one step trims.
const TRIMMED_AT_ONCE: u64 = 4 << 30;
/// Bytes of one step under a rate limit.
const TRIMMED_AT_LEAST: u64 = 1 << 20;
/// Metaslabs that one step looks at.
const METASLABS_AT_ONCE: u32 = 32;
/// Shorter free segments are not trimmed.
const TRIM_MIN: u64 = 32 << 10;
/// Default pattern for overwriting free space.
const PATTERN: u64 = 0xdead_beef_dead_beee;

/// The treatment of free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Treatment {
    /// It is overwritten.
    Initialize,
    /// Devices are told that the space is unused.
    Trim,
}

impl Treatment {
    /// The verb for the treatment, in the words of OpenZFS.
    const fn verb(self) -> &'static str {
        match self {
            Treatment::Initialize => "initializing",
            Treatment::Trim => "trimming",
        }
    }

    const fn noun(self) -> &'static str {
        match self {
            Treatment::Initialize => "initialization",
            Treatment::Trim => "trim",
        }
    }

    /// Both.
    pub const ALL: [Treatment; 2] = [Treatment::Initialize, Treatment::Trim];

    /// Keys of a leaf's ZAP: progress, state and time.
    const fn keys(self) -> [&'static [u8]; 3] {
        match self {
            Treatment::Initialize => [
                b"com.delphix:next_offset_to_initialize",
                b"com.delphix:vdev_initialize_state",
                b"com.delphix:vdev_initialize_action_time",
            ],
            Treatment::Trim => [
                b"org.zfsonlinux:next_offset_to_trim",
                b"org.zfsonlinux:vdev_trim_state",
                b"org.zfsonlinux:vdev_trim_action_time",
            ],
        }
    }

    /// The key of its parameter: the pattern to write, or bytes a second.
    const fn parameter(self) -> &'static [u8] {
        match self {
            Treatment::Initialize => b"org.openzfs:vdev_initialize_value",
            Treatment::Trim => b"org.zfsonlinux:vdev_trim_rate",
        }
    }
}

/// The state of a treatment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Course {
    /// It never began, or was forgotten.
    #[default]
    None,
    /// It is in progress.
    Active,
    /// It was cancelled.
    Canceled,
    /// It waits to be gone on with.
    Suspended,
    /// All was done.
    Complete,
}

impl Course {
    const fn from_disk(number: u64) -> Course {
        match number {
            1 => Course::Active,
            2 => Course::Canceled,
            3 => Course::Suspended,
            4 => Course::Complete,
            _ => Course::None,
        }
    }
}

/// The treatment of one leaf, as it is kept with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Treated {
    /// The state of the treatment.
    pub course: Course,
    /// Progress: offset in bytes, counted from the start of the device's data.
    pub next: u64,
    /// When it began, or ended: seconds since 1970.
    pub since: u64,
    /// The pattern to write, or the rate in bytes per second; 0: no limit.
    pub parameter: u64,
}

impl Treated {
    fn read(mos: &Mos, own: ObjectId, what: Treatment) -> Result<Treated> {
        let object = mos.object(own)?;
        let number = |key: &[u8]| -> Result<Option<u64>> { Ok(zap::lookup_u64(&object, key)?) };
        let [next, course, since] = what.keys();
        let Some(course) = number(course)? else { return Ok(Treated::default()) };
        let usual = if what == Treatment::Initialize { PATTERN } else { 0 };
        Ok(Treated {
            course: Course::from_disk(course),
            next: number(next)?.unwrap_or(0),
            since: number(since)?.unwrap_or(0),
            parameter: number(what.parameter())?.unwrap_or(usual),
        })
    }
}

/// An order of the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Starts or resumes; the value replaces the default pattern or rate.
    Start(Option<u64>),
    /// Pauses; `Start` resumes.
    Suspend,
    /// Give up.
    Cancel,
    /// Forget that it ever was.
    Forget,
}

impl Inner {
    /// With `autotrim=on`: trims space that has just become free.
    pub(crate) fn trim_freed(&self, freed: Vec<(VdevId, u64, u64)>) {
        if !self.treater.trims_freed() {
            return;
        }
        let tops = self.storage.vdevs().tops();
        for (vdev, offset, len) in freed.into_iter().filter(|(_, _, len)| *len >= TRIM_MIN) {
            if let Err(error) = tops[vdev.0 as usize].discard(offset, len) {
                tracing::debug!(%error, "a device was not told of free space");
            }
        }
    }
}

impl Pool {
    /// State of the initialize or trim of each leaf, in the order of the configuration. Leaves that keep no state are left
    /// out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn treated(&self, what: Treatment) -> Result<Vec<(Guid, Treated)>> {
        let config = self.info().config;
        let own = |leaf: &VdevConfig| Some((leaf.guid, leaf.zap_leaf.filter(|own| own.0 != 0)?));
        let leaves = config.tree.leaves().filter_map(own);
        leaves.map(|(guid, own)| Ok((guid, Treated::read(&self.inner.mos, own, what)?))).collect()
    }

    /// Bytes of the devices that are still to be looked at: for their initialization, and their trim.
    ///
    /// # Errors
    /// If the states of the leaves cannot be read.
    pub fn untreated(&self) -> Result<[u64; 2]> {
        let size = |guid: Guid| {
            let vdevs = self.inner.storage.vdevs();
            let leaf = vdevs.leaves().find(|leaf| leaf.guid == guid.0);
            leaf.map_or(0, |leaf| label::asize_of(leaf.disk.size()))
        };
        let mut left = [0; 2];
        for (left, what) in left.iter_mut().zip(Treatment::ALL) {
            // The work on a missing device continues when it is back.
            let is_active =
                |(guid, it): &(Guid, Treated)| it.course == Course::Active && self.inner.is_open(guid.0);
            let active = self.treated(what)?.into_iter().filter(is_active);
            *left = active.map(|(guid, it)| size(guid).saturating_sub(it.next).max(1)).sum();
        }
        Ok(left)
    }

    /// Carries out an order for one leaf. A started treatment continues in the background.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`]; [`Error::NotTreatable`]; [`Error::Treating`]; [`Error::NotTreated`]; it cannot be written.
    pub fn treat(&self, guid: Guid, what: Treatment, order: Order) -> Result<()> {
        self.run(move |syncing| syncing.order(guid, what, order))?;
        if matches!(order, Order::Start(_)) {
            self.begin_treating();
        } else {
            drop(self.inner.treater.look_again());
        }
        Ok(())
    }

    /// Continues unfinished work, and trims future frees if `autotrim` is on.
    pub(crate) fn resume_treatments(&self) {
        let is_on =
            |(name, value): &(String, props::Value)| name == AUTOTRIM && *value == props::Value::Number(1);
        match self.pool_properties() {
            Ok(all) => self.inner.treater.set_autotrim(all.iter().any(is_on)),
            Err(error) => tracing::warn!(%error, "the pool's properties cannot be read: nothing is trimmed"),
        }
        // A stepwise pool starts no work by itself.
        for what in Treatment::ALL.into_iter().filter(|_| !self.inner.groups.stepwise) {
            match self.treated(what) {
                Ok(all) if all.iter().any(|(_, treated)| treated.course == Course::Active) => {
                    self.begin_treating()
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "what is done to free space cannot be read"),
            }
        }
    }

    fn begin_treating(&self) {
        let mut state = self.inner.treater.look_again();
        if state.running || state.leaving {
            return;
        }
        state.running = true;
        let inner = self.inner.clone();
        let thread = std::thread::Builder::new().name("cenote-unused".into());
        let before = state
            .thread
            .replace(thread.spawn(move || treat_all(&inner)).expect("the system starts a thread"));
        drop(state);
        // It has ended, or is about to.
        drop(before.map(JoinHandle::join));
    }

    /// Waits until the treatment of these leaves has ended and will not continue by itself, and until that is synced.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; their states cannot be read.
    pub fn wait_treated(&self, what: Treatment, leaves: &[Guid]) -> Result<()> {
        let treater = &self.inner.treater;
        let goes_on = |state: &treater::State| state.running && !state.leaving;
        loop {
            let (is_in_step, ended) = {
                let state = treater.lock();
                if !goes_on(&state) {
                    return Ok(());
                }
                (state.in_step, state.steps_ended)
            };
            let is_active = |(guid, treated): &(Guid, Treated)| {
                leaves.contains(guid) && treated.course == Course::Active && self.inner.is_open(guid.0)
            };
            let is_active = self.treated(what)?.iter().any(is_active);
            // The changes of a step are visible before they are on the devices, so this also waits for the end of the step.
            if !is_active && !is_in_step {
                return Ok(());
            }
            let mut state = treater.lock();
            while goes_on(&state) && state.steps_ended == ended {
                if interrupt::is_wanted() {
                    return Err(Error::Interrupted);
                }
                state = state.wait(|state| interrupt::wait(&treater.changed, state));
            }
            if !is_active {
                return Ok(());
            }
        }
    }
}

/// Treats the free space of all leaves, one after another, until nothing is left to be done.
fn treat_all(inner: &Arc<Inner>) {
    let treater = &inner.treater;
    loop {
        {
            let mut state = treater.lock();
            state.ordered = false;
            state.in_step = true;
        }
        let step = inner.run(|syncing| syncing.treat_some());
        let mut state = treater.lock();
        state.in_step = false;
        state.steps_ended += 1;
        treater.changed.notify_all();
        let pause = match step {
            _ if state.leaving => None,
            Ok(None) if state.ordered => Some(Duration::ZERO),
            Ok(pause) => pause,
            Err(error) => {
                tracing::warn!(%error, "free space is not treated any more");
                None
            }
        };
        let Some(pause) = pause else {
            state.running = false;
            return;
        };
        if !pause.is_zero() {
            let waits = |state: &mut treater::State| !state.leaving && !state.ordered;
            drop(state.wait(|state| {
                let waited = treater.changed.wait_timeout_while(state, pause, waits);
                waited.expect("no code panics while holding this state").0
            }));
        }
    }
}

impl Syncing<'_> {
    /// Whether a leaf is part of a draid vdev, whose free space does not map to ranges of one device.
    fn is_in_draid(&self, guid: Guid) -> bool {
        let tops = self.inner.storage.vdevs().tops().iter();
        let is_draid = |top: &&TopVdev| matches!(top.spread(), Some(Spread::Draid(_)));
        tops.filter(is_draid).any(|top| top.leaves().any(|leaf| leaf.guid == guid.0))
    }

    /// Whether a leaf is part of a raidz vdev that is being expanded. Then the free space of the device is not the free
    /// space of the vdev.
    fn is_expanding_around(&self, guid: Guid) -> bool {
        let mut tops = self.inner.storage.vdevs().tops().iter();
        tops.any(|top| top.motion().is_some() && top.leaves().any(|leaf| leaf.guid == guid.0))
    }

    fn leaf_zap(&self, guid: Guid) -> Result<ObjectId> {
        let leaf =
            self.state.config.tree.leaves().find(|leaf| leaf.guid == guid).ok_or(Error::NoSuchDevice)?;
        leaf.zap_leaf.filter(|own| own.0 != 0).ok_or(Error::NotTreatable)
    }

    fn write_treated(&self, own: ObjectId, what: Treatment, treated: &Treated) -> Result<()> {
        let object = self.mos().object(own)?;
        let [next, course, since] = what.keys();
        for (key, number) in [
            (next, treated.next),
            (course, treated.course as u64),
            (since, treated.since),
            (what.parameter(), treated.parameter),
        ] {
            zap::update(&object, &self.tx, key, &Value::from_u64(number))?;
        }
        Ok(())
    }

    fn order(&self, guid: Guid, what: Treatment, order: Order) -> Result<()> {
        let own = self.leaf_zap(guid)?;
        let mut treated = Treated::read(self.mos(), own, what)?;
        let is_active = treated.course == Course::Active;
        match order {
            Order::Start(_) | Order::Forget if is_active => return Err(Error::Treating(what.verb())),
            Order::Start(_) if !self.inner.is_open(guid.0) || self.is_in_draid(guid) => {
                return Err(Error::NotTreatable);
            }
            Order::Start(parameter) => {
                let usual = if what == Treatment::Initialize { PATTERN } else { 0 };
                if treated.course != Course::Suspended {
                    treated = Treated { parameter: usual, ..Treated::default() };
                }
                treated.course = Course::Active;
                treated.parameter = parameter.unwrap_or(treated.parameter);
            }
            Order::Suspend if is_active => treated.course = Course::Suspended,
            Order::Cancel if is_active || treated.course == Course::Suspended => {
                treated.course = Course::Canceled;
            }
            Order::Suspend | Order::Cancel => return Err(Error::NotTreated(what.noun())),
            Order::Forget => {
                let object = self.mos().object(own)?;
                for key in what.keys().into_iter().chain([what.parameter()]) {
                    zap::discard(&object, &self.tx, key)?;
                }
                return Ok(());
            }
        }
        treated.since = self.inner.host.clock.now().0;
        self.write_treated(own, what, &treated)
    }

    /// Runs the next step of the first unfinished treatment. Returns the pause before the next step; `None` if all are
    /// finished.
    fn treat_some(&mut self) -> Result<Option<Duration>> {
        let Some((guid, own, what, treated)) = self.first_under_way()? else { return Ok(None) };
        let (now, done) = self.treat_part(guid, what, treated).unwrap_or_else(|error| {
            tracing::warn!(%error, "free space cannot be treated");
            let since = self.inner.host.clock.now().0;
            (Treated { course: Course::Canceled, since, ..treated }, 0)
        });
        self.write_treated(own, what, &now)?;
        if self.first_under_way()?.is_none() {
            return Ok(None);
        }
        let is_limited = what == Treatment::Trim && treated.parameter > 0;
        let rate = if is_limited { treated.parameter } else { u64::MAX };
        Ok(Some(Duration::from_secs_f64(done as f64 / rate as f64)))
    }

    /// The first treatment that is under way, with its leaf and the object that keeps its state.
    fn first_under_way(&self) -> Result<Option<(Guid, ObjectId, Treatment, Treated)>> {
        for what in Treatment::ALL {
            for leaf in self.state.config.tree.leaves() {
                let Some(own) = leaf.zap_leaf.filter(|own| own.0 != 0) else { continue };
                let treated = Treated::read(self.mos(), own, what)?;
                let waits = self.is_expanding_around(leaf.guid);
                if treated.course == Course::Active && self.inner.is_open(leaf.guid.0) && !waits {
                    return Ok(Some((leaf.guid, own, what, treated)));
                }
            }
        }
        Ok(None)
    }

    /// Treats the next part of a leaf. Returns the state after that, and the number of treated bytes.
    fn treat_part(&mut self, guid: Guid, what: Treatment, treated: Treated) -> Result<(Treated, u64)> {
        let slot = self.slot(guid)?;
        let top = self.top_of(slot).clone();
        let child = top.child_of(guid.0).ok_or(Error::NoSuchDevice)?;
        let leaf = top.leaves().find(|leaf| leaf.guid == guid.0).cloned().ok_or(Error::NoSuchDevice)?;
        let mut part = Part { leaf, what, treated, done: 0 };
        let end_of = |metaslab: u32| {
            let (offset, len) = top.range_on(child, 0, (u64::from(metaslab) + 1) << top.metaslab_shift);
            offset + len
        };
        let count = top.metaslab_count() as u32;
        let first = (0..count).find(|metaslab| end_of(*metaslab) > treated.next).unwrap_or(count);
        for metaslab in (first..count).take(METASLABS_AT_ONCE as usize) {
            for (offset, len) in self.free_runs(&top, metaslab)? {
                let (offset, len) = top.range_on(child, offset, len);
                if !part.treat(offset, len)? {
                    return Ok((part.treated, part.done));
                }
            }
            part.treated.next = end_of(metaslab);
        }
        if first + METASLABS_AT_ONCE >= count {
            part.treated.course = Course::Complete;
            part.treated.since = self.inner.host.clock.now().0;
        }
        Ok((part.treated, part.done))
    }

    fn free_runs(&mut self, top: &TopVdev, metaslab: u32) -> Result<Vec<(u64, u64)>> {
        let runs = self
            .with_space(|allocator, source| allocator.runs(VdevId(top.id), (metaslab, Which::Free), source));
        Ok(runs?)
    }
}

/// A part of a leaf that is being treated.
struct Part {
    leaf: Leaf,
    what: Treatment,
    treated: Treated,
    done: u64,
}

impl Part {
    /// Treats the free space behind the part that is done; `false` when this step has done enough.
    fn treat(&mut self, offset: u64, len: u64) -> Result<bool> {
        let start = offset.max(self.treated.next);
        let most = match self.what {
            Treatment::Initialize => WRITTEN_AT_ONCE,
            // At a limited rate, about the bytes of one second.
            Treatment::Trim if self.treated.parameter > 0 => {
                self.treated.parameter.clamp(TRIMMED_AT_LEAST, TRIMMED_AT_ONCE)
            }
            Treatment::Trim => TRIMMED_AT_ONCE,
        };
        let rest = (offset + len).saturating_sub(start);
        let take = rest.min(most.saturating_sub(self.done));
        if rest == 0 || (self.what == Treatment::Trim && rest < TRIM_MIN) {
            return Ok(true);
        }
        match self.what {
            Treatment::Initialize => self.leaf.overwrite(start, take, self.treated.parameter)?,
            Treatment::Trim => self.leaf.discard(start, take)?,
        }
        self.done += take;
        self.treated.next = start + take;
        Ok(take == rest)
    }
}
