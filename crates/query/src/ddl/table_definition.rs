//! CREATE TABLE: from the statement to a table's definition.
//!
//! - Columns have a type, NULL, NOT NULL, DEFAULT, CHECK, UNIQUE or PRIMARY KEY; a table has at most one
//!   PRIMARY KEY, on one or several columns, and any checks and unique constraints. Constraints that are not
//!   enforced (REFERENCES, deferred ones) are refused.
//! - Constraints without a name get the one that PostgreSQL would give them.
//! - Definitions are durable when the statement returns; they cannot be part of a transaction.

use crate::ddl::generated::{GeneratedColumn, check_sequences, identity_option, serial};
use crate::dml::checks;
use crate::dml::defaults;
use crate::error::{Error, Result};
use crate::parser::names::{identifier, refuse};
use crate::planner::translation;
use crate::postgres::types::{DECIMAL_DEFAULT, column_of, declared_type};
use crate::session::core::SessionCore;
use datafusion::arrow::datatypes::Schema as ArrowSchema;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::{Expr as PlannedExpr, LogicalPlan};
use datafusion::sql::sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ConstraintCharacteristics, CreateTable, CreateTableOptions,
    DeferrableInitial, Expr, HiveDistributionStyle, Ident, IndexColumn, TableConstraint, UniqueConstraint,
};
use entresol_tables::{
    Check, Column, DataType, IndexDefinition, Modifier, NewSequence, Schema, TableDefinition,
};
use std::collections::HashSet;

/// Column with the constraints of its declaration.
pub(crate) struct DeclaredColumn {
    pub(crate) column: Column,
    pub(crate) default: Option<Expr>,
    pub(crate) checks: Vec<CheckConstraint>,
    pub(crate) unique: Option<UniqueConstraint>,
    /// SERIAL or identity declaration.
    pub(crate) generated: Option<GeneratedColumn>,
    /// PRIMARY KEY with the name of its constraint, if the column declares one.
    key: Option<Option<Ident>>,
}

impl DeclaredColumn {
    /// Returns true if it is declared PRIMARY KEY.
    pub(crate) fn is_key(&self) -> bool {
        self.key.is_some()
    }
}

fn check_names(columns: &[DeclaredColumn]) -> Result<()> {
    let mut names = HashSet::new();
    match columns.iter().map(|declared| &declared.column.name).find(|name| !names.insert(*name)) {
        Some(twice) => Err(Error::coded("42701", format!("column \"{twice}\" specified more than once"))),
        None => Ok(()),
    }
}

/// Definition that a CREATE TABLE declares, and the sequences of its columns.
pub(crate) fn declared(
    session: &SessionCore,
    table: &str,
    create: &CreateTable,
) -> Result<(TableDefinition, Vec<NewSequence>)> {
    check_clauses(create)?;
    let columns: Result<Vec<DeclaredColumn>> = create.columns.iter().map(declared_column).collect();
    let columns = columns?;
    check_names(&columns)?;
    let (mut key, mut key_name) = (Vec::new(), None);
    let mut add_key = |names: Vec<String>, name: &Option<Ident>| {
        if !key.is_empty() {
            let message = format!("multiple primary keys for table \"{table}\" are not allowed");
            return Err(Error::coded("42P16", message));
        }
        (key, key_name) = (names, name.as_ref().map(identifier));
        Ok(())
    };
    for declared in &columns {
        if let Some(name) = &declared.key {
            add_key(vec![declared.column.name.clone()], name)?;
        }
    }
    for constraint in &create.constraints {
        if let TableConstraint::PrimaryKey(primary) = constraint {
            refuse("PRIMARY KEY", &checked_late(&primary.characteristics))?;
            let names: Result<Vec<String>> = primary.columns.iter().map(plain_column).collect();
            add_key(names?, &primary.name)?;
        }
    }
    let schema = Schema::new(columns.iter().map(|declared| declared.column.clone()).collect(), &key)?;
    let mut definition = TableDefinition::plain(schema);
    definition.key_name = key_name;
    let state = session.context.state();
    let mut sequences = Vec::new();
    for (at, declared) in columns.iter().enumerate() {
        if let Some(generated) = &declared.generated {
            let column = (at, declared.column.name.as_str(), declared.column.data_type);
            let (sequence, default) = generated.sequence(&session.catalog, table, column, &sequences)?;
            sequences.push(sequence);
            definition.defaults[at] = Some(default);
        }
        if let Some(default) = &declared.default {
            check_sequences(&session.catalog, default)?;
            defaults::evaluate(state.clone(), table, &declared.column, default)?;
            definition.defaults[at] = Some(default.to_string());
        }
    }
    for declared in &columns {
        for check in &declared.checks {
            add_check(&state, table, &mut definition, check, Some(&declared.column.name))?;
        }
    }
    for (at, declared) in columns.iter().enumerate() {
        if let Some(unique) = &declared.unique {
            add_unique(session, table, &mut definition, unique, vec![at])?;
        }
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(_) => {}
            TableConstraint::Check(check) => add_check(&state, table, &mut definition, check, None)?,
            TableConstraint::Unique(unique) => {
                let columns = column_indexes(table, &definition.schema, &unique.columns)?;
                add_unique(session, table, &mut definition, unique, columns)?;
            }
            TableConstraint::ForeignKey(_) => return Err(no_foreign_keys()),
            other => return Err(Error::unsupported(format!("constraint {other} in CREATE TABLE"))),
        }
    }
    Ok((definition, sequences))
}

