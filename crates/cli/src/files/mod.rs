//! Files in pools, as commands name, find and visit them.

pub mod operand;
pub mod pools;
pub mod walk;
