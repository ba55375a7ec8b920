//! Bodies for whole pools: the sample pool with changes that the input chooses, and right checksums.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use cenote_cli::Surroundings;
use cenote_cli::out::Console;
use sim::forge::{self, PatchedDisk, Patches, Source};
use sim::reading::{self, Limits};
use storage::host::Disk;

use crate::choices::Choices;

/// The pool that all inputs change. It is made once, since that takes longer than reading it.
pub static SAMPLE: LazyLock<Source> = LazyLock::new(forge::sample);

/// The unit in which an image is written to a file, in bytes: one that holds zeros is left out.
const CHUNK: usize = 64 << 10;

fn damaged(data: &[u8]) -> Patches {
    let mut choices = Choices(data);
    forge::damage_by(&SAMPLE, &mut |limit| choices.below(limit))
}

/// Everything that can be read of a pool.
pub fn image_read(data: &[u8]) {
    let disk = PatchedDisk::new(SAMPLE.image().clone(), damaged(data));
    let _ = reading::read_all(vec![Arc::new(disk) as Arc<dyn Disk>], &Limits::default());
}

/// A pool that is imported to be changed: it may refuse or stop, but no assertion may fail.
pub fn image_changed(data: &[u8]) {
    let disk = PatchedDisk::new(SAMPLE.image().clone(), damaged(data)).writable();
    let refused = sim::changing::change_all(vec![Arc::new(disk) as Arc<dyn Disk>]);
    let broken = refused.0.iter().find(|line| line.contains("internal error"));
    assert_eq!(broken, None, "an invariant was broken by what a pool holds");
}

/// `cenote cp -r -p` out of a pool whose directory entries are changed. A folder beside its target must stay as it is.
pub fn copy_out(data: &[u8]) {
    let mut choices = Choices(data);
    let patches = forge::damage_entries_by(&SAMPLE, &mut |limit| choices.below(limit));
    let folder = tempfile::tempdir().expect("a scratch folder can be made");
    copy_out_in(folder.path(), &patches).expect("the scratch folder can be written");
    // Folders without permissions cannot be emptied by an ordinary user.
    let _ = std::process::Command::new("chmod").args(["-R", "u+rwX"]).arg(folder.path()).status();
}

fn copy_out_in(folder: &Path, patches: &Patches) -> io::Result<()> {
    let (image, victim, out) = (folder.join("t.img"), folder.join("victim"), folder.join("out"));
    write_image(&image, patches)?;
    fs::create_dir(&victim)?;
    fs::create_dir(&out)?;
    for name in ["kept", "a file there", "x"] {
        fs::write(victim.join(name), name)?;
    }
    let before = contents(&victim)?;
    for source in ["tank/fs:/", "tank/clone:/d"] {
        let words = ["-d", "t.img", "cp", "-q", "-r", "-p", source, "out"];
        let words = words.map(|word| match word {
            "t.img" => image.clone().into(),
            "out" => out.clone().into(),
            word => word.into(),
        });
        let around = Surroundings { search: vec![image.clone()], ..Surroundings::default() };
        cenote_cli::own::served(&words, around, Console::new(io::sink(), io::sink()));
    }
    assert_eq!(contents(&victim)?, before, "the copy changed something outside of its target");
    let mut beside: Vec<_> = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    beside.retain(|entry| !["t.img", "victim", "out"].contains(&&*entry.file_name().to_string_lossy()));
    assert!(beside.is_empty(), "the copy made something outside of its target: {beside:?}");
    Ok(())
}

/// Writes the sample with patches as a file; ranges of zeros become holes.
fn write_image(path: &Path, patches: &Patches) -> io::Result<()> {
    let file = File::create(path)?;
    let image = SAMPLE.image();
    file.set_len(image.len() as u64)?;
    for (number, chunk) in image.chunks(CHUNK).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, (number * CHUNK) as u64)?;
        }
    }
    patches.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
}

/// The files of a folder with what they hold, and all that a change of them would change.
fn contents(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = vec![format!("{:?}", fs::metadata(folder)?.permissions())];
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let data = fs::symlink_metadata(&path)?;
        let content = if data.is_file() { fs::read(&path)? } else { Vec::new() };
        found.push(format!("{path:?} {:?} {:?} {content:?}", data.permissions(), data.modified()?));
    }
    found.sort();
    Ok(found)
}
