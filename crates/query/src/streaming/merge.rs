//! Steps that change rows by what they are: MERGE, INSERT with ON CONFLICT, DELETE with USING.
//!
//! Each becomes a query over the stream and the row with its key, which says for every row of the stream what happens
//! to that row and the values that it gets:
//!
//! ```text
//! MERGE INTO t USING s ON t.k = s.a                         SELECT CASE WHEN t.k IS NOT NULL AND (s.b > 0) THEN 1
//!   WHEN MATCHED AND s.b > 0                          ─▶                WHEN t.k IS NULL THEN 1 ELSE 0 END,
//!     THEN UPDATE SET v = t.v + s.b                              CASE ... THEN t.k ... THEN s.a END,
//!   WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b)               CASE ... THEN t.v + s.b ... THEN s.b END
//!                                                         FROM s LEFT JOIN t ON t.k = s.a
//! ```
//!
//! Where rows are replaced whatever they are, a step needs no look at them: see [`replaces_rows`].

use crate::dml::identity;
use crate::dml::source::is_default;
use crate::error::{Error, Result};
use crate::parser::merge::{Action, Match, MergeStatement, around, source_name};
use crate::parser::names::{column_name, has_subquery, identifier, table_name};
use crate::parser::statement;
use crate::parser::visit::conjuncts;
use crate::parser::visit::visit_expressions_mut;
use crate::privileges::Privileges;
use crate::streaming::target_rules::check_given;
use crate::streaming::view_targets;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, ConflictTarget, Delete, Expr, FromTable, Ident, Insert,
    Merge, OnConflict, OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Statement, TableFactor,
    TableObject, TableWithJoins,
};
use entresol_streams::MergeInto;
use entresol_tables::{Catalog, Table};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Table that a step changes, and the query of its actions and values; an INSERT where rows are replaced.
pub(crate) struct RowChanges {
    pub(crate) table: Arc<Table>,
    pub(crate) statement: DFStatement,
    /// Lists of columns that have values in rows that are inserted, by the numbers of their actions.
    pub(crate) inserts: Vec<Vec<usize>>,
}

/// WHEN clause with its expressions as texts.
struct Clause {
    is_matched: bool,
    condition: Option<String>,
    change: Change,
}

enum Change {
    Nothing,
    Delete,
    /// Values of columns by their names.
    Write(BTreeMap<String, String>),
}

/// Relations of a step: the target by the name that the rest of it uses.
struct Relations<'s> {
    table: &'s Table,
    called: Ident,
    source: String,
    on: String,
}

/// Changes that a statement makes, if it is one of those that look at rows.
pub(crate) fn row_changes(catalog: &Catalog, statement: &Statement) -> Result<Option<RowChanges>> {
    match statement {
        Statement::Merge(merge) => of_merge(catalog, merge).map(Some),
        Statement::Insert(insert) => match &insert.on {
            Some(OnInsert::OnConflict(conflict)) => {
                let TableObject::TableName(name) = &insert.table else { return Ok(None) };
                let table = catalog.table(&table_name(name)?)?;
                if replaces_rows(&table, insert, conflict)? {
                    return Ok(None);
                }
                of_conflict(catalog, table, insert, conflict).map(Some)
            }
            _ => Ok(None),
        },
        Statement::Delete(delete) => of_delete(catalog, delete).map(Some),
        _ => Ok(None),
    }
}

/// Tells whether ON CONFLICT sets every other column to that of the new row: the new row takes the place of the old one.
pub(crate) fn replaces_rows(table: &Table, insert: &Insert, conflict: &OnConflict) -> Result<bool> {
    let key: Vec<&str> = table.schema().key_names().collect();
    let visible = table.schema().visible_columns();
    let is_on_key = match &conflict.conflict_target {
        Some(ConflictTarget::Columns(names)) => {
            let names: Vec<String> = names.iter().map(identifier).collect();
            names.len() == key.len() && names.iter().all(|name| key.contains(&name.as_str()))
        }
        None => matches!(conflict.action, OnConflictAction::DoNothing),
        _ => false,
    };
    if !is_on_key || table.schema().hidden_key() {
        return Err(Error::unsupported(
            "ON CONFLICT in a step on other columns than those of the table's key",
        ));
    }
    let OnConflictAction::DoUpdate(update) = &conflict.action else { return Ok(false) };
    let lists_all = insert.columns.is_empty() || insert.columns.len() == visible.len();
    let is_replaced = |name: &str| {
        key.contains(&name) || update.assignments.iter().any(|assignment| sets_excluded(assignment, name))
    };
    Ok(lists_all && update.selection.is_none() && visible.iter().all(|column| is_replaced(&column.name)))
}

