//! DROP of sources, streams, topologies, sinks, tables, views and materialized views that others depend on.
//!
//! | what | depends on |
//! | --- | --- |
//! | topology, sink | sources, streams, tables and views that it reads or writes |
//! | source | the table whose changes it has |
//! | stream of no topology, view over streams | sources, streams and tables that it reads |
//! | materialized view | tables and views that it reads; over streams, what its topology does |
//! | both, and views | state tables of topologies that they read |
//!
//! RESTRICT, the default, names all topologies and materialized views that depend on it, directly or through others. CASCADE
//! drops them, with a notice for each: topologies end with their open transaction, and their targets stay.
//!
//! # What a crash leaves
//! All that refuses a statement does so before its first step. The steps are: all dependent topologies end and their statements
//! are removed, then materialized views are dropped, the
//! later ones first, then state of the topologies and the tables of those that are materialized views, which are noted until
//! then ([`super::view_topologies`]), and last what the statement names. So a crash leaves objects all of which
//! work, and perhaps tables that were state of a topology, which are as any table then.

use crate::ddl::ownership::check_view_owner;
use crate::ddl::{stored_topologies, views};
use crate::error::{Error, Result};
use crate::materialized::{deferred, statements as materialized_views};
use crate::parser::names::table_name;
use crate::parser::own::streaming::StreamObject;
use crate::parser::statement::{created_source, created_stream};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized::{query_of, query_view, streamed_by};
use crate::streaming::parsed_steps::names_of;
use crate::streaming::starting::{self, stored};
use crate::streaming::stream_views;
use datafusion::sql::sqlparser::ast::ObjectName;
use entresol_tables::{RelationKind, Table};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Object that a statement drops or changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// Its kind, for messages.
    pub(crate) noun: String,
    pub(crate) name: String,
}

/// Topologies and materialized views that depend on objects.
#[derive(Debug, Default)]
pub(crate) struct Dependents {
    topologies: BTreeSet<String>,
    /// Sources of the changes of tables.
    sources: BTreeSet<String>,
    /// Streams of no topology, with what they name.
    streams: BTreeSet<String>,
    views: BTreeSet<String>,
}

impl Dependents {
    /// Dependents of an object, without those of `roots`.
    pub(crate) fn of(session: &SessionCore, of: &Root, roots: &[Root]) -> Result<Dependents> {
        let (catalog, topologies) = (&session.catalog, &session.options.topologies);
        // A table may have the name of a topology that writes it.
        let is_root = |nouns: &[&str], name: &str| {
            roots.iter().any(|root| nouns.contains(&root.noun.as_str()) && root.name == name)
        };
        let views = session.options.materialized.all();
        let is_view = |name: &str| views.iter().any(|view| view.is_deferred && view.name == name);
        let streams = stored_topologies::streams(catalog)?;
        let named = streams.iter().filter_map(|stream| {
            let create = created_stream(&stream.text)?;
            Some((stream.name.as_str(), names_of(&create.step).1))
        });
        let named: Vec<(&str, Vec<String>)> = named.collect();
        let sources = stored_topologies::sources(catalog)?;
        let logged = sources.iter().filter_map(|(source, definition)| {
            Some((source.as_str(), created_source(definition)?.logged_table()?.to_owned()))
        });
        let logged: Vec<(&str, String)> = logged.collect();
        let mut found = Dependents::default();
        let mut open = relations_of(session, of);
        let mut seen = BTreeSet::new();
        while let Some(relation) = open.pop() {
            if !seen.insert(relation.clone()) {
                continue;
            }
            for user in topologies.users(|used| used.uses(&relation)) {
                // The topology of a materialized view is a part of it.
                let is_own = topologies.is_view(&user) && is_root(&["materialized view"], &user);
                if is_root(&["topology", "sink"], &user) || is_own || is_view(&user) {
                    continue;
                }
                if found.topologies.insert(user.clone()) {
                    open.extend(entresol_streams::state_tables(catalog, &user));
                    open.extend(topologies.is_view(&user).then_some(user));
                }
            }
            for (stream, _) in named.iter().filter(|(_, names)| names.contains(&relation)) {
                if !is_root(&["stream", "view"], stream) && found.streams.insert((*stream).to_owned()) {
                    open.push((*stream).to_owned());
                }
            }
            for (source, _) in logged.iter().filter(|(_, table)| *table == relation) {
                if !is_root(&["source"], source) && found.sources.insert((*source).to_owned()) {
                    open.push((*source).to_owned());
                }
            }
            let Some(kind) = catalog.relation_kind(&relation) else { continue };
            for reader in catalog.dependent_views(kind, &relation) {
                match query_of(catalog, &reader) {
                    None => open.push(reader),
                    Some(view) if is_root(&["materialized view"], &view) => {}
                    Some(view) => {
                        open.extend([query_view(&view), view.clone()]);
                        found.views.insert(view);
                    }
                }
            }
        }
        Ok(found)
    }

