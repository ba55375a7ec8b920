//! Every function that creates or renames refuses invalid names.

use std::sync::Arc;

use storage::host::{Disk, Host, ScriptedDisk};

use crate::{CreateSpec, Error, NewFilesystem, Options, Pool};

/// A pool with the snapshot `tank@s`, and how to make another file system in it.
fn pool() -> (Pool, NewFilesystem, crate::Initialise) {
    let host = Host::seeded(1, 0);
    let options = Options { io_threads: 0, workers: 1, host: host.clone(), ..Options::default() };
    let new = NewFilesystem { project_quota: false, ..NewFilesystem::plain(&host) };
    let nothing: crate::Initialise = Arc::new(|_, _, _| Ok(()));
    let disk: Arc<dyn Disk> = Arc::new(ScriptedDisk::new(64 << 20));
    let spec = CreateSpec::new("tank", vec![disk], new.clone(), nothing.clone());
    let pool = Pool::create(spec, options).unwrap();
    pool.snapshot(&["tank@s".to_owned()], &[]).unwrap();
    (pool, new, nothing)
}

#[test]
fn the_pool_refuses_names_that_commands_would_refuse() {
    let (pool, new, nothing) = pool();
    let longest = format!("tank/{}", "n".repeat(251));
    let make = |name: &str| pool.create_filesystem(name, Vec::new(), new.clone(), nothing.clone());
    make("tank/fs").unwrap();
    for bad in ["tank/a\u{1b}b", "tank/..", "tank/%recv", "tank/a@b", "tank/a#b", "tank//a", &longest] {
        for refused in [
            make(bad),
            pool.clone_snapshot("tank@s", bad, Vec::new()),
            pool.rename_dataset("tank/fs", bad),
            pool.snapshot(&[format!("{bad}@x/y")], &[]),
            pool.bookmark("tank@s", &format!("{bad}#x#y")),
        ] {
            let error = refused.expect_err(bad);
            assert!(matches!(error, Error::InvalidName { .. } | Error::NameTooLong(_)), "{bad}: {error}");
        }
    }
    for leaf in ["a\nb", "a/b", "..", "%x", ""] {
        assert!(pool.rename_snapshots(&["tank@s".to_owned()], leaf).is_err(), "{leaf}");
        assert!(pool.bookmark("tank@s", &format!("tank#{leaf}")).is_err(), "{leaf}");
    }
    for tag in ["", "a\u{1b}[2Jb", "a\nb", &"t".repeat(256)] {
        let error = pool.hold(&["tank@s".to_owned()], tag).expect_err(tag);
        assert!(matches!(error, Error::BadTag(_)), "{error}");
    }
    assert_eq!(pool.list("tank", None, true).unwrap().len(), 3);
    pool.export().unwrap();
}

#[test]
fn a_rename_that_makes_the_name_of_a_descendant_too_long_is_refused() {
    let (pool, new, nothing) = pool();
    let below = format!("tank/a/{}", "n".repeat(245));
    for name in ["tank/a", &below] {
        pool.create_filesystem(name, Vec::new(), new.clone(), nothing.clone()).unwrap();
    }
    assert!(matches!(pool.rename_dataset("tank/a", "tank/longer"), Err(Error::NameTooLong(_))));
    pool.rename_dataset("tank/a", "tank/b").unwrap();
    pool.export().unwrap();
}

#[test]
fn invalid_names_of_bookmarks_and_holds_are_reported_and_left_out() {
    let (pool, ..) = pool();
    pool.run(|syncing| {
        for name in ["tank#good", "tank#a\u{1b}[2Jb", "tank#a/b", "tank#.."] {
            syncing.change(|dsl| dsl.create_bookmark("tank@s", name))?;
        }
        ["good", "a\nb"].iter().try_for_each(|tag| syncing.change(|dsl| dsl.hold("tank@s", tag)))
    })
    .unwrap();
    assert!(matches!(pool.bookmarks("tank"), Err(Error::BadName { .. })));
    let mut told = Vec::new();
    let marks = pool.survey_bookmarks("tank", &mut |name, error| told.push((name, error))).unwrap();
    assert_eq!(marks.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(), ["tank#good"]);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().all(|(name, error)| name == "tank" && matches!(error, Error::BadName { .. })));
    let snap = pool.dataset("tank@s").unwrap();
    assert!(matches!(pool.holds(&snap), Err(Error::BadTag(_))));
    let mut told = Vec::new();
    let holds = pool.survey_holds(&snap, &mut |error| told.push(error)).unwrap();
    assert_eq!(holds.iter().map(|(tag, _)| tag.as_str()).collect::<Vec<_>>(), ["good"]);
    assert!(matches!(told.as_slice(), [Error::BadTag(tag)] if tag == "a\nb"), "{told:?}");
    pool.export().unwrap();
}

#[test]
fn a_snapshot_with_a_bad_name_is_not_shown_in_the_folder_of_snapshots() {
    let (pool, ..) = pool();
    pool.run(|syncing| syncing.change(|dsl| dsl.rename_snapshot("tank@s", "a/b"))).unwrap();
    let dataset = pool.open("tank").unwrap();
    assert_eq!(dataset.snapshots_from(0).unwrap(), []);
    assert_eq!(dataset.snapshot_named(b"a/b").unwrap(), None);
    drop(dataset);
    pool.export().unwrap();
}