/// Tells whether an assignment is `column = EXCLUDED.column`.
fn sets_excluded(assignment: &Assignment, column: &str) -> bool {
    let is_target = assigned_column(assignment).is_ok_and(|name| name == column);
    let is_excluded = match &assignment.value {
        Expr::CompoundIdentifier(parts) => {
            matches!(parts.as_slice(), [table, name] if identifier(table) == "excluded" && identifier(name) == column)
        }
        _ => false,
    };
    is_target && is_excluded
}

/// Privileges that the actions of a MERGE need.
pub(crate) fn merge_privileges(merge: &Merge) -> Result<Privileges> {
    let query = around(merge.clone());
    let merge = MergeStatement::of(&query)?;
    Ok(merge.whens.iter().fold(Privileges::NONE, |wanted, when| match when.action {
        Action::Update(_) => wanted.with(Privileges::UPDATE),
        Action::Delete => wanted.with(Privileges::DELETE),
        Action::Insert { .. } => wanted.with(Privileges::INSERT),
        Action::Nothing => wanted,
    }))
}

fn of_merge(catalog: &Catalog, merge: &Merge) -> Result<RowChanges> {
    let query = around(merge.clone());
    let merge = MergeStatement::of(&query)?;
    if merge.returning.is_some() {
        return Err(Error::unsupported("RETURNING in a step"));
    }
    let (table, called) = target(catalog, merge.target)?;
    let source = source_name(merge.source)?;
    if let Some(values) = replacing(&table, &called, source.as_ref(), &merge)? {
        let statement = replacing_insert(&table, &values, merge.source)?;
        return Ok(RowChanges { table, statement, inserts: Vec::new() });
    }
    let mut clauses = Vec::with_capacity(merge.whens.len());
    for when in &merge.whens {
        let is_matched = when.kind == Match::Matched;
        if when.kind == Match::BySource {
            return Err(Error::unsupported("WHEN NOT MATCHED BY SOURCE in a step: a stream has no end"));
        }
        // Only the source is seen where there is no row of the target.
        let of_source = if is_matched { None } else { source.as_ref() };
        let condition = when.condition.map(|condition| text(condition, of_source)).transpose()?;
        let change = match &when.action {
            Action::Nothing => Change::Nothing,
            Action::Delete => Change::Delete,
            Action::Update(assignments) => Change::Write(updated(catalog, &table, &called, assignments)?),
            Action::Insert { columns, overriding: None, values } => {
                let named = columns.iter().map(column_name).collect::<Result<Vec<_>>>()?;
                Change::Write(new_row(catalog, &table, inserted(&table, named, values, of_source)?)?)
            }
            Action::Insert { .. } => return Err(Error::unsupported("OVERRIDING in a step")),
        };
        clauses.push(Clause { is_matched, condition, change });
    }
    let relations =
        Relations { table: &table, called, source: merge.source.to_string(), on: text(merge.on, None)? };
    relations.row_changes(&table, &clauses)
}

/// Values of the rows that a MERGE writes, if it writes the same whether or not there is a row.
fn replacing(
    table: &Table,
    called: &Ident,
    source: Option<&Ident>,
    merge: &MergeStatement<'_>,
) -> Result<Option<BTreeMap<String, String>>> {
    let (mut assigned, mut values) = (BTreeMap::new(), BTreeMap::new());
    for when in &merge.whens {
        match (&when.action, when.condition) {
            (Action::Update(assignments), None) => {
                for assignment in *assignments {
                    assigned.insert(assigned_column(assignment)?, text(&assignment.value, source)?);
                }
            }
            (Action::Insert { columns, overriding: None, values: inserts }, None) => {
                let named = columns.iter().map(column_name).collect::<Result<Vec<_>>>()?;
                values = inserted(table, named, inserts, source)?;
            }
            _ => return Ok(None),
        }
    }
    for condition in conjuncts(merge.on) {
        let Expr::BinaryOp { left, right, .. } = condition else { return Ok(None) };
        if !is_of_key(condition, table, called) {
            return Ok(None);
        }
        let (key, value) =
            if key_column(left, table, called).is_some() { (left, right) } else { (right, left) };
        let key = key_column(key, table, called).unwrap_or_default();
        assigned.insert(key, text(value, source)?);
    }
    let is_whole = values.len() == table.schema().visible_columns().len();
    Ok((is_whole && assigned == values).then_some(values))
}

