//! Subcommands of OpenZFS that this build does not support. Their command lines are parsed and refused with the reason.

pub mod zfs;
