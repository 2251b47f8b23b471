//! Options of a table with the layout `elf`: the dimensions that the Elf of each row group holds, and what of it is
//! cached.
//!
//! `elf_by = (a, b)` comes here as a string ([`crate::parser::rewriting`]). Without it each row group has the columns
//! whose values repeat. `cache` and its kin are those of CREATE INDEX ... USING elf ([`crate::ddl::elf`]).
//!
//! ALTER TABLE takes the same options: with other dimensions row groups are written anew.

use crate::ddl::clustering::dimensions;
use crate::ddl::elf::Parameters;
use crate::error::{Error, Result};
use entresol_tables::{ElfCaching, ElfLayout, Schema, TableLayout};

/// Name of the option for the dimensions.
const ELF_BY: &str = "elf_by";
/// Options for what is cached.
const CACHING: [&str; 4] =
    [ElfCaching::CACHE, ElfCaching::POLICY, ElfCaching::PERCENT, ElfCaching::MONO_LISTS];

/// Options of the layout `elf` in a statement.
#[derive(Debug, Default)]
pub(crate) struct DeclaredElf {
    elf_by: Option<String>,
    caching: Parameters,
    /// First option for what is cached.
    caching_given: Option<&'static str>,
}

impl DeclaredElf {
    /// Takes an option; none if it is not one of the layout, true if it was given before.
    pub(crate) fn take(&mut self, name: &str, text: &str) -> Result<Option<bool>> {
        if name == ELF_BY {
            return Ok(Some(self.elf_by.replace(text.to_owned()).is_some()));
        }
        let Some(known) = CACHING.into_iter().find(|known| *known == name) else { return Ok(None) };
        self.caching_given.get_or_insert(known);
        self.caching.set(name, text).map(Some)
    }

    /// Name of one of its options that the statement gives.
    pub(crate) fn given(&self) -> Option<&'static str> {
        self.elf_by.is_some().then_some(ELF_BY).or(self.caching_given)
    }

    /// Elf of a new table of a layout, which perhaps follows the workload.
    pub(crate) fn definition(
        &self,
        table: &str,
        schema: &Schema,
        of: (TableLayout, bool),
    ) -> Result<ElfLayout> {
        self.changed(table, schema, of, &ElfLayout::default()).map(Option::unwrap_or_default)
    }

    /// Elf that a table has with these options in a layout, which perhaps follows the workload; what they do not name
    /// stays. None if they name nothing.
    pub(crate) fn changed(
        &self,
        table: &str,
        schema: &Schema,
        (layout, is_auto): (TableLayout, bool),
        before: &ElfLayout,
    ) -> Result<Option<ElfLayout>> {
        let Some(name) = self.given() else { return Ok(None) };
        if layout != TableLayout::Elf || is_auto {
            let layout = if is_auto { "auto" } else { layout.name() };
            let message = format!("parameter \"{name}\" is for tables of layout 'elf', not '{layout}'");
            return Err(Error::coded("22023", message));
        }
        let mut changed = before.clone();
        if let Some(text) = &self.elf_by {
            let columns = dimensions((table, schema), (ELF_BY, text, "column, ..."))?;
            if columns.iter().any(|column| column.bits.is_some()) {
                let message = format!("invalid value for parameter \"{ELF_BY}\": \"{text}\"; column, ...");
                return Err(Error::coded("22023", message));
            }
            changed.dimensions = columns.into_iter().map(|dimension| dimension.column).collect();
        }
        if self.caching_given.is_some() {
            changed.caching = self.caching.caching()?;
        }
        Ok(Some(changed))
    }
}
