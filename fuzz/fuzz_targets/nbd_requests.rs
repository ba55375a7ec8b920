#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::nbd_clients::nbd_requests(data));
