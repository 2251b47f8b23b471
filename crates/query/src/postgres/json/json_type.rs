//! The types JSON and JSONB.

use crate::error::{Error, external};
use crate::postgres::types::{modifier_of, with_modifier};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::DataFusionError;
use entresol_tables::Modifier;
use entresol_tables::json::JsonError;
use std::sync::Arc;

/// One of the two types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum JsonType {
    Json,
    Jsonb,
}

impl JsonType {
    /// Name of the type, and beginning of the names of its functions.
    pub(crate) fn name(self) -> &'static str {
        match self {
            JsonType::Json => "json",
            JsonType::Jsonb => "jsonb",
        }
    }

    fn of_modifier(modifier: Modifier) -> Option<JsonType> {
        match modifier {
            Modifier::Json => Some(JsonType::Json),
            Modifier::Jsonb => Some(JsonType::Jsonb),
            _ => None,
        }
    }

    pub(super) fn of_field(field: &Field) -> Option<JsonType> {
        JsonType::of_modifier(modifier_of(field))
    }

    /// Field of a result of the type.
    pub(super) fn field(self, name: &str) -> FieldRef {
        let modifier = match self {
            JsonType::Json => Modifier::Json,
            JsonType::Jsonb => Modifier::Jsonb,
        };
        Arc::new(with_modifier(Field::new(name, DataType::Utf8, true), modifier))
    }
}

/// Error of a value that is not JSON, or has not what a function asks for.
pub(super) fn failed(error: JsonError) -> DataFusionError {
    external(Error::coded(error.sqlstate(), error.to_string()))
}
