//! EXPLAIN MATERIALIZED VIEW: when a view follows what it reads, and what a change of each table costs.

use super::deferred;
use super::statements::check_view;
use crate::error::{Error, Result};
use crate::planner::explain;
use crate::session::core::SessionCore;
use crate::session::materialized::{MaintainedView, query_view, state_table};
use crate::session::result::StatementResult;
use crate::session::state_size;

/// Way in which a view over tables is maintained; with `analyze` the sizes of what it stores.
pub(crate) fn explain(session: &SessionCore, name: &str, analyze: bool) -> Result<StatementResult> {
    check_view(session, name)?;
    let views = session.options.materialized.all();
    let Some(view) = views.iter().find(|view| view.name == name) else {
        let message = format!(
            "materialized view \"{name}\" is not maintained: its query could not be planned when the database was opened"
        );
        return Err(Error::coded("55000", message));
    };
    let mut lines = vec![format!("Materialized view {name}, {}", time_of(session, view)?)];
    lines.extend(
        view.tables.iter().map(|(table, columns)| format!("  changes of {table}: {}", way_of(view, columns))),
    );
    if view.tables.is_empty() {
        lines.push("  reads no table, so its rows do not change".to_owned());
    }
    if view.tables.len() > 1 && !view.is_deferred {
        lines.push("  changes of several of them in a transaction: the entire query".to_owned());
    }
    let query = session.catalog.view(&query_view(name))?.definition().query.clone();
    lines.push(format!("  query: {query}"));
    if analyze {
        for stored in [name.to_owned(), state_table(name)] {
            if let Ok(table) = session.catalog.table(&stored) {
                let size = state_size::size_of(&session.catalog, &table)?;
                lines.push(format!("  table {stored}: {} rows, {} bytes", size.rows, size.bytes));
            }
        }
    }
    explain::lines(lines)
}

/// Time at which a view follows a change.
fn time_of(session: &SessionCore, view: &MaintainedView) -> Result<String> {
    let Some(refresh) = deferred::described(&session.catalog, &view.name)? else {
        return Ok("maintained in the commits that change what it reads".to_owned());
    };
    Ok(refresh)
}

/// Work for changed rows of a table, of which the view has these columns.
fn way_of(view: &MaintainedView, columns: &[(usize, String)]) -> String {
    if view.incremental.is_some() {
        return "added to the counts and sums of their groups, without the query".to_owned();
    }
    let names: Vec<&str> = columns.iter().map(|(_, column)| column.as_str()).collect();
    match names.as_slice() {
        [] => "the entire query".to_owned(),
        names => format!("the query for their values of {}", names.join(", ")),
    }
}
