//! What each fuzz target does, as ordinary functions: libFuzzer calls them (`fuzz_targets/`), and so does the
//! test below, for a moment each, on any toolchain.
//!
//! A target of a decoder takes bytes that a disk might hold. It may find a value or an error; where there is a value, what
//! we would write of it must read back the same. Other targets take text and messages, or use the input to choose
//! changes of a whole pool or stream whose checksums are made right again. Panics, overflows, hangs and large allocations
//! are the faults; so is a change of anything that must not change.
#![forbid(unsafe_code)]

pub mod choices;
pub mod codecs;
pub mod formats;
pub mod images;
pub mod nbd_clients;
pub mod nfs_clients;
pub mod seeds;
pub mod streams;
pub mod words;

/// The body of a target.
pub type Body = fn(&[u8]);

/// Every target: its name, which is also that of its file and its corpus, and its body.
pub const TARGETS: &[(&str, Body)] = &[
    ("blkptr", formats::blkptr),
    ("dnode", formats::dnode),
    ("objset", formats::objset),
    ("nvlist_xdr", formats::nvlist_xdr),
    ("nvlist_native", formats::nvlist_native),
    ("label", formats::label),
    ("uberblock", formats::uberblock),
    ("config", formats::config),
    ("space_map", formats::space_map),
    ("space_map_header", formats::space_map_header),
    ("bpobj", formats::bpobj),
    ("bptree", formats::bptree),
    ("zil", formats::zil),
    ("l2arc", formats::l2arc),
    ("deadlist", formats::deadlist),
    ("redaction", formats::redaction),
    ("dsl_dir", formats::dsl_dir),
    ("dsl_dataset", formats::dsl_dataset),
    ("history", formats::history),
    ("stream", formats::stream),
    ("sa", formats::sa),
    ("znode", formats::znode),
    ("acl", formats::acl),
    ("zap_micro", formats::zap_micro),
    ("zap_leaf", formats::zap_leaf),
    ("zap_fat_header", formats::zap_fat_header),
    ("swap", formats::swap),
    ("zap_values", formats::zap_values),
    ("embedded_checksum", formats::embedded_checksum),
    ("lzjb", codecs::lzjb),
    ("lz4", codecs::lz4),
    ("zle", codecs::zle),
    ("gzip", codecs::gzip),
    ("zstd", codecs::zstd),
    ("compress", codecs::compress),
    ("receive_stream", streams::receive_stream),
    ("image_read", images::image_read),
    ("image_changed", images::image_changed),
    ("copy_out", images::copy_out),
    ("nfs_calls", nfs_clients::nfs_calls),
    ("nbd_requests", nbd_clients::nbd_requests),
    ("wire", words::wire),
    ("resume_token", words::resume_token),
    ("pools_cache", words::pools_cache),
    ("package_list", streams::package_list),
    ("command_line", words::command_line),
    ("mount_options", words::mount_options),
];

#[cfg(test)]
mod tests;
