//! Values of parameters, in text and in binary.
#![no_main]

use entresol_server::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: entresol_fuzz::plant(fuzzing::seeds("value")), |bytes: &[u8]| {
    fuzzing::value(bytes);
});
