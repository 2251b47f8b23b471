//! entresol-lab
