//! CREATE, ALTER and DROP SEQUENCE: from the statement to the catalog. Values are advanced in
//! [`crate::session::sequence_functions`].

use crate::ddl::generated;
use crate::ddl::views;
use crate::dml::identity;
use crate::error::{Error, Result};
use crate::parser::own::sequence::{SequenceOptions, SequenceStatement};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use datafusion::sql::sqlparser::ast::ObjectName;
use entresol_tables::{
    Catalog, Error as TableError, Position, RelationKind, SequenceDefinition, SequenceType, Table,
    TableDefinition, Verify,
};
use std::sync::Arc;

/// Runs a CREATE SEQUENCE or ALTER SEQUENCE.
pub(crate) async fn run(session: &SessionCore, statement: &SequenceStatement) -> Result<StatementResult> {
    let (catalog, name) = (Arc::clone(&session.catalog), statement.name.clone());
    let options = statement.options.clone();
    if statement.creates {
        const DONE: StatementResult = StatementResult::Done { verb: "CREATE SEQUENCE" };
        if statement.lenient && catalog.relation_kind(&name).is_some() {
            return Ok(DONE);
        }
        let mut definition = declared(&options, SequenceType::BigInt)?;
        own(&catalog, &options, &mut definition)?;
        blocking(move || catalog.create_sequence(&name, definition).map(drop)).await??;
        return Ok(DONE);
    }
    const DONE: StatementResult = StatementResult::Done { verb: "ALTER SEQUENCE" };
    let old = match catalog.sequence(&name) {
        Err(TableError::NoSuchRelation { .. }) if statement.lenient => return Ok(DONE),
        old => old?.definition(),
    };
    if options.owner.is_some() && old.owner.is_some_and(|owner| owner.identity.is_some()) {
        return Err(Error::coded("0A000", "cannot change ownership of identity sequence"));
    }
    let mut owner = old;
    own(&catalog, &options, &mut owner)?;
    blocking(move || {
        catalog.alter_sequence(&name, |definition, position| {
            change(&options, definition, position);
            if options.owner.is_some() {
                definition.owner = owner.owner;
            }
            Ok(())
        })
    })
    .await??;
    Ok(DONE)
}

/// The definition of a new sequence.
pub(crate) fn declared(options: &SequenceOptions, default_type: SequenceType) -> Result<SequenceDefinition> {
    let data_type = options.data_type.unwrap_or(default_type);
    let increment = options.increment.unwrap_or(1);
    let (min_value, max_value) = default_bounds(data_type, increment);
    let min_value = options.min_value.flatten().unwrap_or(min_value);
    let max_value = options.max_value.flatten().unwrap_or(max_value);
    let start = options.start.unwrap_or(if increment > 0 { min_value } else { max_value });
    let definition = SequenceDefinition {
        data_type,
        increment,
        min_value,
        max_value,
        start,
        cache: options.cache.unwrap_or(1),
        cycle: options.cycle.unwrap_or(false),
        owner: None,
    };
    definition.check()?;
    Ok(definition)
}

/// Bounds of a sequence that specifies none.
fn default_bounds(data_type: SequenceType, increment: i64) -> (i64, i64) {
    let (least, greatest) = data_type.bounds();
    if increment < 0 { (least, -1) } else { (1, greatest) }
}

/// Applies an ALTER SEQUENCE to a definition and position.
fn change(options: &SequenceOptions, definition: &mut SequenceDefinition, position: &mut Position) {
    let old_bounds = definition.data_type.bounds();
    definition.increment = options.increment.unwrap_or(definition.increment);
    definition.data_type = options.data_type.unwrap_or(definition.data_type);
    let (min_value, max_value) = default_bounds(definition.data_type, definition.increment);
    // Bounds equal to those of the old type become those of the new one.
    let retyped = options.data_type.is_some();
    if let Some(min) = options.min_value.or((retyped && definition.min_value == old_bounds.0).then_some(None))
    {
        definition.min_value = min.unwrap_or(min_value);
    }
    if let Some(max) = options.max_value.or((retyped && definition.max_value == old_bounds.1).then_some(None))
    {
        definition.max_value = max.unwrap_or(max_value);
    }
    definition.start = options.start.unwrap_or(definition.start);
    definition.cache = options.cache.unwrap_or(definition.cache);
    definition.cycle = options.cycle.unwrap_or(definition.cycle);
    if let Some(restart) = options.restart {
        *position = Position { last: restart.unwrap_or(definition.start), called: false };
    }
}

/// OWNED BY.
fn own(catalog: &Catalog, options: &SequenceOptions, definition: &mut SequenceDefinition) -> Result<()> {
    match &options.owner {
        None => {}
        Some(None) => definition.owner = None,
        Some(Some((table, column))) => {
            let table = catalog.table(table)?;
            let columns = table.schema().visible_columns();
            let place = columns.iter().position(|known| known.name == *column);
            let place = place.ok_or_else(|| TableError::NoSuchColumn {
                table: table.name().to_owned(),
                column: column.clone(),
            })?;
            definition.owner = Catalog::owner(&table, place);
        }
    }
    Ok(())
}

/// DROP SEQUENCE. CASCADE drops the defaults that use it too, in a commit before.
pub(crate) async fn drop_sequences(
    session: &SessionCore,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<StatementResult> {
    let existing = views::existing(session, RelationKind::Sequence, if_exists, names)?;
    for name in &existing {
        for (table, column) in generated::columns_using_sequence(&session.catalog, name)? {
            let shown = &table.schema().columns()[column].name;
            let cannot =
                |why: String| Error::coded("2BP01", format!("cannot drop sequence {name} because {why}"));
            if identity::identity(&session.catalog, &table, column).is_ok_and(|identity| identity.is_some()) {
                return Err(cannot(format!("column {shown} of table {} requires it", table.name())));
            }
            if !cascade {
                return Err(cannot(format!(
                    "other objects depend on it: default value for column {shown} of table {} depends on sequence {name}",
                    table.name()
                )));
            }
            drop_default(session, &table, column).await?;
        }
    }
    views::drop_all(session, RelationKind::Sequence, existing, cascade).await?;
    Ok(StatementResult::Done { verb: "DROP SEQUENCE" })
}

async fn drop_default(session: &SessionCore, table: &Arc<Table>, column: usize) -> Result<()> {
    let (catalog, table) = (Arc::clone(&session.catalog), table.name().to_owned());
    blocking(move || {
        let drop_it = |definition: &mut TableDefinition| {
            definition.defaults[column] = None;
            Ok(())
        };
        catalog.redefine(&table, None::<Verify<'_, Error>>, drop_it).map(drop)
    })
    .await?
}
