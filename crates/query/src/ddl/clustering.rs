//! Options of a table with the layout `clustered`: its dimensions, and how its blocks are made.
//!
//! `cluster_by = (a 6, b)` comes here as a string, since it is no expression ([`crate::parser::rewriting`]); a string
//! may also be written. A number is the bits of the dimension; without one they are chosen from the rows.
//!
//! ALTER TABLE takes the same options: `SET (layout = 'clustered', cluster_by = ...)`, and any of them for a table that is
//! clustered, whose blocks are written anew then.

use crate::error::{Error, Result};
use crate::parser::text::tokens::{BEGINNING, tokenize};
use datafusion::sql::sqlparser::tokenizer::Token;
use entresol_memory::budget::MemorySize;
use entresol_tables::{
    ClusteringDefinition, Dimension, Error as TableError, Interleave, Schema, SplitPolicy, TableLayout,
};

/// Clustering options in a statement, by their names in it.
#[derive(Debug, Default)]
pub(crate) struct DeclaredClustering {
    cluster_by: Option<String>,
    interleave: Option<Interleave>,
    split: Option<SplitPolicy>,
    block_bytes: Option<u32>,
}

fn invalid(name: &str, text: &str, wanted: &str) -> Error {
    Error::coded("22023", format!("invalid value for parameter \"{name}\": \"{text}\"; {wanted}"))
}

impl DeclaredClustering {
    /// Takes an option; none if it is not one of clustering, true if it was given before.
    pub(crate) fn take(&mut self, name: &str, text: &str) -> Result<Option<bool>> {
        Ok(Some(match name {
            "cluster_by" => self.cluster_by.replace(text.to_owned()).is_some(),
            "interleave" => {
                let known = Interleave::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(text));
                let known = known.ok_or_else(|| invalid(name, text, "round-robin or major-minor"))?;
                self.interleave.replace(known).is_some()
            }
            "split" => {
                let known =
                    SplitPolicy::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(text));
                let known = known.ok_or_else(|| invalid(name, text, "histogram, mean or middle"))?;
                self.split.replace(known).is_some()
            }
            "block_bytes" => {
                let bytes = match text.parse() {
                    Ok(MemorySize::Bytes(bytes)) => u32::try_from(bytes).ok(),
                    _ => None,
                };
                let bytes = bytes.ok_or_else(|| invalid(name, text, "a number of bytes, as '32 KB'"))?;
                self.block_bytes.replace(bytes).is_some()
            }
            _ => return Ok(None),
        }))
    }

    /// Name of one of its options that the statement gives.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            (self.cluster_by.is_some(), "cluster_by"),
            (self.interleave.is_some(), "interleave"),
            (self.split.is_some(), "split"),
            (self.block_bytes.is_some(), "block_bytes"),
        ];
        given.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Clustering of a new table of a layout, which perhaps follows the workload.
    pub(crate) fn definition(
        &self,
        table: &str,
        schema: &Schema,
        (layout, is_auto): (TableLayout, bool),
    ) -> Result<Option<ClusteringDefinition>> {
        match self.given() {
            None if layout != TableLayout::Clustered => Ok(None),
            Some(name) if layout != TableLayout::Clustered && !is_auto => {
                let message = format!("parameter \"{name}\" is for tables of layout 'clustered' or 'auto'");
                Err(Error::coded("22023", format!("{message}, not '{}'", layout.name())))
            }
            _ => self.changed(table, schema, None).map(Some),
        }
    }

    /// Clustering that a table has with these options; what they do not name stays.
    pub(crate) fn changed(
        &self,
        table: &str,
        schema: &Schema,
        before: Option<&ClusteringDefinition>,
    ) -> Result<ClusteringDefinition> {
        let declared = |text: &str| dimensions((table, schema), ("cluster_by", text, "column [bits], ..."));
        let mut clustering = match (&self.cluster_by, before) {
            (Some(cluster_by), Some(before)) => {
                ClusteringDefinition { dimensions: declared(cluster_by)?, ..before.clone() }
            }
            (Some(cluster_by), None) => ClusteringDefinition::new(declared(cluster_by)?),
            (None, Some(before)) => before.clone(),
            (None, None) => {
                let message = "layout 'clustered' needs cluster_by = (column [bits], ...)";
                return Err(Error::coded("22023", format!("table {table}: {message}")));
            }
        };
        clustering.interleave = self.interleave.unwrap_or(clustering.interleave);
        clustering.split = self.split.unwrap_or(clustering.split);
        clustering.block_bytes = self.block_bytes.unwrap_or(clustering.block_bytes);
        Ok(clustering)
    }
}

/// Dimensions of `column [bits], ...`, the value of a parameter.
pub(super) fn dimensions(
    (table, schema): (&str, &Schema),
    (parameter, text, wanted): (&str, &str, &str),
) -> Result<Vec<Dimension>> {
    let tokens = tokenize(text, BEGINNING)?;
    let tokens: Vec<Token> = tokens.into_iter().map(|token| token.token).collect();
    let wrong = || invalid(parameter, text, wanted);
    let dimension = |words: &[Token]| {
        let (name, bits) = match words {
            [Token::Word(name)] => (name, None),
            [Token::Word(name), Token::Number(bits, _)] => (name, Some(bits)),
            _ => return Err(wrong()),
        };
        let name = if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() };
        let columns = schema.visible_columns();
        let column = columns.iter().position(|column| column.name == name);
        let column = column
            .ok_or_else(|| TableError::NoSuchColumn { table: table.to_owned(), column: name.clone() })?;
        let bits = bits.map(|bits| bits.parse().map_err(|_| wrong())).transpose()?;
        Ok(Dimension { column, bits })
    };
    tokens.split(|token| *token == Token::Comma).map(dimension).collect()
}
