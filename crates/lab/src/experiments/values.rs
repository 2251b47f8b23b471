//! Values that experiments read by SQL.

use crate::Error;
use entresol::Session;
use entresol::arrow::util::display::array_value_to_string;

/// Value of a query of one.
pub(super) fn one(session: &mut Session, sql: &str) -> Result<String, Error> {
    let batches = session.query(sql)?;
    let batch = batches.iter().find(|batch| batch.num_rows() > 0);
    let batch = batch.ok_or_else(|| Error::Invalid(format!("{sql}: no row")))?;
    array_value_to_string(batch.column(0), 0).map_err(|error| Error::Invalid(error.to_string()))
}