    /// These topologies, without what reads those that are materialized views.
    pub(crate) fn of_topologies(topologies: BTreeSet<String>) -> Dependents {
        Dependents { topologies, ..Dependents::default() }
    }

    /// Adds what depends on those of the topologies that are materialized views.
    pub(crate) fn with_readers_of_views(mut self, session: &SessionCore) -> Result<Dependents> {
        let views = self.topologies.iter().filter(|name| session.options.topologies.is_view(name));
        let roots = views.map(|name| Root { noun: "materialized view".to_owned(), name: name.clone() });
        let roots: Vec<Root> = roots.collect();
        for root in &roots {
            self.add(Dependents::of(session, root, &roots)?);
        }
        Ok(self)
    }

    fn add(&mut self, other: Dependents) {
        self.topologies.extend(other.topologies);
        self.sources.extend(other.sources);
        self.streams.extend(other.streams);
        self.views.extend(other.views);
    }

    /// Returns true if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.topologies.is_empty()
            && self.sources.is_empty()
            && self.streams.is_empty()
            && self.views.is_empty()
    }

    /// Refusal of a statement, with all of them.
    pub(crate) fn refusal(&self, session: &SessionCore, verb: &str, of: &Root) -> Error {
        let Root { noun, name } = of;
        let topologies = self.topologies.iter();
        let topologies =
            topologies.map(|topology| format!("{} {topology} uses it", noun_of(session, topology)));
        let views =
            self.views.iter().map(|view| format!("materialized view {view} depends on {noun} {name}"));
        let noun_of = |stream: &str| stream_views::noun_of(&session.catalog, stream);
        let streams = self.streams.iter().map(|stream| format!("{} {stream} uses it", noun_of(stream)));
        let sources = self.sources.iter().map(|source| format!("source {source} uses it"));
        let all: Vec<String> = topologies.chain(sources).chain(streams).chain(views).collect();
        let message = format!(
            "cannot {verb} {noun} {name} because other objects depend on it: {}; drop these first, or add CASCADE",
            all.join(", ")
        );
        Error::coded("2BP01", message)
    }

    /// Drops all of them.
    pub(crate) async fn drop_all(self, session: &SessionCore) -> Result<()> {
        for topology in &self.topologies {
            session.notice(format!("drop cascades to {} {topology}", noun_of(session, topology)));
            forget_topology(session, topology).await?;
        }
        for stream in &self.streams {
            let noun = stream_views::noun_of(&session.catalog, stream);
            session.notice(format!("drop cascades to {noun} {stream}"));
            remove_stream(session, stream).await?;
        }
        for source in &self.sources {
            session.notice(format!("drop cascades to source {source}"));
            remove_source(session, source).await?;
        }
        for view in session.options.materialized.all().iter().rev() {
            if self.views.contains(&view.name) {
                session.notice(format!("drop cascades to materialized view {}", view.name));
                drop_views_over(session, [query_view(&view.name), view.name.clone()]).await?;
                materialized_views::remove(session, &view.name).await?;
            }
        }
        for topology in &self.topologies {
            remove_state(session, topology).await?;
        }
        Ok(())
    }
}

/// Relations that are gone with an object.
fn relations_of(session: &SessionCore, of: &Root) -> Vec<String> {
    let states = || entresol_streams::state_tables(&session.catalog, &of.name);
    match of.noun.as_str() {
        "topology" | "sink" => states(),
        "materialized view" if session.options.topologies.is_view(&of.name) => {
            states().into_iter().chain([of.name.clone()]).collect()
        }
        "materialized view" => vec![query_view(&of.name), of.name.clone()],
        _ => vec![of.name.clone()],
    }
}

/// Kind of a topology, as statements name it.
pub(crate) fn noun_of(session: &SessionCore, topology: &str) -> &'static str {
    let topologies = &session.options.topologies;
    match () {
        () if topologies.is_sink(topology) => StreamObject::Sink.noun(),
        () if topologies.is_view(topology) => "materialized view",
        () => StreamObject::Topology.noun(),
    }
}

