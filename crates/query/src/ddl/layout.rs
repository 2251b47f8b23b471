//! `ALTER TABLE t SET (layout = 'rows' | 'columns' | 'clustered' | 'elf')`: the rows of a table move into row groups, or out of
//! them, or into row groups of the other kind.
//!
//! Others read and write meanwhile; a transaction that writes a row which is moved may get a conflict, and so does one
//! that began before and wrote the table. A cancelled change to `rows` has not happened. The others take
//! place before the rows are moved: if one is cancelled behind that, a notice says that the background goes on.
//!
//! `SET (layout = 'auto')` moves nothing: the layout follows the recorded workload from then on, in the background and
//! with ANALYZE ([`entresol_tables::advice`]). A layout that a statement names ends that.

use crate::ddl::table_options::{DeclaredOptions, LayoutChoice};
use crate::error::{Error, Result};
use crate::session::cancellation::CancelOnDrop;
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use entresol_tables::advice::LayoutDecision;
use entresol_tables::{ClusteringDefinition, Error as TableError, NewLayout, Table, TableLayout, Verify};
use entresol_transactions::Error as TransactionError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two lines of the log.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// Change of a table's layout that a statement asks for.
pub(crate) struct LayoutChange {
    is_auto: bool,
    /// Layout that it gets at once.
    new: Option<NewLayout>,
    /// Dimensions that the workload may choose, of a table that is not clustered.
    declared: Option<ClusteringDefinition>,
}

impl LayoutChange {
    /// Change that options ask for; none if they name neither a layout nor what belongs to one.
    pub(crate) fn declared(table: &Table, options: &DeclaredOptions) -> Result<Option<LayoutChange>> {
        let definition = table.definition();
        let given = options.clustering.given();
        let choice = match (options.layout, given.or_else(|| options.elf.given())) {
            (None, None) => return Ok(None),
            (Some(choice), _) => choice,
            (None, _) if definition.auto_layout => LayoutChoice::Auto,
            (None, _) => LayoutChoice::Layout(definition.layout),
        };
        let (is_auto, layout) = match choice {
            LayoutChoice::Auto => (true, definition.layout),
            LayoutChoice::Layout(layout) => (false, layout),
        };
        let is_clustered = layout == TableLayout::Clustered;
        let clustering = match given {
            Some(name) if !is_clustered && !is_auto => {
                let message = format!("parameter \"{name}\" is for tables of layout 'clustered' or 'auto'");
                return Err(Error::coded("22023", format!("{message}, not '{}'", layout.name())));
            }
            None if !is_clustered => definition.clustering.clone().filter(|_| is_auto),
            _ => {
                let before = definition.clustering.as_ref();
                Some(options.clustering.changed(table.name(), table.schema(), before)?)
            }
        };
        let (new, declared) = match (clustering, is_clustered) {
            (Some(clustering), true) => (Some(clustering.into()), None),
            (declared, _) => ((!is_auto).then(|| layout.into()), declared),
        };
        let of = (layout, is_auto);
        let elf = options.elf.changed(table.name(), table.schema(), of, &definition.elf_layout)?;
        let new = elf.map(NewLayout::from).or(new);
        Ok(Some(LayoutChange { is_auto, new, declared }))
    }
}

/// Gives a table a layout, or lets its layout follow the workload.
pub(crate) async fn choose(session: &SessionCore, table: &Table, change: LayoutChange) -> Result<()> {
    let LayoutChange { is_auto, new, declared } = change;
    let definition = table.definition();
    let is_clustered = definition.layout == TableLayout::Clustered;
    if is_auto != definition.auto_layout || (!is_clustered && declared != definition.clustering) {
        let (catalog, name) = (Arc::clone(&session.catalog), table.name().to_owned());
        blocking(move || {
            catalog.redefine(&name, None::<Verify<'_, TableError>>, |definition| {
                definition.auto_layout = is_auto;
                if definition.layout != TableLayout::Clustered {
                    definition.clustering = declared;
                }
                Ok(())
            })
        })
        .await??;
    }
    match new {
        Some(new) => set(session, table.name(), new).await,
        None => Ok(()),
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
        Some(LayoutDecision { layout, dimensions, is_change: true, why, .. }) => {
            let names = dimensions.iter().map(|column| &table.schema().columns()[*column].name[..]);
            let names: Vec<&str> = names.collect();
            let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) };
            session.notice(format!(
                "layout 'auto' of table {} is '{}'{by} now: {why}",
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
async fn set(session: &SessionCore, name: &str, new: NewLayout) -> Result<()> {
    let (catalog, statement) = (Arc::clone(&session.catalog), session.running.statement());
    let stops = CancelOnDrop::new(Arc::clone(&statement));
    let (table, layout) = (name.to_owned(), new.layout);
    let changed = blocking(move || {
        let mut told = Instant::now();
        catalog.set_layout(&statement, &table, new, &mut |stats| {
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
