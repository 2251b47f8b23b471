//! CREATE, REFRESH and DROP MATERIALIZED VIEW.
//!
//! Creation: the view with the query, the table, writers are watched and older ones refused, the rows. A crash in between
//! leaves a view without a table, which the same statement takes over, or a table that the next open fills. One while a
//! view is dropped may leave its guards and its position, which a creation of that name removes. Its owner is written before the
//! view and removed behind it.

use super::GUARDS_TABLE;
use super::deferred::{self, DeferredRefresh};
use super::maintenance::{PlannedView, planned};
use crate::catalog::rows::streams;
use crate::ddl::ownership::check_view_owner;
use crate::ddl::table_options::{self, DeclaredOptions};
use crate::ddl::{table_definition, views};
use crate::error::{Error, Result};
use crate::parser::names::{refuse, table_name};
use crate::parser::statement::query_statement;
use crate::planner::query;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::{
    GUARDS_OWNER, MaintenanceWork, held_by, owner_of, query_of, query_view, state_owner_of, state_table,
    streamed_by,
};
use crate::session::owners::{self, OwnedObject};
use crate::session::result::StatementResult;
use crate::session::topologies::UsedRelations;
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView, Ident, ObjectName};
use entresol_memory::Durability;
use entresol_tables::{
    Catalog, Column, DataType, IndexDefinition, RelationKind, Retention, ScanRange, Schema, TableDefinition,
    TableOptions, Value,
};
use std::sync::Arc;

/// CREATE MATERIALIZED VIEW.
pub(crate) async fn create(session: &SessionCore, create: &CreateView) -> Result<StatementResult> {
    let _changing = session.options.materialized.changing().await;
    create_view(session, create).await?;
    Ok(StatementResult::Done { verb: "CREATE MATERIALIZED VIEW" })
}

/// REFRESH MATERIALIZED VIEW.
pub(crate) async fn refresh(session: &SessionCore, name: &str) -> Result<StatementResult> {
    let _changing = session.options.materialized.changing().await;
    check_view(session, name)?;
    check_view_owner(session, name)?;
    check_refreshed(&session.catalog, name)?;
    refresh_view(session, name).await?;
    Ok(StatementResult::Done { verb: "REFRESH MATERIALIZED VIEW" })
}

/// Refuses a name that is not of a materialized view.
pub(crate) fn check_view(session: &SessionCore, name: &str) -> Result<()> {
    let table = session.catalog.table(name);
    match table.as_ref().ok().and_then(|table| held_by(table)) {
        Some(_) => Ok(()),
        // Over streams, and could not be started.
        None if session.options.topologies.is_view(name) => Ok(()),
        None if session.catalog.relation_kind(name).is_some() => {
            Err(Error::coded("42809", format!("\"{name}\" is not a materialized view")))
        }
        None => Err(Error::coded("42P01", format!("materialized view \"{name}\" does not exist"))),
    }
}

/// Refuses REFRESH of a view over streams.
fn check_refreshed(catalog: &Catalog, name: &str) -> Result<()> {
    match catalog.table(name) {
        Ok(table) if streamed_by(&table).is_some() => Err(Error::unsupported(format!(
            "REFRESH of materialized view \"{name}\", which reads a stream: the rows that have passed are not stored, and its topology \
             keeps it up to date"
        ))),
        _ => Ok(()),
    }
}

async fn create_view(session: &SessionCore, create: &CreateView) -> Result<()> {
    refuse("CREATE MATERIALIZED VIEW", &[(create.or_replace, "OR REPLACE")])?;
    let (deferred, changes) = declared(&create.options)?;
    if !session.options.materialized.is_served() {
        let message = "this catalog was opened without the maintenance of materialized views";
        return Err(Error::coded("55000", message));
    }
    let name = table_name(&create.name)?;
    if session.catalog.relation_kind(&name).is_some() {
        if create.if_not_exists {
            return Ok(());
        }
        return Err(Error::coded("42P07", format!("relation \"{name}\" already exists")));
    }
    streams::check_name(&session.catalog, &name)?;
    check_reads(session, create).await?;
    let query = CreateView {
        materialized: false,
        if_not_exists: false,
        name: ObjectName::from(vec![Ident::with_quote('"', query_view(&name))]),
        options: CreateTableOptions::None,
        ..create.clone()
    };
    let authority = &session.variables.authority;
    let before = owners::owner_of(&session.catalog, OwnedObject::MaterializedView, &name)?;
    let takes_over = authority.is_superuser() || before == authority.owner();
    note_owner(session, &name, authority.owner()).await?;
    // The rest is the database's own work.
    let _full = authority.full();
    if !takes_over || !is_left_over(&session.catalog, &query_view(&name), &query) {
        views::create(session, &query).await?;
    }
    let created = match deferred {
        None => with_rows(session, &name, changes).await,
        Some(refresh) => behind_commits(session, &name, changes, refresh).await,
    };
    if created.is_err() {
        remove(session, &name).await?;
    }
    created
}

