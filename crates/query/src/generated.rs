//! Columns whose values are drawn from a sequence of their own: SERIAL, and GENERATED … AS IDENTITY.
//!
//! - Both are a column that is NOT NULL, a sequence `table_column_seq` that goes with it, and the default
//!   `nextval('table_column_seq')`. An identity column is one whose sequence says so.
//! - GENERATED ALWAYS refuses values in INSERT and UPDATE, but not in COPY, as in PostgreSQL: dumps are read that way.
//! - Which columns draw from a sequence is read off their defaults: a name in `nextval('…')`.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    ColumnOption, DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GeneratedAs,
    Insert, ObjectName, SelectItem, SetExpr, Value as Literal, VisitMut,
};

use crate::walk::{visit_expressions, visit_expressions_mut};
use entresol_tables::{Catalog, DataType, Identity, NewSequence, RelationKind, SequenceType, Table};

use crate::drawing::relation_name;
use crate::error::{Error, Result};
use crate::expressions;
use crate::sequence_text::Options;
use crate::sequences::declared;
use crate::source::is_default;

/// How the values of a column come about.
#[derive(Debug, Clone)]
pub(crate) struct Generated {
    pub(crate) identity: Option<Identity>,
    options: Options,
    /// The type of the sequence of a SERIAL; an identity column's is that of the column.
    serial: Option<SequenceType>,
}

/// The type of the column and of the sequence that SERIAL and its siblings stand for.
pub(crate) fn serial(declared: &SqlType) -> Option<(DataType, Generated)> {
    let SqlType::Custom(name, modifiers) = declared else { return None };
    if !modifiers.is_empty() {
        return None;
    }
    let (column, sequence) = match name.to_string().to_ascii_lowercase().as_str() {
        "serial" | "serial4" => (DataType::Int, SequenceType::Int),
        "bigserial" | "serial8" => (DataType::BigInt, SequenceType::BigInt),
        "smallserial" | "serial2" => (DataType::SmallInt, SequenceType::SmallInt),
        _ => return None,
    };
    Some((column, Generated { identity: None, options: Options::default(), serial: Some(sequence) }))
}

/// What GENERATED … AS IDENTITY says; `None` if the option is another.
pub(crate) fn identity_option(option: &ColumnOption) -> Option<Result<Generated>> {
    let ColumnOption::Generated { generated_as, sequence_options, generation_expr: None, .. } = option else {
        return None;
    };
    let identity = match generated_as {
        GeneratedAs::Always => Identity::Always,
        GeneratedAs::ByDefault => Identity::ByDefault,
        GeneratedAs::ExpStored => return None,
    };
    let options = Options::of_engine(sequence_options.as_deref().unwrap_or_default());
    Some(options.map(|options| Generated { identity: Some(identity), options, serial: None }))
}

impl Generated {
    /// The sequence of a column and its default; the name is one that nobody has.
    pub(crate) fn sequence(
        &self,
        catalog: &Catalog,
        table: &str,
        (place, name, data_type): (usize, &str, DataType),
        taken: &[NewSequence],
    ) -> Result<(NewSequence, String)> {
        let of_column = match data_type {
            DataType::SmallInt => Some(SequenceType::SmallInt),
            DataType::Int => Some(SequenceType::Int),
            DataType::BigInt => Some(SequenceType::BigInt),
            _ => None,
        };
        let sequence_type = self.serial.or(of_column).ok_or_else(|| {
            Error::coded("22023", "identity column type must be smallint, integer, or bigint")
        })?;
        let base = format!("{table}_{name}_seq");
        let is_taken = |name: &str| {
            name == table || catalog.relation_kind(name).is_some() || taken.iter().any(|new| new.name == name)
        };
        let name = crate::definition::free_name(&base, is_taken);
        let default = drawing_from(&name);
        let definition = declared(&self.options, sequence_type)?;
        Ok((NewSequence { name, definition, column: place, identity: self.identity }, default))
    }
}

