//! Queries behind INSERT, UPDATE and DELETE: DataFusion computes the rows to write, from the statement's
//! syntax tree. That of MERGE, of UPDATE ... FROM and of DELETE ... USING is in [`crate::dml::merge`].
//!
//! | statement | query | columns |
//! | --- | --- | --- |
//! | INSERT | its VALUES or SELECT | one per target column |
//! | UPDATE t SET v = e WHERE c | SELECT k, …, e FROM keyed t WHERE c | keys and unassigned columns, then new values |
//! | UPDATE t SET (v, w) = (SELECT …) | see [`crate::dml::row_assignments`] | the same |
//! | DELETE FROM t WHERE c | SELECT k FROM keyed t WHERE c | keys |
//!
//! "keyed t" is the table with its hidden key as a column ([`crate::planner::schemas`]). Nothing is written
//! here.

use crate::dml::defaults;
use crate::dml::row_assignments;
use crate::error::{Error, Result};
use crate::parser::joined_changes::{refuse_in_delete, refuse_in_update};
use crate::parser::names::{column_name, from_tables, identifier, refuse, single_table, table_name};
use crate::parser::statement::template;
use crate::planner::parameters::{sql_type, typed_string};
use crate::postgres::time_zones::UTC;
use crate::schema_names::{CATALOG, KEYED_SCHEMA};
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, Ident, Insert, ObjectName, Query, Select, SelectItem,
    SetExpr, TableAlias, TableFactor, TableObject, Update, Value as Literal,
};
use entresol_tables::{Catalog, DataType, RelationKind, Table, arrow_type};
use std::sync::Arc;

/// Source of an INSERT's rows.
#[derive(Debug)]
pub(crate) struct InsertSource {
    pub(crate) table: Arc<Table>,
    /// Target columns of the query's columns. If the statement has no list, the query may have fewer.
    pub(crate) targets: Vec<usize>,
    /// True if the statement lists its columns.
    pub(crate) listed: bool,
    /// `None` for DEFAULT VALUES: one row of defaults.
    pub(crate) query: Option<Box<Query>>,
    /// Alias of the table in the statement.
    pub(crate) name: String,
}

/// Source of the rows of an UPDATE, or of a DELETE if nothing is `assigned`.
#[derive(Debug)]
pub(crate) struct ChangeSource {
    pub(crate) table: Arc<Table>,
    /// Table columns of the query's first columns.
    pub(crate) old: Vec<usize>,
    /// Target columns of its last columns.
    pub(crate) assigned: Vec<usize>,
    pub(crate) query: Box<Query>,
    /// Alias of the table in the statement.
    pub(crate) name: String,
}

/// Table of an INSERT.
pub(crate) fn inserted_table(catalog: &Catalog, insert: &Insert) -> Result<Arc<Table>> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(Error::unsupported(format!("INSERT INTO {}", insert.table)));
    };
    written(catalog, "insert into", &table_name(name)?)
}

/// Table that a statement writes.
pub(crate) fn written(catalog: &Catalog, verb: &str, name: &str) -> Result<Arc<Table>> {
    let table = catalog.table(name);
    let table = table.map_err(|error| not_written(catalog, verb, name).unwrap_or_else(|| error.into()))?;
    let Some(owner) = &table.definition().owner else { return Ok(table) };
    let of = match entresol_streams::target_owner(&table) {
        Some(topology) => format!("it belongs to topology {topology}"),
        None => format!("it is state of {owner}"),
    };
    Err(Error::coded("55000", format!("cannot {verb} table \"{name}\": {of}, which alone writes it")))
}

/// Source of an INSERT.
pub(crate) fn insert(catalog: &Catalog, insert: &Insert) -> Result<InsertSource> {
    refuse(
        "INSERT",
        &[
            (insert.or.is_some() || insert.replace_into, "OR REPLACE"),
            (insert.ignore, "IGNORE"),
            (insert.overwrite, "OVERWRITE"),
            (insert.output.is_some(), "OUTPUT"),
            (insert.partitioned.is_some(), "PARTITION"),
            (!insert.assignments.is_empty(), "SET"),
            (insert.settings.is_some() || insert.format_clause.is_some(), "SETTINGS"),
            (insert.multi_table_insert_type.is_some(), "several tables"),
        ],
    )?;
    let table = inserted_table(catalog, insert)?;
    let listed = !insert.columns.is_empty();
    let targets = if listed {
        column_indexes(&table, insert.columns.iter())?
    } else {
        (0..table.schema().visible_columns().len()).collect()
    };
    let alias = insert.table_alias.as_ref().map(|alias| identifier(&alias.alias));
    let name = alias.unwrap_or_else(|| table.name().to_owned());
    let mut query = insert.source.clone();
    if let Some(query) = &mut query {
        type_texts(query, &table, &targets);
    }
    Ok(InsertSource { table, targets, listed, query, name })
}