/// Clauses of a constraint that let a transaction, or all of them, violate it.
pub(crate) fn checked_late(characteristics: &Option<ConstraintCharacteristics>) -> [(bool, &'static str); 2] {
    let has = |is: fn(&ConstraintCharacteristics) -> bool| characteristics.as_ref().is_some_and(is);
    let is_deferrable =
        has(|given| given.deferrable == Some(true) || given.initially == Some(DeferrableInitial::Deferred));
    [(is_deferrable, "DEFERRABLE"), (has(|given| given.enforced == Some(false)), "NOT ENFORCED")]
}

/// Error for foreign keys: every write of both tables would have to check them.
pub(crate) fn no_foreign_keys() -> Error {
    Error::unsupported("foreign keys (REFERENCES): they would not be enforced")
}

/// Adds a check, named as by PostgreSQL; `column` is the one that declares it.
pub(crate) fn add_check(
    state: &SessionState,
    table: &str,
    definition: &mut TableDefinition,
    check: &CheckConstraint,
    column: Option<&str>,
) -> Result<()> {
    refuse("CHECK", &[(check.enforced == Some(false), "NOT ENFORCED")])?;
    let expression = checks::normalised(state.clone(), table, &definition.schema, &check.expr)?;
    let name = match &check.name {
        Some(name) => identifier(name),
        None => {
            let named = checks::columns_of(&definition.schema, &expression)?;
            let column = match (column, named.as_slice()) {
                (Some(column), _) => Some(column),
                (None, [only]) => Some(definition.schema.columns()[*only].name.as_str()),
                _ => None,
            };
            let base =
                column.map_or_else(|| format!("{table}_check"), |column| format!("{table}_{column}_check"));
            free_name(&base, |name| definition.checks.iter().any(|check| check.name == name))
        }
    };
    definition.checks.push(Check { name, expression });
    Ok(())
}

fn add_unique(
    session: &SessionCore,
    table: &str,
    definition: &mut TableDefinition,
    unique: &UniqueConstraint,
    columns: Vec<usize>,
) -> Result<()> {
    let index = unique_index(session, table, definition, unique, columns)?;
    definition.indexes.push(index);
    Ok(())
}

/// Index of a unique constraint.
pub(crate) fn unique_index(
    session: &SessionCore,
    table: &str,
    definition: &TableDefinition,
    unique: &UniqueConstraint,
    columns: Vec<usize>,
) -> Result<IndexDefinition> {
    use datafusion::sql::sqlparser::ast::NullsDistinctOption;
    refuse("UNIQUE", &checked_late(&unique.characteristics))?;
    let nulls_equal = unique.nulls_distinct == NullsDistinctOption::NotDistinct;
    refuse("UNIQUE", &[(nulls_equal, "NULLS NOT DISTINCT")])?;
    let name = match &unique.name {
        Some(name) => identifier(name),
        None => index_name(session, table, definition, &columns, "key"),
    };
    Ok(IndexDefinition {
        name,
        columns,
        unique: true,
        constraint: true,
        ..IndexDefinition::plain("", Vec::new())
    })
}

/// Unused name for an index, formed as by PostgreSQL.
pub(crate) fn index_name(
    session: &SessionCore,
    table: &str,
    definition: &TableDefinition,
    columns: &[usize],
    suffix: &str,
) -> String {
    let names: Vec<&str> = columns.iter().map(|&at| definition.schema.columns()[at].name.as_str()).collect();
    free_name(&format!("{table}_{}_{suffix}", names.join("_")), |name| {
        definition.indexes.iter().any(|index| index.name == name)
            || session.catalog.relation_kind(name).is_some()
    })
}

/// `base`, or `base` with the first number that makes it unused.
pub(crate) fn free_name(base: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(base) {
        return base.to_owned();
    }
    let numbered = (1..).map(|number| format!("{base}{number}"));
    numbered.into_iter().find(|name| !taken(name)).unwrap_or_else(|| base.to_owned())
}

/// Positions of the visible columns that an index or a constraint lists.
pub(crate) fn column_indexes(table: &str, schema: &Schema, columns: &[IndexColumn]) -> Result<Vec<usize>> {
    let index = |column: &IndexColumn| {
        let name = plain_column(column)?;
        let found = schema.visible_columns().iter().position(|known| known.name == name);
        found.ok_or_else(|| {
            entresol_tables::Error::NoSuchColumn { table: table.to_owned(), column: name }.into()
        })
    };
    columns.iter().map(index).collect()
}

/// Checks a CREATE TABLE AS: its columns come from the query alone.
pub(crate) fn declared_schema_is_absent(create: &CreateTable) -> Result<()> {
    check_clauses(create)?;
    refuse("CREATE TABLE AS", &[(!create.constraints.is_empty(), "PRIMARY KEY")])
}

/// Schema of the rows of a query: its columns, nullable, without a key.
pub(crate) fn derived_schema(source: &ArrowSchema) -> Result<Schema> {
    Ok(Schema::new(derived_columns(source)?, &[] as &[&str])?)
}

/// Schema of a table made by CREATE TABLE AS: the same, but a number that is computed is a NUMERIC, which has as many digits
/// before the point as there may be and loses none behind it; one of a column has those of the column.
pub(crate) fn created_schema(plan: &LogicalPlan) -> Result<Schema> {
    let mut columns = derived_columns(plan.schema().as_arrow())?;
    for (at, column) in columns.iter_mut().enumerate() {
        if let DataType::Decimal { scale, .. } = column.data_type
            && column.modifier == Modifier::None
            && !is_of_column(plan, at)
        {
            column.data_type = DataType::Decimal { precision: DECIMAL_DEFAULT.0, scale };
            column.modifier = Modifier::Exact;
        }
    }
    Ok(Schema::new(columns, &[] as &[&str])?)
}

/// Tells whether a column of a plan is one of a table.
fn is_of_column(plan: &LogicalPlan, at: usize) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Projection(projection) => {
            let Some(PlannedExpr::Column(column)) =
                projection.expr.get(at).map(|expr| expr.clone().unalias_nested().data)
            else {
                return false;
            };
            let found = projection.input.schema().index_of_column(&column);
            found.is_ok_and(|at| is_of_column(&projection.input, at))
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Distinct(_) => plan.inputs().first().is_some_and(|input| is_of_column(input, at)),
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            if at < left { is_of_column(&join.left, at) } else { is_of_column(&join.right, at - left) }
        }
        _ => false,
    }
}

