//! Fast path of statements on rows named by their complete key, or all columns of a unique index: no planning, no
//! DataFusion.
//!
//! ```text
//! SELECT columns FROM t WHERE k1 = x AND k2 IN (y, …)
//! UPDATE t SET a = x, b = b + y WHERE k1 = x AND k2 = y
//! DELETE FROM t WHERE k1 = x AND k2 IN (y, …)
//! ```
//!
//! where x and y are literals or parameters of exactly the columns' types. Any other element of a statement
//! makes it take the planned path; and so do values that turn out not to fit, before anything was written. So
//! the fast path reports only errors of reading and writing rows, which are the same on both paths.
//!
//! # Invariants
//!
//! - Both paths give the same rows, types, counts and errors (`tests/query/fast_path.rs` runs both).
//! - Rows come in key order, each once. A NULL among the keys names no row.
//! - Keys of DOUBLE take the planned path: Arrow distinguishes -0.0 from 0.0 and keys do not.
//!
//! Cost: one look-up of an index per row, two by a unique index; memory is allocated for the result only. [`KEYS_MAX`] keys at most.

mod values;

pub(crate) use self::values::{NewValue, Operand, Scope, exact};

use self::values::operand;
use crate::error::Result;
use crate::parser::command::Command;
use crate::parser::names::{column_name, from_tables, identifier, is_plain, table_name};
use crate::planner::parameters::Types;
use crate::postgres::time_zones::Zone;
use crate::postgres::types::field_of;
use crate::privileges::Privileges;
use crate::session::result::FastPathResult;
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Delete, Expr, GroupByExpr, ObjectName, Query, Select, SelectFlavor,
    SelectItem, SetExpr, Statement, TableFactor, TableWithJoins, Update, WildcardAdditionalOptions,
};
use entresol_tables::workload::RowOperation;
use entresol_tables::{
    Catalog, Column, DataType, Row, RowView, StoredRows, Table, UniqueKey, Value, arrow_type,
};
use entresol_transactions::Transaction;
use std::sync::Arc;

/// Maximum number of keys of a statement on the fast path.
const KEYS_MAX: usize = 1024;

/// Statement on rows named by their keys; see the [module](self).
#[derive(Debug)]
pub(crate) struct Point {
    table: Arc<Table>,
    /// Key that names the rows.
    unique_key: UniqueKey,
    /// Possible values of each column of that key, in its order.
    keys: Vec<Vec<Operand>>,
    action: Action,
}

#[derive(Debug)]
enum Action {
    Select { projection: Vec<usize>, schema: SchemaRef },
    Update { assigned: Vec<(usize, NewValue)> },
    Delete,
}

/// Recognises a statement of this kind.
pub(crate) fn recognise(catalog: &Catalog, zone: &Zone, command: &Command) -> Option<Point> {
    match command {
        Command::Query(statement) => match statement.as_ref() {
            DFStatement::Statement(statement) => match statement.as_ref() {
                Statement::Query(query) => select(catalog, zone, query),
                _ => None,
            },
            _ => None,
        },
        Command::Update(statement) => update(catalog, statement),
        Command::Delete(statement) => delete(catalog, statement),
        _ => None,
    }
}

/// Returns true if statements may write the rows, and a write by key needs nothing else: no checks or generated
/// values.
pub(crate) fn plain_rows(table: &Table) -> bool {
    table.is_plain() && table.definition().owner.is_none()
}

fn select(catalog: &Catalog, zone: &Zone, query: &Query) -> Option<Point> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    if !is_plain(query) || !is_plain_select(select) {
        return None;
    }
    let source = Source::of(catalog, &select.from)?;
    let (unique_key, keys) = source.keys(select.selection.as_ref()?)?;
    let mut projection = Vec::new();
    let mut fields: Vec<Field> = Vec::new();
    let columns = source.table.schema().visible_columns();
    let mut add = |column: usize, name: String| {
        fields.push(field_of(&columns[column], zone.name()).with_name(name));
        projection.push(column);
    };
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(options) if *options == WildcardAdditionalOptions::default() => {
                (0..columns.len()).for_each(|column| add(column, columns[column].name.clone()));
            }
            SelectItem::UnnamedExpr(expr) => {
                let column = source.column(expr)?;
                add(column, columns[column].name.clone());
            }
            SelectItem::ExprWithAlias { expr, alias } => add(source.column(expr)?, identifier(alias)),
            _ => return None,
        }
    }
    let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    names.sort_unstable();
    // DataFusion treats duplicate names in its own way.
    if projection.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let schema = Arc::new(ArrowSchema::new(fields));
    Some(Point { table: source.table, unique_key, keys, action: Action::Select { projection, schema } })
}

