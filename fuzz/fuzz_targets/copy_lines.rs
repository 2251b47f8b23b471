//! The lines of a COPY in text and csv, cut anywhere.
#![no_main]

use entresol_query::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: entresol_fuzz::plant(fuzzing::seeds()), |bytes: &[u8]| {
    fuzzing::copy_lines(bytes);
});