/// INSERT that replaces rows.
fn replacing_insert(
    table: &Table,
    values: &BTreeMap<String, String>,
    source: &TableFactor,
) -> Result<DFStatement> {
    let list = |items: Vec<String>| items.join(", ");
    let is_key = |name: &str| table.schema().key_names().any(|key| key == name);
    let excluded = |name: &String| format!("{0} = EXCLUDED.{0}", quoted(name));
    statement::query_of(&format!(
        "INSERT INTO {} ({}) SELECT {} FROM {source} ON CONFLICT ({}) DO UPDATE SET {}",
        quoted(table.name()),
        list(values.keys().map(|name| quoted(name).to_string()).collect()),
        list(values.values().cloned().collect()),
        list(table.schema().key_names().map(|key| quoted(key).to_string()).collect()),
        list(values.keys().filter(|name| !is_key(name)).map(excluded).collect()),
    ))
}

fn of_conflict(
    catalog: &Catalog,
    table: Arc<Table>,
    insert: &Insert,
    conflict: &OnConflict,
) -> Result<RowChanges> {
    let Some(query) = &insert.source else {
        return Err(Error::unsupported("INSERT without a query in a step"));
    };
    if insert.returning.is_some() {
        return Err(Error::unsupported("RETURNING in a step"));
    }
    let called =
        insert.table_alias.as_ref().map_or_else(|| quoted(table.name()), |alias| alias.alias.clone());
    let columns = if insert.columns.is_empty() {
        // Columns behind those of the query get no value, as in a statement.
        let visible = table.schema().visible_columns();
        let count = columns_of_query(query).unwrap_or(visible.len());
        visible.iter().take(count).map(|column| column.name.clone()).collect()
    } else {
        insert.columns.iter().map(column_name).collect::<Result<Vec<_>>>()?
    };
    let excluded = |column: &str| format!("excluded.{}", quoted(column));
    let new = columns.iter().map(|column| (column.clone(), excluded(column))).collect();
    let on = table.schema().key_names().map(|key| format!("{called}.{} = {}", quoted(key), excluded(key)));
    let on: Vec<String> = on.collect();
    if let Some(key) = table.schema().key_names().find(|key| !columns.iter().any(|column| column == key)) {
        let message = format!("INSERT INTO {} without column \"{key}\" of its key", table.name());
        return Err(Error::coded("23502", message));
    }
    let (condition, change) = match &conflict.action {
        OnConflictAction::DoNothing => (None, Change::Nothing),
        OnConflictAction::DoUpdate(update) => {
            let condition = update.selection.as_ref().map(|selection| text(selection, None)).transpose()?;
            (condition, Change::Write(updated(catalog, &table, &called, &update.assignments)?))
        }
    };
    let clauses = [
        Clause { is_matched: true, condition, change },
        Clause { is_matched: false, condition: None, change: Change::Write(new_row(catalog, &table, new)?) },
    ];
    let list: Vec<String> = columns.iter().map(|column| quoted(column).to_string()).collect();
    let source = format!("({query}) AS excluded ({})", list.join(", "));
    let relations = Relations { table: &table, called, source, on: on.join(" AND ") };
    relations.row_changes(&table, &clauses)
}

/// Number of columns of a query, as far as its text says it.
fn columns_of_query(query: &Query) -> Option<usize> {
    let mut body = query.body.as_ref();
    while let SetExpr::SetOperation { left, .. } = body {
        body = left.as_ref();
    }
    match body {
        SetExpr::Select(select) => {
            let is_wildcard = |item: &SelectItem| {
                matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
            };
            (!select.projection.iter().any(is_wildcard)).then_some(select.projection.len())
        }
        SetExpr::Query(query) => columns_of_query(query),
        _ => None,
    }
}

fn of_delete(catalog: &Catalog, delete: &Delete) -> Result<RowChanges> {
    let FromTable::WithFromKeyword(from) = &delete.from else {
        return Err(Error::Syntax("syntax error: DELETE without FROM".to_owned()));
    };
    let wrong = || {
        Error::unsupported("DELETE in a step, other than DELETE FROM table USING stream WHERE table.key = …")
    };
    let ([TableWithJoins { relation, joins }], Some([using])) = (from.as_slice(), delete.using.as_deref())
    else {
        return Err(wrong());
    };
    let Some(selection) =
        delete.selection.as_ref().filter(|_| joins.is_empty() && delete.returning.is_none())
    else {
        return Err(wrong());
    };
    let (table, called) = target(catalog, relation)?;
    let (mut on, mut rest) = (Vec::new(), Vec::new());
    for condition in conjuncts(selection) {
        let list = if is_of_key(condition, &table, &called) { &mut on } else { &mut rest };
        list.push(format!("({})", text(condition, None)?));
    }
    if on.is_empty() {
        return Err(wrong());
    }
    let condition = (!rest.is_empty()).then(|| rest.join(" AND "));
    let clauses = [Clause { is_matched: true, condition, change: Change::Delete }];
    let relations = Relations { table: &table, called, source: using.to_string(), on: on.join(" AND ") };
    relations.row_changes(&table, &clauses)
}

