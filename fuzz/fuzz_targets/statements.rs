//! The text of statements: cut, parsed, looked through for what a role may not do.
#![no_main]

use entresol_server::fuzzing;
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: entresol_fuzz::plant(fuzzing::seeds("statement")), |bytes: &[u8]| {
    fuzzing::statement(bytes);
});