/// Types the string literals of VALUES for dates and times where other rows have values that are not
/// literals: DataFusion requires one type for all rows.
fn type_texts(query: &mut Query, table: &Table, targets: &[usize]) {
    let SetExpr::Values(values) = query.body.as_mut() else { return };
    let is_text = |expr: &Expr| matches!(expr, Expr::Value(value) if matches!(value.value, Literal::SingleQuotedString(_)));
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(value) if value.value == Literal::Null);
    for (at, &target) in targets.iter().enumerate() {
        let data_type = table.schema().columns()[target].data_type;
        let cells = values.rows.iter().filter_map(|row| row.get(at));
        let mixed = cells.clone().any(is_text) && !cells.clone().all(|cell| is_text(cell) || is_null(cell));
        let is_time = matches!(
            data_type,
            DataType::Date | DataType::Timestamp | DataType::TimestampTz | DataType::Interval
        );
        if !mixed || !is_time {
            continue;
        }
        let Some(sql_type) = sql_type(&arrow_type(data_type, UTC)) else { continue };
        for cell in values.rows.iter_mut().filter_map(|row| row.get_mut(at)).filter(|cell| is_text(cell)) {
            if let Expr::Value(value) = cell
                && let Literal::SingleQuotedString(text) = &value.value
            {
                *cell = typed_string(sql_type.clone(), text.clone());
            }
        }
    }
}

/// Source of an UPDATE.
pub(crate) fn update(catalog: &Catalog, update: &Update) -> Result<ChangeSource> {
    refuse_in_update(update)?;
    let (name, alias) = single_table("UPDATE", std::slice::from_ref(&update.table))?;
    let table = written(catalog, "update", &name)?;
    let assignments = row_assignments::by_column(&update.assignments);
    let assigned = column_indexes(&table, assignments.iter().map(|assigned| assigned.column))?;
    let schema = table.schema();
    let old: Vec<usize> = (0..schema.columns().len())
        .filter(|column| schema.key().contains(column) || !assigned.contains(column))
        .collect();
    let plain = assignments.iter().zip(&assigned).filter(|(assigned, _)| assigned.field.is_none());
    let values: Result<Vec<Expr>> =
        plain.map(|(assigned, &column)| assigned_value(&table, column, assigned.value)).collect();
    let rows = row_assignments::row_queries(&update.assignments)?;
    let has_rows = !rows.is_empty();
    let mut values = values?;
    values.extend(rows);
    let mut query = keyed_query(&table, alias, &old, values.into_iter(), update.selection.clone())?;
    if has_rows {
        query = Box::new(row_assignments::with_fields(*query, old.len(), &assignments)?);
    }
    let name = alias.map_or_else(|| table.name().to_owned(), identifier);
    Ok(ChangeSource { table, old, assigned, query, name })
}

/// Columns on the left of assignments.
pub(crate) fn assigned_columns(table: &Table, assignments: &[Assignment]) -> Result<Vec<usize>> {
    let names: Result<Vec<&ObjectName>> = assignments.iter().map(assigned_name).collect();
    column_indexes(table, names?.into_iter())
}

/// Source of a DELETE: the keys; all columns if it returns some.
pub(crate) fn delete(catalog: &Catalog, delete: &Delete) -> Result<ChangeSource> {
    refuse_in_delete(delete)?;
    let (name, alias) = single_table("DELETE", from_tables(&delete.from))?;
    let table = written(catalog, "delete from", &name)?;
    let old = match delete.returning {
        None => table.schema().key().to_vec(),
        Some(_) => (0..table.schema().columns().len()).collect(),
    };
    let query = keyed_query(&table, alias, &old, std::iter::empty(), delete.selection.clone())?;
    let name = alias.map_or_else(|| table.name().to_owned(), identifier);
    Ok(ChangeSource { table, old, assigned: Vec::new(), query, name })
}

