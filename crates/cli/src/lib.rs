//! entresol-cli