fn update(catalog: &Catalog, update: &Update) -> Option<Point> {
    let plain = update.from.is_none()
        && update.returning.is_none()
        && update.output.is_none()
        && update.or.is_none()
        && update.order_by.is_empty()
        && update.limit.is_none()
        && update.optimizer_hints.is_empty();
    let source = Source::of(catalog, std::slice::from_ref(&update.table))?;
    if !plain || !plain_rows(&source.table) {
        return None;
    }
    let (unique_key, keys) = source.keys(update.selection.as_ref()?)?;
    let schema = source.table.schema();
    let mut assigned: Vec<(usize, NewValue)> = Vec::with_capacity(update.assignments.len());
    for assignment in &update.assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
        let name = column_name(name).ok()?;
        let column = schema.visible_columns().iter().position(|column| column.name == name)?;
        let names_rows =
            schema.key().contains(&column) || columns_of(&source.table, &unique_key).contains(&column);
        if names_rows || assigned.iter().any(|&(earlier, _)| earlier == column) {
            return None;
        }
        let scope = Scope { table: &source.table, name: &source.qualifier, proposes: false };
        assigned.push((column, scope.new_value(column, &assignment.value)?));
    }
    Some(Point { table: source.table, unique_key, keys, action: Action::Update { assigned } })
}

fn delete(catalog: &Catalog, delete: &Delete) -> Option<Point> {
    let plain = delete.tables.is_empty()
        && delete.using.is_none()
        && delete.returning.is_none()
        && delete.output.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none()
        && delete.optimizer_hints.is_empty();
    let source = Source::of(catalog, from_tables(&delete.from))?;
    if !plain || !plain_rows(&source.table) {
        return None;
    }
    let (unique_key, keys) = source.keys(delete.selection.as_ref()?)?;
    Some(Point { table: source.table, unique_key, keys, action: Action::Delete })
}

fn is_plain_select(select: &Select) -> bool {
    select.optimizer_hints.is_empty()
        && select.distinct.is_none()
        && select.select_modifiers.is_none()
        && select.top.is_none()
        && select.exclude.is_none()
        && select.into.is_none()
        && select.lateral_views.is_empty()
        && select.prewhere.is_none()
        && select.connect_by.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(exprs, modifiers) if exprs.is_empty() && modifiers.is_empty())
        && select.cluster_by.is_empty()
        && select.distribute_by.is_empty()
        && select.sort_by.is_empty()
        && select.having.is_none()
        && select.named_window.is_empty()
        && select.qualify.is_none()
        && select.value_table_mode.is_none()
        && select.flavor == SelectFlavor::Standard
}

/// Table of a statement, and the name that qualifies its columns.
struct Source {
    table: Arc<Table>,
    qualifier: String,
}

impl Source {
    fn of(catalog: &Catalog, from: &[TableWithJoins]) -> Option<Source> {
        let [TableWithJoins { relation, joins }] = from else { return None };
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = relation
        else {
            return None;
        };
        if !joins.is_empty() || !with_hints.is_empty() || !partitions.is_empty() || !index_hints.is_empty() {
            return None;
        }
        let table = table_of(catalog, name)?;
        let qualifier = match alias {
            Some(alias) if alias.columns.is_empty() && alias.at.is_none() => identifier(&alias.name),
            Some(_) => return None,
            None => table.name().to_owned(),
        };
        Some(Source { table, qualifier })
    }

