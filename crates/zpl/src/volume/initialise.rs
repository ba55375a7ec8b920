//! The objects of a new volume.
//!
//! From:   `pool`, which calls it with an empty objset while creating a dataset.
//! To:     the objset: the data, without any block, and the size.

use std::sync::Arc;

use dmu::{NewObject, zap};
use format::ObjectType;
use format::zap::Value;

use super::{DATA, PROPERTIES, SIZE};

/// Makes the objects of a volume of `size` bytes with blocks of `block` bytes, in the form that `pool` takes when it creates
/// datasets.
///
/// # Panics
/// If the size is no multiple of the block size, or that is no power of two from 512 bytes to 16 MiB.
#[must_use]
pub fn volume_initialiser(size: u64, block: u64) -> pool::Initialise {
    assert!(block.is_power_of_two() && (512..=format::MAX_BLOCK).contains(&block), "a block size");
    assert!(size > 0 && size.is_multiple_of(block), "a volume is made of whole blocks");
    Arc::new(move |objset, tx, new| {
        let data = NewObject::plain(ObjectType::ZVOL).block_size(block as u32);
        objset.create_object_at(tx, DATA, data);
        let properties = objset.create_object_at(tx, PROPERTIES, NewObject::plain(ObjectType::ZVOL_PROP));
        zap::create(&properties, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&properties, tx, SIZE, &Value::from_u64(size))
    })
}
