//! Subcommands that OpenZFS has and this build does not: their command lines are understood, and refused with the reason.

pub mod zfs;
pub mod zpool;
