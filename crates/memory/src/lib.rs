//! entresol-memory
