//! Column of a row group as it is stored, without a table: for measurements of its encoding.

use crate::batch::{ColumnArray, arrow_type};
use crate::columns::condition::ColumnCondition;
use crate::columns::page::{ColumnPage, encode_page};
use crate::columns::selection::{DictionaryMatches, RowSelection};
use crate::error::{Error, Result};
use crate::schema::Column;
use arrow_array::ArrayRef;

/// Values of a column as a page has them; see the [module](self).
#[derive(Debug)]
pub struct EncodedColumn {
    page: ColumnPage,
    column: Column,
    bytes: usize,
}

impl EncodedColumn {
    /// Encodes values of a column. Errors: their type is not that of the column.
    pub fn new(column: Column, values: &ArrayRef) -> Result<EncodedColumn> {
        let array = ColumnArray::new("values", &column, values)?;
        let encoded = encode_page(column.data_type, &[array]);
        let damaged = || Error::corrupt(format!("column {}", column.name), "its page was not encoded right");
        let page = ColumnPage::open(&encoded).ok_or_else(damaged)?;
        Ok(EncodedColumn { page, column, bytes: encoded.len() })
    }

    /// Bytes that it is stored in.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Name of the encoding of the first block.
    pub fn encoding(&self) -> &'static str {
        self.page.encoding(0)
    }

    /// Gives the values, block by block, to a function.
    pub fn decode(&self, mut with: impl FnMut(&ArrayRef)) {
        let arrow = arrow_type(self.column.data_type, "UTC");
        for block in 0..self.page.blocks().len() {
            with(&self.page.decode(block, None, self.column.data_type, &arrow));
        }
    }

    /// Number of the values that meet a condition.
    pub fn count(&self, condition: &ColumnCondition) -> usize {
        let (mut selection, sets) = (RowSelection::default(), DictionaryMatches::default());
        let mut count = 0;
        for (number, block) in self.page.blocks().iter().enumerate() {
            selection.select_all();
            selection.narrow(&self.page, number, condition, &sets);
            count += selection.len(block.rows);
        }
        count
    }
}
