//! The contents of events.
//!
//! From:   the pool itself: its configuration written, commands noted, scrubs, errors of devices.
//! To:     `events`, which keeps the newest.
//! Source: classes and names of fields as `zpool events -v` of OpenZFS shows them.

use format::NvList;
use format::nvlist::NvValue;

use crate::events::Happened;
use crate::pool::{Inner, Pool};

impl Inner {
    /// The pairs that every event has.
    pub(crate) fn event(&self, class: &str) -> NvList {
        let (seconds, nanos) = self.host.clock.now();
        let info = self.info();
        let mut event = NvList::new();
        event.insert("class", class);
        event.insert("pool", info.config.name.as_str());
        event.insert("pool_guid", info.config.pool_guid.0);
        event.insert("time", NvValue::Uint64Array(vec![seconds, nanos.into()]));
        event
    }

    /// Adds an event `sysevent.fs.zfs.WHAT` with these fields.
    pub fn happened(&self, what: &str, about: &[(&str, &str)]) {
        let mut event = self.event(&format!("sysevent.fs.zfs.{what}"));
        about.iter().for_each(|(name, text)| event.insert(*name, *text));
        self.events.post(event);
    }

    /// The same of one device.
    pub(crate) fn happened_to(&self, what: &str, leaf: &storage::Leaf) {
        let mut event = self.event(&format!("sysevent.fs.zfs.{what}"));
        event.insert("vdev_guid", leaf.guid);
        event.insert("vdev_path", leaf.disk.path().display().to_string().as_str());
        self.events.post(event);
    }

    /// Adds an event for a changed state of a leaf (`resource.fs.zfs.statechange`).
    pub(crate) fn state_changed(&self, guid: format::Guid, state: &str) {
        let path = self.info().config.tree.find(guid).and_then(|leaf| leaf.path.clone());
        let mut event = self.event("resource.fs.zfs.statechange");
        event.insert("vdev_guid", guid.0);
        event.insert("vdev_state", state);
        if let Some(path) = path {
            event.insert("vdev_path", String::from_utf8_lossy(&path).as_ref());
        }
        self.events.post(event);
    }

    /// Adds an event for a slow request, finished or not (`ereport.fs.zfs.WHAT`).
    pub(crate) fn note_request(&self, what: &str, leaf: &storage::Leaf, request: &storage::Request) {
        let stats = leaf.meter.stats();
        let nanos = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut event = self.event(&format!("ereport.fs.zfs.{what}"));
        event.insert("pool_failmode", self.suspension().mode().word());
        event.insert("vdev_guid", leaf.guid);
        event.insert("vdev_path", leaf.disk.path().display().to_string().as_str());
        event.insert("vdev_read_errors", stats.read_errors);
        event.insert("vdev_write_errors", stats.write_errors);
        event.insert("vdev_cksum_errors", stats.checksum_errors);
        event.insert("vdev_delays", stats.slow);
        event.insert("zio_type", request.deed.word());
        event.insert("zio_delay", nanos(request.took));
        event.insert("zio_delta", nanos(request.took));
        event.insert("zio_offset", request.offset);
        event.insert("zio_size", request.len);
        self.events.post(event);
    }

    /// Adds events for the device errors since the last call.
    pub(crate) fn note_device_errors(&self) {
        let leaves = self.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        for leaf in leaves {
            let stats = leaf.meter.stats();
            let now = [stats.read_errors + stats.write_errors, stats.checksum_errors];
            let before = self.events.tell_errors(leaf.guid, now);
            for (kind, now, before) in [("io", now[0], before[0]), ("checksum", now[1], before[1])] {
                // Errors that were cleared are not reported.
                if now <= before {
                    continue;
                }
                let mut event = self.event(&format!("ereport.fs.zfs.{kind}"));
                event.insert("vdev_guid", leaf.guid);
                event.insert("vdev_path", leaf.disk.path().display().to_string().as_str());
                event.insert("vdev_read_errors", stats.read_errors);
                event.insert("vdev_write_errors", stats.write_errors);
                event.insert("vdev_cksum_errors", stats.checksum_errors);
                event.insert("errors_since", now - before);
                self.events.post(event);
            }
        }
    }
}

impl Pool {
    /// The newest events of the pool, oldest first.
    #[must_use]
    pub fn events(&self) -> Happened {
        self.inner.note_device_errors();
        self.inner.note_suspensions();
        self.inner.note_late_answers();
        self.inner.events.newest()
    }

    /// Drops all events. Returns their number.
    #[must_use]
    pub fn clear_events(&self) -> u64 {
        self.inner.note_device_errors();
        self.inner.note_suspensions();
        self.inner.note_late_answers();
        self.inner.events.clear()
    }
}
