//! Other steps for a topology that exists.
//!
//! An aggregate or join over a stream has its state in a table. It goes on with it if what it computes is the
//! same in the new steps, down to the sources; else the table is of no use and is removed. ALTER TOPOLOGY
//! refuses to remove any, CREATE OR REPLACE TOPOLOGY says which it removes. A source that both have is read on
//! from where it was.
//!
//! All that can be refused is refused while the old steps run. Then they end with their transaction, and the
//! new statement is stored together with the names of the tables to remove, and the targets that it owns: a crash at any point leaves the
//! old topology, or the new one, which removes them before it starts.

use crate::ddl::stored_topologies::{self, StoredTopology};
use crate::error::{Error, Result};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::streaming::made_tables::check_builder;
use crate::streaming::operators::{KeyedTarget, PlannedState, TranslatedSteps};
use crate::streaming::options_text::word_at;
use crate::streaming::owned_targets;
use crate::streaming::starting::{check_cycle, operators, parse, relations_of, start, translated};
use crate::streaming::steps;
use crate::streaming::stream_names::check_stream_names;
use crate::streaming::view_targets;
use std::sync::Arc;

/// Statement of a topology with the steps of an ALTER TOPOLOGY name AS (steps).
fn with_steps_of(stored: &str, alter: &str) -> Result<String> {
    let (Some(clauses), Some(steps)) = (word_at(stored, "as"), word_at(alter, "as")) else {
        return Err(Error::Internal(format!("{stored} or {alter} has no steps")));
    };
    Ok(format!("{}{}", &stored[..clauses], &alter[steps..]))
}

/// Gives a topology the steps of an ALTER TOPOLOGY name AS (steps), all of whose state goes on.
pub(crate) async fn replace_steps(session: &SessionCore, stored: StoredTopology, alter: &str) -> Result<()> {
    check_kind(&stored)?;
    let text = with_steps_of(&stored.text, alter)?;
    check_stream_names(&session.catalog, &parse(&text)?)?;
    replace(session, stored, text, false).await.map_err(|error| match error {
        // The place is one in the text of both statements.
        Error::InStep { step, error, .. } => Error::InStep { step, place: None, error },
        other => other,
    })
}

/// Refuses a sink and a materialized view, whose statements have no steps.
pub(crate) fn check_kind(stored: &StoredTopology) -> Result<()> {
    let create = parse(&stored.text)?;
    let noun = match (&create.sink, &create.view) {
        (Some(_), _) => "sink",
        (_, Some(_)) => "materialized view",
        (None, None) => return Ok(()),
    };
    Err(Error::coded("42809", format!("\"{}\" is a {noun}", stored.name)))
}

/// Replaces a topology by one with another statement. State that is of no use to it is removed if `removes`,
/// else it is refused.
pub(crate) async fn replace(
    session: &SessionCore,
    stored: StoredTopology,
    text: String,
    removes: bool,
) -> Result<()> {
    stored_topologies::check_topology(&text)?;
    let create = parse(&text)?;
    let planned = steps::plan(session, &create).await?;
    let relations = relations_of(&create, &planned);
    view_targets::check_written(&session.catalog, &create, &relations)?;
    check_cycle(session, &create.name, &relations)?;
    let owned = owned_targets::checked(session, &create, &planned)?;
    let (catalog, durability) = (Arc::clone(&session.catalog), session.options.durability);
    let before = entresol_streams::state_tables(&catalog, &create.name);
    let (_, new_steps) = translated(&catalog, &create, &planned, durability, &before)?;
    // If the old steps can no longer be planned, nothing is known of their states and rows.
    let stored_steps = stored_steps(session, &stored).await.ok();
    let unused = unused_states(session, (&stored.name, stored_steps.as_ref()), &new_steps.states);
    let (builder, _) = operators(&catalog, &create, &planned, durability, &unused)?;
    check_builder(&catalog, &create, builder)?;
    if !removes && !unused.is_empty() {
        return Err(would_remove(&create.name, &unused));
    }
    for changed in stored_steps
        .iter()
        .flat_map(|stored| changed_targets(&stored.keyed_targets, &new_steps.keyed_targets))
    {
        session.notice(keeps_rows(&create.name, changed));
    }
    let topologies = session.options.topologies.clone();
    let is_paused = stored.is_paused;
    let runs = topologies.is_running(&stored.name);
    let replaced = StoredTopology { text, ..stored.clone() };
    let removed = unused.clone();
    let put = blocking(move || {
        topologies.pause(&replaced.name);
        stored_topologies::replace_topology(&catalog, &replaced, &removed, &owned)
    });
    if let Err(error) = put.await.and_then(|put| put) {
        // The stored statement is that of before.
        if runs {
            start(session, &parse(&stored.text)?, false).await?;
        }
        return Err(error);
    }
    if !unused.is_empty() {
        session.notice(format!(
            "topology \"{}\" begins without the state in {}: its steps are others",
            create.name,
            unused.join(", ")
        ));
    }
    if is_paused {
        session.options.topologies.note(&create.name, None, relations_of(&create, &planned));
        return Ok(());
    }
    let started = start(session, &create, false).await;
    if let Err(error) = &started {
        session.options.topologies.note(
            &create.name,
            Some(error.to_string()),
            relations_of(&create, &planned),
        );
    }
    started
}