/// Columns for the rows of a query.
pub(crate) fn derived_columns(source: &ArrowSchema) -> Result<Vec<Column>> {
    source
        .fields()
        .iter()
        .map(|field| match column_of(field) {
            Some(column) => Ok(Column { name: translation::shown_name(field.name()), ..column }),
            None => Err(Error::unsupported(format!(
                "type {} of column {} in CREATE TABLE AS: cast it to a column type",
                field.data_type(),
                field.name()
            ))),
        })
        .collect()
}

fn check_clauses(create: &CreateTable) -> Result<()> {
    refuse(
        "CREATE TABLE",
        &[
            (create.or_replace, "OR REPLACE"),
            (create.temporary, "TEMPORARY"),
            (create.external, "EXTERNAL"),
            (create.like.is_some(), "LIKE"),
            (create.clone.is_some(), "CLONE"),
            (create.inherits.is_some(), "INHERITS"),
            (create.partition_by.is_some() || create.partition_of.is_some(), "PARTITION"),
            (create.on_commit.is_some(), "ON COMMIT"),
            (
                !matches!(create.table_options, CreateTableOptions::None | CreateTableOptions::With(_)),
                "an option",
            ),
            (!matches!(create.hive_distribution, HiveDistributionStyle::NONE), "PARTITIONED BY"),
            (create.query.is_some() && !create.columns.is_empty(), "a column list with AS SELECT"),
        ],
    )
}

