//! ALTER TABLE: one change of a table's definition.
//!
//! - Adding and dropping columns touches no row: a row names its layout, and the value of a new column in
//!   older rows is stored in the catalog. So a new column's default must give the same value for all rows: no
//!   `random()`.
//! - SET NOT NULL and ADD CHECK read all rows, while writers are held to the new rule. ADD UNIQUE builds an
//!   index, and so does ADD PRIMARY KEY, after SET NOT NULL.
//! - Columns of the key, of indexes and of checks can be renamed, but not dropped.
//! - One statement makes one atomic change. One exception: ADD COLUMN with CHECK, or with NOT NULL and no
//!   default, adds the column, then the rule; a crash between them leaves the column without it.

use crate::catalog::rows::streams;
use crate::ddl::generated::{self, GeneratedColumn};
use crate::ddl::layout::{self, LayoutChange};
use crate::ddl::owned_tables;
use crate::ddl::table_definition::{
    DeclaredColumn, add_check, checked_late, column_indexes, declared_column, free_name, no_foreign_keys,
    unique_index,
};
use crate::ddl::table_options::{option_names, table_options};
use crate::dml::checks::{self, Checks};
use crate::dml::defaults;
use crate::dml::identity;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, refuse, table_name};
use crate::session::commit::blocking;
use crate::session::core::SessionCore;
use crate::session::materialized;
use crate::session::result::StatementResult;
use crate::session::topologies::UsedRelations;
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, CheckConstraint, ColumnDef, ColumnOption,
    DropBehavior, GeneratedAs, Ident, PrimaryKeyConstraint, RenameTableNameKind, SqlOption, TableConstraint,
};
use entresol_tables::{
    Alteration, Column, Error as TableError, IndexDefinition, ScanRange, Table, TableDefinition, Value,
    Verify,
};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Result of an ALTER TABLE.
pub(crate) const DONE: StatementResult = StatementResult::Done { verb: "ALTER TABLE" };

/// Runs an ALTER TABLE.
pub(crate) async fn run(session: &SessionCore, alter: &AlterTable) -> Result<StatementResult> {
    let Some((change, operation)) = begin(session, alter)? else { return Ok(DONE) };
    match operation {
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position, .. } => {
            refuse("ALTER TABLE", &[(column_position.is_some(), "FIRST or AFTER")])?;
            change.add_column(*if_not_exists, column_def).await
        }
        AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            let column = one_column(column_names)?;
            let cascade = matches!(drop_behavior, Some(DropBehavior::Cascade));
            change.drop_column(&column, *if_exists, cascade).await
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            change.rename_column(&identifier(old_column_name), &identifier(new_column_name)).await
        }
        AlterTableOperation::RenameTable { table_name: to } => {
            let (RenameTableNameKind::As(to) | RenameTableNameKind::To(to)) = to;
            let to = table_name(to)?;
            streams::check_name(&session.catalog, &to)?;
            change.rename(&to).await
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            change.alter_column(&identifier(column_name), op).await
        }
        AlterTableOperation::AddConstraint { constraint, not_valid } => {
            refuse("ADD CONSTRAINT", &[(*not_valid, "NOT VALID")])?;
            change.add_constraint(constraint).await
        }
        AlterTableOperation::DropConstraint { if_exists, name, .. } => {
            change.drop_constraint(&identifier(name), *if_exists).await
        }
        AlterTableOperation::RenameConstraint { old_name, new_name } => {
            change.rename_constraint(&identifier(old_name), &identifier(new_name)).await
        }
        AlterTableOperation::SetOptionsParens { options } => change.set_options(options).await,
        other => Err(Error::unsupported(format!("{other} in ALTER TABLE"))),
    }
}

