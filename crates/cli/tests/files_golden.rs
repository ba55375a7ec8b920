//! Pools made by OpenZFS are listed exactly as their manifests say.

mod bed;

use std::process::Command;

use bed::{Bed, Done, root};
use serde_json::Value;

fn manifest(pool: &str) -> Value {
    let plain = root().join(format!("fixtures/golden/{pool}.json"));
    let text = match std::fs::read(&plain) {
        Ok(text) => text,
        Err(_) => {
            let packed = plain.with_extension("json.zst");
            Command::new("zstd").args(["-d", "-q", "-c"]).arg(packed).output().expect("zstd is here").stdout
        }
    };
    serde_json::from_slice(&text).expect("a manifest")
}

fn expect_as_in_manifest(pool: &str) {
    let bed = Bed::new();
    let unpack = root().join("fixtures/golden/unpack");
    let done =
        Done::from(Command::new(unpack).arg(pool).arg(bed.path("images")).output().expect("it starts"));
    assert_eq!(done.status, 0, "{done:?}");
    let manifest = manifest(pool);
    for dataset in manifest["datasets"].as_array().expect("datasets") {
        let Some(files) = dataset["files"].as_array() else { continue };
        let name = dataset["name"].as_str().expect("a name");
        let place = format!("{name}:/");
        let list = bed.run(&["-d", "images", "ls", "-R", "--json", "--sha256", &place]).objects();
        assert_eq!(list.len(), files.len(), "{name}");
        for (mut found, wanted) in list.into_iter().zip(files) {
            // A mounted snapshot's root shows the number of its place in .zfs/snapshot.
            if name.contains('@') && wanted["path"] == "." {
                found["ino"] = wanted["ino"].clone();
            }
            assert_eq!(&found, wanted, "{name}");
        }
    }
    let check = bed.run(&["check", "images"]);
    assert!(check.status == 0 && check.out.contains(": clean"), "{check:?}");
}

macro_rules! golden {
    ($($pool:ident)*) => {
        $(#[test]
        fn $pool() {
            expect_as_in_manifest(stringify!($pool));
        })*
    };
}

golden!(gaux gcomp grec gsum gashift9 gashift12 gashift13 gstripe gv28 gcompat21 ggrub2 gfreebsd20 gposix gbig);
golden!(gmirror graidz1 graidz2 graidz3);

#[test]
fn status_says_why_a_pool_is_only_read() {
    let bed = Bed::new();
    let unpack = root().join("fixtures/golden/unpack");
    for (pool, lines) in [
        ("gbig", &["cenote opens the pool for reading only:", "\ta big-endian machine wrote it last."]),
        ("gashift9", &[""; 2]),
    ] {
        let done = Command::new(&unpack).arg(pool).arg(bed.path(pool)).output().expect("it starts");
        assert_eq!(Done::from(done).status, 0);
        let status = bed.run(&["-d", pool, "zpool", "status"]).good();
        let of_pool = bed.run(&["-d", pool, "zpool", "get", "-H", "-o", "value", "readonly"]).good();
        assert_eq!(of_pool.trim(), if lines[0].is_empty() { "off" } else { "on" }, "{pool}");
        let imported = bed.run(&["zpool", "import", "-d", pool, pool]);
        let told = format!("cenote: '{pool}' can only be read: a big-endian machine wrote it last\n");
        assert_eq!(imported.err, if lines[0].is_empty() { String::new() } else { told });
        let said: Vec<_> = status.lines().skip_while(|line| !line.starts_with("status: ")).take(3).collect();
        if lines[0].is_empty() {
            // It was made by OpenZFS 2.1, which has no blake3.
            assert_eq!(said[0], "status: Some supported and requested features are not enabled on the pool.");
            continue;
        }
        assert_eq!(said[0].strip_prefix("status: "), Some(lines[0]), "{status}");
        assert!(said[1] == lines[1] && said[2].starts_with("action: None needed for reading."), "{status}");
    }
}
