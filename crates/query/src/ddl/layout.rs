//! `ALTER TABLE t SET (layout = 'rows' | 'columns')`: the rows of a table move into row groups, or out of them.
//!
//! Others read and write meanwhile; a transaction that writes a row which is moved may get a conflict, and so does one
//! that began before and wrote the table. A cancelled change to `rows` has not happened. That to `columns` takes
//! place before the rows are moved: if it is cancelled behind that, a notice says that the background goes on.

use crate::error::Result;
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
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let table = name.to_owned();
    let changed = blocking(move || {
        let mut told = Instant::now();
        catalog.set_layout(&statement, &table, layout, &mut |stats| {
            statement.check()?;
            if told.elapsed() >= LOG_EVERY {
                told = Instant::now();
                tracing::info!(
                    table,
                    layout = layout.name(),
                    rows = stats.rows,
                    "change of layout in progress"
                );
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