/// Table and operation of an ALTER TABLE that may change the table; none if IF EXISTS finds none.
fn begin<'s, 'a>(
    session: &'s SessionCore,
    alter: &'a AlterTable,
) -> Result<Option<(Change<'s>, &'a AlterTableOperation)>> {
    let table = match session.catalog.table(&table_name(&alter.name)?) {
        Err(TableError::NoSuchTable { .. }) if alter.if_exists => return Ok(None),
        table => table?,
    };
    let [operation] = alter.operations.as_slice() else {
        return Err(Error::Internal("actions of an ALTER TABLE run one by one".to_owned()));
    };
    // Options of storage alone change nothing that the maintenance of a view depends on.
    let sets_options = matches!(operation, AlterTableOperation::SetOptionsParens { .. });
    if !sets_options || materialized::held_by(&table).is_none() {
        owned_tables::check_owner(session, &table, "alter")?;
    }
    Ok(Some((Change { session, table }, operation)))
}

/// Refuses a DROP COLUMN as [`run`] would, before its dependents are dropped; none if IF EXISTS finds no column.
pub(crate) fn column_to_drop(session: &SessionCore, alter: &AlterTable) -> Result<Option<String>> {
    let Some((change, operation)) = begin(session, alter)? else { return Ok(None) };
    let AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } = operation else {
        return Err(Error::Internal(format!("{operation} is not a DROP COLUMN")));
    };
    let column = one_column(column_names)?;
    let cascade = matches!(drop_behavior, Some(DropBehavior::Cascade));
    Ok(change.place_to_drop(&column, *if_exists, cascade)?.map(|_| column))
}

/// Name of the one column of a DROP COLUMN.
fn one_column(names: &[Ident]) -> Result<String> {
    match names {
        [column] => Ok(identifier(column)),
        _ => Err(Error::unsupported("several columns in DROP COLUMN")),
    }
}

/// A change of a table.
pub(super) struct Change<'s> {
    session: &'s SessionCore,
    table: Arc<Table>,
}

/// Rule that all rows have to be verified against.
pub(super) enum Rule {
    NotNull(usize),
    Checks(Checks),
}

impl Rule {
    fn verify(&self, table: &Arc<Table>, tx: &Arc<Transaction>) -> Result<()> {
        match self {
            Rule::Checks(checks) => checks.verify(table, tx),
            Rule::NotNull(column) => {
                let (mut cursor, mut null) = (table.scan(ScanRange::full()), false);
                while cursor.next_batch(tx, |row| null |= row.is_null(*column))? && !null {}
                if !null {
                    return Ok(());
                }
                let column = &table.schema().columns()[*column].name;
                let message =
                    format!("column \"{column}\" of relation \"{}\" contains null values", table.name());
                Err(Error::coded("23502", message))
            }
        }
    }
}

impl<'s> Change<'s> {
    /// Change of this table by a session.
    pub(super) fn of(session: &'s SessionCore, table: Arc<Table>) -> Change<'s> {
        Change { session, table }
    }
}

impl Change<'_> {
    /// `SET (history = …, changes = …, layout = …)`: each option in its turn, the layout and the object store last.
    async fn set_options(&self, options: &[SqlOption]) -> Result<StatementResult> {
        self.session.storage_notice(option_names(options));
        let declared = table_options("ALTER TABLE", options)?;
        declared.check_placement_of(&self.table)?;
        let change = LayoutChange::declared(&self.table, &declared)?;
        let object_store = declared.new_object_store(&self.table)?;
        // No topology that reads them starts meanwhile.
        let _changing = match declared.changes {
            Some(None) => Some(self.session.options.topologies.changing().await),
            _ => None,
        };
        if declared.changes == Some(None) {
            self.refuse_readers_of_changes()?;
        }
        let (catalog, table) = (Arc::clone(&self.session.catalog), self.table.name().to_owned());
        blocking(move || {
            match declared.history {
                Some(Some(kept)) => catalog.keep_history(&table, kept)?,
                Some(None) => catalog.drop_history(&table)?,
                None => {}
            }
            declared.changes.map_or(Ok(()), |changes| catalog.set_changes(&table, changes))
        })
        .await??;
        if let Some(change) = change {
            layout::choose(self.session, &self.table, change).await?;
        }
        if let Some(store) = object_store {
            let (catalog, table) = (Arc::clone(&self.session.catalog), self.table.name().to_owned());
            blocking(move || catalog.set_object_store(&table, store)).await??;
        }
        Ok(DONE)
    }

