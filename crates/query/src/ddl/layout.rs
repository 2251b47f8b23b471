//! `ALTER TABLE t SET (layout = 'rows' | 'columns')`: the rows of a table move into row groups, or out of them.
//!
//! Others read and write meanwhile; a transaction that writes a row which is moved may get a conflict, and so does one
//! that began before and wrote the table. A cancelled change to `rows` has not happened. That to `columns` takes
//! place before the rows are moved: if it is cancelled behind that, a notice says that the background goes on.
//!
//! `SET (layout = 'auto')` moves nothing: the layout follows the recorded workload from then on, in the background and
//! with ANALYZE ([`entresol_tables::advice`]). A layout that a statement names ends that.

use crate::ddl::table_options::LayoutChoice;
use crate::error::{Error, Result};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use entresol_tables::advice::LayoutDecision;
use entresol_tables::{Error as TableError, Table, TableLayout, Verify};
use entresol_transactions::Error as TransactionError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Gives a table a layout, or lets its layout follow the workload.
pub(crate) async fn choose(session: &SessionCore, table: &Table, choice: LayoutChoice) -> Result<()> {
    let is_auto = choice == LayoutChoice::Auto;
    if is_auto && table.definition().layout == TableLayout::Clustered {
        let message = format!("table {} of layout 'clustered' cannot get the layout 'auto'", table.name());
        return Err(Error::coded("0A000", message));
    }
    if is_auto != table.definition().auto_layout {
        let (catalog, name) = (Arc::clone(&session.catalog), table.name().to_owned());
        blocking(move || {
            catalog.redefine(&name, None::<Verify<'_, TableError>>, |definition| {
                definition.auto_layout = is_auto;
                Ok(())
            })
        })
        .await??;
    }
    match choice {
        LayoutChoice::Layout(layout) => set(session, table.name(), layout).await,
        LayoutChoice::Auto => Ok(()),
    }
}

/// Chooses the layout of a table with the layout `auto` by its workload, and says what was chosen.
pub(crate) async fn decide(session: &SessionCore, table: &Table) -> Result<()> {
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let name = table.name().to_owned();
    let decided = blocking(move || catalog.decide_layout(&statement, &name)).await;
    stops.done();
    match decided?? {
        Some(LayoutDecision { layout, is_change: true, why, .. }) => {
            session.notice(format!(
                "layout 'auto' of table {} is '{}' now: {why}",
                table.name(),
                layout.name()
            ));
        }
        Some(LayoutDecision { layout, why, .. }) => {
            session.notice(format!(
                "layout 'auto' of table {} stays '{}': {why}",
                table.name(),
                layout.name()
            ));
        }
        None => session.notice(format!(
            "layout 'auto' of table {} stays '{}': there is no workload to choose by, or no other layout that it can have",
            table.name(),
            table.definition().layout.name()
        )),
    }
    Ok(())
}

/// Changes the layout of a table.
async fn set(session: &SessionCore, name: &str, layout: TableLayout) -> Result<()> {
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