/// Checks that the session's role may read what the query of a view reads: its text is planned with the rights of the owner.
async fn check_reads(session: &SessionCore, create: &CreateView) -> Result<()> {
    if session.variables.authority.is_superuser() {
        return Ok(());
    }
    let transaction = session.catalog.begin()?;
    let _bound = session.bind(&transaction);
    query::plan_query(session, query_statement(create.query.clone())).await.map(drop)
}

/// Writes the owner of a view; none: the superusers.
async fn note_owner(session: &SessionCore, name: &str, owner: Option<String>) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    let set = move || owners::set(&catalog, (OwnedObject::MaterializedView, &name), owner.as_deref());
    blocking(set).await?
}

/// Tells whether a view is there already: of a creation that a crash interrupted, before the table.
fn is_left_over(catalog: &Catalog, name: &str, create: &CreateView) -> bool {
    let is_same = |query: &str| create.columns.is_empty() && query == create.query.to_string();
    catalog.view(name).is_ok_and(|view| is_same(&view.definition().query))
}

/// Refresh, and retention of the log of changes, that the options declare: the only options of a view.
fn declared(options: &CreateTableOptions) -> Result<(Option<DeferredRefresh>, Option<Retention>)> {
    const VERB: &str = "CREATE MATERIALIZED VIEW";
    let mut options = match options {
        CreateTableOptions::None => return Ok((None, None)),
        CreateTableOptions::With(options) => options.clone(),
        other => return Err(Error::unsupported(format!("{VERB} {other}"))),
    };
    let refresh = DeferredRefresh::take(&mut options)?;
    let declared = table_options::table_options(VERB, &options)?;
    match without_effect(&declared) {
        Some(name) => Err(Error::unsupported(format!("{VERB} WITH ({name} = …)"))),
        None => Ok((refresh, declared.changes.flatten())),
    }
}

/// Name of a declared option that the table of a view does not have.
fn without_effect(declared: &DeclaredOptions) -> Option<&'static str> {
    let others = [
        (declared.history.is_some(), "history"),
        (declared.placement.is_some(), "placement"),
        (declared.layout.is_some(), "layout"),
        (declared.structure.is_some(), "structure"),
        (declared.node_bytes.is_some(), "node_bytes"),
        (declared.protocol.is_some(), "protocol"),
        (declared.versions.is_some(), "versions"),
        (declared.hot_bytes.is_some(), "hot_bytes"),
    ];
    let found = others.into_iter().find(|(is_declared, _)| *is_declared).map(|(_, name)| name);
    found.or_else(|| declared.clustering.given()).or_else(|| declared.elf.given())
}