    /// Refuses the end of a change log that topologies read.
    fn refuse_readers_of_changes(&self) -> Result<()> {
        let table = self.table.name();
        let reads = |used: &UsedRelations| used.changes.iter().any(|read| read == table);
        let mut readers = self.session.options.topologies.users(reads);
        // A materialized view that lacks its changes is computed anew.
        let views = self.session.options.materialized.all();
        readers.retain(|name| views.iter().all(|view| view.name != *name));
        if readers.is_empty() {
            return Ok(());
        }
        let message = format!(
            "cannot end the change log of table {table} because topologies read CHANGES({table}): {}; drop these first",
            readers.join(", ")
        );
        Err(Error::coded("2BP01", message))
    }

    /// Position of a visible column.
    fn column(&self, name: &str) -> Result<usize> {
        let columns = self.table.schema().visible_columns();
        let found = columns.iter().position(|column| column.name == name);
        let table = self.table.name().to_owned();
        found.ok_or_else(|| TableError::NoSuchColumn { table, column: name.to_owned() }.into())
    }

    /// Redefines the table on a thread for blocking work.
    pub(super) async fn redefine(
        &self,
        rule: Option<Rule>,
        change: impl FnOnce(&mut TableDefinition) -> Result<()> + Send + 'static,
    ) -> Result<StatementResult> {
        self.redefine_with(rule, Alteration::default(), change).await
    }

    /// Redefines the table together with other changes.
    async fn redefine_with(
        &self,
        rule: Option<Rule>,
        alteration: Alteration,
        change: impl FnOnce(&mut TableDefinition) -> Result<()> + Send + 'static,
    ) -> Result<StatementResult> {
        let (catalog, table) = (Arc::clone(&self.session.catalog), self.table.name().to_owned());
        blocking(move || {
            let verify =
                rule.map(|rule| move |table: &Arc<Table>, tx: &Arc<Transaction>| rule.verify(table, tx));
            let verify: Option<Verify<'_, Error>> = verify.as_ref().map(|verify| verify as _);
            catalog.redefine_with(&table, verify, alteration, change).map(drop)
        })
        .await??;
        Ok(DONE)
    }

    async fn add_column(&self, if_not_exists: bool, declared: &ColumnDef) -> Result<StatementResult> {
        let declared = declared_column(declared)?;
        let (name, table) = (declared.column.name.clone(), self.table.name());
        refuse(
            "ADD COLUMN",
            &[
                (declared.is_key(), "PRIMARY KEY"),
                (declared.unique.is_some(), "UNIQUE (add the column, then the constraint)"),
            ],
        )?;
        if self.column(&name).is_ok() {
            return if if_not_exists {
                Ok(DONE)
            } else {
                Err(TableError::ColumnExists { table: table.to_owned(), column: name }.into())
            };
        }
        let state = self.session.context.state();
        if let Some(generated) = &declared.generated {
            return self.add_generated(&declared, generated).await;
        }
        let mut missing = Value::Null;
        if let Some(default) = &declared.default {
            if defaults::is_volatile(state.clone(), default)? {
                return Err(Error::unsupported(format!(
                    "ADD COLUMN {name} with the volatile default {default}, which may differ from row to row"
                )));
            }
            missing = defaults::evaluate(state.clone(), table, &declared.column, default)?;
        }
        let required = !declared.column.nullable;
        let mut column = declared.column.clone();
        // Existing rows have NULL in it; whether there are any is checked in a second step.
        column.nullable |= missing.is_null();
        let default = declared.default.as_ref().map(ToString::to_string);
        self.redefine(None, move |definition| {
            definition.schema = Arc::new(definition.schema.with_column(column, missing)?);
            definition.defaults.push(default);
            Ok(())
        })
        .await?;
        self.ruled_or_dropped(&name, required, declared.checks).await
    }

