//! `UPDATE t SET (a, b) = (SELECT x, y …)`: several columns from the one row of a query.
//!
//! ```text
//! SELECT changed.k, …, get_field(changed.row, 'f0'), get_field(changed.row, 'f1')
//!     FROM (SELECT k, …, (SELECT named_struct('f0', x, 'f1', y) …) AS row FROM keyed t WHERE c) AS changed
//! ```
//!
//! The query is computed once for a row of the table, so that all of its columns are from one row. Without a row they are
//! NULL, and with several it is an error (21000), as that of any subquery. Rows that are written out are single assignments by
//! now ([`crate::parser::normal_forms`]).

use crate::error::{Error, Result};
use crate::parser::normal_forms::subquery;
use crate::parser::statement::template;
use crate::planner::translation::call;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Expr, GroupByExpr, Ident, ObjectName, Query, Select, SelectItem, SetExpr,
    TableAlias, TableAliasColumnDef, TableFactor, Value as Literal,
};

/// Alias of the rows that such an UPDATE changes.
pub(crate) const CHANGED: &str = "\u{1}changed";

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn select_of(query: &mut Query) -> Result<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Ok(select),
        other => Err(Error::Internal(format!("the query template is {other}"))),
    }
}

/// Assignment to one column.
pub(crate) struct ColumnAssignment<'s> {
    pub(crate) column: &'s ObjectName,
    /// Value, or the query that has it in its row.
    pub(crate) value: &'s Expr,
    /// Place of the query among those of the statement, and place in its row, for a field of one.
    pub(crate) field: Option<(usize, usize)>,
}

/// Assignments of a statement, column by column.
pub(crate) fn by_column(assignments: &[Assignment]) -> Vec<ColumnAssignment<'_>> {
    let (mut found, mut queries) = (Vec::with_capacity(assignments.len()), 0);
    for Assignment { target, value } in assignments {
        match target {
            AssignmentTarget::ColumnName(column) => {
                found.push(ColumnAssignment { column, value, field: None })
            }
            AssignmentTarget::Tuple(columns) => {
                let fields = columns.iter().enumerate();
                found.extend(fields.map(|(at, column)| {
                    let field = Some((queries, at));
                    ColumnAssignment { column, value, field }
                }));
                queries += 1;
            }
        }
    }
    found
}

/// Queries of rows that a statement assigns, in the order of their numbers: each gives a structure.
pub(crate) fn row_queries(assignments: &[Assignment]) -> Result<Vec<Expr>> {
    let mut queries = Vec::new();
    for Assignment { target, value } in assignments {
        if let AssignmentTarget::Tuple(columns) = target {
            let query =
                subquery(value).ok_or_else(|| Error::unsupported(format!("SET {target} = {value}")))?;
            queries.push(Expr::Subquery(Box::new(structure_of(query, columns.len())?)));
        }
    }
    Ok(queries)
}

/// Query of one column, a structure of the columns of another.
fn structure_of(query: &Query, columns: usize) -> Result<Query> {
    let mut of_row = query.clone();
    if let Some(items) = plain_items(&of_row) {
        if items.len() != columns {
            return Err(Error::coded("42601", "number of columns does not match number of values"));
        }
        let fields = structure(items.into_iter());
        if let SetExpr::Select(select) = of_row.body.as_mut() {
            select.projection = vec![fields];
            return Ok(of_row);
        }
    }
    let mut outer = template()?;
    let select = select_of(&mut outer)?;
    let column = |at: usize| quoted(&field_name(at));
    let fields = (0..columns).map(|at| Expr::CompoundIdentifier(vec![quoted(CHANGED), column(at)]));
    select.projection = vec![structure(fields)];
    let names = (0..columns).map(|at| TableAliasColumnDef { name: column(at), data_type: None });
    let alias = TableAlias { explicit: true, name: quoted(CHANGED), columns: names.collect(), at: None };
    derived_from(select, of_row, alias)?;
    Ok(outer)
}

/// Expressions of a SELECT list whose rows depend on nothing else in it.
fn plain_items(query: &Query) -> Option<Vec<Expr>> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    // Numbers and names of ORDER BY are those of the list.
    if select.distinct.is_some() || is_grouped || query.order_by.is_some() {
        return None;
    }
    let item = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr.clone()),
        _ => None,
    };
    select.projection.iter().map(item).collect()
}

fn field_name(at: usize) -> String {
    format!("f{at}")
}

fn field_literal(at: usize) -> Expr {
    Expr::value(Literal::SingleQuotedString(field_name(at)))
}

fn structure(fields: impl Iterator<Item = Expr>) -> SelectItem {
    let arguments = fields.enumerate().flat_map(|(at, field)| [field_literal(at), field]);
    SelectItem::ExprWithAlias { expr: call("named_struct", arguments.collect()), alias: quoted("row") }
}

fn derived_from(select: &mut Select, query: Query, alias: TableAlias) -> Result<()> {
    let Some(from) = select.from.first_mut() else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    let subquery = Box::new(query);
    from.relation = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
    Ok(())
}

/// Query of an UPDATE from the one that has `old` columns, then the plain values, then the rows of queries.
pub(crate) fn with_fields(inner: Query, old: usize, assigned: &[ColumnAssignment<'_>]) -> Result<Query> {
    let column = |at: usize| Expr::CompoundIdentifier(vec![quoted(CHANGED), quoted(&format!("value{at}"))]);
    let plain = assigned.iter().filter(|assigned| assigned.field.is_none()).count();
    let mut exprs: Vec<Expr> = (0..old).map(column).collect();
    let mut next = old;
    for assigned in assigned {
        exprs.push(match assigned.field {
            Some((query, at)) => call("get_field", vec![column(old + plain + query), field_literal(at)]),
            None => {
                next += 1;
                column(next - 1)
            }
        });
    }
    let mut outer = template()?;
    let select = select_of(&mut outer)?;
    let items = exprs.into_iter().enumerate();
    select.projection = items
        .map(|(at, expr)| SelectItem::ExprWithAlias { expr, alias: quoted(&format!("value{at}")) })
        .collect();
    let alias = TableAlias { explicit: true, name: quoted(CHANGED), columns: Vec::new(), at: None };
    derived_from(select, inner, alias)?;
    Ok(outer)
}
