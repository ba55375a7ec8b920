#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::formats::l2arc(data));
