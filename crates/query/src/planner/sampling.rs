//! TABLESAMPLE: a part of the rows of a table, each chosen by itself.
//!
//! ```text
//! t TABLESAMPLE BERNOULLI (p)                   (SELECT * FROM t WHERE taken(p, random())) AS t
//! t TABLESAMPLE BERNOULLI (p) REPEATABLE (s)    (SELECT * FROM t WHERE taken(p, fraction(s, key, …))) AS t
//! ```
//!
//! - SYSTEM is the same: rows are chosen one by one, not by page.
//! - With REPEATABLE the hash of a row's key decides, or that of all its columns if the table has no key: the same seed
//!   takes the same rows, also after others were written.
//! - Hints of other databases, `t WITH (nolock)`, are refused.
//!
//! Memory: the keys of one batch.

use crate::error::{Error, Result, external};
use crate::parser::names::{hinted, identifier, table_name};
use crate::parser::statement::{inner_mut, template};
use crate::parser::visit::walk_mut;
use crate::planner::translation::call;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::{Result as DFResult, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, create_udf,
};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as SqlType, ExactNumberInfo, Expr, Ident, SelectItem, SetExpr, TableAlias,
    TableFactor, TableSample, TableSampleKind, TableSampleMethod, TableSampleQuantity,
    TableSampleSeedModifier, VisitorMut, WildcardAdditionalOptions,
};
use entresol_tables::{Catalog, RelationKind};
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Names of the functions.
const TAKEN: &str = "sample_taken";
const FRACTION: &str = "sample_fraction";

/// Rewrites the samples of a statement.
pub(crate) fn resolve(catalog: &Catalog, statement: &mut DFStatement) -> Result<()> {
    let Some(statement) = inner_mut(statement) else { return Ok(()) };
    match walk_mut(statement, &mut Samples { catalog }) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(()),
    }
}

struct Samples<'c> {
    catalog: &'c Catalog,
}

impl VisitorMut for Samples<'_> {
    type Break = Error;

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        let sample = match factor {
            TableFactor::Table { name, with_hints, .. } if !with_hints.is_empty() => {
                return ControlFlow::Break(hinted(name));
            }
            TableFactor::Table { sample, .. } => sample.take(),
            TableFactor::Derived { sample: Some(_), .. } => return ControlFlow::Break(only_tables()),
            _ => None,
        };
        let Some(TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample)) =
            sample
        else {
            return ControlFlow::Continue(());
        };
        match sampled(self.catalog, factor, *sample) {
            Ok(sampled) => {
                *factor = sampled;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn only_tables() -> Error {
    Error::coded("42809", "TABLESAMPLE clause can only be applied to tables and materialized views")
}

/// Subquery of the rows of a table that a sample takes.
fn sampled(catalog: &Catalog, table: &TableFactor, sample: TableSample) -> Result<TableFactor> {
    let TableFactor::Table { name, alias, args: None, .. } = table else { return Err(only_tables()) };
    let own = table_name(name).map_err(|_| only_tables())?;
    let found = match catalog.relation_kind(&own) {
        Some(RelationKind::Table) | None => catalog.table(&own)?,
        Some(_) => return Err(only_tables()),
    };
    let percent = double(percent(&sample)?);
    let fraction = match sample.seed {
        None => call("random", Vec::new()),
        Some(seed) if seed.modifier == TableSampleSeedModifier::Repeatable => {
            let schema = found.schema();
            let all: Vec<usize> = (0..schema.visible_columns().len()).collect();
            let columns = if schema.hidden_key() { &all[..] } else { schema.key() };
            let columns =
                columns.iter().map(|&column| Expr::Identifier(quoted(&schema.columns()[column].name)));
            let seed = double(Expr::Value(seed.value));
            call(FRACTION, std::iter::once(seed).chain(columns).collect())
        }
        Some(_) => return Err(Error::unsupported("SEED in TABLESAMPLE: write REPEATABLE (seed)")),
    };
    let mut query = template()?;
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(Error::Internal("the query template is not a query".into()));
    };
    select.projection = vec![SelectItem::Wildcard(WildcardAdditionalOptions::default())];
    select.selection = Some(call(TAKEN, vec![percent, fraction]));
    let Some(from) = select.from.first_mut() else {
        return Err(Error::Internal("the query template has no table".into()));
    };
    let called = alias.clone().unwrap_or_else(|| TableAlias {
        explicit: true,
        name: quoted(&own),
        columns: Vec::new(),
        at: None,
    });
    from.relation = table.clone();
    if let TableFactor::Table { alias, .. } = &mut from.relation {
        *alias = None;
    }
    Ok(TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(called), sample: None })
}

