//! ALTER TABLE of a table that topologies read or write.
//!
//! | change | |
//! | --- | --- |
//! | RENAME TO | refused |
//! | RENAME COLUMN, DROP COLUMN | refused if a topology uses the column; DROP COLUMN ... CASCADE drops the topology |
//! | ADD COLUMN | topologies that only insert go on; others are planned again |
//! | SET NOT NULL, DROP NOT NULL, ADD PRIMARY KEY | the same; refused of a column that the rows of a topology lack |
//! | SET DEFAULT, ADD CHECK, ADD COLUMN with them | topologies that write it by INSERT, MERGE and the like go on with them; refused of tables of late and rejected rows, and if the rows of a topology have a value for what is to be GENERATED |
//! | ADD COLUMN NOT NULL without a default | refused of a table that a topology writes |
//! | others | as of any table |
//!
//! Uses to which all columns of a table matter are planned again: CHANGES, look-ups, ON CONFLICT DO UPDATE, MERGE, DELETE. If a
//! topology could not be planned any more, as one with `SELECT *` and one column more, the table gets the definition that it
//! had, and the statement is refused. DROP COLUMN ... CASCADE drops nothing before all that may refuse the statement has passed.
//!
//! A crash between the change and its taking back leaves the change: the topology is then shown as failed, with the reason, and
//! starts again once the column is dropped.

use crate::ddl::{alter, owned_tables};
use crate::error::{Error, Result};
use crate::parser::names::{identifier, table_name};
use crate::session::core::SessionCore;
use crate::session::result::StatementResult;
use crate::session::topologies::UsedRelations;
use crate::streaming::altered_actions::{self, Action, Part};
use crate::streaming::dependents::{Dependents, Root};
use crate::streaming::replanning::ReplannedTopologies;
use crate::streaming::target_rules;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, ColumnOption, DropBehavior, Expr,
    Ident, IndexColumn, TableConstraint,
};
use entresol_tables::Table;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Runs an ALTER TABLE.
pub(crate) async fn alter_table(session: &SessionCore, alter: &AlterTable) -> Result<StatementResult> {
    let table = table_name(&alter.name)?;
    let is_alone = alter.operations.len() == 1;
    if is_alone && !alter.operations.iter().any(changes_columns) || session.catalog.table(&table).is_err() {
        return alter::run(session, alter).await;
    }
    let is_drop =
        |operation: &AlterTableOperation| matches!(operation, AlterTableOperation::DropColumn { .. });
    let drops = alter.operations.iter().any(is_drop);
    // No topology is created or started meanwhile, and no view that would refuse a column's end.
    let _changing = session.options.topologies.changing().await;
    let _views = if drops { Some(session.options.materialized.changing().await) } else { None };
    let before = session.catalog.table(&table)?;
    owned_tables::check_owner(session, &before, "alter")?;
    let actions = match alter.operations.as_slice() {
        [operation] => {
            let part = if drops { Part::DroppedColumns } else { Part::ChangedColumns };
            vec![Action { part, operation }]
        }
        operations => altered_actions::ordered(operations, &before)?,
    };
    // What is refused drops no dependents.
    if is_alone && drops && alter::column_to_drop(session, alter)?.is_none() {
        return Ok(alter::DONE);
    }
    let altered = AlteredTable { session, table: &table };
    for action in &actions {
        altered.check(action.operation).await?;
    }
    let users = session.options.topologies.users(|used| used.uses(&table));
    let planned = session.options.topologies.users(|used| used.planned.contains(&table));
    let replanning =
        ReplannedTopologies::stop(session, users, |user| planned.iter().any(|name| name == user)).await?;
    let changed = altered.run(alter, &before, &actions, &replanning).await;
    let started = replanning.start().await;
    changed?;
    started.map(|()| alter::DONE)
}

/// Tells whether an operation may change what the columns of a table are.
fn changes_columns(operation: &AlterTableOperation) -> bool {
    match operation {
        AlterTableOperation::AddColumn { .. }
        | AlterTableOperation::DropColumn { .. }
        | AlterTableOperation::RenameColumn { .. }
        | AlterTableOperation::RenameTable { .. }
        | AlterTableOperation::AlterColumn { .. } => true,
        AlterTableOperation::AddConstraint { constraint, .. } => {
            matches!(constraint, TableConstraint::Check(_) | TableConstraint::PrimaryKey(_))
        }
        _ => false,
    }
}