/// Drops the dependents of objects, or refuses to.
async fn clear(session: &SessionCore, roots: &[Root], cascade: bool) -> Result<()> {
    let mut all = Dependents::default();
    for root in roots {
        let found = Dependents::of(session, root, roots)?;
        if !cascade && !found.is_empty() {
            return Err(found.refusal(session, "drop", root));
        }
        all.add(found);
    }
    all.drop_all(session).await
}

/// Drops the plain views that read relations.
async fn drop_views_over(session: &SessionCore, relations: impl IntoIterator<Item = String>) -> Result<()> {
    for relation in relations {
        let Some(kind) = session.catalog.relation_kind(&relation) else { continue };
        let readers = session.catalog.dependent_views(kind, &relation);
        // Its own query reads no relation that is its own.
        let readers: Vec<String> =
            readers.into_iter().filter(|view| query_of(&session.catalog, view).is_none()).collect();
        if readers.is_empty() {
            continue;
        }
        readers.iter().for_each(|view| session.notice(format!("drop cascades to view {view}")));
        let catalog = Arc::clone(&session.catalog);
        blocking(move || {
            let all: Vec<_> = readers.iter().map(|view| (RelationKind::View, view.as_str())).collect();
            catalog.drop_relations(&all, true)
        })
        .await??;
    }
    Ok(())
}

