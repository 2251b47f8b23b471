//! `VACUUM`: frees now what the background frees in time; `entresol.vacuum` shows both.
//!
//! ```text
//! VACUUM [FULL] [FREEZE] [VERBOSE] [ANALYZE] [table, ...]
//! VACUUM (option [value], ...) [table, ...]
//! ```
//! Without tables it is all of them and the catalog. FULL gives free blocks of the file back to the disk,
//! too, VERBOSE says what was done and what holds the rest back, ANALYZE makes statistics of the tables behind it. The other
//! options of PostgreSQL's are taken and change nothing, which a notice says: there is nothing to freeze.
//!
//! Rows of a table with row groups are merged into them first. Objects of removed row groups, and those that a crash has left
//! in an object store, are deleted.
//!
//! VACUUM runs beside readers and writers, outside of a transaction. A statement that is given up ends
//! between two slices; a table that is dropped meanwhile is left to the reclamation of dropped states.

use crate::catalog::rows::vacuum::{described_holder, reclaimed_names};
use crate::ddl::maintenance;
use crate::error::Result;
use crate::parser::own::vacuum::Vacuum;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::session::vacuums::{VacuumPhase, VacuumProgress};
use entresol_tables::{Catalog, CollectedObjects, MergeStats, Table};
use entresol_transactions::{State, StateReclamation, VacuumStats};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Reclaimed keys, merges of each table, and objects that were collected, or the error of a store.
type VacuumResult = (VacuumStats, Vec<MergeStats>, entresol_tables::Result<CollectedObjects>);

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
    let (states, tables) = (states(&catalog, &vacuum.tables)?, tables(&catalog, &vacuum.tables)?);
    let given_up = GivenUp(Arc::default());
    let (stop, full) = (Arc::clone(&given_up.0), vacuum.full);
    let before = vacuum.verbose.then(|| catalog.context().reclamation());
    let (vacuumed, merged_tables) = (states.clone(), tables.clone());
    let progress = Arc::new(VacuumProgress::default());
    session.snapshots.show_vacuum(&progress);
    let analyzed = if vacuum.analyze { tables.clone() } else { Vec::new() };
    let (stats, merges, collected) = blocking(move || -> Result<VacuumResult> {
        // First: what a merge leaves behind is dead.
        let merge = |table: &Arc<Table>| {
            progress.note(|step| step.state = Some(table.state().id()));
            merge(table, &stop)
        };
        let merges = merged_tables.iter().map(merge).collect::<Result<_>>()?;
        let stats = work(&catalog, &vacuumed, &stop, &progress)?;
        let collected = catalog.collect_objects();
        if full {
            progress.note(|step| step.phase = VacuumPhase::Truncating);
            let context = catalog.context();
            let beside = context.volatile_pool().into_iter().chain(context.disk_pool());
            for pool in beside.chain([context.pool()]) {
                pool.return_space().map_err(entresol_tables::Error::from)?;
            }
        }
        Ok((stats, merges, collected))
    })
    .await??;
    tracing::info!(?stats, ?collected, "VACUUM completed");
    if let Err(error) = collected {
        session.notice(format!("objects of removed row groups stay: {error}"));
    }
    for option in &vacuum.without_effect {
        session.notice(format!("VACUUM option {} has no effect", option.to_uppercase()));
    }
    if let Some(before) = before {
        tell(session, &stats, &before, (&states, &tables, &merges));
    }
    maintenance::analyze_all(session, &analyzed).await?;
    Ok(StatementResult::Done { verb: "VACUUM" })
}