/// Makes the table of a view whose query there is, with the rows of now, and lets it be refreshed behind the commits.
async fn behind_commits(
    session: &SessionCore,
    name: &str,
    changes: Option<Retention>,
    refresh: DeferredRefresh,
) -> Result<()> {
    let topologies = &session.options.topologies;
    if topologies.has(name) {
        return Err(Error::coded("42710", format!("topology \"{name}\" already exists")));
    }
    let (mut view, schema) = planned(session, name).await?;
    let definition = TableDefinition { changes, ..definition(&view, &schema)? };
    (view.incremental, view.is_deferred) = (None, true);
    let maintained = view.maintained();
    let interval = deferred::check(&session.catalog, &maintained, refresh)?;
    let written = UsedRelations {
        changes: maintained.tables.iter().map(|(table, _)| table.clone()).collect(),
        written: vec![name.to_owned()],
        ..UsedRelations::default()
    };
    if let Some(cycle) = topologies.cycle(name, &written, &session.options.materialized.all()) {
        let message =
            format!("materialized view \"{name}\" would read what it causes: {}", cycle.join(" → "));
        return Err(Error::coded("42P17", message));
    }
    let (catalog, of) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || -> Result<()> {
        forget(&catalog, &of)?;
        deferred::declare(&catalog, &of, interval)?;
        catalog.create_table_as(&of, definition, TableOptions::default())?;
        Ok(())
    })
    .await??;
    session.options.materialized.add(maintained);
    refresh_deferred(session, name).await
}

/// Lets the rows of a view be those of its query now.
async fn refresh_view(session: &SessionCore, name: &str) -> Result<()> {
    if deferred::is_deferred(&session.catalog, name)? {
        return refresh_deferred(session, name).await;
    }
    fill(session, name).await
}

/// Brings a view with deferred refresh up to date, and starts its topology if it does not run.
async fn refresh_deferred(session: &SessionCore, name: &str) -> Result<()> {
    let (views, of) = (session.options.materialized.clone(), name.to_owned());
    blocking(move || views.ask(MaintenanceWork::CatchUp(of), || Ok(()))).await??;
    if session.options.topologies.is_loaded() { deferred::start(session, name) } else { Ok(()) }
}

/// Makes the table of a view whose query there is, and fills it.
async fn with_rows(session: &SessionCore, name: &str, changes: Option<Retention>) -> Result<()> {
    let (view, schema) = planned(session, name).await?;
    let definition = TableDefinition { changes, ..definition(&view, &schema)? };
    let state =
        view.incremental.as_ref().map(|view| view.state_definition(state_owner_of(name))).transpose()?;
    let (catalog, of) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || -> Result<()> {
        guards(&catalog)?;
        forget(&catalog, &of)?;
        if let Some(state) = state {
            let name = state_table(&of);
            if has_state(&catalog, &of) {
                // Of a creation that a crash interrupted.
                catalog.drop_relations(&[(RelationKind::Table, name.as_str())], false)?;
            }
            catalog.create_table_as(&name, state, TableOptions::default())?;
        }
        catalog.create_table_as(&of, definition, TableOptions::default())?;
        Ok(())
    })
    .await??;
    let read: Vec<String> = view.tables.iter().map(|(table, _)| table.clone()).collect();
    let (views, of) = (session.options.materialized.clone(), name.to_owned());
    blocking(move || views.ask(MaintenanceWork::Watch(of), || Ok(()))).await??;
    // Transactions that may have passed their last look before lose against this.
    let catalog = Arc::clone(&session.catalog);
    blocking(move || {
        for table in &read {
            let table = catalog.table(table)?;
            catalog.context().refuse_older_writers(table.state().id(), |_| ())?;
            // Loads that wrote row groups alone.
            if let Some(groups) = table.row_group_state() {
                catalog.context().refuse_older_writers(groups.id(), |_| ())?;
            }
        }
        Ok::<(), entresol_tables::Error>(())
    })
    .await??;
    fill(session, name).await
}

/// Tells whether there is a table with the state of a view.
fn has_state(catalog: &Catalog, name: &str) -> bool {
    let table = catalog.table(&state_table(name));
    table.is_ok_and(|table| table.definition().owner == Some(state_owner_of(name)))
}

/// Definition of the table of a view: with an index on the columns by which rows are found.
fn definition(view: &PlannedView, schema: &ArrowSchema) -> Result<TableDefinition> {
    let mut definition = TableDefinition::plain(table_definition::derived_schema(schema)?);
    definition.owner = Some(owner_of(&view.name));
    let mut indexed: Vec<Vec<usize>> = Vec::new();
    for (_, columns) in &view.tables {
        let columns: Vec<usize> = columns.iter().map(|(place, _)| *place).take(1).collect();
        if !columns.is_empty() && !indexed.contains(&columns) {
            indexed.push(columns);
        }
    }
    for (number, columns) in indexed.into_iter().enumerate() {
        let name =
            format!("{}_key{}", view.name, if number == 0 { String::new() } else { number.to_string() });
        definition.indexes.push(IndexDefinition::plain(name, columns));
    }
    Ok(definition)
}