impl Relations<'_> {
    /// Changes that clauses make.
    fn row_changes(&self, table: &Arc<Table>, clauses: &[Clause]) -> Result<RowChanges> {
        let visible = table.schema().visible_columns();
        let mut inserts: Vec<Vec<usize>> = Vec::new();
        let mut actions = Vec::with_capacity(clauses.len());
        for clause in clauses {
            actions.push(match &clause.change {
                Change::Nothing => MergeInto::NOTHING,
                Change::Delete => MergeInto::DELETE,
                Change::Write(values) if clause.is_matched || values.len() == visible.len() => {
                    MergeInto::WRITE
                }
                Change::Write(values) => {
                    let given = (0..visible.len()).filter(|&at| values.contains_key(&visible[at].name));
                    inserts.push(given.collect());
                    MergeInto::INSERT + inserts.len() as i32 - 1
                }
            });
        }
        let statement = self.changes(clauses, &actions)?;
        Ok(RowChanges { table: Arc::clone(table), statement, inserts })
    }

    /// Query of the actions and values.
    fn changes(&self, clauses: &[Clause], actions: &[i32]) -> Result<DFStatement> {
        let (table, called) = (self.table, &self.called);
        if table.schema().hidden_key() {
            return Err(Error::unsupported(format!(
                "a change of rows of table {}, which has no key",
                table.name()
            )));
        }
        view_targets::check_target(table)?;
        let key: Vec<&str> = table.schema().key_names().collect();
        let mark = format!("{called}.{}", quoted(key[0]));
        let branch = |clause: &Clause| {
            let is_there = if clause.is_matched { "IS NOT NULL" } else { "IS NULL" };
            let condition = clause.condition.as_ref().map(|condition| format!(" AND ({condition})"));
            format!("{mark} {is_there}{}", condition.unwrap_or_default())
        };
        let case = |value: &dyn Fn(usize, &Clause) -> String, otherwise: &str| {
            let branches = clauses.iter().enumerate();
            let branches =
                branches.map(|(at, clause)| format!(" WHEN {} THEN {}", branch(clause), value(at, clause)));
            format!("CASE{} ELSE {otherwise} END", branches.collect::<String>())
        };
        let action = |at: usize, _: &Clause| actions[at].to_string();
        let mut items = vec![format!("{} AS \"action of the merge\"", case(&action, "0"))];
        for column in table.schema().visible_columns() {
            let value = |_: usize, clause: &Clause| match &clause.change {
                Change::Write(values) => {
                    values.get(&column.name).cloned().unwrap_or_else(|| "NULL".to_owned())
                }
                Change::Delete if key.contains(&column.name.as_str()) => {
                    format!("{called}.{}", quoted(&column.name))
                }
                Change::Delete | Change::Nothing => "NULL".to_owned(),
            };
            items.push(format!("{} AS {}", case(&value, "NULL"), quoted(&column.name)));
        }
        statement::query_of(&format!(
            "SELECT {} FROM {} LEFT JOIN public.{} AS {called} ON {}",
            items.join(", "),
            self.source,
            quoted(table.name()),
            self.on
        ))
    }
}