fn assigned_name(assignment: &Assignment) -> Result<&ObjectName> {
    match &assignment.target {
        AssignmentTarget::ColumnName(name) => Ok(name),
        AssignmentTarget::Tuple(_) => Err(Error::unsupported(format!(
            "SET {} = (SELECT …) but in an UPDATE of one table: assign a subquery to each column, or join in FROM",
            assignment.target
        ))),
    }
}

/// Value assigned to a column: its default for DEFAULT.
pub(crate) fn assigned_value(table: &Table, column: usize, value: &Expr) -> Result<Expr> {
    match value {
        Expr::Identifier(ident) if is_default(ident) => defaults::spelled_out(table.definition(), column),
        other => Ok(other.clone()),
    }
}

pub(crate) fn is_default(ident: &Ident) -> bool {
    ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default")
}

/// Positions of the visible columns that COPY lists.
pub(crate) fn columns_named(table: &Table, names: &[Ident]) -> Result<Vec<usize>> {
    let names: Vec<ObjectName> = names.iter().map(|name| ObjectName::from(vec![name.clone()])).collect();
    column_indexes(table, names.iter())
}

/// Positions of the visible columns of these names, each named once.
pub(crate) fn column_indexes<'n>(
    table: &Table,
    names: impl Iterator<Item = &'n ObjectName>,
) -> Result<Vec<usize>> {
    let visible = table.schema().visible_columns();
    let mut indexes = Vec::new();
    for name in names {
        let name = column_name(name)?;
        let index = visible.iter().position(|column| column.name == name);
        let index = index.ok_or_else(|| entresol_tables::Error::NoSuchColumn {
            table: table.name().to_owned(),
            column: name.clone(),
        })?;
        if indexes.contains(&index) {
            return Err(Error::coded(
                "42701",
                format!("table {}: column {name} specified more than once", table.name()),
            ));
        }
        indexes.push(index);
    }
    Ok(indexes)
}

/// `SELECT old…, values… FROM keyed table AS alias WHERE selection`.
fn keyed_query(
    table: &Table,
    alias: Option<&Ident>,
    old: &[usize],
    values: impl Iterator<Item = Expr>,
    selection: Option<Expr>,
) -> Result<Box<Query>> {
    let alias = alias.cloned().unwrap_or_else(|| quoted(table.name()));
    let columns = table.schema().columns();
    let old = old
        .iter()
        .map(|&column| Expr::CompoundIdentifier(vec![alias.clone(), quoted(&columns[column].name)]));
    let projection = old.chain(values).enumerate().map(|(at, expr)| SelectItem::ExprWithAlias {
        expr,
        // Distinct names for all expressions.
        alias: quoted(&format!("value{at}")),
    });
    let projection: Vec<SelectItem> = projection.collect();
    let mut query = template()?;
    let select = template_select(&mut query)?;
    select.projection = projection;
    select.selection = selection;
    let Some(from) = select.from.first_mut() else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    name_relation(&mut from.relation, [CATALOG, KEYED_SCHEMA, table.name()], alias)?;
    Ok(Box::new(query))
}

/// Replaces the relation of a template, and its alias.
pub(crate) fn name_relation(relation: &mut TableFactor, path: [&str; 3], called: Ident) -> Result<()> {
    let TableFactor::Table { name, alias, .. } = relation else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    *name = ObjectName::from(path.map(quoted).to_vec());
    *alias = Some(TableAlias { explicit: true, name: called, columns: Vec::new(), at: None });
    Ok(())
}

/// SELECT of a template.
pub(crate) fn template_select(query: &mut Query) -> Result<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        other => Err(Error::Internal(format!("the query template is {other}"))),
    }
}

/// Quoted identifier, taken without folding.
pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// Error of a write to a relation that is no table: `cannot insert into view "v"`.
fn not_written(catalog: &entresol_tables::Catalog, verb: &str, name: &str) -> Option<Error> {
    match catalog.relation_kind(name)? {
        RelationKind::View => {
            Some(Error::coded("55000", format!("cannot {verb} view \"{name}\": views are read only")))
        }
        RelationKind::Sequence => Some(Error::coded("42809", format!("cannot change sequence \"{name}\""))),
        _ => None,
    }
}
