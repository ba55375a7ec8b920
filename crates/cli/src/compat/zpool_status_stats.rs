//! The statistics in the JSON of `zpool status` about scans, sequential rebuilds, removals, checkpoints and expansions:
//! numbers, dates and sizes.
//!
//! Source: the output of `zpool status -j` of OpenZFS 2.3.2.

use format::rebuild::{Rebuild, RebuildState};
use pool::{Checkpoint, Expansion, Removal, RemovalStage};
use serde_json::{Map, Value};

use super::json_look::Look;
use super::scan;
use super::view::{PoolView, VdevView};
use crate::messages::Failure;

/// The members `scan_stats`, `removal_stats`, `checkpoint_stats` and `raidz_expand_stats` of a pool, as far as there
/// are values.
///
/// # Errors
/// The state of a scan or rebuild cannot be read.
pub(super) fn of(view: &PoolView, tree: &[VdevView], look: Look) -> Result<Map<String, Value>, Failure> {
    let mut all = Map::new();
    let mut scans = view.scan()?.and_then(|status| scan::stats(&status, look)).unwrap_or_default();
    let top = |vdev: u32| tree.iter().find(|top| top.top == Some(vdev));
    let (rebuilds, session) = (view.rebuilds()?, view.session());
    let now = session.map_or(0, |session| session.pool().host().clock.now().0);
    let known = rebuilds.iter().filter_map(|(vdev, rebuild)| Some((top(*vdev)?, rebuild)));
    let rebuilt: Map<String, Value> = known
        .filter_map(|(vdev, rebuild)| Some((vdev.name.clone(), of_rebuild(vdev, rebuild, look, now)?)))
        .collect();
    if !rebuilt.is_empty() {
        scans.insert("rebuild_stats".to_owned(), rebuilt.into());
    }
    if !scans.is_empty() {
        all.insert("scan_stats".to_owned(), scans.into());
    }
    if let Some(removal) = session.and_then(|session| session.pool().removal().ok().flatten()) {
        let vdev = u32::try_from(removal.vdev).ok().and_then(top);
        all.insert("removal_stats".to_owned(), of_removal(vdev, &removal, look));
    }
    if let Some(checkpoint) = session.and_then(|session| session.pool().checkpointed()) {
        all.insert("checkpoint_stats".to_owned(), of_checkpoint(&checkpoint, look));
    }
    let expansion = session.and_then(|session| session.pool().expansion().ok().flatten());
    if let Some((vdev, expansion)) = expansion.and_then(|it| Some((top(it.vdev)?, it))) {
        all.insert("raidz_expand_stats".to_owned(), of_expansion(vdev, &expansion, look));
    }
    Ok(all)
}

