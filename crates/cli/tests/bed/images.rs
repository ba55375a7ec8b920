//! A folder of images that become the devices of the pool `t`.

use std::path::Path;
use std::process::Command;

use super::{Bed, Done, root};

const MIB: u64 = 1 << 20;

/// Makes devices of these sizes; gives their paths.
pub fn devices(bed: &Bed, sizes: &[u64]) -> Vec<String> {
    std::fs::create_dir_all(bed.path("images")).expect("made");
    let make = |(number, size): (usize, &u64)| {
        let path = bed.path(&format!("images/d{number}"));
        std::fs::File::create(&path).expect("made").set_len(size * MIB).expect("long");
        path.display().to_string()
    };
    sizes.iter().enumerate().map(make).collect()
}

/// Runs a command in which numbers stand for the paths of devices.
pub fn run(bed: &Bed, devices: &[String], line: &str) -> Done {
    let words =
        line.split(' ').map(|word| word.parse().map_or(word, |number: usize| devices[number].as_str()));
    bed.run(&words.collect::<Vec<_>>())
}

/// `cenote check` and zdb find nothing wrong with the pool on all devices of the folder.
#[track_caller]
pub fn expect_sound(bed: &Bed) {
    expect_sound_pool(bed, "t");
}

/// As [`expect_sound`], of another pool on these devices.
#[track_caller]
pub fn expect_sound_pool(bed: &Bed, pool: &str) {
    let check = bed.run(&["-d", "images", "check", pool]);
    assert!(check.status == 0 && check.out.contains(": clean"), "{check:?}");
    let mut oracle = Command::new(root().join("oracle/zdb-check"));
    let output = oracle.arg("--dir").arg(bed.path("images")).arg(pool).output().expect("it starts");
    let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
    assert!(
        output.status.success() || output.status.code() == Some(2) && !required,
        "{:?}",
        Done::from(output)
    );
}

/// Names of all vdevs that `zpool status` shows, with their depth.
pub fn shown(bed: &Bed) -> Vec<String> {
    let text = bed.run(&["zpool", "status", "t"]).good();
    let here = format!("{}/", bed.path("images").display());
    let rows = text.lines().skip_while(|line| !line.contains("NAME")).skip(1);
    let rows = rows.take_while(|line| !line.trim().is_empty());
    rows.map(|line| {
        let line = line.trim_start_matches('\t').replace(&here, "");
        let depth = line.len() - line.trim_start().len();
        format!("{}{}", &line[..depth], line.split_whitespace().next().expect("a name"))
    })
    .collect()
}

/// Fills a folder with files of several sizes.
pub fn fill(folder: &Path, seed: u32) {
    std::fs::create_dir_all(folder).expect("made");
    for (number, len) in [0, 1, 513, 70_000, 131_073, 9_000_000].into_iter().enumerate() {
        let byte = |at: u32| ((at ^ seed).wrapping_mul(2_654_435_761) >> 13) as u8;
        let bytes: Vec<u8> = (0..len as u32).map(byte).collect();
        std::fs::write(folder.join(format!("f{number}")), bytes).expect("written");
    }
}
