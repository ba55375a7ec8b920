//! Damaged blocks (without a good copy), and their log on disk.
//!
//! Source: docs/format/06-mos-dsl.md §1.6.

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::{Tx, zap};
use format::zap::Value;
use format::{ObjectId, ObjectType, features};

use dsl::Mos;
use pool::scrubber::DataError;
use pool::{Result, Syncing};

/// The log of the last scrub, and that of the one under way.
const LAST: &str = "errlog_last";
const SCRUB: &str = "errlog_scrub";
/// Blocks of which a log knows one by one.
const ERRORS_MAX: u64 = 10_000;

/// `object:level:blkid`, the end of every key.
fn key_of(error: &DataError) -> String {
    format!("{:x}:{:x}:{:x}", error.object.0, error.level, error.blkid)
}

/// The numbers of a key.
fn numbers(key: &[u8]) -> Option<Vec<u64>> {
    std::str::from_utf8(key).ok()?.split(':').map(|part| u64::from_str_radix(part, 16).ok()).collect()
}

/// Everything logged on disk, in either form.
pub(super) fn read(mos: &Mos) -> Result<BTreeSet<DataError>> {
    read_logs(mos, &[LAST, SCRUB])
}

/// The errors that the scrub under way has found.
pub(super) fn found(mos: &Mos) -> Result<BTreeSet<DataError>> {
    read_logs(mos, &[SCRUB])
}

fn read_logs(mos: &Mos, logs: &[&str]) -> Result<BTreeSet<DataError>> {
    let mut found = BTreeSet::new();
    for log in logs {
        let Some(id) = mos.directory_object(log)?.filter(|id| id.0 != 0) else { continue };
        for entry in zap::entries(&*mos.object(id)?) {
            let entry = entry?;
            let error = |dataset, object, level: u64, blkid, birth| DataError {
                dataset: ObjectId(dataset),
                object: ObjectId(object),
                level: level as i64,
                blkid,
                birth,
            };
            match (numbers(&entry.name).as_deref(), entry.number()) {
                (Some(&[dataset, object, level, blkid]), _) => {
                    found.insert(error(dataset, object, level, blkid, 0));
                }
                (Some(&[head]), Some(inner)) => {
                    for entry in zap::entries(&*mos.object(ObjectId(inner))?) {
                        if let Some(&[object, level, blkid, birth]) = numbers(&entry?.name).as_deref() {
                            found.insert(error(head, object, level, blkid, birth));
                        }
                    }
                }
                // An invalid key is skipped.
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Makes `errors` the log of the last scrub, and drops older logs.
pub(super) fn replace(syncing: &Syncing<'_>, errors: &BTreeSet<DataError>) -> Result<()> {
    let (mos, tx) = (syncing.mos(), &syncing.tx);
    let by_head = syncing.is_active(&features::HEAD_ERRLOG);
    for log in [LAST, SCRUB] {
        let Some(id) = mos.directory_object(log)?.filter(|id| id.0 != 0) else { continue };
        if by_head {
            for entry in zap::entries(&*mos.object(id)?).collect::<Vec<_>>() {
                if let Some(inner) = entry?.number() {
                    mos.free(tx, ObjectId(inner))?;
                }
            }
        }
        mos.free(tx, id)?;
        mos.set_directory(tx, log, &Value::from_u64(0))?;
    }
    append(syncing, LAST, errors).map(drop)
}

/// Adds the errors that the scrub under way has found; returns how many blocks were not in its log.
pub(super) fn add(syncing: &Syncing<'_>, errors: &BTreeSet<DataError>) -> Result<u64> {
    append(syncing, SCRUB, errors)
}

fn append(syncing: &Syncing<'_>, log: &str, errors: &BTreeSet<DataError>) -> Result<u64> {
    let (mos, tx) = (syncing.mos(), &syncing.tx);
    let by_head = syncing.is_active(&features::HEAD_ERRLOG);
    // Datasets destroyed meanwhile have lost nothing.
    let known = |error: &DataError| head_of(mos, error.dataset).ok().map(|head| (head, *error));
    let errors: Vec<(ObjectId, DataError)> = errors.iter().filter_map(known).collect();
    if errors.is_empty() {
        return Ok(0);
    }
    let outer = list_at(syncing, mos.directory_object(log)?)?;
    mos.set_directory(tx, log, &Value::from_u64(outer.id().0))?;
    let mut inner: Option<(ObjectId, Arc<dmu::Object>)> = None;
    let mut added = 0;
    for (head, error) in errors {
        if !by_head {
            let key = format!("{:x}:{}", error.dataset.0, key_of(&error));
            added += note(&outer, tx, &key)?;
            continue;
        }
        // They come by dataset; two of one head share its list.
        let list = match &inner {
            Some((known, list)) if *known == head => list.clone(),
            _ => {
                let key = format!("{:x}", head.0);
                let list = list_at(syncing, zap::lookup_u64(&outer, key.as_bytes())?.map(ObjectId))?;
                zap::update(&outer, tx, key.as_bytes(), &Value::from_u64(list.id().0))?;
                list
            }
        };
        added += note(&list, tx, &format!("{}:{:x}", key_of(&error), error.birth))?;
        inner = Some((head, list));
    }
    Ok(added)
}

/// Notes a block in a log that has room for it; returns how many keys the log has more.
fn note(list: &Arc<dmu::Object>, tx: &Tx, key: &str) -> Result<u64> {
    if zap::lookup(list, key.as_bytes())?.is_some() {
        return Ok(0);
    }
    if zap::count(list)? < ERRORS_MAX {
        zap::update(list, tx, key.as_bytes(), &Value::from_text(""))?;
    }
    Ok(1)
}

/// The log in this object, or a new one.
fn list_at(syncing: &Syncing<'_>, id: Option<ObjectId>) -> Result<Arc<dmu::Object>> {
    match id.filter(|id| id.0 != 0) {
        Some(id) => syncing.mos().object(id),
        None => syncing.mos().create_zap(&syncing.tx, ObjectType::ERROR_LOG, 0),
    }
}

/// The head of the file system that a dataset or snapshot belongs to.
pub(super) fn head_of(mos: &Mos, dataset: ObjectId) -> Result<ObjectId> {
    if dataset.0 == 0 {
        return Ok(dataset);
    }
    let dir = mos.dataset(dataset)?.dir;
    Ok(mos.dir(dir)?.head_dataset)
}
