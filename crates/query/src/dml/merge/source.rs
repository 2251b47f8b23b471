//! Query behind a MERGE: the join of target and source.
//!
//! | WHEN | join |
//! | --- | --- |
//! | none: UPDATE … FROM s, u WHERE c | `keyed t AS t, s, u WHERE c` |
//! | MATCHED | `keyed t AS t JOIN s ON c` |
//! | NOT MATCHED, too | `RIGHT JOIN` |
//! | NOT MATCHED BY SOURCE, too | `LEFT JOIN`, with a mark beside the columns of s |
//! | both | `FULL JOIN`, with that mark |
//!
//! Its columns are those of the target that the statement needs, its key among them, and all of the source. A
//! row without a key is one of the source alone, a row without the mark one of the target alone.

use crate::dml::source::{name_relation, quoted, template_select, written};
use crate::error::{Error, Result};
use crate::parser::merge::{Action, MERGE, Match, MergeStatement, source_name};
use crate::parser::names::{identifier, written_table};
use crate::parser::statement::template;
use crate::parser::visit::visit_expressions;
use crate::schema_names::{CATALOG, KEYED_SCHEMA};
use datafusion::arrow::array::{Array, ArrayRef, UInt32Array};
use datafusion::arrow::datatypes::{Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query, SelectItem,
    SelectItemQualifiedWildcardKind, TableAlias, TableFactor, TableWithJoins, Value as Literal,
    WildcardAdditionalOptions,
};
use entresol_tables::{Catalog, Table};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Name of a source that has none, and of the column that marks its rows.
const NAMELESS: &str = "$source";
const MARK: &str = "$mark";

/// Source of the rows of a MERGE.
pub(crate) struct MergeSource {
    pub(crate) table: Arc<Table>,
    /// Name of the target in the statement.
    pub(crate) target: String,
    /// Names of the relations of the source: one for MERGE.
    pub(crate) sources: Vec<String>,
    /// Table columns of the query's first columns, in their order: a hidden key is the last.
    read: Vec<usize>,
    /// True if the query's last column is the mark.
    marked: bool,
    pub(crate) query: Box<Query>,
}

/// Columns of the rows of the join.
pub(crate) struct JoinColumns {
    /// Visible columns of the target that are read; they are the first.
    pub(crate) target: SchemaRef,
    /// Columns of the source.
    pub(crate) source: SchemaRef,
    /// The same for each of its relations, with their names.
    pub(crate) sources: Vec<(String, SchemaRef)>,
    /// Both.
    both: SchemaRef,
    /// Places of the key columns of the target.
    key: Vec<usize>,
    /// Place of the first column of the source.
    source_from: usize,
    mark: Option<usize>,
}

impl MergeSource {
    pub(crate) fn new(catalog: &Catalog, merge: &MergeStatement<'_>) -> Result<MergeSource> {
        let (name, alias) = written_table(merge.verb, merge.target)?;
        let verb = match merge.verb {
            MERGE => "merge into",
            "UPDATE" => "update",
            _ => "delete from",
        };
        let table = written(catalog, verb, &name)?;
        let alias = alias.cloned().unwrap_or_else(|| quoted(table.name()));
        let target = identifier(&alias);
        let (mut from, called) = match merge.from {
            [] => {
                let (source, called) = named_source(merge.source)?;
                (vec![TableWithJoins { relation: source, joins: Vec::new() }], vec![called])
            }
            from => named_relations(from)?,
        };
        let sources: Vec<String> = called.iter().map(identifier).collect();
        check_distinct(merge, &target, &sources)?;
        let read = columns_read(&table, merge);
        let columns = table.schema().columns();
        let of_target = read.iter().enumerate().map(|(at, &column)| SelectItem::ExprWithAlias {
            expr: Expr::CompoundIdentifier(vec![alias.clone(), quoted(&columns[column].name)]),
            alias: quoted(&format!("$target{at}")),
        });
        let mut query = template()?;
        query.with = merge.with.cloned();
        let select = template_select(&mut query)?;
        select.projection = of_target.chain(called.iter().map(all_of)).collect();
        let Some(first) = select.from.first_mut() else {
            return Err(Error::Internal("the query template has no table".into()));
        };
        name_relation(&mut first.relation, [CATALOG, KEYED_SCHEMA, table.name()], alias)?;
        let marked = merge.has(Match::BySource);
        if merge.from.is_empty() {
            let source = from.pop().map(|source| source.relation);
            let source = source.ok_or_else(|| Error::Internal("a MERGE has no source".into()))?;
            let source = if marked { marked_source(source, &called[0])? } else { source };
            let on = JoinConstraint::On(merge.on.clone());
            let join_operator = match (merge.has(Match::ByTarget), marked) {
                (false, false) => JoinOperator::Inner(on),
                (true, false) => JoinOperator::Right(on),
                (false, true) => JoinOperator::Left(on),
                (true, true) => JoinOperator::FullOuter(on),
            };
            first.joins = vec![Join { relation: source, global: false, join_operator }];
        } else {
            select.from.extend(from);
            select.selection = Some(merge.on.clone());
        }
        Ok(MergeSource { table, target, sources, read, marked, query: Box::new(query) })
    }

