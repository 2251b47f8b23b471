//! entresol-structures
