//! The dataset and snapshot layer: directories, datasets, their space and their properties.
//!
//! Source: docs/format/06-mos-dsl.md §4–§10.

pub(crate) mod bookmark;
pub(crate) mod clone;
pub(crate) mod create;
pub(crate) mod deadlist;
pub(crate) mod destroy;
pub(crate) mod frees;
pub(crate) mod limits;
pub(crate) mod lookup;
pub(crate) mod promises;
pub(crate) mod promote;
pub(crate) mod properties;
pub(crate) mod receive;
pub(crate) mod received;
pub(crate) mod snapshot;
pub(crate) mod space;
#[cfg(test)]
mod tangles;
mod upgrade;

pub(crate) use space::{Category, add_space};
