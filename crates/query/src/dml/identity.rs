//! Identity columns in INSERT and UPDATE: those GENERATED ALWAYS take no values of the statement.

use crate::dml::source::is_default;
use crate::error::{Error, Result};
use crate::parser::sequence_calls::sequence_of;
use crate::parser::stored_expressions::stored_expression;
use datafusion::sql::sqlparser::ast::{Expr, Insert, SelectItem, SetExpr};
use entresol_tables::{Catalog, Identity, RelationKind, Table};

/// Kind of an identity column; `None` if it is another column.
pub(crate) fn identity(catalog: &Catalog, table: &Table, column: usize) -> Result<Option<Identity>> {
    let Some(Some(default)) = table.definition().defaults.get(column) else { return Ok(None) };
    if !default.starts_with("nextval(") {
        return Ok(None);
    }
    let Some(name) = sequence_of(&stored_expression(default)?) else { return Ok(None) };
    if catalog.relation_kind(&name) != Some(RelationKind::Sequence) {
        return Ok(None);
    }
    let owner = catalog.sequence(&name)?.definition().owner;
    let of_column = Catalog::owner(table, column);
    Ok(owner
        .filter(|owner| {
            of_column.is_some_and(|column| column.table == owner.table && column.column == owner.column)
        })
        .and_then(|owner| owner.identity))
}

/// Refuses an INSERT that gives values to GENERATED ALWAYS columns.
pub(crate) fn check_inserted(
    catalog: &Catalog,
    table: &Table,
    targets: &[usize],
    insert: &Insert,
) -> Result<()> {
    let Some(query) = &insert.source else { return Ok(()) };
    for (place, &column) in targets.iter().enumerate() {
        if table.definition().defaults.get(column).is_none_or(Option::is_none) {
            continue;
        }
        let given = match query.body.as_ref() {
            SetExpr::Values(values) => values.rows.iter().any(|row| {
                row.get(place)
                    .is_some_and(|value| !matches!(value, Expr::Identifier(ident) if is_default(ident)))
            }),
            // A query may have fewer columns than the table; those that it has are listed or come first.
            SetExpr::Select(select) if insert.columns.is_empty() => !is_short(&select.projection, place),
            _ => true,
        };
        if given && identity(catalog, table, column)? == Some(Identity::Always) {
            return Err(given_always(table, column));
        }
    }
    Ok(())
}

/// Error of an INSERT that gives a value to a GENERATED ALWAYS column.
pub(crate) fn given_always(table: &Table, column: usize) -> Error {
    let name = &table.schema().columns()[column].name;
    let message = format!(
        "cannot insert a non-DEFAULT value into column \"{name}\": it is an identity column defined as GENERATED ALWAYS"
    );
    Error::coded("428C9", message)
}

/// Returns true if a projection surely ends before a place.
fn is_short(projection: &[SelectItem], place: usize) -> bool {
    let plain =
        |item: &SelectItem| matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. });
    projection.len() <= place && projection.iter().all(plain)
}

/// Refuses assignments to GENERATED ALWAYS columns, unless of DEFAULT.
pub(crate) fn check_assigned<'e>(
    catalog: &Catalog,
    table: &Table,
    assigned: impl Iterator<Item = (usize, &'e Expr)>,
) -> Result<()> {
    for (column, value) in assigned {
        let given = !matches!(value, Expr::Identifier(ident) if is_default(ident));
        if given && identity(catalog, table, column)? == Some(Identity::Always) {
            let name = &table.schema().columns()[column].name;
            let message = format!(
                "column \"{name}\" can only be updated to DEFAULT: it is an identity column defined as GENERATED ALWAYS"
            );
            return Err(Error::coded("428C9", message));
        }
    }
    Ok(())
}
