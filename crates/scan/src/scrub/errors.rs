//! Damaged blocks (without a good copy), and their log on disk.
//!
//! Source: docs/format/06-mos-dsl.md §1.6.

use std::collections::BTreeSet;

use dmu::zap;
use format::zap::Value;
use format::{ObjectId, ObjectType, features};

use dsl::Mos;
use pool::scrubber::DataError;
use pool::{Result, Syncing};

/// The log of the last scrub, and that of the one under way.
const LAST: &str = "errlog_last";
const SCRUB: &str = "errlog_scrub";

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
    let mut found = BTreeSet::new();
    for log in [LAST, SCRUB] {
        let Some(id) = mos.directory_object(log)? else { continue };
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
    // Errors of destroyed datasets are dropped.
    let known = |error: &DataError| head_of(mos, error.dataset).ok().map(|head| (head, *error));
    let errors: Vec<(ObjectId, DataError)> = errors.iter().filter_map(known).collect();
    let by_head = syncing.is_active(&features::HEAD_ERRLOG);
    for log in [LAST, SCRUB] {
        let Some(id) = mos.directory_object(log)? else { continue };
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
    if errors.is_empty() {
        return Ok(());
    }
    let log = mos.create_zap(tx, ObjectType::ERROR_LOG, 0)?;
    let nothing = Value::from_text("");
    let mut inner: Option<(ObjectId, std::sync::Arc<dmu::Object>)> = None;
    for (head, error) in errors {
        if !by_head {
            let key = format!("{:x}:{}", error.dataset.0, key_of(&error));
            zap::update(&log, tx, key.as_bytes(), &nothing)?;
            continue;
        }
        // They come by dataset; two of one head share its list.
        let list = match zap::lookup_u64(&log, format!("{:x}", head.0).as_bytes())? {
            Some(id) => match &inner {
                Some((known, list)) if *known == head => list.clone(),
                _ => mos.object(ObjectId(id))?,
            },
            None => {
                let list = mos.create_zap(tx, ObjectType::ERROR_LOG, 0)?;
                let key = format!("{:x}", head.0);
                zap::update(&log, tx, key.as_bytes(), &Value::from_u64(list.id().0))?;
                list
            }
        };
        let key = format!("{}:{:x}", key_of(&error), error.birth);
        zap::update(&list, tx, key.as_bytes(), &nothing)?;
        inner = Some((head, list));
    }
    mos.set_directory(tx, LAST, &Value::from_u64(log.id().0))
}

/// The head of the file system that a dataset or snapshot belongs to.
pub(super) fn head_of(mos: &Mos, dataset: ObjectId) -> Result<ObjectId> {
    if dataset.0 == 0 {
        return Ok(dataset);
    }
    let dir = mos.dataset(dataset)?.dir;
    Ok(mos.dir(dir)?.head_dataset)
}