/// DROP TABLE and DROP VIEW.
pub(crate) async fn drop_relations(
    session: &SessionCore,
    kind: RelationKind,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<()> {
    let _topologies = session.options.topologies.changing().await;
    let _views = session.options.materialized.changing().await;
    let (over_streams, names) = match kind {
        RelationKind::View => stream_views::divided(&session.catalog, names)?,
        _ => (Vec::new(), names.to_vec()),
    };
    let existing = views::existing(session, kind, if_exists, &names)?;
    let roots = existing.iter().chain(&over_streams);
    let roots: Vec<Root> = roots.map(|name| Root { noun: kind.to_string(), name: name.clone() }).collect();
    clear(session, &roots, cascade).await?;
    for view in &over_streams {
        remove_stream(session, view).await?;
    }
    views::drop_all(session, kind, existing, cascade).await
}

/// DROP MATERIALIZED VIEW.
pub(crate) async fn drop_materialized(
    session: &SessionCore,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<()> {
    let _topologies = session.options.topologies.changing().await;
    let _views = session.options.materialized.changing().await;
    let mut roots = Vec::new();
    for name in names {
        let name = table_name(name)?;
        match materialized_views::check_view(session, &name) {
            Err(_) if if_exists && session.catalog.relation_kind(&name).is_none() => continue,
            checked => checked?,
        }
        check_view_owner(session, &name)?;
        let root = Root { noun: "materialized view".to_owned(), name };
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    let is_over_streams = |root: &Root| is_over_streams(session, &root.name);
    for root in roots.iter().filter(|root| is_over_streams(root)) {
        session.options.topologies.check_loaded("DROP MATERIALIZED VIEW")?;
        check_state_views(session, &root.name, cascade)?;
    }
    clear(session, &roots, cascade).await?;
    let is_root = |view: &String| {
        let of = query_of(&session.catalog, view);
        of.is_some_and(|of| roots.iter().any(|root| root.name == of))
    };
    for root in roots.iter().filter(|_| !cascade) {
        materialized_views::check_readers(session, &root.name, is_root)?;
    }
    let (over_streams, mut roots): (Vec<Root>, Vec<Root>) = roots.into_iter().partition(is_over_streams);
    for root in &over_streams {
        forget_topology(session, &root.name).await?;
    }
    // Those that read others of them were created later.
    let views = session.options.materialized.all();
    let place = |root: &Root| views.iter().position(|view| view.name == root.name);
    roots.sort_by_key(|root| Reverse(place(root).unwrap_or(usize::MAX)));
    for root in &roots {
        if cascade {
            drop_views_over(session, [query_view(&root.name), root.name.clone()]).await?;
        }
        materialized_views::drop_view(session, &root.name).await?;
    }
    for root in &over_streams {
        remove_state(session, &root.name).await?;
    }
    Ok(())
}

/// Tells whether a materialized view is one over streams.
fn is_over_streams(session: &SessionCore, name: &str) -> bool {
    let table = session.catalog.table(name);
    session.options.topologies.is_view(name) || table.is_ok_and(|table| streamed_by(&table).is_some())
}

/// DROP SOURCE, DROP STREAM, DROP TOPOLOGY and DROP SINK. No other statement changes sources or topologies meanwhile.
pub(crate) async fn drop_objects(
    session: &SessionCore,
    object: StreamObject,
    names: &[String],
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let _views = session.options.materialized.changing().await;
    let mut roots = Vec::new();
    for name in names {
        if matches!(object, StreamObject::Source | StreamObject::Stream) {
            let found = match object {
                StreamObject::Source => stored_topologies::source(&session.catalog, name)?,
                _ => stored_topologies::stream(&session.catalog, name)?,
            };
            if let (StreamObject::Stream, Some(text)) = (object, &found) {
                stream_views::check_kind(text, name, "stream")?;
            }
            if found.is_none() {
                if if_exists {
                    continue;
                }
                return Err(Error::coded("42704", format!("{} \"{name}\" does not exist", object.noun())));
            }
        } else {
            let all = stored_topologies::topologies(&session.catalog)?;
            if if_exists && all.iter().all(|stored| stored.name != *name) {
                continue;
            }
            if object == StreamObject::Topology {
                check_no_view(session, name)?;
            }
            stored(session, name, object)?;
            check_state_views(session, name, cascade)?;
        }
        let root = Root { noun: object.noun().to_owned(), name: name.clone() };
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    clear(session, &roots, cascade).await?;
    for Root { name, .. } in roots {
        if object == StreamObject::Source {
            remove_source(session, &name).await?;
            continue;
        }
        if object == StreamObject::Stream {
            remove_stream(session, &name).await?;
            continue;
        }
        remove_topology(session, &name).await?;
    }
    Ok(())
}

async fn remove_source(session: &SessionCore, name: &str) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || stored_topologies::remove_source(&catalog, &name)).await?
}

async fn remove_stream(session: &SessionCore, name: &str) -> Result<()> {
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || stored_topologies::remove_stream(&catalog, &name)).await?
}

/// Refuses to drop a materialized view as a topology.
fn check_no_view(session: &SessionCore, name: &str) -> Result<()> {
    if !session.options.topologies.is_view(name) && !deferred::is_deferred(&session.catalog, name)? {
        return Ok(());
    }
    let message = format!("\"{name}\" is a materialized view: use DROP MATERIALIZED VIEW {name}");
    Err(Error::coded("42809", message))
}

/// Ends a topology, and removes it with its state.
async fn remove_topology(session: &SessionCore, name: &str) -> Result<()> {
    forget_topology(session, name).await?;
    remove_state(session, name).await
}

/// Refuses to drop a topology whose state plain views read.
fn check_state_views(session: &SessionCore, topology: &str, cascade: bool) -> Result<()> {
    let noun = noun_of(session, topology);
    for table in entresol_streams::state_tables(&session.catalog, topology) {
        let readers = session.catalog.dependent_views(RelationKind::Table, &table);
        if let Some(view) = readers.first().filter(|_| !cascade) {
            let message = format!(
                "cannot drop {noun} {topology} because other objects depend on it: view {view} depends on table {table}"
            );
            return Err(Error::coded("2BP01", message));
        }
    }
    Ok(())
}

/// Ends a topology and removes its statement: it does not exist any more. Its state stays.
async fn forget_topology(session: &SessionCore, name: &str) -> Result<()> {
    let (catalog, topologies) = (Arc::clone(&session.catalog), session.options.topologies.clone());
    let (name, is_view) = (name.to_owned(), topologies.is_view(name));
    blocking(move || {
        topologies.pause(&name);
        if is_view {
            stored_topologies::remove_view(&catalog, &name)?;
        } else {
            stored_topologies::remove_topology(&catalog, &name)?;
        }
        topologies.remove(&name);
        Ok(())
    })
    .await?
}

/// Removes the state of a topology that has ended, with the plain views that read it.
async fn remove_state(session: &SessionCore, name: &str) -> Result<()> {
    let states = entresol_streams::state_tables(&session.catalog, name);
    let is_own = |table: &Arc<Table>| streamed_by(table) == Some(name);
    let of_view = session.catalog.table(name).ok().filter(is_own).map(|_| name.to_owned());
    drop_views_over(session, states.into_iter().chain(of_view)).await?;
    let (catalog, name) = (Arc::clone(&session.catalog), name.to_owned());
    blocking(move || starting::forget_state(&catalog, &name)).await?
}