/// Declaration of a column in CREATE TABLE or ADD COLUMN.
pub(crate) fn declared_column(definition: &ColumnDef) -> Result<DeclaredColumn> {
    let name = identifier(&definition.name);
    let ((data_type, modifier), generated) = match serial(&definition.data_type) {
        Some((data_type, generated)) => ((data_type, Modifier::None), Some(generated)),
        None => (declared_type(&name, &definition.data_type)?, None),
    };
    let mut column = Column::new(&name, data_type).with_modifier(modifier);
    column.nullable = generated.is_none();
    let mut declared =
        DeclaredColumn { column, default: None, checks: Vec::new(), unique: None, generated, key: None };
    for option in &definition.options {
        let named = |own: &Option<Ident>| own.clone().or_else(|| option.name.clone());
        if let Some(generated) = identity_option(&option.option) {
            if declared.generated.replace(generated?).is_some() {
                let message = format!("both default and identity specified for column \"{name}\"");
                return Err(Error::coded("42601", message));
            }
            continue;
        }
        match &option.option {
            ColumnOption::Null => declared.column.nullable = true,
            ColumnOption::NotNull => declared.column.nullable = false,
            ColumnOption::PrimaryKey(primary) => {
                refuse("PRIMARY KEY", &checked_late(&primary.characteristics))?;
                declared.key = Some(named(&primary.name));
            }
            ColumnOption::Default(default) => declared.default = Some(default.clone()),
            ColumnOption::Check(check) => {
                let name = named(&check.name);
                declared.checks.push(CheckConstraint { name, ..check.clone() });
            }
            ColumnOption::Unique(unique) => {
                let name = named(&unique.name);
                declared.unique = Some(UniqueConstraint { name, ..unique.clone() });
            }
            ColumnOption::ForeignKey(_) => return Err(no_foreign_keys()),
            other => return Err(Error::unsupported(format!("{other} of column {name}"))),
        }
    }
    if let Some(generated) = &declared.generated {
        let null = definition.options.iter().any(|option| matches!(option.option, ColumnOption::Null));
        let wrong =
            |what: &str| Err(Error::coded("42601", format!("{what} specified for column \"{name}\"")));
        match (declared.default.is_some(), null, generated.identity.is_some()) {
            (true, _, true) => return wrong("both default and identity"),
            (true, _, false) => return wrong("multiple default values"),
            (_, true, _) => return wrong("conflicting NULL/NOT NULL declarations"),
            _ => declared.column.nullable = false,
        }
    }
    Ok(declared)
}

/// The columns of an index in the one order that there is.
pub(crate) fn ascending(session: &SessionCore, columns: &[IndexColumn]) -> Vec<IndexColumn> {
    let mut columns = columns.to_vec();
    for column in &mut columns {
        let options = &mut column.column.options;
        let (descends, nulls_first) = (options.asc == Some(false), options.nulls_first);
        // NULLS FIRST is the default of DESC.
        if descends || nulls_first == Some(true) {
            session.notice(format!(
                "index column {}: DESC and NULLS FIRST have no effect: the index is in ascending order with NULLs last; \
                 ORDER BY returns correct results, with a sort where its order differs from the index",
                column.column.expr
            ));
        }
        (options.asc, options.nulls_first) = (None, None);
    }
    columns
}

/// Name of a column of an index or a key, which are in ascending order with NULLs last.
pub(crate) fn plain_column(column: &IndexColumn) -> Result<String> {
    let options = &column.column.options;
    refuse(
        "an index",
        &[
            (options.asc == Some(false), "DESC"),
            (options.nulls_first == Some(true), "NULLS FIRST"),
            (column.operator_class.is_some(), "an operator class"),
        ],
    )?;
    match &column.column.expr {
        Expr::Identifier(ident) => Ok(identifier(ident)),
        other => Err(Error::unsupported(format!("the expression {other} as a column of an index or key"))),
    }
}
