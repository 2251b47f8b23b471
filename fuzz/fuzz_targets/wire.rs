//! Bytes of a client, from the first of its connection on.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    entresol_server::fuzzing::connection(bytes);
});
