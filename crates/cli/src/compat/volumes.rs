//! Volumes as `zfs` words them: their size and block size at creation, the space that is kept for them, and resizing.
//!
//! From:   `zfs create -V`, `zfs set`.
//! To:     `pool` and [`Volume`].

use pool::props::{AUTO, DatasetKind, PropertyError, Value, dataset as props, size::parse_size};
use pool::{DatasetInfo, NewEncryption, Pool, VOLUME_BLOCK, default_volume_block};
use zpl::Volume;

use super::dataset_value::Refusal;
use super::dataset_values::{Offered, local_values};
use super::key_words::KeyWords;
use crate::args::Assignments;
use crate::messages::{Action, Failure, reason};
use crate::out::Console;

/// Bytes of the largest volume.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The volume that `zfs create -V` asks for.
pub struct Asked {
    /// Bytes, as they were typed.
    pub size: u64,
    /// No space is kept for it.
    pub sparse: bool,
}

/// Reads the size of a new volume.
///
/// # Errors
/// It is no size.
pub fn asked(size: &str, sparse: bool) -> Result<Asked, Failure> {
    let size =
        parse_size(size).map_err(|why| Failure::refused(format!("bad volume size '{size}': {why}")))?;
    Ok(Asked { size, sparse })
}

/// The assignment that `-b` means.
///
/// # Errors
/// It is no size.
pub fn block_assignment(text: &str) -> Result<String, Failure> {
    match parse_size(text) {
        Ok(block) => Ok(format!("volblocksize={block}")),
        Err(why) => Err(Failure::refused(format!("bad volume block size '{text}': {why}"))),
    }
}

/// A new volume.
pub struct Creation {
    pub size: u64,
    pub block: u64,
    /// Local properties, by name.
    pub local: Vec<(String, Value)>,
    /// The properties that are set, as `-v` shows them.
    pub shown: Vec<(String, String)>,
    /// How it is encrypted.
    pub encryption: NewEncryption,
    /// The words of the command line about its encryption.
    pub key_words: KeyWords,
}

/// Computes the options of a new volume. Warns of a block size that wastes space.
///
/// # Errors
/// A property or the size is refused.
pub fn creation(
    console: &mut Console,
    pool: &Pool,
    (asked, own): (&Asked, &Assignments),
    offered: &Offered<'_>,
) -> Result<Creation, Refusal> {
    let given: Vec<(&str, &str)> = own.iter().collect();
    let (mut local, key_words) = local_values(&given, DatasetKind::Volume, offered)?;
    let mut shown = vec![("volsize".to_owned(), asked.size.to_string())];
    shown.extend(own.iter().map(|(name, text)| (name.to_owned(), text.to_owned())));
    let found = local.iter().position(|(name, _)| name == "volblocksize").map(|at| local.remove(at).1);
    let block = match found {
        Some(Value::Number(block)) => {
            warn_of_waste(console, block, pool.largest_min_alloc());
            block
        }
        _ => {
            let block = default_volume_block(pool.largest_min_alloc());
            if block != VOLUME_BLOCK {
                shown.push(("volblocksize".to_owned(), block.to_string()));
            }
            block
        }
    };
    local.retain(|(name, _)| name != "volsize");
    if asked.size == 0 {
        return Err(PropertyError::VolumeSizeZero.into());
    }
    let too_big = || Refusal::Reason("volume size exceeds limit for this system".into());
    let size =
        asked.size.checked_next_multiple_of(block).filter(|size| *size <= SIZE_MAX).ok_or_else(too_big)?;
    if size != asked.size {
        let first = shown.remove(0).0;
        shown.push((first, size.to_string()));
    }
    let reserve = pool.volume_reserve();
    let full = pool.volume_reservation(size, block);
    match local.iter_mut().find(|(name, _)| name == reserve) {
        Some((_, value)) if *value == Value::Number(AUTO) => *value = Value::Number(full),
        Some(_) => {}
        None if asked.sparse => {}
        None => {
            shown.push((reserve.to_owned(), full.to_string()));
            local.push((reserve.to_owned(), Value::Number(full)));
        }
    }
    Ok(Creation { size, block, local, shown, encryption: NewEncryption::default(), key_words })
}

