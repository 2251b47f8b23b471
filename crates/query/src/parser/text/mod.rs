//! Query texts before they are parsed: tokens, scripts, kinds and fingerprints.

pub(crate) mod fingerprint;
mod integers;
pub(crate) mod kind;
pub(crate) mod lexer;
pub(crate) mod script;
pub(crate) mod tokens;
