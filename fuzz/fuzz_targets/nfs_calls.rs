#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::nfs_clients::nfs_calls(data));
