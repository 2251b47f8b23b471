//! entresol-streams
