//! entresol-query
