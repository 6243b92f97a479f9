//! See `mycelium_testkit::fuzz`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mycelium_testkit::fuzz::run("sst_origin", data));