/// State tables of a topology that no operator with these states goes on with.
fn unused_states(
    session: &SessionCore,
    (name, stored): (&str, Option<&TranslatedSteps>),
    states: &[PlannedState],
) -> Vec<String> {
    let before = stored.map_or(&[][..], |stored| &stored.states);
    let goes_on = |table: &String| {
        let is_of = |state: &&PlannedState| state.table == *table;
        before.iter().find(is_of).is_some_and(|state| states.contains(state))
    };
    let mut unused = entresol_streams::state_tables(&session.catalog, name);
    unused.retain(|table| !goes_on(table));
    unused
}

/// Steps of a topology as it is stored.
async fn stored_steps(session: &SessionCore, stored: &StoredTopology) -> Result<TranslatedSteps> {
    let create = parse(&stored.text)?;
    let planned = steps::plan(session, &create).await?;
    let tables = entresol_streams::state_tables(&session.catalog, &stored.name);
    Ok(translated(&session.catalog, &create, &planned, session.options.durability, &tables)?.1)
}

/// Tables that new steps write by key and old ones did, whose rows are computed otherwise.
fn changed_targets<'t>(
    before: &'t [KeyedTarget],
    targets: &'t [KeyedTarget],
) -> impl Iterator<Item = &'t KeyedTarget> {
    targets.iter().filter(|target| {
        let mut same_table = before.iter().filter(|before| before.table == target.table).peekable();
        same_table.peek().is_some() && same_table.all(|before| before.meaning != target.meaning)
    })
}

/// Notice of a table in which rows of old steps stay.
fn keeps_rows(topology: &str, target: &KeyedTarget) -> String {
    let KeyedTarget { table, step, .. } = target;
    format!(
        "table {table} keeps the rows that earlier steps of topology \"{topology}\" have written, until {step}, which computes \
         others, replaces them by their keys; to compute all rows again, drop the topology, delete the rows and create it with \
         these steps"
    )
}

fn would_remove(name: &str, unused: &[String]) -> Error {
    let tables = unused.join(", ");
    let message = format!(
        "the new steps of topology \"{name}\" cannot go on with its state in {tables}: what it was computed from or by is not \
         among them; CREATE OR REPLACE TOPOLOGY begins without it"
    );
    Error::coded("55000", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steps_are_replaced_and_the_clauses_stay() {
        let stored = "CREATE TOPOLOGY \"as\" COMMIT EACH ROW /* as */ WITH (durability = 'as') AS (INSERT INTO a SELECT x AS y FROM s)";
        let alter = "ALTER TOPOLOGY \"as\" as (INSERT INTO b SELECT 1 FROM s)";
        let expected = "CREATE TOPOLOGY \"as\" COMMIT EACH ROW /* as */ WITH (durability = 'as') as (INSERT INTO b SELECT 1 FROM s)";
        assert_eq!(with_steps_of(stored, alter).unwrap(), expected);
        assert!(with_steps_of("CREATE TOPOLOGY t (a AS b)", alter).is_err());
    }
}