/// Table that a step changes, and its name in the step.
fn target(catalog: &Catalog, factor: &TableFactor) -> Result<(Arc<Table>, Ident)> {
    let TableFactor::Table { name, alias, .. } = factor else {
        return Err(Error::unsupported(format!("{factor} as the target of a step")));
    };
    let table = catalog.table(&table_name(name)?)?;
    let called = alias.as_ref().map_or_else(|| quoted(table.name()), |alias| alias.name.clone());
    Ok((table, called))
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// Text of an expression, in which columns without a relation are those of `of`.
fn text(expr: &Expr, of: Option<&Ident>) -> Result<String> {
    if has_subquery(expr) {
        return Err(Error::unsupported("a subquery in a step: join the stream with the table by its key"));
    }
    let mut expr = expr.clone();
    if let Some(relation) = of {
        let _: ControlFlow<()> = visit_expressions_mut(&mut expr, |part| {
            if let Expr::Identifier(column) = part {
                *part = Expr::CompoundIdentifier(vec![relation.clone(), column.clone()]);
            }
            ControlFlow::Continue(())
        });
    }
    match &expr {
        Expr::Identifier(ident)
            if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") =>
        {
            Err(Error::unsupported("DEFAULT in a step"))
        }
        expr => Ok(expr.to_string()),
    }
}

/// Values of an UPDATE: those that it sets, and the others as they are.
fn updated(
    catalog: &Catalog,
    table: &Table,
    called: &Ident,
    assignments: &[Assignment],
) -> Result<BTreeMap<String, String>> {
    let is = |name: &String| format!("{called}.{}", quoted(name));
    let columns = table.schema().visible_columns();
    let mut values: BTreeMap<String, String> =
        columns.iter().map(|column| (column.name.clone(), is(&column.name))).collect();
    let mut assigned: Vec<String> = Vec::new();
    for assignment in assignments {
        let name = assigned_column(assignment)?;
        if let Some(column) = table.schema().column_index(&name) {
            identity::check_assigned(catalog, table, std::iter::once((column, &assignment.value)))?;
        }
        if assigned.contains(&name) {
            return Err(Error::coded("42601", format!("multiple assignments to same column \"{name}\"")));
        }
        if table.schema().key_names().any(|key| key == name) {
            let message = format!(
                "UPDATE of column \"{name}\" in a step, which is in the key of table {}",
                table.name()
            );
            return Err(Error::unsupported(message));
        }
        values.insert(name.clone(), text(&assignment.value, None)?);
        assigned.push(name);
    }
    checked(table, values)
}

/// Values of an INSERT.
fn inserted(
    table: &Table,
    columns: Vec<String>,
    values: &[Expr],
    of: Option<&Ident>,
) -> Result<BTreeMap<String, String>> {
    let columns = if columns.is_empty() {
        table.schema().visible_columns().iter().map(|column| column.name.clone()).take(values.len()).collect()
    } else {
        columns
    };
    if columns.len() != values.len() {
        let message =
            format!("INSERT INTO {} has {} columns and {} values", table.name(), columns.len(), values.len());
        return Err(Error::coded("42601", message));
    }
    // DEFAULT is what a column without a value gets.
    let is_default = |value: &Expr| matches!(value, Expr::Identifier(ident) if is_default(ident));
    let pairs = columns.into_iter().zip(values).filter(|(_, value)| !is_default(value));
    let values = pairs.map(|(column, value)| Ok((column, text(value, of)?))).collect::<Result<_>>()?;
    checked(table, values)
}

/// Values of a new row, without those that a table generates.
fn new_row(
    catalog: &Catalog,
    table: &Table,
    values: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>> {
    let values = checked(table, values)?;
    let given: Vec<usize> = values.keys().filter_map(|name| table.schema().column_index(name)).collect();
    check_given(catalog, table, &given)?;
    Ok(values)
}

/// Values of columns, all of which the table has.
fn checked(table: &Table, values: BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let has = |name: &String| table.schema().visible_columns().iter().any(|column| column.name == *name);
    match values.keys().find(|name| !has(name)) {
        None => Ok(values),
        Some(name) => {
            let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name());
            Err(Error::coded("42703", message))
        }
    }
}

/// Column that an assignment sets.
fn assigned_column(assignment: &Assignment) -> Result<String> {
    match &assignment.target {
        // `SET t.c = ...` names the target, too.
        AssignmentTarget::ColumnName(name) => name
            .0
            .last()
            .and_then(|part| part.as_ident())
            .map(identifier)
            .ok_or_else(|| Error::Syntax(format!("syntax error at SET {name}"))),
        AssignmentTarget::Tuple(_) => Err(Error::unsupported("SET of several columns at once in a step")),
    }
}

/// Tells whether a condition says what a column of the key is.
fn is_of_key(condition: &Expr, table: &Table, called: &Ident) -> bool {
    let is_key = |expr: &Expr| key_column(expr, table, called).is_some();
    matches!(condition, Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_key(left) != is_key(right))
}

/// Column of the target's key that an expression is.
fn key_column(expr: &Expr, table: &Table, called: &Ident) -> Option<String> {
    let Expr::CompoundIdentifier(parts) = expr else { return None };
    let [relation, column] = parts.as_slice() else { return None };
    let column = identifier(column);
    let is_key = table.schema().key_names().any(|key| key == column);
    (is_key && identifier(relation) == identifier(called)).then_some(column)
}
