//! `cenote cat`, `cenote stat`, `cenote du`.

use std::io::Write;

use pool::props::number::nice_bytes;
use zpl::session::Caller;
use zpl::{FileKind, Piece};

use super::list::{mode_text, time_text};
use super::{Cat, Du, Stat, manifest, sums};
use crate::around::Surroundings;
use crate::files::pools::{Pools, refused};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, counted, quoted};

/// Zeros, for holes.
const ZEROS: &[u8] = &[0; 64 << 10];
const WHEN: &str = "%Y-%m-%d %H:%M:%S.%N %z";

/// Carries out `cat`.
///
/// # Errors
/// A place cannot be opened; the output is closed.
pub fn cat(cat: &Cat, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(cat.places.iter().map(|place| (place, Intent::Files)), around)?;
    let by = Caller::root();
    for place in &cat.places {
        let session = pools.session(place, Intent::Files)?;
        let records = session.resolve(&by, &place.path, true).and_then(|id| session.records(&by, id));
        let records = match records {
            Ok(records) => records,
            Err(error) => {
                console.complain(refused("read", place, error))?;
                continue;
            }
        };
        for piece in records {
            match piece {
                Ok(piece @ Piece::Data { .. }) => {
                    console.content().write_all(piece.data().unwrap_or_default())?
                }
                Ok(Piece::Hole { len, .. }) => {
                    let mut left = len;
                    while left > 0 {
                        let now = left.min(ZEROS.len() as u64);
                        console.content().write_all(&ZEROS[..now as usize])?;
                        left -= now;
                    }
                }
                Err(error) => {
                    // The rest of the output would stand in the wrong place.
                    console.complain(refused("read", place, error))?;
                    break;
                }
            }
        }
    }
    pools.finish()
}

/// Carries out `stat`.
///
/// # Errors
/// As [`cat`].
pub fn stat(stat: &Stat, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(stat.places.iter().map(|place| (place, Intent::Files)), around)?;
    for place in &stat.places {
        let fs = pools.filesystem(place, Intent::Files)?;
        let lines = fs.resolve(&place.path, false).and_then(|id| {
            if stat.json {
                return Ok(vec![manifest::line(&fs, place.to_string().as_bytes(), id, false)?]);
            }
            let stat = fs.stat(id)?;
            let mut lines = vec![
                format!("  place  {}", quoted(place.to_string().as_bytes())),
                format!("   type  {}", manifest::word(stat.kind)),
                format!("   size  {}, {} on disk", counted(stat.size, "byte"), stat.blocks * 512),
                format!(
                    " object  {}, created in txg {}, block size {}",
                    stat.id.0, stat.generation, stat.block_size
                ),
                format!("   mode  {:04o} {}", stat.mode, mode_text(&stat)),
                format!("  owner  {}:{}", stat.uid, stat.gid),
                format!("  links  {}", stat.nlink),
                format!(" access  {}", time_text(stat.atime, WHEN)),
                format!(" modify  {}", time_text(stat.mtime, WHEN)),
                format!(" change  {}", time_text(stat.ctime, WHEN)),
                format!("  birth  {}", time_text(stat.crtime, WHEN)),
            ];
            match stat.kind {
                FileKind::Symlink => {
                    lines.push(format!(" target  {}", quoted(&fs.readlink(id)?)));
                }
                FileKind::Regular => {
                    let runs = fs.data_runs(id)?;
                    let data: u64 = runs.iter().map(|(_, len)| len).sum();
                    let (data, parts) = (counted(data, "byte"), counted(runs.len() as u64, "part"));
                    lines.push(format!("   data  {data} in {parts}, the rest are holes"));
                }
                kind if kind.is_device() => lines.push(format!(" device  {}", manifest::device(stat.rdev))),
                _ => {}
            }
            if stat.projid != 0 {
                lines.push(format!("project  {}", stat.projid));
            }
            let mut names = fs.xattr_list(id)?;
            names.sort();
            for name in names {
                let len = fs.xattr_get(id, &name)?.map_or(0, |value| value.len());
                lines.push(format!("  xattr  {} ({})", quoted(&name), counted(len as u64, "byte")));
            }
            Ok(lines)
        });
        match lines {
            Ok(lines) => lines.iter().try_for_each(|line| console.line(line))?,
            Err(error) => console.complain(refused("stat", place, error))?,
        }
    }
    pools.finish()
}

/// Carries out `du`: space in units of 1024 bytes, folders and datasets after what is in them.
///
/// # Errors
/// As [`cat`].
pub fn du(du: &Du, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(du.places.iter().map(|place| (place, Intent::Files)), around)?;
    for place in &du.places {
        sums::of_place((place, &pools), du.one_dataset, console, |console, found| {
            if found.depth == 0 || found.is_dir && !du.summarize {
                line(du, console, found.sum.disk, &found.path)?;
            }
            Ok(())
        })?;
    }
    pools.finish()
}

fn line(du: &Du, console: &mut Console, disk: u64, path: &[u8]) -> Result<(), Failure> {
    if du.json {
        let name = String::from_utf8_lossy(path);
        return console.line(&serde_json::json!({ "name": name, "disk": disk }).to_string());
    }
    let size = match du.human_readable {
        true => nice_bytes(disk),
        false => disk.div_ceil(1024).to_string(),
    };
    console.line(&format!("{size}\t{}", quoted(path)))
}
