//! entresol-transactions
