//! Bytes of a client, from the first of its connection on.
#![no_main]

use entresol_server::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: entresol_fuzz::plant(fuzzing::seeds("connection")), |bytes: &[u8]| {
    fuzzing::connection(bytes);
});
