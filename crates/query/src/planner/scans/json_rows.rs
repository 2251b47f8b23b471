//! Rows of tables as JSON objects. A value of a column of JSON is a part of its object, with all of its digits.

use crate::postgres::types::{modifier_of, with_modifier};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::writer::LineDelimited;
use datafusion::arrow::json::writer::NullableEncoder;
use datafusion::arrow::json::{Encoder, EncoderFactory, EncoderOptions, WriterBuilder};
use datafusion::common::Result as DFResult;
use entresol_tables::Column;
use std::sync::Arc;

/// Object of each row, of these columns.
pub(super) fn json_rows(rows: &RecordBatch, columns: &[Column]) -> DFResult<ArrayRef> {
    let schema = rows.schema();
    let fields = schema.fields().iter().zip(columns);
    let fields = fields.map(|(field, column)| with_modifier(field.as_ref().clone(), column.modifier));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let rows = RecordBatch::try_new(Arc::new(schema), rows.columns().to_vec())?;
    let mut lines = Vec::new();
    let mut writer = WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(JsonColumns))
        .build::<_, LineDelimited>(&mut lines);
    writer.write(&rows)?;
    writer.finish()?;
    drop(writer);
    let objects = String::from_utf8_lossy(&lines);
    Ok(Arc::new(StringArray::from(objects.lines().collect::<Vec<&str>>())))
}

/// Factory of the encoders of columns of JSON.
#[derive(Debug)]
struct JsonColumns;

impl EncoderFactory for JsonColumns {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _options: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let documents = array.as_string_opt::<i32>().filter(|_| modifier_of(field).is_json());
        let encoder =
            |documents| NullableEncoder::new(Box::new(Documents(documents)), array.nulls().cloned());
        Ok(documents.map(encoder))
    }
}

/// Encoder of documents of JSON. They lose their line breaks, which they can have between their parts only.
struct Documents<'a>(&'a StringArray);

impl Encoder for Documents<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        out.extend(self.0.value(row).bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
    }
}