/// Warns, on standard error, of blocks that are smaller than what the pool allocates for them.
fn warn_of_waste(console: &mut Console, block: u64, min_alloc: u64) {
    let target = default_volume_block(min_alloc);
    if block >= target {
        return;
    }
    if target > VOLUME_BLOCK && block < min_alloc {
        let wasted = 100 * (min_alloc - block) / min_alloc;
        console.note(&format!(
            "Warning: volblocksize ({block}) is much less than the minimum allocation\n\
             unit ({min_alloc}), which wastes at least {wasted}% of space. To reduce wasted space,\n\
             use a larger volblocksize ({target} is recommended), fewer dRAID data disks\n\
             per group, or smaller sector size (ashift)."
        ));
    } else {
        console.note(&format!(
            "Warning: volblocksize ({block}) is less than the default minimum block size ({target}).\n\
             To reduce wasted space a volblocksize of {target} is recommended."
        ));
    }
}

/// A number that a property of a volume has.
fn number(pool: &Pool, info: &DatasetInfo, name: &str) -> Result<u64, Refusal> {
    let property = props::parse(name).expect("the table has it");
    match pool.property(info, property).map_err(|error| Refusal::Reason(error.to_string()))? {
        Some((Value::Number(number), _)) => Ok(number),
        _ => Ok(0),
    }
}

/// Checks a new size of an existing volume, and adds what follows from it and from `refreservation=auto` to `values`.
///
/// # Errors
/// The size is none that the volume can have.
pub fn complete(
    pool: &Pool,
    info: &DatasetInfo,
    values: &mut Vec<(String, Option<Value>)>,
) -> Result<(), Refusal> {
    if info.kind != DatasetKind::Volume {
        return Ok(());
    }
    let of = |values: &[(String, Option<Value>)], wanted: &str| {
        values.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| match value {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        })
    };
    let (old, block) = (number(pool, info, "volsize")?, number(pool, info, "volblocksize")?);
    let new = of(values, "volsize");
    if let Some(size) = new {
        if size == 0 {
            return Err(PropertyError::VolumeSizeZero.into());
        }
        if size > SIZE_MAX {
            return Err(Refusal::Reason("volume size exceeds limit for this system".into()));
        }
        if !size.is_multiple_of(block) {
            return Err(PropertyError::VolumeSizeNotMultiple { block }.into());
        }
    }
    let reserve = pool.volume_reserve();
    let full = pool.volume_reservation(new.unwrap_or(old), block);
    if of(values, "refreservation") == Some(AUTO) {
        for (_, value) in values.iter_mut().filter(|(name, _)| name == "refreservation") {
            *value = Some(Value::Number(full));
        }
    }
    // A reservation that was computed for the old size is computed for the new one.
    let is_computed = number(pool, info, reserve)? == pool.volume_reservation(old, block);
    if new.is_some() && is_computed && of(values, reserve).is_none() {
        values.push((reserve.to_owned(), Some(Value::Number(full))));
    }
    Ok(())
}

/// Takes the new size out of `values`; with it, whether the volume becomes smaller.
///
/// # Errors
/// The present size cannot be read.
pub fn take_size(
    pool: &Pool,
    info: &DatasetInfo,
    values: &mut Vec<(String, Option<Value>)>,
) -> Result<Option<(u64, bool)>, Refusal> {
    let Some(at) = values.iter().position(|(name, _)| name == "volsize") else { return Ok(None) };
    match values.remove(at).1 {
        Some(Value::Number(size)) => Ok(Some((size, size < number(pool, info, "volsize")?))),
        _ => Ok(None),
    }
}

/// Gives a volume another size.
///
/// # Errors
/// Why it keeps its size.
pub fn resize(pool: &Pool, name: &str, size: u64) -> Result<(), Failure> {
    let action = Action::SetProperty(name);
    let volume = pool.open(name).map_err(zpl::Error::from).and_then(Volume::open);
    volume.and_then(|volume| volume.resize(size)).map_err(|error| match error {
        zpl::Error::ReadOnly(_) => action.failed(reason::DATASET_READ_ONLY),
        zpl::Error::NoSpace | zpl::Error::Quota => action.failed(reason::OUT_OF_SPACE),
        error => action.failed(error),
    })
}
