//! What the JSON of `zpool status` says of scans, of sequential rebuilds and of expansions: numbers, dates and sizes.
//!
//! Source: the output of `zpool status -j` of OpenZFS 2.3.2.

use format::rebuild::{Rebuild, RebuildState};
use pool::Expansion;
use serde_json::{Map, Value};

use super::json_look::Look;
use super::scan;
use super::view::{PoolView, VdevView};
use crate::messages::Failure;

/// The members `scan_stats` and `raidz_expand_stats` of a pool, where there is something to say.
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
    let expansion = session.and_then(|session| session.pool().expansion().ok().flatten());
    if let Some((vdev, expansion)) = expansion.and_then(|it| Some((top(it.vdev)?, it))) {
        all.insert("raidz_expand_stats".to_owned(), of_expansion(vdev, &expansion, look));
    }
    Ok(all)
}

fn object<const N: usize>(rows: [(&str, Value); N]) -> Map<String, Value> {
    rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A rebuild is one pass: it goes on where it was when the pool is imported.
fn of_rebuild(vdev: &VdevView, rebuild: &Rebuild, look: Look, now: u64) -> Option<Value> {
    let state = match rebuild.state {
        RebuildState::None => return None,
        RebuildState::Active => "ACTIVE",
        RebuildState::Canceled => "CANCELED",
        RebuildState::Complete => "COMPLETE",
    };
    let mut all = object([
        ("name", vdev.name.clone().into()),
        ("vdev_type", vdev.kind.clone().into()),
        ("guid", look.number(vdev.guid.0)),
    ]);
    all.extend(vdev.path.clone().map(|path| ("path".to_owned(), path.into())));
    let passed = now.saturating_sub(rebuild.start_time).saturating_mul(1_000_000_000);
    all.extend(object([
        ("class", vdev.class.word().into()),
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
        // What is in use is copied, all of it.
        ("pass_skipped", look.bytes(0)),
    ]));
    Some(all.into())
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
