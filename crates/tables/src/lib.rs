//! entresol-tables