    /// Number of columns of the target that the query reads; they are its first.
    pub(crate) fn columns_read(&self) -> usize {
        self.read.len()
    }

    /// Columns of the rows that the query returns.
    pub(crate) fn joined(&self, schema: &DFSchema) -> Result<JoinColumns> {
        let table = self.table.schema();
        let fields = schema.fields();
        let nullable = |name: &str, at: usize| Field::new(name, fields[at].data_type().clone(), true);
        let visible = self.read.iter().filter(|&&column| column < table.visible_columns().len());
        let target: Vec<Field> =
            visible.enumerate().map(|(at, &column)| nullable(&table.columns()[column].name, at)).collect();
        let mark = self.marked.then(|| fields.len() - 1);
        let source_to = mark.unwrap_or(fields.len());
        let source: Vec<Field> =
            (self.read.len()..source_to).map(|at| nullable(fields[at].name(), at)).collect();
        let sources = self.split(schema, &source)?;
        let key = table.key().iter().map(|column| {
            self.read.iter().position(|read| read == column).expect("the columns of the key are read")
        });
        Ok(JoinColumns {
            both: Arc::new(ArrowSchema::new([target.clone(), source.clone()].concat())),
            target: Arc::new(ArrowSchema::new(target)),
            source: Arc::new(ArrowSchema::new(source)),
            sources,
            key: key.collect(),
            source_from: self.read.len(),
            mark,
        })
    }

    /// Columns of each relation of the source, which stand one behind the other.
    fn split(&self, schema: &DFSchema, source: &[Field]) -> Result<Vec<(String, SchemaRef)>> {
        let mut of: Vec<Vec<Field>> = vec![Vec::new(); self.sources.len()];
        let mut at = 0;
        for (place, field) in source.iter().enumerate() {
            if let [_, _, ..] = self.sources.as_slice() {
                let (relation, _) = schema.qualified_field(self.read.len() + place);
                let relation = relation.map(|relation| relation.table());
                let found = (at..of.len()).find(|&at| Some(self.sources[at].as_str()) == relation);
                at = found
                    .ok_or_else(|| Error::Internal(format!("column {} is of no relation", field.name())))?;
            }
            of[at].push(field.clone());
        }
        let schemas = of.into_iter().map(|fields| Arc::new(ArrowSchema::new(fields)));
        Ok(self.sources.iter().cloned().zip(schemas).collect())
    }
}

impl JoinColumns {
    /// Rows of a batch for which clauses of a kind are.
    pub(crate) fn rows_of(&self, kind: Match, batch: &RecordBatch) -> UInt32Array {
        // No table has NULL in its key.
        let target = self.key.first().map(|&key| batch.column(key));
        let source = self.mark.map(|mark| batch.column(mark));
        let is_there = |side: Option<&ArrayRef>, row| side.is_none_or(|side| side.is_valid(row));
        let wanted = match kind {
            Match::Matched => (true, true),
            Match::ByTarget => (false, true),
            Match::BySource => (true, false),
        };
        let rows =
            (0..batch.num_rows()).filter(|&row| (is_there(target, row), is_there(source, row)) == wanted);
        UInt32Array::from_iter_values(rows.map(|row| row as u32))
    }

