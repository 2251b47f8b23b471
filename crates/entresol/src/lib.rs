//! entresol
