//! `ALTER TABLE t SET (layout = 'rows' | 'columns')`: the rows of a table move into row groups, or out of them.
//!
//! Others read and write meanwhile; a transaction that writes a row which is moved may get a conflict, and so does one
//! that began before and wrote the table. A cancelled change to `rows` has not happened. That to `columns` takes
//! place before the rows are moved: if it is cancelled behind that, a notice says that the background goes on.

use crate::error::{Error, Result};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use entresol_tables::{Error as TableError, TableLayout};
use entresol_transactions::Error as TransactionError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Changes the layout of a table.
pub(crate) async fn set(session: &SessionCore, name: &str, layout: TableLayout) -> Result<()> {
    check_views(session, name, layout)?;
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let table = name.to_owned();
    let changed = blocking(move || {
        let mut told = Instant::now();
        catalog.set_layout(&statement, &table, layout, &mut |stats| {
            statement.check()?;
            if told.elapsed() >= LOG_EVERY {
                told = Instant::now();
                tracing::info!(table, layout = layout.name(), rows = stats.rows, "change of layout in progress");
            }
            Ok(())
        })
    })
    .await;
    stops.done();
    match changed? {
        Err(TableError::Transactions(TransactionError::Interrupted(_))) if has(session, name, layout) => {
            session.notice(format!(
                "table {name} has the layout '{}' now; the rest of its rows is moved in the background",
                layout.name()
            ));
            Ok(())
        }
        changed => Ok(changed?),
    }
}

/// Tells whether a table has a layout.
fn has(session: &SessionCore, name: &str, layout: TableLayout) -> bool {
    session.catalog.table(name).is_ok_and(|table| table.definition().layout == layout)
}

/// Refuses a layout of a table of which materialized views could not be maintained.
fn check_views(session: &SessionCore, name: &str, layout: TableLayout) -> Result<()> {
    let views = session.options.materialized.all();
    let reads = |tables: &[(String, Vec<(usize, String)>)]| tables.iter().any(|(table, _)| table == name);
    match views.iter().find(|view| reads(&view.tables)) {
        Some(view) if layout == TableLayout::Columns => Err(Error::unsupported(format!(
            "a materialized view over a table of layout 'columns': {} reads table {name}",
            view.name
        ))),
        _ => Ok(()),
    }
}
