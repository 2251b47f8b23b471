//! Views: named queries.
//!
//! This crate stores a view's query as a string; the query crate plans it when the view is used. The
//! relations that the query reads are stored as well, so that none of them is dropped while the view needs
//! it.
//!
//! The columns of these relations at the creation of the view are stored too: `SELECT *` means those,
//! whatever the relation gains later.

use crate::error::{Error, Result};
use crate::schema::definition::DEFINITION_BYTES_MAX;
use crate::schema::invalid;
use crate::schema::parts::{Reader, put_text};

/// View of the catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    name: String,
    definition: ViewDefinition,
}

/// Definition of a view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewDefinition {
    /// Query, as SQL.
    pub query: String,
    /// Names of its columns, all different.
    pub columns: Vec<String>,
    /// Tables, views and sequences that it reads directly, not through other views.
    pub reads: Vec<ViewRead>,
}

/// Relation that a view reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewRead {
    /// Name of the relation.
    pub relation: String,
    /// Columns of the relation when the view was created.
    pub columns: Vec<ReadColumn>,
}

/// Column of a relation that a view reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadColumn {
    /// Name of the column.
    pub name: String,
    /// True if the query uses it; if not, it can be dropped.
    pub used: bool,
}

impl View {
    pub(crate) fn new(name: String, definition: ViewDefinition) -> View {
        View { name, definition }
    }

    /// Name of the view.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Definition of the view.
    pub fn definition(&self) -> &ViewDefinition {
        &self.definition
    }
}

impl ViewDefinition {
    /// Read of a relation; `None` if the view does not read it.
    pub(crate) fn read_of(&self, relation: &str) -> Option<&ViewRead> {
        self.reads.iter().find(|read| read.relation == relation)
    }

    /// Encodes the definition for the catalog, little-endian; a string is its length (4) and its UTF-8:
    ///
    /// | bytes | what |
    /// | --- | --- |
    /// | text | the query |
    /// | 2, texts | its columns |
    /// | 2 | number of relations that it reads; of each: |
    /// | text | name |
    /// | 2 | number of columns; of each: text, 1 (1: used) |
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let count = |what: &str, count: usize| {
            let short = u16::try_from(count).map_err(|_| invalid(format!("a view with {count} {what}")))?;
            Ok::<_, Error>(short.to_le_bytes())
        };
        let mut bytes = Vec::with_capacity(self.query.len() + 64);
        put_text(&mut bytes, &self.query);
        bytes.extend_from_slice(&count("columns", self.columns.len())?);
        self.columns.iter().for_each(|column| put_text(&mut bytes, column));
        bytes.extend_from_slice(&count("relations", self.reads.len())?);
        for read in &self.reads {
            put_text(&mut bytes, &read.relation);
            bytes.extend_from_slice(&count("columns of a relation", read.columns.len())?);
            for column in &read.columns {
                put_text(&mut bytes, &column.name);
                bytes.push(u8::from(column.used));
            }
        }
        if bytes.len() > DEFINITION_BYTES_MAX {
            return Err(invalid(format!(
                "the definition takes {} bytes, at most {DEFINITION_BYTES_MAX} are possible",
                bytes.len()
            )));
        }
        Ok(bytes)
    }

    /// Decodes the bytes of [`ViewDefinition::to_bytes`]; `None` if they are malformed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<ViewDefinition> {
        let mut reader = Reader(bytes);
        let query = reader.text()?;
        let columns = (0..reader.short()?).map(|_| reader.text()).collect::<Option<Vec<_>>>()?;
        let mut reads = Vec::new();
        for _ in 0..reader.short()? {
            let relation = reader.text()?;
            let mut columns = Vec::new();
            for _ in 0..reader.short()? {
                columns.push(ReadColumn { name: reader.text()?, used: flag(reader.byte()?)? });
            }
            reads.push(ViewRead { relation, columns });
        }
        reader.0.is_empty().then_some(ViewDefinition { query, columns, reads })
    }
}

fn flag(byte: u8) -> Option<bool> {
    match byte {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> ViewDefinition {
        let column = |name: &str, used| ReadColumn { name: name.into(), used };
        let read = |relation: &str, columns| ViewRead { relation: relation.into(), columns };
        ViewDefinition {
            query: "SELECT a, b FROM t CROSS JOIN \"ü\"".into(),
            columns: vec!["a".into(), "b".into()],
            reads: vec![read("t", vec![column("a", true), column("c", false)]), read("ü", vec![])],
        }
    }

    #[test]
    fn a_definition_is_read_as_it_was_written() {
        let bytes = definition().to_bytes().unwrap();
        assert_eq!(ViewDefinition::from_bytes(&bytes), Some(definition()));
    }

    #[test]
    fn malformed_bytes_are_no_definition() {
        let bytes = definition().to_bytes().unwrap();
        for at in 0..bytes.len() {
            assert_eq!(ViewDefinition::from_bytes(&bytes[..at]), None);
        }
        assert_eq!(ViewDefinition::from_bytes(&[&bytes[..], &[0]].concat()), None);
    }
}