    /// Adds a SERIAL or identity column to an empty table: the rows of another would all need a value.
    async fn add_generated(
        &self,
        declared: &DeclaredColumn,
        generated: &GeneratedColumn,
    ) -> Result<StatementResult> {
        let (name, table) = (declared.column.name.clone(), self.table.name());
        let tx = self.session.catalog.begin()?;
        let (mut cursor, mut rows) = (self.table.scan(ScanRange::full()), 0usize);
        while rows == 0 && cursor.next_batch(&tx, |_| rows += 1)? {}
        if rows > 0 {
            return Err(Error::unsupported(format!(
                "ADD COLUMN {name} SERIAL or GENERATED AS IDENTITY to table {table}, which is not empty"
            )));
        }
        let place = self.table.schema().visible_columns().len();
        let column = (place, name.as_str(), declared.column.data_type);
        let (sequence, default) = generated.sequence(&self.session.catalog, table, column, &[])?;
        let alteration = Alteration { cascade: false, sequences: vec![sequence] };
        // NOT NULL comes second and checks the rows that other sessions may have added meanwhile.
        let column = Column { nullable: true, ..declared.column.clone() };
        self.redefine_with(None, alteration, move |definition| {
            definition.schema = Arc::new(definition.schema.with_column(column, Value::Null)?);
            definition.defaults.push(Some(default));
            Ok(())
        })
        .await?;
        self.ruled_or_dropped(&name, true, declared.checks.clone()).await
    }

    /// Adds the rules of a column that was just added, or drops the column if existing rows violate them.
    async fn ruled_or_dropped(
        &self,
        name: &str,
        required: bool,
        checks: Vec<CheckConstraint>,
    ) -> Result<StatementResult> {
        let ruled = self.add_rules(name, required, checks).await;
        if ruled.is_err() {
            let table = self.session.catalog.table(self.table.name())?;
            let dropped = Change { session: self.session, table };
            if let Err(second) = Box::pin(dropped.drop_column(name, true, false)).await {
                tracing::warn!(error = %second, "could not drop the column of a failed ADD COLUMN");
            }
        }
        ruled
    }

