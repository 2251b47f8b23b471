//! Comments, as `pg_description`, `obj_description` and `col_description` have them.

use crate::catalog::cell::Cell;
use crate::catalog::oids;
use crate::catalog::relation::Rows;
use crate::catalog::rows::objects::Object;
use crate::catalog::view::View;
use crate::error::external;
use datafusion::common::Result as DFResult;
use entresol_tables::{CommentTarget, Error, RelationKind};

/// Oid of `pg_class`, of whose rows all comments are.
const PG_CLASS: i64 = 1259;

/// `pg_description`.
pub(crate) fn descriptions(view: &View) -> DFResult<Rows> {
    let mut rows = Vec::new();
    for object in view.objects() {
        for part in 0..=columns_of(view, &object).len() {
            if let Some(found) = comment(view, &object, part)? {
                let part = part as i64;
                rows.push(vec![object.oid.into(), PG_CLASS.into(), part.into(), found.into()]);
            }
        }
    }
    Ok(rows)
}

/// `obj_description(oid [, catalog])`
pub(crate) fn of_object(view: &View, of: &[Cell]) -> DFResult<Cell> {
    if of.get(1).is_some_and(|catalog| catalog.text() != Some("pg_class")) {
        return Ok(Cell::Null);
    }
    described(view, of[0].int(), 0)
}

/// `col_description(relation, column)`
pub(crate) fn of_column(view: &View, of: &[Cell]) -> DFResult<Cell> {
    let column = of[1].int().and_then(|column| usize::try_from(column).ok()).filter(|column| *column > 0);
    column.map_or(Ok(Cell::Null), |column| described(view, of[0].int(), column))
}

fn described(view: &View, oid: Option<i64>, part: usize) -> DFResult<Cell> {
    let object = oid.and_then(|oid| view.object(oid));
    Ok(object.map(|object| comment(view, &object, part)).transpose()?.flatten().into())
}

/// Names of the columns of a table or a view, which may have comments.
fn columns_of(view: &View, object: &Object) -> Vec<String> {
    match object.kind {
        'r' if object.schema == oids::PUBLIC => {
            let table = view.table(object.oid);
            let columns = table.map(|table| table.schema().visible_columns());
            columns.unwrap_or_default().iter().map(|column| column.name.clone()).collect()
        }
        'v' if object.schema == oids::PUBLIC => {
            let definition = view.catalog.view(&object.name);
            definition.map(|definition| definition.definition().columns.clone()).unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Comment on an object, or on its column from 1 on.
fn comment(view: &View, object: &Object, part: usize) -> DFResult<Option<String>> {
    if object.schema != oids::PUBLIC {
        return Ok(None);
    }
    let columns = if part == 0 { Vec::new() } else { columns_of(view, object) };
    let target = match (part.checked_sub(1), object.kind) {
        (Some(column), _) => match columns.get(column) {
            Some(column) => CommentTarget::Column(&object.name, column),
            None => return Ok(None),
        },
        (None, 'i') => CommentTarget::Relation(RelationKind::Index, &object.name),
        (None, 'v') => CommentTarget::Relation(RelationKind::View, &object.name),
        (None, 'S') => CommentTarget::Relation(RelationKind::Sequence, &object.name),
        (None, _) => CommentTarget::Relation(RelationKind::Table, &object.name),
    };
    match view.catalog.comment(&target) {
        // It was dropped or renamed meanwhile.
        Err(
            Error::NoSuchTable { .. }
            | Error::NoSuchRelation { .. }
            | Error::NoSuchIndex { .. }
            | Error::NoSuchColumn { .. }
            | Error::WrongKind { .. },
        ) => Ok(None),
        found => found.map_err(external),
    }
}