/// Makes the table of the guards, if it is missing.
fn guards(catalog: &Catalog) -> entresol_tables::Result<()> {
    let columns = vec![
        Column::new("view", DataType::Varchar).not_null(),
        Column::new("guard", DataType::BigInt).not_null(),
    ];
    let schema = Schema::new(columns, &["view", "guard"])?;
    let owner = Some(GUARDS_OWNER.to_owned());
    let definition = TableDefinition { owner: owner.clone(), ..TableDefinition::plain(schema) };
    let options = TableOptions { if_not_exists: true, ..TableOptions::default() };
    let table = catalog.create_table_as(GUARDS_TABLE, definition, options)?;
    if table.definition().owner == owner {
        return Ok(());
    }
    Err(entresol_tables::Error::RelationExists { name: GUARDS_TABLE.to_owned() })
}

/// Lets the maintaining thread store the rows of a view that its query gives now.
async fn fill(session: &SessionCore, name: &str) -> Result<()> {
    let (views, name) = (session.options.materialized.clone(), name.to_owned());
    blocking(move || views.ask(MaintenanceWork::Fill(name), || Ok(()))).await?
}

/// Refuses to drop a view that other views read than those that are dropped with it.
pub(crate) fn check_readers(
    session: &SessionCore,
    name: &str,
    is_dropped: impl Fn(&String) -> bool,
) -> Result<()> {
    let is_query = query_of(&session.catalog, &query_view(name)).is_some();
    let of_query = session.catalog.dependent_views(RelationKind::View, &query_view(name));
    let of_query = if is_query { of_query } else { Vec::new() };
    let of_table = session.catalog.dependent_views(RelationKind::Table, name);
    if let Some(view) = of_table.iter().chain(&of_query).find(|view| !is_dropped(view)) {
        return Err(Error::coded("2BP01", format!("view {view} depends on materialized view {name}")));
    }
    Ok(())
}

/// Drops a view that no topology or materialized view depends on.
pub(crate) async fn drop_view(session: &SessionCore, name: &str) -> Result<()> {
    check_readers(session, name, |_| false)?;
    remove(session, name).await
}

/// Removes the table, the query and the guards of a view, those of them that there are.
pub(crate) async fn remove(session: &SessionCore, name: &str) -> Result<()> {
    let (views, name) = (session.options.materialized.clone(), name.to_owned());
    if deferred::is_deferred(&session.catalog, &name)? {
        let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
        let of = name.clone();
        blocking(move || deferred::stop(&catalog, &topologies, &of)).await??;
    }
    let catalog = Arc::clone(&session.catalog);
    blocking(move || {
        let query = query_view(&name);
        let state = state_table(&name);
        let mut relations = vec![(RelationKind::Table, name.as_str()), (RelationKind::View, query.as_str())];
        if has_state(&catalog, &name) {
            relations.push((RelationKind::Table, state.as_str()));
        }
        let there: Vec<_> =
            relations.into_iter().filter(|(kind, name)| catalog.relation_kind(name) == Some(*kind)).collect();
        catalog.drop_relations(&there, false)?;
        views.remove(&name);
        forget(&catalog, &name)?;
        owners::set(&catalog, (OwnedObject::MaterializedView, &name), None)
    })
    .await?
}

/// Removes the position and the guards of a view that is dropped, or those that a crash left of one: another of its name
/// would be taken for deferred, or for filled.
fn forget(catalog: &Catalog, name: &str) -> entresol_tables::Result<()> {
    let transaction = catalog.begin()?;
    deferred::forget(catalog, &transaction, name)?;
    if let Ok(guards) = catalog.table(GUARDS_TABLE) {
        let rows = guards.scan(ScanRange::prefix(&[Value::from(name)])).rows(&transaction)?;
        let keys: Vec<_> = rows.iter().map(|row| guards.key_of(row)).collect();
        guards.delete_many(&transaction, &keys)?;
    }
    transaction.commit(Durability::Sync)?;
    Ok(())
}
