//! CREATE TABLE and DROP TABLE: from the statement to a table's schema.
//!
//! - Columns have a type, NULL, NOT NULL or PRIMARY KEY; a table has at most one PRIMARY KEY, on one or several
//!   columns. What would promise more than is kept (DEFAULT, UNIQUE, CHECK, REFERENCES, lengths) is refused.
//! - Definitions are durable when the statement returns; they cannot be part of a transaction.

use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, Expr, HiveDistributionStyle, IndexColumn,
    TableConstraint,
};
use entresol_tables::{Column, Schema};

use crate::error::{Error, Result};
use crate::statement::{identifier, refuse};
use crate::types::{column_type, declared_type};

/// The schema that a CREATE TABLE declares.
pub(crate) fn declared_schema(create: &CreateTable) -> Result<Schema> {
    check_clauses(create)?;
    let mut key = Vec::new();
    let mut columns = Vec::with_capacity(create.columns.len());
    for definition in &create.columns {
        let (column, in_key) = declared_column(definition)?;
        if in_key {
            add_key(&mut key, vec![column.name.clone()])?;
        }
        columns.push(column);
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(primary) => {
                let names: Result<Vec<String>> = primary.columns.iter().map(key_column).collect();
                add_key(&mut key, names?)?;
            }
            other => return Err(Error::unsupported(format!("constraint {other} in CREATE TABLE"))),
        }
    }
    Ok(Schema::new(columns, &key)?)
}

/// Checks a CREATE TABLE AS: its columns come from the query alone.
pub(crate) fn declared_schema_is_absent(create: &CreateTable) -> Result<()> {
    check_clauses(create)?;
    refuse("CREATE TABLE AS", &[(!create.constraints.is_empty(), "PRIMARY KEY")])
}

/// The schema of a table made by CREATE TABLE AS: the query's columns, nullable, without a key.
pub(crate) fn derived_schema(source: &ArrowSchema) -> Result<Schema> {
    let columns: Result<Vec<Column>> = source
        .fields()
        .iter()
        .map(|field| match column_type(field.data_type()) {
            Some(data_type) => Ok(Column::new(field.name(), data_type)),
            None => Err(Error::unsupported(format!(
                "type {} of column {} in CREATE TABLE AS: cast it",
                field.data_type(),
                field.name()
            ))),
        })
        .collect();
    Ok(Schema::new(columns?, &[] as &[&str])?)
}

fn check_clauses(create: &CreateTable) -> Result<()> {
    refuse(
        "CREATE TABLE",
        &[
            (create.or_replace, "OR REPLACE"),
            (create.temporary, "TEMPORARY"),
            (create.external, "EXTERNAL"),
            (create.like.is_some(), "LIKE"),
            (create.clone.is_some(), "CLONE"),
            (create.inherits.is_some(), "INHERITS"),
            (create.partition_by.is_some() || create.partition_of.is_some(), "PARTITION"),
            (create.on_commit.is_some(), "ON COMMIT"),
            (!matches!(create.table_options, CreateTableOptions::None), "WITH"),
            (!matches!(create.hive_distribution, HiveDistributionStyle::NONE), "PARTITIONED BY"),
            (create.query.is_some() && !create.columns.is_empty(), "a column list with AS SELECT"),
        ],
    )
}

fn declared_column(definition: &ColumnDef) -> Result<(Column, bool)> {
    let name = identifier(&definition.name);
    let mut column = Column::new(&name, declared_type(&name, &definition.data_type)?);
    let mut in_key = false;
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => column.nullable = true,
            ColumnOption::NotNull => column.nullable = false,
            ColumnOption::PrimaryKey(_) => in_key = true,
            other => return Err(Error::unsupported(format!("{other} of column {name}"))),
        }
    }
    Ok((column, in_key))
}

fn add_key(key: &mut Vec<String>, names: Vec<String>) -> Result<()> {
    if !key.is_empty() {
        return Err(Error::Invalid(
            "a table has one PRIMARY KEY; for several columns write PRIMARY KEY (a, b)".into(),
        ));
    }
    *key = names;
    Ok(())
}

fn key_column(column: &IndexColumn) -> Result<String> {
    match &column.column.expr {
        Expr::Identifier(ident) => Ok(identifier(ident)),
        other => Err(Error::Invalid(format!("{other} in PRIMARY KEY is not a column"))),
    }
}
