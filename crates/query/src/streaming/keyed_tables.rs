//! Tables by their keys: joins of a stream with one, and changes of its rows.

use crate::error::{Error, Result};
use crate::planner::row_expressions::Columns;
use crate::schema_names::STREAMS_CATALOG;
use crate::streaming::expressions::ComputedColumn;
use crate::streaming::expressions::{AssignedValues, ColumnsExpression};
use crate::streaming::operators::{Flow, Translator, plain_column, storage};
use crate::streaming::replaced::check_merged;
use crate::streaming::target_rules::TargetRules;
use datafusion::arrow::datatypes::DataType as ArrowType;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};
use entresol_streams::{ColumnExpression, Expression, JoinKind, MergeInto, Stream};
use entresol_tables::{Column, Table, arrow_type};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Stream that is joined with a table by its key.
struct KeyedStream {
    flow: Flow,
    /// Its columns, and behind them those of `on`: the key.
    stream: Stream,
    on: Vec<String>,
    /// Column of the flow that each of them is, if it is one.
    plain: Vec<Option<usize>>,
    /// Number of columns before the key.
    left: usize,
    table: Arc<Table>,
}

impl Translator<'_> {
    /// Changes the rows of a table as a query says, which joins a stream with the table by its key.
    pub(crate) fn merge(
        &mut self,
        plan: &LogicalPlan,
        table: &Arc<Table>,
        inserts: &[Vec<usize>],
    ) -> Result<()> {
        let LogicalPlan::Projection(projection) = plan else { return Err(by_key()) };
        let LogicalPlan::Join(join) = projection.input.as_ref() else { return Err(by_key()) };
        let keyed = self.keyed(join, true)?;
        keyed.flow.check_closed()?;
        if join.filter.is_some() || keyed.table.name() != table.name() {
            return Err(by_key());
        }
        let state_table = match &keyed.flow.replaced {
            None => None,
            Some(replaced) => {
                keyed.flow.check_whole(&format!("a change of the rows of table {}", table.name()))?;
                check_merged(replaced, table, &keyed.plain)?;
                Some(
                    self.state_table_of(plan, &format!("rows of {} before changes are merged", table.name())),
                )
            }
        };
        // The columns of the join among those of the stream, its copy of the key, and the table.
        let width = keyed.stream.columns().len();
        let visible = table.schema().visible_columns();
        let joined: Vec<usize> = (0..keyed.left).chain(width..width + visible.len()).collect();
        let columns: Vec<Column> =
            keyed.stream.columns()[..keyed.left].iter().chain(visible).cloned().collect();
        let stored = storage(&columns);
        let columns = Columns { planned: &join.schema, stored: &stored };
        let compute = |expr: &Expr, result: &ArrowType| -> Result<Box<dyn Expression>> {
            let expression = columns.expression(&self.planned.state, expr, result)?;
            Ok(Box::new(ColumnsExpression { columns: joined.clone(), expression }))
        };
        let [action, values @ ..] = projection.expr.as_slice() else { return Err(by_key()) };
        let values = values.iter().zip(projection.schema.fields().iter().skip(1)).zip(visible);
        let values = values.map(|((expr, field), column)| {
            let value = compute(expr, field.data_type())?;
            let assigned = AssignedValues { table: table.name().to_owned(), column: column.clone(), value };
            Ok(Box::new(assigned) as Box<dyn Expression>)
        });
        let rules = TargetRules::new(&self.planned.state, table, inserts.iter().map(Vec::as_slice))?;
        if state_table.is_some() {
            inserts.iter().try_for_each(|given| rules.check_constant(given))?;
        }
        keyed.stream.merge_into(MergeInto {
            table: table.name().to_owned(),
            on: keyed.on.clone(),
            action: compute(action, &ArrowType::Int32)?,
            state_table,
            values: values.collect::<Result<_>>()?,
            inserts: inserts.to_vec(),
            rules: Some(Box::new(rules)),
        });
        Ok(())
    }

    /// Stream of the left side of a join with a table by its key, with a copy of the key behind its columns. They have
    /// their names if errors are to show rows by them; state tables have numbered ones.
    fn keyed(&mut self, join: &Join, is_named: bool) -> Result<KeyedStream> {
        let table = table_of(&join.right).ok_or_else(by_key)?;
        let table = self.catalog.table(&table)?;
        let schema = table.schema();
        let flow = self.node(&join.left)?;
        flow.check_edges(join.on.iter().map(|(left, _)| left), join.left.schema())?;
        let left = flow.stream.columns().to_vec();
        let stored = storage(&left);
        let columns = Columns { planned: join.left.schema(), stored: &stored };
        let mut read: Vec<ComputedColumn> = Vec::new();
        let mut names = UniqueNames::default();
        for (at, column) in left.iter().enumerate() {
            let name = if is_named { names.unique(&column.name) } else { format!("left_{at}") };
            let column = Column { name, ..column.clone() };
            read.push((column, Box::new(ColumnExpression(at))));
        }
        let (mut on, mut plain) = (Vec::new(), Vec::new());
        for &key in schema.key() {
            let key = &schema.columns()[key];
            let is_key = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == key.name);
            let (left, _) = join.on.iter().find(|(_, right)| is_key(right)).ok_or_else(by_key)?;
            let name = format!("key_{}", key.name);
            let name = if is_named { names.unique(&name) } else { name };
            let column = Column { name: name.clone(), nullable: true, ..key.clone() };
            let expression =
                columns.expression(&self.planned.state, left, &arrow_type(key.data_type, "UTC"))?;
            read.push((column, Box::new(expression)));
            on.push(name);
            plain.push(plain_column(left, &columns));
        }
        if join.on.len() != on.len() {
            return Err(by_key());
        }
        let (stream, left) = (flow.stream.project(read), left.len());
        Ok(KeyedStream { flow, stream, on, plain, left, table })
    }

    /// Tells whether a join is of a stream with a table, by the whole key of that.
    pub(crate) fn is_by_key(&self, join: &Join) -> bool {
        let table = table_of(&join.right).and_then(|table| self.catalog.table(&table).ok());
        let Some(table) = table.filter(|table| !table.schema().hidden_key()) else { return false };
        let is_known = match join.join_type {
            JoinType::Inner => true,
            JoinType::Left => join.filter.is_none(),
            _ => false,
        };
        let is_of_key = |name: &str| {
            let is = |(_, right): &(Expr, Expr)| matches!(right, Expr::Column(column) if column.name == name);
            join.on.iter().filter(|pair| is(pair)).count() == 1
        };
        let schema = table.schema();
        is_known && join.on.len() == schema.key().len() && schema.key_names().all(is_of_key)
    }

    /// Join of a stream with a table by its key.
    pub(crate) fn join(&mut self, join: &Join) -> Result<Flow> {
        let kind = if join.join_type == JoinType::Left { JoinKind::Left } else { JoinKind::Inner };
        let KeyedStream { flow, stream, on, left, table, .. } = self.keyed(join, false)?;
        let state_table = self.sent_rows_of(&flow, &LogicalPlan::Join(join.clone()), "JOIN")?;
        let on: Vec<&str> = on.iter().map(String::as_str).collect();
        let joined = stream.lookup_join_all(table.name(), &on, kind, state_table.as_deref());
        let right = left + on.len();
        let both = (0..left).chain(right..joined.columns().len());
        let fields = join.schema.fields();
        if fields.len() != joined.columns().len() - on.len() {
            return Err(by_key());
        }
        let projected = both.zip(fields).map(|(from, field)| {
            let column = Column { name: field.name().clone(), ..joined.columns()[from].clone() };
            let expression: Box<dyn Expression> = Box::new(ColumnExpression(from));
            (column, expression)
        });
        let joined = Flow { stream: joined.project(projected.collect()), ..flow };
        match &join.filter {
            None => Ok(joined),
            Some(filter) if kind == JoinKind::Inner => {
                joined.check_edges([filter], &join.schema)?;
                let stored = storage(joined.stream.columns());
                let columns = Columns { planned: &join.schema, stored: &stored };
                let filter = columns.expression(&self.planned.state, filter, &ArrowType::Boolean)?;
                Ok(Flow { stream: joined.stream.filter_by(filter), ..joined })
            }
            Some(_) => Err(Error::unsupported("a LEFT JOIN in a step ON more than the table's key")),
        }
    }
}

/// Names that no other column has.
#[derive(Default)]
struct UniqueNames(BTreeSet<String>);

impl UniqueNames {
    /// Name, with blanks behind it if another column has it.
    fn unique(&mut self, name: &str) -> String {
        let mut name = name.to_owned();
        while !self.0.insert(name.clone()) {
            name.push(' ');
        }
        name
    }
}

/// Refusal of a join that is not by the key of a table.
fn by_key() -> Error {
    Error::unsupported(
        "a join in a step, other than of a stream with a table ON all columns of the table's key",
    )
}

/// Table that a side of a join reads, all of it.
fn table_of(plan: &LogicalPlan) -> Option<String> {
    match plan {
        LogicalPlan::SubqueryAlias(alias) => table_of(&alias.input),
        LogicalPlan::TableScan(scan) if scan.table_name.catalog() != Some(STREAMS_CATALOG) => {
            Some(scan.table_name.table().to_owned())
        }
        _ => None,
    }
}