/// Percentage of a sample, whose method is one of PostgreSQL's.
fn percent(sample: &TableSample) -> Result<Expr> {
    let method = match (&sample.name, &sample.quantity) {
        (Some(TableSampleMethod::Bernoulli | TableSampleMethod::System), Some(quantity)) => quantity,
        (None, Some(TableSampleQuantity { value: Expr::Function(function), .. })) => {
            let name = function.name.0.last().and_then(|part| part.as_ident()).map(identifier);
            let message = format!("tablesample method {} does not exist", name.unwrap_or_default());
            return Err(Error::coded("42704", message));
        }
        _ => {
            return Err(Error::unsupported(format!(
                "{sample}: write TABLESAMPLE BERNOULLI (percentage) [REPEATABLE (seed)]"
            )));
        }
    };
    if sample.bucket.is_some() || sample.offset.is_some() || method.unit.is_some() || !method.parenthesized {
        return Err(Error::Syntax(format!("syntax error: {sample}: expected a percentage in parentheses")));
    }
    Ok(method.value.clone())
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn double(expr: Expr) -> Expr {
    let data_type = SqlType::Double(ExactNumberInfo::None);
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// Functions of samples.
pub(crate) fn functions() -> [ScalarUDF; 2] {
    let double = DataType::Float64;
    let taken = create_udf(
        TAKEN,
        vec![double.clone(), double],
        DataType::Boolean,
        Volatility::Immutable,
        Arc::new(|arguments: &[ColumnarValue]| taken(arguments)),
    );
    let fraction = Fraction { signature: Signature::variadic_any(Volatility::Immutable) };
    [taken, ScalarUDF::from(fraction)]
}

/// Returns for each fraction if it is below a percentage.
fn taken(arguments: &[ColumnarValue]) -> DFResult<ColumnarValue> {
    let arrays = ColumnarValue::values_to_arrays(arguments)?;
    let [percents, fractions] = arrays.as_slice() else { return exec_err!("{TAKEN} expects two numbers") };
    let (percents, fractions) =
        (percents.as_primitive::<Float64Type>(), fractions.as_primitive::<Float64Type>());
    let wrong = |message: &str| Err(external(Error::coded("2202H", message)));
    let mut rows = Vec::with_capacity(fractions.len());
    for (percent, fraction) in percents.iter().zip(fractions) {
        let Some(percent) = percent else { return wrong("TABLESAMPLE parameter cannot be null") };
        if !(0.0..=100.0).contains(&percent) {
            return wrong("sample percentage must be between 0 and 100");
        }
        rows.push(fraction.is_some_and(|fraction| fraction * 100.0 < percent));
    }
    Ok(ColumnarValue::Array(Arc::new(BooleanArray::from(rows))))
}

/// Function whose value is a fraction of one by the hash of a seed and of a row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Fraction {
    signature: Signature,
}

impl ScalarUDFImpl for Fraction {
    fn name(&self) -> &str {
        FRACTION
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> DFResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DFResult<ColumnarValue> {
        let rows = arguments.number_rows;
        let arrays: Vec<ArrayRef> =
            arguments.args.iter().map(|argument| argument.to_array(rows)).collect::<DFResult<_>>()?;
        let [seed, columns @ ..] = arrays.as_slice() else { return exec_err!("{FRACTION} expects a seed") };
        if seed.null_count() > 0 {
            return Err(external(Error::coded("2202G", "TABLESAMPLE REPEATABLE parameter cannot be null")));
        }
        let seeds = seed.as_primitive::<Float64Type>();
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let encoded = RowConverter::new(fields)?.convert_columns(columns)?;
        let fractions = encoded.iter().zip(seeds.values()).map(|(row, seed)| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed.to_bits());
            hasher.write(row.as_ref());
            // The 53 bits that a number below one can tell apart.
            (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
        });
        Ok(ColumnarValue::Array(Arc::new(Float64Array::from_iter_values(fractions))))
    }
}
