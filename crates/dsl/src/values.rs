//! Values of properties as the ZAPs of directories and snapshots hold them.
//!
//! Source: docs/format/06-mos-dsl.md §10.

use dmu::zap;
use format::ObjectId;
use format::zap::Value as Stored;

use crate::Result;
use crate::mos::Mos;
use crate::props::Value;

/// Marks a value that only newer software knows; the plain name then holds the default.
const NEWER: &str = "$iuv";
/// Received from a stream, in effect unless set here.
pub const RECEIVED: &str = "$recvd";
/// Marks a dataset that received properties.
pub const RECEIVED_ANY: &[u8] = b"$hasrecvd";
/// A received value is hidden by an explicit `inherit`.
pub const INHERIT: &str = "$inherit";

fn read(value: &Stored) -> Option<Value> {
    match value.as_u64() {
        Some(number) => Some(Value::Number(number)),
        None => value.as_text().map(|text| Value::Text(text.to_owned())),
    }
}

/// How a value is stored in a properties ZAP.
pub fn stored(value: &Value) -> Stored {
    match value {
        Value::Number(number) => Stored::from_u64(*number),
        Value::Text(text) => Stored::from_text(text),
    }
}

fn get(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<Value>> {
    if zap_id.0 == 0 {
        return Ok(None);
    }
    Ok(zap::lookup(&*mos.object(zap_id)?, name.as_bytes())?.as_ref().and_then(read))
}

/// The received value in a properties ZAP, whether it is in effect or not.
pub(crate) fn received_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<Value>> {
    get(mos, zap_id, &format!("{name}{RECEIVED}"))
}

/// A number in a properties ZAP: local, or received and not overridden.
pub(crate) fn number_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<u64>> {
    Ok(match set_here(mos, zap_id, name)? {
        Some((Value::Number(number), _)) => Some(number),
        _ => None,
    })
}

/// The value set on one directory: locally, or received and not overridden.
pub(crate) fn set_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<(Value, bool)>> {
    if let Some(value) = get(mos, zap_id, &format!("{name}{NEWER}"))? {
        return Ok(Some((value, true)));
    }
    if let Some(value) = get(mos, zap_id, name)? {
        return Ok(Some((value, true)));
    }
    if get(mos, zap_id, &format!("{name}{INHERIT}"))?.is_some() {
        return Ok(None);
    }
    Ok(get(mos, zap_id, &format!("{name}{RECEIVED}"))?.map(|value| (value, false)))
}