/// Topologies that write a table: all, or those of which the rows do not get defaults and are not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writers {
    All,
    WithoutRules,
}

/// Table of an ALTER TABLE.
struct AlteredTable<'s> {
    session: &'s SessionCore,
    table: &'s str,
}

impl AlteredTable<'_> {
    /// Runs the actions of a statement. If one is refused, or a topology could not be planned any more, those before it are taken
    /// back.
    async fn run(
        &self,
        alter: &AlterTable,
        before: &Arc<Table>,
        actions: &[Action<'_>],
        replanning: &ReplannedTopologies<'_>,
    ) -> Result<()> {
        let session = self.session;
        let alone =
            |action: &Action<'_>| AlterTable { operations: vec![action.operation.clone()], ..alter.clone() };
        let mut left = Arc::clone(before);
        // Those that use a column that is dropped were refused, or dropped with it.
        let drops = actions.iter().position(|action| action.part == Part::DroppedColumns);
        for (at, action) in actions.iter().enumerate() {
            if at > 0 {
                left = session.catalog.table(before.name())?;
            }
            let run = async {
                if at > 0 && drops == Some(at) {
                    for action in &actions[at..] {
                        alter::column_to_drop(session, &alone(action))?;
                    }
                    replanning.check().await?;
                }
                alter::run(session, &alone(action)).await
            };
            if let Err(error) = run.await {
                return Err(altered_actions::taken_back(session, before, &left, &actions[..at], error).await);
            }
        }
        if drops.is_some() {
            return Ok(());
        }
        let Err(error) = replanning.check().await else { return Ok(()) };
        let left = session.catalog.table(before.name())?;
        Err(altered_actions::taken_back(session, before, &left, actions, error).await)
    }

    /// Refuses what topologies could not go on with; with CASCADE drops those.
    async fn check(&self, operation: &AlterTableOperation) -> Result<()> {
        let uses = |used: &UsedRelations| used.uses(self.table);
        match operation {
            AlterTableOperation::RenameTable { .. } => self.refuse_users("rename", "table", self.table, uses),
            AlterTableOperation::RenameColumn { old_column_name, .. } => {
                let column = identifier(old_column_name);
                self.refuse_users("rename", "column", &column, |used| used.uses_column(self.table, &column))
            }
            AlterTableOperation::DropColumn { column_names, drop_behavior, .. } => {
                let columns: Vec<String> = column_names.iter().map(identifier).collect();
                let uses =
                    |used: &UsedRelations| columns.iter().any(|column| used.uses_column(self.table, column));
                if matches!(drop_behavior, Some(DropBehavior::Cascade)) {
                    let mut topologies: BTreeSet<String> =
                        self.session.options.topologies.users(uses).into_iter().collect();
                    // Those of materialized views are parts of them.
                    let views = self.session.options.materialized.all();
                    topologies.retain(|name| views.iter().all(|view| view.name != *name));
                    let dependents =
                        Dependents::of_topologies(topologies).with_readers_of_views(self.session)?;
                    return dependents.drop_all(self.session).await;
                }
                self.refuse_users("drop", "column", &columns.join(", "), uses)
            }
            AlterTableOperation::AddColumn { column_def, .. } if has_rules(column_def) => {
                self.check_added(column_def)
            }
            AlterTableOperation::AlterColumn { column_name, op } => match op {
                AlterColumnOperation::SetNotNull => self.refuse_lacking(std::slice::from_ref(column_name)),
                AlterColumnOperation::SetDefault { value } => {
                    self.refuse_writers(Writers::WithoutRules, "a column would have a default")?;
                    self.check_default(&identifier(column_name), value)
                }
                AlterColumnOperation::AddGenerated { .. } => {
                    self.refuse_writers(Writers::WithoutRules, "a column would have a default")?;
                    self.refuse_giving(&identifier(column_name))
                }
                _ => Ok(()),
            },
            AlterTableOperation::AddConstraint { constraint: TableConstraint::Check(_), .. } => {
                self.refuse_writers(Writers::WithoutRules, "it would have a check")
            }
            AlterTableOperation::AddConstraint { constraint: TableConstraint::PrimaryKey(key), .. } => {
                self.refuse_lacking(&key.columns.iter().filter_map(column_of).collect::<Vec<_>>())
            }
            _ => Ok(()),
        }
    }

    /// Refuses a column that the rows of topologies would need, and do not get.
    fn check_added(&self, column: &ColumnDef) -> Result<()> {
        let options = || column.options.iter().map(|option| &option.option);
        let default = options().find_map(|option| match option {
            ColumnOption::Default(default) => Some(default),
            _ => None,
        });
        let is_generated = options().any(|option| matches!(option, ColumnOption::Generated { .. }));
        let is_needed = options().any(|option| matches!(option, ColumnOption::NotNull));
        if is_needed && default.is_none() && !is_generated {
            self.refuse_writers(Writers::All, "the added column is NOT NULL without a default")?;
        }
        self.refuse_writers(Writers::WithoutRules, "the added column has a default, NOT NULL or a check")?;
        default.map_or(Ok(()), |default| self.check_default(&identifier(&column.name), default))
    }

    /// Refuses a default that topologies which write the table could not compute.
    fn check_default(&self, column: &str, default: &Expr) -> Result<()> {
        let writes = |used: &UsedRelations| used.ruled.iter().any(|written| written == self.table);
        if self.session.options.topologies.users(writes).is_empty() {
            return Ok(());
        }
        target_rules::check_default(self.table, column, default)
    }

    fn refuse_users(
        &self,
        verb: &str,
        noun: &str,
        name: &str,
        uses: impl Fn(&UsedRelations) -> bool,
    ) -> Result<()> {
        let topologies: BTreeSet<String> = self.session.options.topologies.users(uses).into_iter().collect();
        if topologies.is_empty() {
            return Ok(());
        }
        let noun = if noun == "column" { format!("column {name} of table") } else { noun.to_owned() };
        let root = Root { noun, name: self.table.to_owned() };
        Err(Dependents::of_topologies(topologies).refusal(self.session, verb, &root))
    }

    /// Refuses a column that is to be generated, if the rows of topologies have values for it.
    fn refuse_giving(&self, column: &str) -> Result<()> {
        let gives = |used: &UsedRelations| {
            used.written.iter().any(|written| written == self.table) && used.uses_column(self.table, column)
        };
        let giving = self.session.options.topologies.users(gives);
        if giving.is_empty() {
            return Ok(());
        }
        let message = format!(
            "cannot alter table {}: column {column} would be generated, and rows of topologies {} have values for it",
            self.table,
            giving.join(", ")
        );
        Err(Error::coded("2BP01", message))
    }

    /// Refuses rules of a table that some topologies write.
    fn refuse_writers(&self, which: Writers, why: &str) -> Result<()> {
        let is_table = |written: &String| written == self.table;
        let writes = |used: &UsedRelations| {
            used.written.iter().any(is_table) && (which == Writers::All || !used.ruled.iter().any(is_table))
        };
        // The topology of a materialized view writes nothing else.
        let writers = self.session.options.topologies.users(writes);
        if writers.is_empty() {
            return Ok(());
        }
        let message = format!(
            "cannot alter table {}: {why}, which topologies do not compute, and {} write it; drop these first",
            self.table,
            writers.join(", ")
        );
        Err(Error::coded("2BP01", message))
    }

    /// Refuses NOT NULL of columns that the rows of a topology lack.
    fn refuse_lacking(&self, columns: &[Ident]) -> Result<()> {
        let table = self.session.catalog.table(self.table)?;
        for column in columns.iter().map(identifier) {
            let place = table.schema().column_index(&column);
            let default = place.and_then(|place| table.definition().defaults.get(place)?.as_ref());
            if default.is_some() {
                continue;
            }
            let lacks = |used: &UsedRelations| {
                used.written.iter().any(|written| written == self.table)
                    && !used.uses_column(self.table, &column)
            };
            let lacking = self.session.options.topologies.users(lacks);
            if !lacking.is_empty() {
                let message = format!(
                    "cannot alter table {}: column {column} would be NOT NULL, and rows of topologies {} have no value for it",
                    self.table,
                    lacking.join(", ")
                );
                return Err(Error::coded("2BP01", message));
            }
        }
        Ok(())
    }
}

/// Tells whether a column is declared with what the rows of topologies do not have.
fn has_rules(column: &ColumnDef) -> bool {
    column.options.iter().any(|option| !matches!(option.option, ColumnOption::Null))
}

/// Column of a key.
fn column_of(column: &IndexColumn) -> Option<Ident> {
    match &column.column.expr {
        Expr::Identifier(name) => Some(name.clone()),
        _ => None,
    }
}