    /// Visible column that an expression names.
    fn column(&self, expr: &Expr) -> Option<usize> {
        let name = match expr {
            Expr::Nested(inner) => return self.column(inner),
            Expr::Identifier(name) => identifier(name),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [qualifier, name] if identifier(qualifier) == self.qualifier => identifier(name),
                _ => return None,
            },
            _ => return None,
        };
        self.table.schema().visible_columns().iter().position(|column| column.name == name)
    }

    /// Key, or unique index, all columns of which a condition compares, and the values that it allows for each of
    /// them; `None` if the condition is of another form.
    fn keys(&self, selection: &Expr) -> Option<(UniqueKey, Vec<Vec<Operand>>)> {
        let key = (!self.table.schema().hidden_key()).then_some(UniqueKey::Key);
        let unique = self.table.indexes().iter().filter(|index| index.definition().unique);
        let mut keys = key.into_iter().chain(unique.cloned().map(UniqueKey::Index));
        keys.find_map(|key| {
            let values = self.values_of(columns_of(&self.table, &key), selection)?;
            Some((key, values))
        })
    }

    /// Values that a condition allows for each of some columns; `None` if it has anything else.
    fn values_of(&self, columns: &[usize], selection: &Expr) -> Option<Vec<Vec<Operand>>> {
        let schema = self.table.schema();
        let is_float =
            |&column: &usize| matches!(schema.columns()[column].data_type, DataType::Real | DataType::Double);
        if columns.iter().any(is_float) {
            return None;
        }
        let mut keys: Vec<Option<Vec<Operand>>> = vec![None; columns.len()];
        self.conditions(selection, columns, &mut keys)?;
        let keys: Vec<Vec<Operand>> = keys.into_iter().collect::<Option<_>>()?;
        let product = keys.iter().try_fold(1usize, |product, values| product.checked_mul(values.len()))?;
        (product <= KEYS_MAX).then_some(keys)
    }

    fn conditions(&self, expr: &Expr, columns: &[usize], keys: &mut [Option<Vec<Operand>>]) -> Option<()> {
        let (compared, values): (&Expr, &[Expr]) = match expr {
            Expr::Nested(inner) => return self.conditions(inner, columns, keys),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.conditions(left, columns, keys)?;
                return self.conditions(right, columns, keys);
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match self.column(left) {
                Some(_) => (left, std::slice::from_ref(right)),
                None => (right, std::slice::from_ref(left)),
            },
            Expr::InList { expr, list, negated: false } => (expr, list),
            _ => return None,
        };
        let column = self.column(compared)?;
        let place = columns.iter().position(|&key| key == column)?;
        // Two conditions on one column are left to the planned path to intersect.
        if keys[place].is_some() {
            return None;
        }
        let data_type = self.table.schema().columns()[column].data_type;
        keys[place] = Some(values.iter().map(|value| operand(value, data_type)).collect::<Option<_>>()?);
        Some(())
    }
}

/// Columns of a key, in its order.
fn columns_of<'t>(table: &'t Table, key: &'t UniqueKey) -> &'t [usize] {
    match key {
        UniqueKey::Key => table.schema().key(),
        UniqueKey::Index(index) => &index.definition().columns,
    }
}

fn table_of(catalog: &Catalog, name: &ObjectName) -> Option<Arc<Table>> {
    catalog.table(&table_name(name).ok()?).ok()
}

impl Point {
    /// Table of the rows.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Its table, and the privileges that it needs there: all find their rows by their keys, and so read these.
    pub(crate) fn needed_privileges(&self) -> (&str, Privileges) {
        let wanted = match self.action {
            Action::Select { .. } => Privileges::NONE,
            Action::Update { .. } => Privileges::UPDATE,
            Action::Delete => Privileges::DELETE,
        };
        (self.table.name(), wanted.with(Privileges::SELECT))
    }

    /// Adds the types of its parameters: those of their columns.
    pub(crate) fn add_types(&self, types: &mut Types, zone: &Zone) {
        let schema = self.table.schema();
        let mut add = |operand: &Operand, column: usize| {
            if let Operand::Parameter(index) = operand {
                types.add(*index, arrow_type(schema.columns()[column].data_type, zone.name()));
            }
        };
        for (operands, &column) in self.keys.iter().zip(self.columns_of_key()) {
            operands.iter().for_each(|operand| add(operand, column));
        }
        if let Action::Update { assigned } = &self.action {
            for (column, value) in assigned {
                value.add_types(&schema.columns()[*column], types, zone);
            }
        }
    }

    /// Columns of its result; `None` if it returns no rows.
    pub(crate) fn columns(&self) -> Option<&SchemaRef> {
        match &self.action {
            Action::Select { schema, .. } => Some(schema),
            Action::Update { .. } | Action::Delete => None,
        }
    }

    /// Runs the statement; `None` if its values require the planned path. Nothing was written then.
    pub(crate) fn run(&self, tx: &Transaction, parameters: &[ScalarValue]) -> Result<Option<FastPathResult>> {
        let Some(keys) = self.rows_keys(parameters) else { return Ok(None) };
        if let UniqueKey::Index(index) = &self.unique_key
            && !index.is_readable(tx)
        {
            return Ok(None);
        }
        match &self.action {
            Action::Select { projection, schema } => self.read(tx, &keys, projection, schema).map(Some),
            Action::Update { assigned } => self.update(tx, &keys, assigned, parameters),
            Action::Delete => self.delete(tx, keys).map(Some),
        }
    }

    fn columns_of_key(&self) -> &[usize] {
        columns_of(&self.table, &self.unique_key)
    }

