#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::images::copy_out(data));
