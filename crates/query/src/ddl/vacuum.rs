//! `VACUUM`: gives back now what the background gives back in time; `entresol.vacuum` shows both.
//!
//! ```text
//! VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]
//! VACUUM (option [value], ...) [table, ...]
//! ```
//! Without tables it is all of them and the catalog. FULL gives free blocks of the file back to the disk,
//! too. The other options of PostgreSQL's are taken and change nothing: there is nothing to freeze, and
//! statistics are not kept.
//!
//! VACUUM runs beside readers and writers, outside of a transaction. A statement that is given up ends
//! between two slices; a table that is dropped meanwhile is left to the reclamation of dropped states.

use crate::error::Result;
use crate::parser::own::vacuum::Vacuum;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use entresol_tables::Catalog;
use entresol_transactions::{State, VacuumStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Stops the work of a statement whose future was dropped.
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Runs it to the end.
pub(crate) async fn run(session: &SessionCore, vacuum: &Vacuum) -> Result<StatementResult> {
    let catalog = Arc::clone(&session.catalog);
    let states = states(&catalog, &vacuum.tables)?;
    let given_up = GivenUp(Arc::default());
    let (stop, full) = (Arc::clone(&given_up.0), vacuum.full);
    let stats = blocking(move || -> Result<VacuumStats> {
        let stats = work(&catalog, &states, &stop)?;
        if full {
            let context = catalog.context();
            let beside = context.volatile_pool().into_iter().chain(context.disk_pool());
            for pool in beside.chain([context.pool()]) {
                pool.return_space().map_err(entresol_tables::Error::from)?;
            }
        }
        Ok(stats)
    })
    .await??;
    tracing::info!(?stats, "VACUUM completed");
    Ok(StatementResult::Done { verb: "VACUUM" })
}

/// The states of tables with their indexes; of all, if none is named.
fn states(catalog: &Arc<Catalog>, tables: &[String]) -> Result<Vec<Arc<State>>> {
    let context = catalog.context();
    if tables.is_empty() {
        return Ok(context.states());
    }
    let mut states = Vec::new();
    for name in tables {
        let table = catalog.table(name)?;
        states.push(Arc::clone(table.state()));
        states.extend(table.indexes().iter().filter_map(|index| context.state(index.state_id())));
    }
    Ok(states)
}

fn work(catalog: &Catalog, states: &[Arc<State>], stop: &AtomicBool) -> Result<VacuumStats> {
    let (began, mut told) = (Instant::now(), Instant::now());
    let done = catalog.context().vacuum_states(states, |stats| {
        if stop.load(Ordering::Acquire) {
            return Err(entresol_transactions::Error::Busy("the statement was cancelled"));
        }
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            tracing::info!(seconds = began.elapsed().as_secs(), ?stats, "VACUUM in progress");
        }
        Ok(())
    });
    Ok(done.map_err(entresol_tables::Error::from)?)
}
