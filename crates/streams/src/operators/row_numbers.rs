//! Row numbers of tuples that replace rows of a table without a key.
//!
//! A number that all tuples have says which row a tuple replaces, or the columns of an index, of which one may be NULL:
//! NULL is a value like any other there. A tuple for which there is no row gets a new number, equal ones in a batch the same.
//!
//! Cost by an index: a look-up in it for each different tuple of a batch. Memory: the numbers of one batch.

use crate::error::{Error, Result};
use crate::operators::Context;
use crate::operators::written_rows::numbered_keys;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema as ArrowSchema};
use entresol_tables::{Index, ROWID_COLUMN, Row, Table, Value, rows_of};
use entresol_transactions::Transaction;
use std::ops::Bound;
use std::sync::Arc;

/// Row number of the only row of a table.
const ONLY_ROW: i64 = 1;

/// Identity of the row of a table that a tuple replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowIdentity {
    /// The key of the table.
    ByKey,
    /// Nothing: the table has one row.
    Only,
    /// The columns of this index.
    ByIndex(String),
}

impl RowIdentity {
    /// Rows of the visible columns of a table without a key, with the numbers of the rows that they replace; the same rows
    /// where the key says so.
    pub(crate) fn numbered(
        &self,
        context: &Context<'_>,
        (operator, table): (&str, &Arc<Table>),
        rows: RecordBatch,
    ) -> Result<RecordBatch> {
        let refused = |error: ArrowError| refusal(operator, error.to_string());
        let numbers: Vec<i64> = match self {
            RowIdentity::ByKey => return Ok(rows),
            RowIdentity::Only => vec![ONLY_ROW; rows.num_rows()],
            RowIdentity::ByIndex(index) => {
                let index = table.index(index);
                let index =
                    index.ok_or_else(|| refusal(operator, format!("{} has no index", table.name())))?;
                let columns = &index.definition().columns;
                let (keys, distinct) = numbered_keys(&rows, columns).map_err(refused)?;
                let transaction = context.transaction()?;
                let number = |wanted: Row| match number_of(transaction, table, index, wanted)? {
                    Some(number) => Ok(number),
                    None => Ok(table.new_row_number()?),
                };
                let of_keys = rows_of(&distinct)?.into_iter().map(number).collect::<Result<Vec<i64>>>()?;
                keys.into_iter().map(|key| of_keys[key as usize]).collect()
            }
        };
        let number = Field::new(ROWID_COLUMN, ArrowType::Int64, false);
        let fields = rows.schema().fields().iter().cloned().chain([Arc::new(number)]).collect::<Vec<_>>();
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        let arrays = rows.columns().iter().cloned().chain([numbers]).collect();
        RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), arrays).map_err(refused)
    }
}

/// Number of the row that has these values in the columns of an index, if there is one.
fn number_of(
    transaction: &Transaction,
    table: &Arc<Table>,
    index: &Arc<Index>,
    wanted: Row,
) -> Result<Option<i64>> {
    let of_row = table.schema().columns().len() - 1;
    let bounds = vec![(Bound::Included(wanted.clone()), Bound::Included(wanted))];
    let (mut cursor, mut number) = (table.index_scan(transaction, index, bounds)?, None);
    while number.is_none()
        && cursor.next_batch(transaction, 1, |row| {
            if let Value::BigInt(found) = row.value(of_row) {
                number = Some(found);
            }
        })?
    {}
    Ok(number)
}

fn refusal(operator: &str, reason: String) -> Error {
    Error::Tuple { operator: operator.to_owned(), reason }
}