/// The default of a column that draws from a sequence.
fn drawing_from(sequence: &str) -> String {
    let plain = relation_name(sequence).is_ok_and(|name| name == sequence);
    let quoted = if plain { sequence.to_owned() } else { format!("\"{}\"", sequence.replace('"', "\"\"")) };
    format!("nextval('{}')", quoted.replace('\'', "''"))
}

/// The text that names a sequence in a default which is nothing but `nextval('…')`.
pub(crate) fn plainly_drawn_from(default: &str) -> Option<&str> {
    let name = default.strip_prefix("nextval('")?.strip_suffix("')")?;
    (!name.contains('\'')).then_some(name)
}

/// Takes the cast out of `nextval('s'::regclass)` and its siblings, which is how PostgreSQL's tools write them.
pub(crate) fn without_regclass(sql: &mut impl VisitMut) {
    let visited: ControlFlow<()> = visit_expressions_mut(sql, |expr| {
        if let Some(Expr::Cast { expr: inner, data_type: SqlType::Regclass, .. }) = sequence_argument(expr) {
            let inner = std::mem::replace(inner.as_mut(), Expr::Value(Literal::Null.into()));
            if let Some(argument) = sequence_argument(expr) {
                *argument = inner;
            }
        }
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
}

/// The argument of a call that says which sequence it is for.
fn sequence_argument(expr: &mut Expr) -> Option<&mut Expr> {
    let Expr::Function(function) = expr else { return None };
    if !is_on_sequence(&function.name) {
        return None;
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    match list.args.first_mut()? {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Some(argument),
        _ => None,
    }
}

fn is_on_sequence(name: &ObjectName) -> bool {
    let called = name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_ascii_lowercase());
    called.is_some_and(|called| ["nextval", "currval", "setval"].contains(&called.as_str()))
}

/// The sequences that an expression names in `nextval` and its siblings.
pub(crate) fn sequences_in(expr: &Expr) -> Vec<String> {
    let mut names = Vec::new();
    let visited: ControlFlow<()> = visit_expressions(expr, |part| {
        names.extend(sequence_of(part));
        ControlFlow::Continue(())
    });
    debug_assert!(visited.is_continue());
    names
}

/// The sequence that a call names.
fn sequence_of(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else { return None };
    if !is_on_sequence(&function.name) {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return None };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(name))) = list.args.first()? else {
        return None;
    };
    match &name.value {
        Literal::SingleQuotedString(name) => relation_name(name).ok(),
        _ => None,
    }
}

/// Refuses an expression that names a sequence which is not there.
pub(crate) fn check_sequences(catalog: &Catalog, expr: &Expr) -> Result<()> {
    sequences_in(expr).iter().try_for_each(|name| catalog.sequence(name).map(drop))?;
    Ok(())
}

/// The columns whose defaults draw from a sequence.
pub(crate) fn columns_drawing_from(catalog: &Catalog, sequence: &str) -> Result<Vec<(Arc<Table>, usize)>> {
    let mut found = Vec::new();
    for table in catalog.tables() {
        for (column, default) in table.definition().defaults.iter().enumerate() {
            let Some(default) = default.as_ref().filter(|default| default.contains('(')) else { continue };
            if sequences_in(&expressions::parse(default)?).iter().any(|name| name == sequence) {
                found.push((Arc::clone(&table), column));
            }
        }
    }
    Ok(found)
}

/// Whether a column is an identity column, and of which kind.
pub(crate) fn identity(catalog: &Catalog, table: &Table, column: usize) -> Result<Option<Identity>> {
    let Some(Some(default)) = table.definition().defaults.get(column) else { return Ok(None) };
    if !default.starts_with("nextval(") {
        return Ok(None);
    }
    let Some(name) = sequence_of(&expressions::parse(default)?) else { return Ok(None) };
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
            let name = &table.schema().columns()[column].name;
            let message = format!(
                "cannot insert a non-DEFAULT value into column \"{name}\": it is an identity column defined as GENERATED ALWAYS"
            );
            return Err(Error::coded("428C9", message));
        }
    }
    Ok(())
}

/// Whether a projection surely ends before a place.
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