/// Says what was done: a line for each table that has rows in row groups, for each state that had dead keys, and for
/// all together.
fn tell(
    session: &SessionCore,
    stats: &VacuumStats,
    before: &[StateReclamation],
    (states, tables, merges): (&[Arc<State>], &[Arc<Table>], &[MergeStats]),
) {
    for (table, merged) in tables.iter().zip(merges).filter(|(table, _)| table.has_row_groups()) {
        let MergeStats { rows, deleted, .. } = merged;
        session.info(format!(
            "table \"{}\": merged {rows} rows into row groups, {deleted} rows of which were deleted or replaced",
            table.name()
        ));
    }
    let names = reclaimed_names(&session.catalog);
    for now in session.catalog.context().reclamation() {
        let Some((table, index)) = names.get(&now.state) else { continue };
        let reclaimed_before = before.iter().find(|of| of.state == now.state).map_or(0, |of| of.reclaimed);
        let reclaimed = now.reclaimed.saturating_sub(reclaimed_before);
        let is_named = states.iter().any(|state| state.id() == now.state);
        if !is_named || reclaimed + now.dead_keys == 0 && index.is_some() {
            continue;
        }
        let name = match index {
            None => format!("table \"{table}\""),
            Some(index) => format!("index \"{index}\" of table \"{table}\""),
        };
        let held = now.held_by.map(|holder| described_holder(&session.options.sessions, &holder));
        let held = held.map_or_else(String::new, |held| format!(", held back by {held}"));
        session.info(format!("{name}: reclaimed {reclaimed} dead keys, {} are left{held}", now.dead_keys));
    }
    let VacuumStats { keys_seen, keys_removed, objects_shrunk, versions_pruned, states_destroyed, .. } =
        stats;
    session.info(format!(
        "visited {keys_seen} keys: removed {keys_removed}, shrank {objects_shrunk}, pruned {versions_pruned} versions of \
         the history; freed {states_destroyed} dropped tables and indexes"
    ));
}

/// Tables whose rows are merged into row groups.
fn tables(catalog: &Catalog, names: &[String]) -> Result<Vec<Arc<Table>>> {
    if names.is_empty() {
        return Ok(catalog.tables());
    }
    names.iter().map(|name| Ok(catalog.table(name)?)).collect()
}

/// Merges the rows of a table into row groups, if it has them.
fn merge(table: &Arc<Table>, stop: &AtomicBool) -> Result<MergeStats> {
    let mut told = Instant::now();
    let merged = table.merge(|stats| {
        if stop.load(Ordering::Acquire) {
            return Err(entresol_transactions::Error::Busy("the statement was cancelled").into());
        }
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            tracing::info!(table = table.name(), ?stats, "merge in progress");
        }
        Ok(())
    });
    let stats = match merged {
        // It was dropped meanwhile: there is nothing to merge.
        Err(_) if table.state().is_dropped() => return Ok(MergeStats::default()),
        merged => merged?,
    };
    if table.has_row_groups() {
        tracing::info!(table = table.name(), ?stats, "merge completed");
    }
    Ok(stats)
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
        states.extend(table.row_group_states());
        states.extend(table.indexes().iter().filter_map(|index| context.state(index.state_id())));
    }
    Ok(states)
}

fn work(
    catalog: &Catalog,
    states: &[Arc<State>],
    stop: &AtomicBool,
    progress: &VacuumProgress,
) -> Result<VacuumStats> {
    let (began, mut told) = (Instant::now(), Instant::now());
    let names = reclaimed_names(catalog);
    let is_index = |state: &State| names.get(&state.id()).is_some_and(|(_, index)| index.is_some());
    let mut begin = VacuumStats::default();
    let done = catalog.context().vacuum_states(states, |stats| {
        if stop.load(Ordering::Acquire) {
            return Err(entresol_transactions::Error::Busy("the statement was cancelled"));
        }
        if told.elapsed() >= LOG_EVERY {
            told = Instant::now();
            tracing::info!(seconds = began.elapsed().as_secs(), ?stats, "VACUUM in progress");
        }
        let number = usize::try_from(stats.states_done).unwrap_or(usize::MAX);
        let state = states.get(number);
        if stats.states_done != begin.states_done {
            begin = *stats;
        }
        progress.note(|step| {
            let is_new = step.state != state.map(|state| state.id()) || step.phase == VacuumPhase::Merging;
            if is_new {
                step.indexes += u64::from(step.phase == VacuumPhase::Index);
                step.state = state.map(|state| state.id());
                step.keys = state.map_or(0, |state| state.estimated_keys());
                step.dead_keys = state.map_or(0, |state| catalog.context().dead_keys(state));
            }
            step.phase = match state {
                None => VacuumPhase::CleanUp,
                Some(state) if is_index(state) => VacuumPhase::Index,
                Some(_) => VacuumPhase::Table,
            };
            step.keys_seen = stats.keys_seen - begin.keys_seen;
            step.keys_removed = stats.keys_removed - begin.keys_removed;
        });
        Ok(())
    });
    Ok(done.map_err(entresol_tables::Error::from)?)
}