    /// Calls `f` with the rows of these keys that exist, in order.
    fn for_each_row(&self, tx: &Transaction, keys: &[Row], mut f: impl FnMut(RowView<'_>)) -> Result<()> {
        self.table.workload().note_rows(RowOperation::Read, keys.len() as u64);
        match (&self.unique_key, keys) {
            (UniqueKey::Key, [key]) => {
                self.table.get_with(tx, key, f)?;
            }
            (UniqueKey::Key, keys) => self.table.get_many_with(tx, keys, |_, row| f(row))?,
            (UniqueKey::Index(_), keys) => {
                let rows: Vec<Row> = keys.iter().map(|key| self.row_with(key)).collect();
                let unique_keys = self.table.unique_keys(&self.unique_key, &rows)?;
                self.table.with_unique_keys(tx, &self.unique_key, &unique_keys, |_, row| f(row))?;
            }
        }
        Ok(())
    }

    /// Row that has these values in the columns of the key, and NULL in the others.
    fn row_with(&self, key: &Row) -> Row {
        let mut row = vec![Value::Null; self.table.schema().columns().len()];
        for (&column, value) in self.columns_of_key().iter().zip(key) {
            row[column] = value.clone();
        }
        row
    }

    fn delete(&self, tx: &Transaction, keys: Vec<Row>) -> Result<FastPathResult> {
        let mut primary = Vec::new();
        let keys = match &self.unique_key {
            UniqueKey::Key => keys,
            UniqueKey::Index(_) => {
                self.for_each_row(tx, &keys, |row| primary.push(self.table.key_of(&row.to_row())))?;
                primary
            }
        };
        let deleted = match keys.as_slice() {
            [key] => u64::from(self.table.delete(tx, key)?),
            keys => self.table.delete_many(tx, keys)? as u64,
        };
        Ok(FastPathResult::Count("DELETE", deleted))
    }

    /// Keys in order, each once.
    fn rows_keys(&self, parameters: &[ScalarValue]) -> Option<Vec<Row>> {
        let schema = self.table.schema();
        let mut keys: Vec<Row> = vec![Vec::with_capacity(self.keys.len())];
        for (operands, &column) in self.keys.iter().zip(self.columns_of_key()) {
            let Column { data_type, modifier, .. } = schema.columns()[column];
            let sought = |operand: &Operand| {
                let value = operand.value(data_type, parameters)?;
                Some(modifier.search_value(&value).into_owned())
            };
            if let [operand] = operands.as_slice() {
                match sought(operand)? {
                    Value::Null => keys.clear(),
                    value => keys.iter_mut().for_each(|key| key.push(value.clone())),
                }
                continue;
            }
            let mut values = Vec::with_capacity(operands.len());
            for operand in operands {
                values.push(sought(operand)?);
            }
            values.retain(|value| !value.is_null());
            values.sort_unstable();
            values.dedup();
            let extend = |key: &Row, value: &Value| key.iter().cloned().chain([value.clone()]).collect();
            keys = keys.iter().flat_map(|key| values.iter().map(move |value| extend(key, value))).collect();
        }
        Some(keys)
    }

    fn read(
        &self,
        tx: &Transaction,
        keys: &[Row],
        projection: &[usize],
        schema: &SchemaRef,
    ) -> Result<FastPathResult> {
        let (table, arrow) = (&self.table, Arc::clone(schema));
        let mut rows = StoredRows::new(table.name(), table.schema(), projection, arrow, keys.len());
        self.for_each_row(tx, keys, |row| rows.push_view(&row))?;
        let batch = if rows.is_empty() { None } else { Some(rows.finish()?) };
        Ok(FastPathResult::Rows(Arc::clone(schema), batch))
    }

    fn update(
        &self,
        tx: &Transaction,
        keys: &[Row],
        assigned: &[(usize, NewValue)],
        parameters: &[ScalarValue],
    ) -> Result<Option<FastPathResult>> {
        let (mut found, mut rows) = (Vec::with_capacity(keys.len()), Vec::with_capacity(keys.len()));
        self.for_each_row(tx, keys, |row| found.push(row.to_row()))?;
        for old in found {
            let mut row = old.clone();
            for (column, value) in assigned {
                let data_type = self.table.schema().columns()[*column].data_type;
                let Some(value) = value.of(&old, None, data_type, parameters) else { return Ok(None) };
                row[*column] = value;
            }
            rows.push(row);
        }
        self.table.upsert_many(tx, &rows)?;
        Ok(Some(FastPathResult::Count("UPDATE", rows.len() as u64)))
    }
}
