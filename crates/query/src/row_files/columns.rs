//! Columns that are found in a file by their names, first as they are, then without regard to case, with types that can
//! be assigned to those that are wanted.

use crate::dml::assignment;
use crate::error::{Error, Result};
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use entresol_tables::Column;
use std::path::Path;

/// Maximum names of columns in a message.
const NAMES_MAX: usize = 20;

/// Relation that has columns of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileColumns<'c> {
    /// Its kind and name.
    pub(crate) relation: &'c str,
    pub(crate) columns: &'c [Column],
    /// Proposal for files without one of them.
    pub(crate) proposal: &'c str,
}

impl FileColumns<'_> {
    /// Position of each column in a file; an error if one is not there, or if its values cannot be assigned.
    pub(crate) fn positions(&self, path: &Path, schema: &ArrowSchema) -> Result<Vec<usize>> {
        self.columns.iter().map(|column| self.position(path, schema, column)).collect()
    }

    fn position(&self, path: &Path, schema: &ArrowSchema, column: &Column) -> Result<usize> {
        let (file, FileColumns { relation, proposal, .. }) = (path.display(), self);
        let name = &column.name;
        let found = position(schema, name).ok_or_else(|| {
            let names = names(schema.fields().iter().map(|field| field.name().as_str()));
            let message = format!(
                "file \"{file}\" has no column \"{name}\" for {relation}: it has {names}; {proposal}"
            );
            Error::coded("22P04", message)
        })?;
        let found_type = schema.field(found).data_type();
        assignment::check(relation, column, found_type).map_err(|_| {
            let wanted = column.declared_type();
            let message = format!(
                "column \"{name}\" of {relation} is of type {wanted}, but of type {found_type} in file \"{file}\""
            );
            Error::coded("42804", message)
        })?;
        Ok(found)
    }
}

/// Position of a column by its name, or by it without regard to case if that is one column.
fn position(schema: &ArrowSchema, name: &str) -> Option<usize> {
    let fields = schema.fields();
    fields.iter().position(|field| field.name() == name).or_else(|| {
        let mut similar = (0..fields.len()).filter(|&at| fields[at].name().eq_ignore_ascii_case(name));
        similar.next().filter(|_| similar.next().is_none())
    })
}

/// Names of columns for a message.
pub(crate) fn names<'n>(mut names: impl Iterator<Item = &'n str>) -> String {
    let mut shown: Vec<&str> = names.by_ref().take(NAMES_MAX).collect();
    if names.next().is_some() {
        shown.push("...");
    }
    shown.join(", ")
}