    /// Adds the rules of a column that was just added.
    async fn add_rules(
        &self,
        column: &str,
        required: bool,
        checks: Vec<CheckConstraint>,
    ) -> Result<StatementResult> {
        let of_now = || -> Result<Change<'_>> {
            Ok(Change { session: self.session, table: self.session.catalog.table(self.table.name())? })
        };
        let change = of_now()?;
        let place = change.column(column)?;
        if required && change.table.schema().columns()[place].nullable {
            change.set_not_null(place).await?;
        }
        for check in checks {
            of_now()?.add_check(&check, Some(column)).await?;
        }
        Ok(DONE)
    }

    async fn set_not_null(&self, column: usize) -> Result<StatementResult> {
        self.redefine(Some(Rule::NotNull(column)), move |definition| set_nullable(definition, column, false))
            .await
    }

    async fn add_check(&self, check: &CheckConstraint, column: Option<&str>) -> Result<StatementResult> {
        let state = self.session.context.state();
        let mut definition = self.table.definition().clone();
        add_check(&state, self.table.name(), &mut definition, check, column)?;
        let Some(added) = definition.checks.pop() else {
            return Err(Error::Internal("an added check is missing from the definition".into()));
        };
        let checks = Checks::of(state, self.table.name(), self.table.schema(), std::slice::from_ref(&added))?;
        self.redefine(Some(Rule::Checks(checks)), move |definition| {
            definition.checks.push(added);
            Ok(())
        })
        .await
    }

    /// Position of a column that can be dropped; none if it does not exist and need not.
    fn place_to_drop(&self, name: &str, if_exists: bool, cascade: bool) -> Result<Option<usize>> {
        if cascade {
            materialized::check_dependents(
                &self.session.catalog,
                entresol_tables::RelationKind::Table,
                self.table.name(),
            )?;
        }
        let column = match self.column(name) {
            Err(_) if if_exists => return Ok(None),
            column => column?,
        };
        let definition = self.table.definition();
        let needed = |by: String| {
            Error::from(TableError::Needed {
                what: format!("column {name} of table {}", self.table.name()),
                by,
            })
        };
        if definition.schema.key().contains(&column) {
            return Err(needed("the primary key".to_owned()));
        }
        if let Some(index) = definition.indexes.iter().find(|index| index.columns.contains(&column)) {
            let kind = if index.constraint { "constraint" } else { "index" };
            return Err(needed(format!("{kind} {}; drop that first", index.name)));
        }
        if let Some(elf) = definition.elves.iter().find(|elf| elf.columns.contains(&column)) {
            return Err(needed(format!("index {}; drop that first", elf.name)));
        }
        if definition.clustering.as_ref().is_some_and(|clustering| clustering.has(column)) {
            return Err(needed(format!("cluster_by of table {}; change that first", self.table.name())));
        }
        if definition.elf_layout.dimensions.contains(&column) {
            return Err(needed(format!("elf_by of table {}; change that first", self.table.name())));
        }
        for check in &definition.checks {
            if checks::columns_of(&definition.schema, &check.expression)?.contains(&column) {
                return Err(needed(format!("constraint {}; drop that first", check.name)));
            }
        }
        if definition.schema.visible_columns().len() == 1 {
            return Err(Error::unsupported("dropping the only column of a table"));
        }
        definition.schema.without_column(column)?;
        Ok(Some(column))
    }

    async fn drop_column(&self, name: &str, if_exists: bool, cascade: bool) -> Result<StatementResult> {
        let Some(column) = self.place_to_drop(name, if_exists, cascade)? else { return Ok(DONE) };
        let alteration = Alteration { cascade, sequences: Vec::new() };
        self.redefine_with(None, alteration, move |definition| {
            definition.schema = Arc::new(definition.schema.without_column(column)?);
            definition.defaults.remove(column);
            let of_indexes = definition.indexes.iter_mut().flat_map(|index| &mut index.columns);
            let moved = of_indexes.chain(definition.elves.iter_mut().flat_map(|elf| &mut elf.columns));
            let dimensions =
                definition.clustering.iter_mut().flat_map(|clustering| &mut clustering.dimensions);
            let moved = moved.chain(dimensions.map(|dimension| &mut dimension.column));
            let moved = moved.chain(&mut definition.elf_layout.dimensions);
            moved.filter(|other| **other > column).for_each(|other| *other -= 1);
            Ok(())
        })
        .await
    }

    async fn rename_column(&self, old: &str, new: &str) -> Result<StatementResult> {
        let column = self.column(old)?;
        if self.column(new).is_ok() {
            let table = self.table.name().to_owned();
            return Err(TableError::ColumnExists { table, column: new.to_owned() }.into());
        }
        let (old, new) = (old.to_owned(), new.to_owned());
        self.redefine(None, move |definition| {
            for check in &mut definition.checks {
                if checks::columns_of(&definition.schema, &check.expression)?.contains(&column) {
                    check.expression = checks::renamed(&check.expression, &old, &new)?;
                }
            }
            let nullable = definition.schema.columns()[column].nullable;
            definition.schema = Arc::new(definition.schema.with_changed(column, &new, nullable)?);
            Ok(())
        })
        .await
    }

    async fn rename(&self, new: &str) -> Result<StatementResult> {
        let (catalog, old, new) =
            (Arc::clone(&self.session.catalog), self.table.name().to_owned(), new.to_owned());
        blocking(move || catalog.rename_table(&old, &new).map(drop)).await??;
        Ok(DONE)
    }

    async fn alter_column(&self, name: &str, operation: &AlterColumnOperation) -> Result<StatementResult> {
        let column = self.column(name)?;
        match operation {
            AlterColumnOperation::SetNotNull => self.set_not_null(column).await,
            AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                let option = ColumnOption::Generated {
                    generated_as: generated_as.unwrap_or(GeneratedAs::ByDefault),
                    sequence_options: sequence_options.clone(),
                    generation_expr: None,
                    generation_expr_mode: None,
                    generated_keyword: true,
                };
                let generated = generated::identity_option(&option).transpose()?;
                let generated =
                    generated.ok_or_else(|| Error::Internal("an identity declaration is missing".into()))?;
                self.add_identity(column, &generated).await
            }
            AlterColumnOperation::SetDefault { .. }
            | AlterColumnOperation::DropDefault
            | AlterColumnOperation::DropNotNull
                if identity::identity(&self.session.catalog, &self.table, column)?.is_some() =>
            {
                let table = self.table.name();
                let message = format!("column \"{name}\" of relation \"{table}\" is an identity column");
                Err(Error::coded("42601", message))
            }
            AlterColumnOperation::DropNotNull => {
                let indexes = &self.table.definition().indexes;
                let of_key = |index: &IndexDefinition| index.primary && index.columns.contains(&column);
                if self.table.schema().key().contains(&column) || indexes.iter().any(of_key) {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(Error::coded("42P16", message));
                }
                self.redefine(None, move |definition| set_nullable(definition, column, true)).await
            }
            AlterColumnOperation::SetDefault { value } => {
                let declared = &self.table.schema().columns()[column];
                generated::check_sequences(&self.session.catalog, value)?;
                defaults::evaluate(self.session.context.state(), self.table.name(), declared, value)?;
                let default = Some(value.to_string());
                self.redefine(None, move |definition| set_default(definition, column, default)).await
            }
            AlterColumnOperation::DropDefault => {
                self.redefine(None, move |definition| set_default(definition, column, None)).await
            }
            other => Err(Error::unsupported(format!("{other} in ALTER TABLE"))),
        }
    }

    async fn add_identity(&self, place: usize, generated: &GeneratedColumn) -> Result<StatementResult> {
        let (table, definition) = (self.table.name(), self.table.definition());
        let column = &definition.schema.columns()[place];
        let refused = |why: &str| {
            let message = format!("column \"{}\" of relation \"{table}\" {why}", column.name);
            Err(Error::coded("55000", message))
        };
        if column.nullable {
            return refused("must be declared NOT NULL before identity can be added");
        }
        if definition.defaults[place].is_some() {
            return refused("already has a default value");
        }
        let named = (place, column.name.as_str(), column.data_type);
        let (sequence, default) = generated.sequence(&self.session.catalog, table, named, &[])?;
        let alteration = Alteration { cascade: false, sequences: vec![sequence] };
        self.redefine_with(None, alteration, move |definition| set_default(definition, place, Some(default)))
            .await
    }

    async fn add_constraint(&self, constraint: &TableConstraint) -> Result<StatementResult> {
        match constraint {
            TableConstraint::Check(check) => self.add_check(check, None).await,
            TableConstraint::Unique(unique) => {
                let (table, definition) = (self.table.name(), self.table.definition());
                let columns = column_indexes(table, &definition.schema, &unique.columns)?;
                let index = unique_index(self.session, table, definition, unique, columns)?;
                let (catalog, table) = (Arc::clone(&self.session.catalog), table.to_owned());
                blocking(move || catalog.create_index(&table, index).map(drop)).await??;
                Ok(DONE)
            }
            TableConstraint::PrimaryKey(primary) => self.add_primary_key(primary).await,
            TableConstraint::ForeignKey(_) => Err(no_foreign_keys()),
            other => Err(Error::unsupported(format!("ADD {other} in ALTER TABLE"))),
        }
    }

    /// Adds a primary key to existing rows: its columns become NOT NULL, then a unique index is built. The
    /// rows stay in the order of their hidden key. A crash in between leaves columns that are NOT NULL.
    async fn add_primary_key(&self, primary: &PrimaryKeyConstraint) -> Result<StatementResult> {
        refuse("ADD PRIMARY KEY", &checked_late(&primary.characteristics))?;
        refuse("ADD PRIMARY KEY", &[(primary.index_name.is_some(), "an index name")])?;
        let (name, definition) = (self.table.name().to_owned(), self.table.definition());
        if !definition.schema.hidden_key() || definition.indexes.iter().any(|index| index.primary) {
            let message = format!("multiple primary keys for table \"{name}\" are not allowed");
            return Err(Error::coded("42P16", message));
        }
        let columns = column_indexes(&name, &definition.schema, &primary.columns)?;
        let constraint = match &primary.name {
            Some(name) => identifier(name),
            None => {
                free_name(&format!("{name}_pkey"), |name| self.session.catalog.relation_kind(name).is_some())
            }
        };
        let now = || self.session.catalog.table(&name).map(|table| Change { session: self.session, table });
        let index = IndexDefinition {
            name: constraint,
            columns: columns.clone(),
            unique: true,
            constraint: true,
            primary: true,
            ..IndexDefinition::plain("", Vec::new())
        };
        let mut tightened = Vec::new();
        let added = async {
            for column in columns {
                let change = now()?;
                if change.table.schema().columns()[column].nullable {
                    change.set_not_null(column).await?;
                    tightened.push(column);
                }
            }
            let (catalog, of) = (Arc::clone(&self.session.catalog), name.clone());
            Ok(blocking(move || catalog.create_index(&of, index).map(drop)).await??)
        };
        let added: Result<()> = added.await;
        if added.is_err() {
            for column in tightened {
                now()?.redefine(None, move |definition| set_nullable(definition, column, true)).await?;
            }
        }
        added?;
        Ok(DONE)
    }

    async fn drop_constraint(&self, name: &str, if_exists: bool) -> Result<StatementResult> {
        let definition = self.table.definition();
        let is_check = definition.checks.iter().any(|check| check.name == name);
        let is_unique = definition.indexes.iter().any(|index| index.constraint && index.name == name);
        if !is_check && !is_unique {
            let key_name = definition.key_constraint(self.table.name());
            if !definition.schema.hidden_key() && key_name == name {
                return Err(Error::unsupported("dropping a primary key"));
            }
            let (table, constraint) = (self.table.name().to_owned(), name.to_owned());
            return if if_exists {
                Ok(DONE)
            } else {
                Err(TableError::NoSuchConstraint { table, constraint }.into())
            };
        }
        let name = name.to_owned();
        self.redefine(None, move |definition| {
            definition.checks.retain(|check| check.name != name);
            definition.indexes.retain(|index| !index.constraint || index.name != name);
            Ok(())
        })
        .await
    }

    async fn rename_constraint(&self, old: &str, new: &str) -> Result<StatementResult> {
        if !self.table.definition().checks.iter().any(|check| check.name == old) {
            return Err(Error::unsupported(format!("renaming constraint {old}: only checks can be renamed")));
        }
        let (old, new) = (old.to_owned(), new.to_owned());
        self.redefine(None, move |definition| {
            let renamed = definition.checks.iter_mut().filter(|check| check.name == old);
            renamed.for_each(|check| check.name.clone_from(&new));
            Ok(())
        })
        .await
    }
}

fn set_nullable(definition: &mut TableDefinition, column: usize, nullable: bool) -> Result<()> {
    let name = definition.schema.columns()[column].name.clone();
    definition.schema = Arc::new(definition.schema.with_changed(column, &name, nullable)?);
    Ok(())
}

fn set_default(definition: &mut TableDefinition, column: usize, default: Option<String>) -> Result<()> {
    definition.defaults[column] = default;
    Ok(())
}
