#![forbid(unsafe_code)]

pub mod props;
