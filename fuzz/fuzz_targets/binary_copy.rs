//! The data of a COPY in the binary format, cut anywhere.
#![no_main]

use entresol_server::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: entresol_fuzz::plant(fuzzing::seeds("binary_copy")), |bytes: &[u8]| {
    fuzzing::binary_copy(bytes);
});
