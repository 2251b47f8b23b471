//! Connector `table`: the logged changes of a table under a name of their own, with columns that are chosen and a watermark.
//!
//! A step may read `CHANGES(table)` without a source. That has no event time: which column it is, and how late it may be,
//! only a source declares.

use crate::error::{Error, Result};
use crate::parser::own::streaming::CreateSource;
use crate::streaming::options::StreamOptions;
use entresol_tables::{Catalog, Column, Error as TableError, Table, change_columns};
use std::sync::Arc;

/// Table whose logged changes a source has.
pub(crate) struct LoggedTable {
    pub(crate) table: Arc<Table>,
    /// Places of the source's columns among those of the changes.
    pub(crate) columns: Vec<usize>,
}

impl LoggedTable {
    /// Takes the option `table`, and gives the columns of the source what the changes say of them; without columns, the source
    /// has all. Errors: 42P01 without the table, 55000 without a log, 42703 and 42804 for columns that the changes do not have.
    pub(crate) fn new(
        catalog: &Catalog,
        create: &CreateSource,
        options: &mut StreamOptions,
        columns: &mut Vec<Column>,
    ) -> Result<LoggedTable> {
        if !create.included.is_empty() {
            return Err(Error::unsupported(
                "INCLUDE of a source with the connector \"table\": commit_cts says of which commit a row is",
            ));
        }
        let table = catalog.table(&options.require("table")?)?;
        if table.change_log()?.is_none() {
            return Err(TableError::NoChangeLog { table: table.name().to_owned() }.into());
        }
        let all = change_columns(table.schema().visible_columns());
        if columns.is_empty() {
            let places = (0..all.len()).collect();
            *columns = all;
            return Ok(LoggedTable { table, columns: places });
        }
        let places = columns.iter_mut().map(|column| {
            let place = all.iter().position(|change| change.name == column.name);
            let place = place.ok_or_else(|| {
                let message = format!(
                    "column \"{}\" of the changes of table \"{}\" does not exist",
                    column.name,
                    table.name()
                );
                Error::coded("42703", message)
            })?;
            let change = &all[place];
            if change.data_type != column.data_type || (change.nullable && !column.nullable) {
                let null = |nullable: bool| if nullable { "" } else { " NOT NULL" };
                let message = format!(
                    "column \"{}\" of the changes of table \"{}\" is {}{}, not {}{}",
                    column.name,
                    table.name(),
                    change.data_type,
                    null(change.nullable),
                    column.data_type,
                    null(column.nullable),
                );
                return Err(Error::coded("42804", message));
            }
            *column = change.clone();
            Ok(place)
        });
        let places = places.collect::<Result<Vec<usize>>>()?;
        Ok(LoggedTable { table, columns: places })
    }
}
