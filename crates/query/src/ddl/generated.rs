//! Columns whose values come from a sequence of their own: SERIAL, and GENERATED … AS IDENTITY.
//!
//! - Both are a column that is NOT NULL, a sequence `table_column_seq` that goes with it, and the default
//!   `nextval('table_column_seq')`. An identity column is one whose sequence says so.
//! - GENERATED ALWAYS refuses values in INSERT and UPDATE, but not in COPY, as in PostgreSQL: dumps are read
//!   that way.
//! - The columns with a sequence are found by their defaults: a name in `nextval('…')`.

use crate::ddl::sequences::declared;
use crate::error::{Error, Result};
use crate::parser::own::sequence::SequenceOptions;
use crate::parser::sequence_calls::{relation_name, sequences_in};
use crate::parser::stored_expressions::stored_expression;
use datafusion::sql::sqlparser::ast::{ColumnOption, DataType as SqlType, Expr, GeneratedAs};
use entresol_tables::{Catalog, DataType, Identity, NewSequence, SequenceType, Table};
use std::sync::Arc;

/// Generation of a column's values by a sequence.
#[derive(Debug, Clone)]
pub(crate) struct GeneratedColumn {
    pub(crate) identity: Option<Identity>,
    options: SequenceOptions,
    /// The type of the sequence of a SERIAL; an identity column's is that of the column.
    serial: Option<SequenceType>,
}

/// The type of the column and of the sequence that SERIAL and its siblings stand for.
pub(crate) fn serial(declared: &SqlType) -> Option<(DataType, GeneratedColumn)> {
    let SqlType::Custom(name, modifiers) = declared else { return None };
    if !modifiers.is_empty() {
        return None;
    }
    let (column, sequence) = match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => (DataType::Int, SequenceType::Int),
        "bigserial" | "serial8" => (DataType::BigInt, SequenceType::BigInt),
        "smallserial" | "serial2" => (DataType::SmallInt, SequenceType::SmallInt),
        _ => return None,
    };
    Some((
        column,
        GeneratedColumn { identity: None, options: SequenceOptions::default(), serial: Some(sequence) },
    ))
}

/// Reads GENERATED … AS IDENTITY; `None` if the option is another.
pub(crate) fn identity_option(option: &ColumnOption) -> Option<Result<GeneratedColumn>> {
    let ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } = option else {
        return None;
    };
    let identity = match generated_as {
        GeneratedAs::Always => Identity::Always,
        GeneratedAs::ByDefault => Identity::ByDefault,
        GeneratedAs::ExpStored => return None,
    };
    let options = SequenceOptions::of_parsed(sequence_options.as_deref().unwrap_or_default());
    Some(options.map(|options| GeneratedColumn { identity: Some(identity), options, serial: None }))
}

impl GeneratedColumn {
    /// Sequence of a column and its default; the name is unused.
    pub(crate) fn sequence(
        &self,
        catalog: &Catalog,
        table: &str,
        (place, name, data_type): (usize, &str, DataType),
        taken: &[NewSequence],
    ) -> Result<(NewSequence, String)> {
        let of_column = match data_type {
            DataType::SmallInt => Some(SequenceType::SmallInt),
            DataType::Int => Some(SequenceType::Int),
            DataType::BigInt => Some(SequenceType::BigInt),
            _ => None,
        };
        let sequence_type = self.serial.or(of_column).ok_or_else(|| {
            Error::coded("22023", "identity column type must be smallint, integer, or bigint")
        })?;
        let base = format!("{table}_{name}_seq");
        let is_taken = |name: &str| {
            name == table || catalog.relation_kind(name).is_some() || taken.iter().any(|new| new.name == name)
        };
        let name = crate::ddl::table_definition::free_name(&base, is_taken);
        let default = nextval_of(&name);
        let definition = declared(&self.options, sequence_type)?;
        Ok((NewSequence { name, definition, column: place, identity: self.identity }, default))
    }
}

/// The default of a column with a sequence.
fn nextval_of(sequence: &str) -> String {
    let plain = relation_name(sequence).is_ok_and(|name| name == sequence);
    let quoted = if plain { sequence.to_owned() } else { format!("\"{}\"", sequence.replace('"', "\"\"")) };
    format!("nextval('{}')", quoted.replace('\'', "''"))
}

/// Refuses an expression that names a sequence which is not there.
pub(crate) fn check_sequences(catalog: &Catalog, expr: &Expr) -> Result<()> {
    sequences_in(expr).iter().try_for_each(|name| catalog.sequence(name).map(drop))?;
    Ok(())
}

/// The columns with a sequence.
pub(crate) fn columns_using_sequence(catalog: &Catalog, sequence: &str) -> Result<Vec<(Arc<Table>, usize)>> {
    let mut found = Vec::new();
    for table in catalog.tables() {
        for (column, default) in table.definition().defaults.iter().enumerate() {
            let Some(default) = default.as_ref().filter(|default| default.contains('(')) else { continue };
            if sequences_in(&stored_expression(default)?).iter().any(|name| name == sequence) {
                found.push((Arc::clone(&table), column));
            }
        }
    }
    Ok(found)
}