fn object<const N: usize>(rows: [(&str, Value); N]) -> Map<String, Value> {
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn of_vdev(vdev: &VdevView, look: Look) -> Map<String, Value> {
    let mut all = object([
        ("name", vdev.name.clone().into()),
        ("vdev_type", vdev.kind.clone().into()),
        ("guid", look.number(vdev.guid.0)),
    ]);
    all.extend(vdev.path.clone().map(|path| ("path".to_owned(), path.into())));
    all.insert("class".to_owned(), vdev.class.word().into());
    all
}

/// A vdev that is removed is called `indirect`.
fn of_removal(vdev: Option<&VdevView>, removal: &Removal, look: Look) -> Value {
    let state = match removal.stage {
        RemovalStage::Running => "SCANNING",
        RemovalStage::Canceled => "CANCELED",
        RemovalStage::Finished => "FINISHED",
    };
    let mut all = match vdev {
        Some(vdev) => of_vdev(vdev, look),
        None => object([("name", "indirect".into())]),
    };
    all.extend(object([
        ("state", state.into()),
        ("removing_vdev", look.number(removal.vdev)),
        ("start_time", look.date(removal.begun)),
        ("end_time", look.date(removal.ended)),
        ("to_copy", look.bytes(removal.to_copy)),
        ("copied", look.bytes(removal.copied)),
        ("mapping_memory", look.bytes(removal.mapping)),
    ]));
    all.into()
}

/// A rebuild is one pass. After an import it continues at its last place.
fn of_rebuild(vdev: &VdevView, rebuild: &Rebuild, look: Look, now: u64) -> Option<Value> {
    let state = match rebuild.state {
        RebuildState::None => return None,
        RebuildState::Active => "ACTIVE",
        RebuildState::Canceled => "CANCELED",
        RebuildState::Complete => "COMPLETE",
    };
    let mut all = of_vdev(vdev, look);
    let passed = now.saturating_sub(rebuild.start_time).saturating_mul(1_000_000_000);
    all.extend(object([
        ("state", state.into()),
        ("start_time", look.date(rebuild.start_time)),
        ("end_time", look.date(rebuild.end_time)),
        ("scan_time", look.span(rebuild.scan_ms.saturating_mul(1_000_000))),
        ("scanned", look.bytes(rebuild.scanned)),
        ("issued", look.bytes(rebuild.issued)),
        ("rebuilt", look.bytes(rebuild.rebuilt)),
        ("to_scan", look.bytes(rebuild.to_scan)),
        ("errors", look.number(rebuild.errors)),
        ("pass_time", look.span(passed)),
        ("pass_scanned", look.bytes(rebuild.scanned)),
        ("pass_issued", look.bytes(rebuild.issued)),
        // All space in use is copied.
        ("pass_skipped", look.bytes(0)),
    ]));
    Some(all.into())
}

/// A checkpoint that is being discarded keeps no date across an import.
fn of_checkpoint(checkpoint: &Checkpoint, look: Look) -> Value {
    let state = if checkpoint.created.is_some() { "EXISTS" } else { "DISCARDING" };
    let rows = [
        ("state", state.into()),
        ("start_time", look.date(checkpoint.created.unwrap_or(0))),
        ("space", look.bytes(checkpoint.bytes)),
    ];
    object(rows).into()
}

fn of_expansion(vdev: &VdevView, expansion: &Expansion, look: Look) -> Value {
    // OpenZFS leaves out the number of the vdev.
    let name = vdev.name.rsplit_once('-').map_or(vdev.name.as_str(), |(name, _)| name);
    let state = if expansion.ended.is_some() { "FINISHED" } else { "SCANNING" };
    let rows = [
        ("name", name.into()),
        ("state", state.into()),
        ("expanding_vdev", look.number(expansion.vdev.into())),
        ("start_time", look.date(expansion.begun)),
        ("end_time", look.date(expansion.ended.unwrap_or(0))),
        ("to_reflow", look.bytes(expansion.allocated)),
        ("reflowed", look.bytes(expansion.copied)),
        ("waiting_for_resilver", look.number(expansion.waits.into())),
    ];
    object(rows).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::view::{Class, State};

    fn vdev(name: &str, kind: &str) -> VdevView {
        VdevView {
            name: name.to_owned(),
            kind: kind.to_owned(),
            guid: format::Guid(7),
            class: Class::Normal,
            state: State::Online,
            path: None,
            device_bytes: None,
            top: Some(0),
            is_called_faulty: false,
            used_by: None,
            resilvers: false,
            spare: 1,
            children: Vec::new(),
        }
    }

    #[test]
    fn a_removal_and_a_checkpoint_have_the_members_that_openzfs_gives_them() {
        let (raw, people) = (Look { raw: true, as_int: true }, Look { raw: false, as_int: false });
        let leaf = VdevView { path: Some("/tmp/b".to_owned()), ..vdev("/tmp/b", "file") };
        let removal = Removal {
            stage: RemovalStage::Running,
            vdev: 1,
            begun: 1_795_861_312,
            ended: 0,
            to_copy: 34_549_760,
            copied: 73_728,
            mapping: 0,
        };
        assert_eq!(
            of_removal(Some(&leaf), &removal, raw).to_string(),
            concat!(
                r#"{"name":"/tmp/b","vdev_type":"file","guid":7,"path":"/tmp/b","class":"normal","state":"SCANNING","#,
                r#""removing_vdev":1,"start_time":1795861312,"end_time":0,"to_copy":34549760,"copied":73728,"mapping_memory":0}"#
            )
        );
        let ended = Removal { stage: RemovalStage::Finished, ended: 1_795_861_337, mapping: 288, ..removal };
        let told = of_removal(None, &ended, people);
        let some =
            ["name", "state", "removing_vdev", "to_copy", "mapping_memory"].map(|key| told[key].clone());
        assert_eq!(some, ["indirect", "FINISHED", "1", "32.9M", "288B"]);
        let checkpoint = Checkpoint { created: Some(1_795_861_295), bytes: 147_456 };
        assert_eq!(
            of_checkpoint(&checkpoint, raw).to_string(),
            r#"{"state":"EXISTS","start_time":1795861295,"space":147456}"#
        );
        let told = of_checkpoint(&Checkpoint { created: None, bytes: 147_456 }, people);
        assert_eq!((&told["state"], &told["start_time"]), (&"DISCARDING".into(), &"-".into()));
        assert_eq!(told["space"], "144K");
    }

    #[test]
    fn a_rebuild_and_an_expansion_have_the_members_that_openzfs_gives_them() {
        let look = Look { raw: true, as_int: true };
        let (vdev, raidz) = (vdev("mirror-0", "mirror"), vdev("raidz1-0", "raidz"));
        let rebuild = Rebuild {
            state: RebuildState::Active,
            start_time: 1_795_847_342,
            scan_ms: 574,
            scanned: 29_530_112,
            issued: 29_530_112,
            rebuilt: 29_530_112,
            to_scan: 105_095_168,
            ..Rebuild::default()
        };
        let told = of_rebuild(&vdev, &rebuild, look, 1_795_847_344).expect("it goes on").to_string();
        let expected = concat!(
            r#""class":"normal","state":"ACTIVE","start_time":1795847342,"end_time":0,"scan_time":574000000,"#,
            r#""scanned":29530112,"issued":29530112,"rebuilt":29530112,"to_scan":105095168,"errors":0,"#,
            r#""pass_time":2000000000,"pass_scanned":29530112,"pass_issued":29530112,"pass_skipped":0}"#
        );
        assert!(told.starts_with(r#"{"name":"mirror-0","vdev_type":"mirror","guid":7,"class""#), "{told}");
        assert!(told.ends_with(expected), "{told}");
        let people = Look { raw: false, as_int: false };
        let told = of_rebuild(&vdev, &rebuild, people, 1_795_847_343).expect("it goes on");
        let some =
            ["end_time", "scan_time", "scanned", "pass_time"].map(|key| told[key].as_str().unwrap_or(""));
        assert_eq!(some, ["-", "574ms", "28.2M", "1s"]);
        let expansion = Expansion {
            vdev: 0,
            begun: 1_795_847_316,
            ended: None,
            copied: 31_226_368,
            allocated: 94_676_992,
            waits: false,
        };
        assert_eq!(
            of_expansion(&raidz, &expansion, look).to_string(),
            concat!(
                r#"{"name":"raidz1","state":"SCANNING","expanding_vdev":0,"start_time":1795847316,"end_time":0,"#,
                r#""to_reflow":94676992,"reflowed":31226368,"waiting_for_resilver":0}"#
            )
        );
    }
}
