//! CREATE VIEW over sources and streams: a stream of no topology by the name that standard SQL has for a stored query.
//!
//! ```text
//!   CREATE VIEW v AS SELECT ... FROM reading     ─▶ stored as a stream ([`super::stored_streams`])
//!   CREATE VIEW w AS SELECT ... FROM places      ─▶ a view of tables, as ever
//! ```
//!
//! The names in FROM decide. Topologies read it as if its text stood in them; it has no rows of its own, and a query of it
//! is refused with that reason. DROP VIEW drops it, alone or beside views of tables.

use crate::ddl::stored_topologies;
use crate::ddl::views::check_clauses;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::parser::statement::{STREAM_VIEW, created_stream};
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::streaming::parsed_steps::names_of;
use crate::streaming::stored_streams;
use datafusion::sql::sqlparser::ast::{CreateView, Ident, ObjectName};
use entresol_tables::Catalog;

/// Runs CREATE VIEW of a query over sources or streams; none if it is over tables.
pub(crate) async fn create(session: &SessionCore, create: &CreateView) -> Result<Option<StatementResult>> {
    let name = table_name(&create.name)?;
    let quoted = |name: &str| Ident::with_quote('"', name).to_string();
    let given: Vec<String> = create.columns.iter().map(|column| quoted(&identifier(&column.name))).collect();
    let query = match given.as_slice() {
        [] => create.query.to_string(),
        names => format!("SELECT * FROM ({}) AS {} ({})", create.query, quoted(&name), names.join(", ")),
    };
    let text = format!("{STREAM_VIEW}{} AS {query}", quoted(&name));
    let Some(mut stream) = created_stream(&text) else { return Ok(None) };
    if !reads_streams(&session.catalog, &names_of(&stream.step).1)? {
        return Ok(None);
    }
    check_clauses(create)?;
    let _changing = session.options.topologies.changing().await;
    (stream.replaces, stream.text) = (create.or_replace, text);
    stored_streams::create(session, &stream).await?;
    Ok(Some(StatementResult::Done { verb: "CREATE VIEW" }))
}

/// Tells whether one of these is the name of a source, or of a stream of no topology.
pub(crate) fn reads_streams(catalog: &Catalog, names: &[String]) -> Result<bool> {
    for name in names {
        if stored_topologies::source(catalog, name)?.is_some()
            || stored_topologies::stream(catalog, name)?.is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Kind of a stream of no topology, by its stored statement.
pub(crate) fn noun_of_text(text: &str) -> &'static str {
    if text.starts_with(STREAM_VIEW) { "view" } else { "stream" }
}

/// Kind of a stream of no topology.
pub(crate) fn noun_of(catalog: &Catalog, name: &str) -> &'static str {
    let stored = stored_topologies::stream(catalog, name).ok().flatten();
    noun_of_text(stored.as_deref().unwrap_or_default())
}

/// Refuses a statement on a stream of no topology as one of another kind than it is.
pub(crate) fn check_kind(text: &str, name: &str, wanted: &str) -> Result<()> {
    let found = noun_of_text(text);
    if found == wanted {
        return Ok(());
    }
    Err(Error::coded("42809", format!("\"{name}\" is a {found}, not a {wanted}")))
}

/// Divides names of DROP VIEW into those of views over streams, each once, and others.
pub(crate) fn divided(catalog: &Catalog, names: &[ObjectName]) -> Result<(Vec<String>, Vec<ObjectName>)> {
    let (mut over_streams, mut others) = (Vec::new(), Vec::new());
    for object in names {
        let name = table_name(object)?;
        match stored_topologies::stream(catalog, &name)? {
            Some(text) => {
                check_kind(&text, &name, "view")?;
                if !over_streams.contains(&name) {
                    over_streams.push(name);
                }
            }
            None => others.push(object.clone()),
        }
    }
    Ok((over_streams, others))
}