    /// Columns of the relations that clauses of a kind see: of the target, then of the source.
    pub(crate) fn seen(&self, kind: Match, batch: &RecordBatch) -> Result<RecordBatch> {
        let (schema, columns) = match kind {
            Match::Matched => (&self.both, [self.target_columns(batch), self.source_columns(batch)].concat()),
            Match::ByTarget => (&self.source, self.source_columns(batch).to_vec()),
            Match::BySource => (&self.target, self.target_columns(batch).to_vec()),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
    }

    /// Relations of the source with their names.
    pub(crate) fn named_sources(&self) -> impl Iterator<Item = (&str, &SchemaRef)> {
        self.sources.iter().map(|(name, columns)| (name.as_str(), columns))
    }

    /// Visible columns of the target.
    pub(crate) fn target_columns<'b>(&self, batch: &'b RecordBatch) -> &'b [ArrayRef] {
        &batch.columns()[..self.target.fields().len()]
    }

    /// Columns of the source.
    pub(crate) fn source_columns<'b>(&self, batch: &'b RecordBatch) -> &'b [ArrayRef] {
        &batch.columns()[self.source_from..self.source_from + self.source.fields().len()]
    }

    /// Columns of the key of the target, in key order.
    pub(crate) fn key_columns(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.key.iter().map(|&at| Arc::clone(batch.column(at))).collect()
    }
}

/// Columns of the target to read: its key, and those that clauses name; all for UPDATE and RETURNING.
fn columns_read(table: &Table, merge: &MergeStatement<'_>) -> Vec<usize> {
    let schema = table.schema();
    let updates = merge.whens.iter().any(|when| matches!(when.action, Action::Update(_)));
    let mut named = HashSet::new();
    for condition in merge.whens.iter().filter_map(|when| when.condition) {
        let visited: ControlFlow<()> = visit_expressions(condition, |part| {
            match part {
                Expr::Identifier(name) => named.extend([identifier(name)]),
                Expr::CompoundIdentifier(parts) => named.extend(parts.last().map(identifier)),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
    }
    let columns = schema.columns().iter().enumerate();
    let read = columns.filter(|(at, column)| {
        updates || merge.returning.is_some() || schema.key().contains(at) || named.contains(&column.name)
    });
    read.map(|(at, _)| at).collect()
}

/// Relations of a FROM, each with a name, and these names.
fn named_relations(from: &[TableWithJoins]) -> Result<(Vec<TableWithJoins>, Vec<Ident>)> {
    let (mut from, mut called) = (from.to_vec(), Vec::new());
    for TableWithJoins { relation, joins } in &mut from {
        for relation in std::iter::once(relation).chain(joins.iter_mut().map(|join| &mut join.relation)) {
            let (named, name) = named_source(relation)?;
            *relation = named;
            called.push(name);
        }
    }
    Ok((from, called))
}

/// Refuses relations of one name.
fn check_distinct(merge: &MergeStatement<'_>, target: &str, sources: &[String]) -> Result<()> {
    let mut known = HashSet::from([target]);
    let Some(twice) = sources.iter().find(|name| !known.insert(name.as_str())) else { return Ok(()) };
    let message = match merge.verb {
        MERGE => format!(
            "name \"{twice}\" specified more than once: it is both the target and the source of MERGE"
        ),
        _ => format!("table name \"{twice}\" specified more than once"),
    };
    Err(Error::coded("42712", message))
}

/// The source with a name, and that name.
fn named_source(source: &TableFactor) -> Result<(TableFactor, Ident)> {
    let mut named = source.clone();
    let called = source_name(source)?.unwrap_or_else(|| quoted(NAMELESS));
    // A table, too: `s.*` does not find `public.s`.
    if let TableFactor::Table { alias, .. }
    | TableFactor::Derived { alias, .. }
    | TableFactor::TableFunction { alias, .. }
    | TableFactor::Function { alias, .. }
    | TableFactor::UNNEST { alias, .. } = &mut named
    {
        alias.get_or_insert_with(|| alias_named(called.clone()));
    }
    Ok((named, called))
}

/// `(SELECT s.*, TRUE AS mark FROM s) AS s`.
fn marked_source(source: TableFactor, called: &Ident) -> Result<TableFactor> {
    let mut subquery = template()?;
    let select = template_select(&mut subquery)?;
    let mark =
        SelectItem::ExprWithAlias { expr: Expr::Value(Literal::Boolean(true).into()), alias: quoted(MARK) };
    select.projection = vec![all_of(called), mark];
    let Some(from) = select.from.first_mut() else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    from.relation = source;
    let alias = Some(alias_named(called.clone()));
    Ok(TableFactor::Derived { lateral: false, subquery: Box::new(subquery), alias, sample: None })
}

fn alias_named(name: Ident) -> TableAlias {
    TableAlias { explicit: true, name, columns: Vec::new(), at: None }
}

/// `s.*`.
fn all_of(called: &Ident) -> SelectItem {
    let name = ObjectName::from(vec![called.clone()]);
    let kind = SelectItemQualifiedWildcardKind::ObjectName(name);
    SelectItem::QualifiedWildcard(kind, WildcardAdditionalOptions::default())
}
